"""Failures grouped by cause, so that a hundred of them are read as three.

A log's last lines are compared without what differs from one run to the next: numbers, addresses, folders.
Of a Python traceback the exception's type and the innermost frames of the user's own code count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Any

from stoker.core.values import Value, text
from stoker.report.reading import each
from stoker.report.rows import Row
from stoker.spec.problems import printable
from stoker.store.interface import StoreError
from stoker.study.logs import Logs
from stoker.study.opened import Opened
from stoker.study.ranges import LOST_IN_A_ROW

LINES = 12
"""So many of the last lines are shown."""
MOST_READ = 2_000
"""So many logs are read; of a study in a bucket, where each costs some requests, a tenth of that."""

_TAIL = 32 * 1024
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s*File "(.+)", line \d+(?:, in (.+))?')
_EXCEPTION = re.compile(r"(?:[\w<>]+\.)*(\w*[A-Za-z]\w*)(?::\s*(.*))?")
_NOT_THEIRS = re.compile(r"site-packages|dist-packages|/lib/python\d|<frozen |<string>|^<")
_GPU_MEMORY = re.compile(
    r"CUDA out of memory|CUDA error: out of memory|cuda\.OutOfMemoryError|CUBLAS_STATUS_ALLOC_FAILED|"
    r"hipErrorOutOfMemory|RESOURCE_EXHAUSTED|CUDA_ERROR_OUT_OF_MEMORY"
)
_MEMORY = re.compile(r"\bMemoryError\b|Cannot allocate memory|can't allocate memory|bad_alloc|oom-kill")
_VARYING = (
    (re.compile(r"0x[0-9a-fA-F]+"), "0x…"),
    (re.compile(r"(?:[\w.~-]*/)+([\w.-]+)"), r"\1"),
    (re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE), "N"),
)


@dataclass(frozen=True)
class Cause:
    """Why a trial failed. Failures with equal keys are told together."""

    key: tuple[str, ...]
    title: str


@dataclass(frozen=True)
class Failure:
    """A trial that failed: in which stage, why, and what it said last."""

    row: Row
    stage: str
    cause: Cause
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Group:
    """Failures of one cause; the example is the first of them."""

    title: str
    failures: tuple[Failure, ...]
    common: tuple[str, ...]  # what these have in common, and finished trials do not
    note: str = ""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.failures)

    @property
    def example(self) -> Failure:
        """One of them, with its last lines if any of them has some."""
        return next((failure for failure in self.failures if failure.lines), self.failures[0])


def errors(opened: Opened, rows: Sequence[Row]) -> list[Group]:
    """The failures of a study by cause, the most frequent first. Logs are read where they are."""
    failed = [row for row in rows if row.status == "failed"]
    is_slow = opened.place.is_remote or any(opened.work.planned(k).is_flat for k in opened.state.iterations)
    most = MOST_READ // 10 if is_slow else MOST_READ
    wanted = [(row, stage) for row in failed[:most] if (stage := failed_stage(row))]
    lines = each(opened, lambda one: read_tail(opened, *one), wanted)
    tails = {row.trial: tail for (row, _), tail in zip(wanted, lines, strict=True)}
    found = [failure_of(row, tails.get(row.trial, [])) for row in failed]
    unread = {row.trial for row in failed[most:]}
    return group(found, rows, lambda failure: failure.row.trial in unread)


def read_tail(opened: Opened, row: Row, stage: str) -> list[str]:
    """The last lines of the last log of a stage, harmless; none if it cannot be read."""
    logs = Logs(opened, [row.trial])
    try:
        own = [log for log in logs.all() if log.stage == stage]
        data = b"".join(logs.read(own[-1], max(0, own[-1].size - _TAIL))) if own else b""
    except (OSError, StoreError):
        return []
    return clean(data[-_TAIL:].decode(errors="replace"))


def clean(said: str) -> list[str]:
    """Lines as they would stand in a terminal, without anything that could do something there."""
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in said.rstrip().split("\n"))
    found = [printable(_ESCAPES.sub("", line).expandtabs()).rstrip() for line in lines]
    return found if said.strip() else []


# Why


def failed_stage(row: Row) -> str:
    """The stage that a trial failed in; nothing if none did, as when its machines were lost."""
    return next((name for name, told in row.stages.items() if "why" in told or "error" in told), "")


def failure_of(row: Row, lines: Sequence[str]) -> Failure:
    """A failed trial with its cause, from its figures and the last lines of its log."""
    stage = failed_stage(row)
    cause = _cause(row, stage, row.stages.get(stage, {}), lines)
    return Failure(row, stage, cause, tuple(lines[-LINES:]))


def _cause(row: Row, stage: str, told: Any, lines: Sequence[str]) -> Cause:
    if not stage:
        why = _WORDS.get(row.why, row.why)
        return Cause(("", why), printable(why))
    if "error" in told:
        error = printable(str(told["error"]))
        return Cause((stage, "error", usual(error)), f"{stage}: {error}")
    if told.get("why") == "timeout":
        return Cause((stage, "timeout"), f"{stage}: timeout")
    said = "\n".join(lines[-50:])
    if _GPU_MEMORY.search(said):
        return Cause((stage, "gpu memory"), f"{stage}: out of GPU memory")
    if _MEMORY.search(said):
        return Cause((stage, "memory"), f"{stage}: out of memory")
    return _by_signal(stage, told) or _by_traceback(stage, lines) or _by_exit(stage, told, lines)


_WORDS = {
    "lost": f"lost {LOST_IN_A_ROW} times in a row, each time with its agent",
    "failed": "no reason known",
    "": "no reason known",
}


def _by_signal(stage: str, told: Any) -> Cause | None:
    """A shell tells of a signal as 128 and its number."""
    code, number = told.get("code"), told.get("signal")
    if not number and isinstance(code, int) and code - 128 in set(Signals):
        number = code - 128
    if not isinstance(number, int) or not number:
        return None
    name = Signals(number).name if number in set(Signals) else f"signal {number}"
    maybe = ", perhaps for want of memory" if number == Signals.SIGKILL else ""
    return Cause((stage, "signal", name), f"{stage}: killed by {name}{maybe}")


def _by_traceback(stage: str, lines: Sequence[str]) -> Cause | None:
    begins = [
        place for place, line in enumerate(lines) if line.endswith("Traceback (most recent call last):")
    ]
    if not begins:
        return None
    frames: list[tuple[str, str]] = []
    for line in lines[begins[-1] + 1 :]:
        if match := _FRAME.match(line):
            frames.append((match[1], match[2] or ""))
        elif line and not line[0].isspace() and (told := _EXCEPTION.fullmatch(line)):
            inner = [f"{path.rpartition('/')[2]}:{where}" for path, where in frames if _is_theirs(path)][-2:]
            if not inner:  # nothing but the message tells one from another
                inner = [usual(told[2] or "")]
            place = f", in {inner[-1].replace(':', ' ').removesuffix(' <module>')}" if frames else ""
            return Cause((stage, told[1], *inner), f"{stage}: {line[:200]}{place}")
    return None


def _is_theirs(path: str) -> bool:
    return not _NOT_THEIRS.search(path)


def _by_exit(stage: str, told: Any, lines: Sequence[str]) -> Cause:
    code = told.get("code")
    known = {126: "it cannot be run", 127: "there is no such command"}.get(code, "")
    head = f"{stage}: exit code {code}" + (f", {known}" if known else "")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return Cause((stage, f"exit {code}", usual(last)), f"{head}: {last[:200]}" if last else head)


def usual(line: str) -> str:
    """A line without what differs from one run to the next."""
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line[:200]


# Together


def group(
    failures: Iterable[Failure],
    rows: Sequence[Row],
    is_unread: Callable[[Failure], bool] = lambda failure: False,
) -> list[Group]:
    """Failures of one cause together, the most frequent first."""
    found: dict[tuple[str, ...], list[Failure]] = {}
    for failure in failures:
        found.setdefault(failure.cause.key, []).append(failure)
    others = [row for row in rows if row.status == "finished"]
    made = []
    for same in found.values():
        unread = sum(map(is_unread, same))
        note = f"the logs of {unread:,} were not read" if unread else ""
        told = tuple(in_common([failure.row for failure in same], others))
        made.append(Group(same[0].cause.title, tuple(same), told, note))
    return sorted(made, key=lambda one: -one.count)


def in_common(failed: Sequence[Row], others: Sequence[Row], most: int = 4) -> list[str]:
    """What the parameters of these trials share and those of the others do not: `lr = 100`, `depth ≥ 8`."""
    if not failed or not others:
        return []
    told = []
    for name in failed[0].params:
        ours = [row.params[name] for row in failed if name in row.params]
        theirs = [row.params[name] for row in others if name in row.params]
        if len(ours) == len(failed) and theirs and (word := _shared(ours, theirs, len(failed) == 1)):
            told.append(f"{printable(name)} {word}")
    return told[:most]


def _shared(ours: Sequence[Value], theirs: Sequence[Value], is_alone: bool) -> str:
    """One value that no other trial has, or a side of the scale where no other trial is.

    Any number of a single trial may be its own, by chance; so only one beyond all others tells something.
    """
    values = {text(value) for value in ours}
    beyond = _beyond(ours, theirs)
    if len(values) > 1 or (is_alone and _numbers(ours) and not beyond):
        return beyond
    is_own = not values & {text(value) for value in theirs}
    return f"= {printable(values.pop())}" if is_own else ""


def _beyond(ours: Sequence[Value], theirs: Sequence[Value]) -> str:
    one, other = _numbers(ours), _numbers(theirs)
    if not one or not other:
        return ""
    if min(one) > max(other):
        return f"≥ {min(one):g}"
    return f"≤ {max(one):g}" if max(one) < min(other) else ""


def _numbers(values: Sequence[Value]) -> list[float]:
    """All of them as numbers; none if any is something else."""
    found = [float(v) for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    return found if len(found) == len(values) else []
