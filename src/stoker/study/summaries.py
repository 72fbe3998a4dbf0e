"""Summaries: what all trials of a range came to, in one object, so that nobody need look at each again.

The first line is all that the state of a study needs; the others are for tables. Both are JSON, so that
`head -1` and `jq` read them as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from stoker.store import records
from stoker.store.records import Status, TrialId

LETTERS = {Status.FINISHED: "f", Status.FAILED: "x", Status.STOPPED: "s"}
NOTHING = "-"
"""The letter of a trial that is not to be run."""

_KNOWN = {*LETTERS.values(), NOTHING}


class Result(NamedTuple):
    """What a round of a trial came to."""

    trial: TrialId
    round: int
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Head:
    """The first line of a summary."""

    iteration: int
    place: int  # of the range
    letters: str  # one for each trial
    rounds: Mapping[int, int]  # number → the round that the letter is about, where it is not the first


def status_of(body: Mapping[str, Any] | None) -> Status:
    """What a result says. One that cannot be read has failed: nobody can commit another in its place."""
    try:
        return Status((body or {}).get("status"))
    except ValueError:
        return Status.FAILED


def encode(
    iteration: int, place: int, size: int, results: Mapping[int, tuple[int, Mapping[str, Any] | None]]
) -> bytes:
    """The summary of a range of `size` trials. `results` has the round and the result's body by number, and
    lacks those that are not to be run."""
    first = place * records.RANGE + 1
    letters = (
        LETTERS[status_of(results[number][1])] if number in results else NOTHING
        for number in range(first, first + size)
    )
    head = {
        "iteration": iteration,
        "range": place,
        "status": "".join(letters),
        "rounds": {str(number): round_ for number, (round_, _) in sorted(results.items()) if round_ > 1},
    }
    lines = [
        json.dumps({"trial": number, "result": body or {}}, ensure_ascii=False) + "\n"
        for number, (_, body) in sorted(results.items())
    ]
    return records.encode(head) + "".join(lines).encode()


def decode_head(data: bytes | None) -> Head | None:
    """The first line, or None if there is none that we can read."""
    body = records.decode((data or b"").partition(b"\n")[0])
    try:
        return None if body is None else _head(body)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _head(body: Mapping[str, Any]) -> Head | None:
    rounds = {int(number): int(round_) for number, round_ in body["rounds"].items()}
    head = Head(int(body["iteration"]), int(body["range"]), str(body["status"]), rounds)
    return head if _KNOWN.issuperset(head.letters) and len(head.letters) <= records.RANGE else None


def decode_results(data: bytes | None) -> Sequence[Result] | None:
    """All results in order, or None if the summary is not whole."""
    head = decode_head(data)
    if head is None or data is None:
        return None
    first = head.place * records.RANGE + 1
    numbers = [number for number, letter in enumerate(head.letters, first) if letter != NOTHING]
    try:
        lines = json.loads(b"[" + b",".join(data.splitlines()[1:]) + b"]")  # at once is faster
        found = [(line["trial"], dict(line["result"])) for line in lines]
    except (KeyError, TypeError, ValueError):
        return None
    if [number for number, _ in found] != numbers:
        return None
    return [Result(TrialId(head.iteration, n), head.rounds.get(n, 1), body) for n, body in found]
