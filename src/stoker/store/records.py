"""The records of a study: where each stands in the store, and what it says.

Keys carry what a listing must tell, so that one listing shows the state of a thousand trials; bodies are
JSON for whoever wants to know more. docs/records.md explains each.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple

VERSION = 1
RANGE = 1000
"""So many trials share a prefix, and later a summary."""


class End(Enum):
    """How an attempt ended. An attempt without an end whose agent is dead is lost."""

    FINISHED = "finished"  # its result is there
    FAILED = "failed"  # a stage failed
    RELEASED = "released"  # given back: the machine was taken away, or the agent left
    STOPPED = "stopped"  # an operator stopped the trial


class Status(Enum):
    """What a round came to."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class TrialId(NamedTuple):
    """A trial of a study: its iteration and its number there, both from 1."""

    iteration: int
    number: int

    @property
    def prefix(self) -> str:
        """Where the records of this trial and its neighbours stand."""
        return range_prefix(self.iteration, range_of(self.number))

    def __str__(self) -> str:
        return f"{self.iteration}.{self.number}"


def range_of(number: int) -> int:
    """The range that a trial belongs to."""
    return (number - 1) // RANGE


def range_prefix(iteration: int, place: int) -> str:
    """Where the records of a range stand."""
    return f"trials/{iteration:04d}/{place:06d}/"


PLANS = "plan/"


def plan_key(iteration: int) -> str:
    """A plan: the study file as it was run."""
    return f"{PLANS}{iteration:04d}"


def claim_key(trial: TrialId, round_: int, attempt: int) -> str:
    """A claim: this attempt exists, and belongs to the agent named in it."""
    return f"{trial.prefix}{trial.number:09d}.{round_:03d}.{attempt:03d}.claim"


def end_key(trial: TrialId, round_: int, attempt: int, end: End) -> str:
    """An end: how the attempt ended."""
    return f"{trial.prefix}{trial.number:09d}.{round_:03d}.{attempt:03d}.{end.value}"


def stage_key(trial: TrialId, round_: int, stage: str) -> str:
    """A finished stage, which no later attempt of the round runs again."""
    return f"{trial.prefix}{trial.number:09d}.{round_:03d}.{_encoded(stage)}.stage"


def result_key(trial: TrialId, round_: int) -> str:
    """A result: what the round came to, committed once."""
    return f"{trial.prefix}{trial.number:09d}.{round_:03d}.result"


def summary_key(iteration: int, place: int) -> str:
    """A range in which every trial has a result: what they are, in one object."""
    return f"done/{iteration:04d}/{place:06d}"


def parse_summary_key(key: str) -> tuple[int, int] | None:
    """The iteration and the range that a summary is of."""
    match = _SUMMARY.fullmatch(key)
    return (int(match[1]), int(match[2])) if match else None


def beat_key(agent: str) -> str:
    """An agent's beat: that it lives, and what it runs. The only record that is overwritten."""
    return f"beats/{agent}"


ENGINES = "engines/"


def engine_key(engine: str) -> str:
    """An engine that placed agents of this study."""
    return f"{ENGINES}{engine}"


def order_key(number: int) -> str:
    """An order of an operator, such as to stop."""
    return f"orders/{number:06d}"


class Mark(NamedTuple):
    """What the key of a trial's record says, or what an order says of a round (kind `round`)."""

    trial: TrialId
    round: int
    kind: str  # claim, stage, result, round, or the value of an End
    attempt: int = 0
    stage: str = ""


_SUMMARY = re.compile(r"done/(\d{4})/(\d{6})")
_MARK = re.compile(
    r"trials/(\d{4})/\d{6}/(\d{9})\.(\d{3})\.(?:(\d{3})\.(claim|finished|failed|released|stopped)|(result)|(.+)\.stage)"
)


def parse_key(key: str) -> Mark | None:
    """What a key says, or None if it is none of ours: foreign objects are passed over."""
    match = _MARK.fullmatch(key)
    if not match:
        return None
    trial, round_ = TrialId(int(match[1]), int(match[2])), int(match[3])
    if match[5]:
        return Mark(trial, round_, match[5], attempt=int(match[4]))
    if match[6]:
        return Mark(trial, round_, match[6])
    return Mark(trial, round_, "stage", stage=_decoded(match[7]))


_to_json = json.JSONEncoder(ensure_ascii=False).encode


def encode(body: Mapping[str, Any]) -> bytes:
    """A record's body: JSON that a person can read, and a version."""
    return (_to_json({"v": VERSION, **body}) + "\n").encode(errors="backslashreplace")  # \udcff is JSON, too


def decode(data: bytes | None) -> dict[str, Any] | None:
    """The body, or None if there is none, if it is torn, or if it is not of a version we know."""
    try:
        body = json.loads(data or b"")
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) and body.get("v") == VERSION else None


def _encoded(word: str) -> str:
    """Any text as part of a key: other characters than letters, digits, _ and - become =hex."""
    return "".join(
        c if c.isascii() and (c.isalnum() or c in "_-") else "".join(f"={byte:02X}" for byte in c.encode())
        for c in word
    )


def _decoded(part: str) -> str:
    raw = re.sub(r"=([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), part)
    return raw.encode("latin-1", errors="replace").decode(errors="replace")
