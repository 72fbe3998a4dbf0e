"""Failures grouped by cause, so that a hundred of them are read as three.

A log's last lines are compared without what differs from one run to the next: numbers, addresses, folders.
Of a Python traceback the exception's type and the innermost frames of the user's own code count.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from signal import Signals
from typing import Any

from stoker.core.values import Value, text
from stoker.report.charts import many
from stoker.report.origin import Origin
from stoker.report.rows import Row, as_numbers
from stoker.spec.problems import printable
from stoker.store.records import TrialId
from stoker.study.ranges import LOST_IN_A_ROW

LINES = 12
"""So many of the last lines are shown."""
MOST_READ = 2_000
"""So many logs are read; of a study in a bucket, where each costs some requests, a tenth of that."""

_TAIL = 32 * 1024
_LONGEST = 1_000  # characters of a line that are compared
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


@dataclass(frozen=True, repr=False)
class Group:
    """Failures of one cause; the example is the first of them that said something."""

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

    def trials(self, most: int) -> str:
        """The numbers of the first of them."""
        return ", ".join(one.row.number for one in self.failures[:most]) + ", …" * (self.count > most)

    def __repr__(self) -> str:
        return f"<Group {self.count:,} × {self.title}>"


class Causes(list[Group]):
    """Failures by cause, the most frequent first. It shows itself, as text and in a notebook."""

    def __repr__(self) -> str:
        return told(self).rstrip()

    def _repr_html_(self) -> str:
        from stoker.report.notebook import causes

        return causes(self)


def told(groups: Sequence[Group], limit: int | None = None) -> str:
    """All causes, or the most frequent ones, as text."""
    if not groups:
        return "No trial failed.\n"
    shown, rest = groups[:limit], groups[limit:] if limit else ()
    parts = [_told(one) for one in shown]
    if rest:
        failed = many(sum(one.count for one in rest), "failure")
        parts.append(f"… and {many(len(rest), 'other cause')} of {failed}\n")
    return "\n".join(parts)


def _told(one: Group) -> str:
    example = one.example
    lines = [f"{one.count:,} × {one.title}", f"  trials   {one.trials(8)}"]
    lines += [f"  common   {', '.join(one.common)}"] if one.common else []
    lines += [f"  example  {example.row.number} {example.row.name}"]
    lines += [f"  note     {one.note}"] if one.note else []
    lines += [f"  │ {line}" for line in example.lines]
    return "".join(f"{printable(line)}\n" for line in lines)


def errors(origin: Origin, rows: Sequence[Row]) -> Causes:
    """The failures of a study by cause, the most frequent first. Logs are read where they are."""
    failed = [row for row in rows if row.status == "failed"]
    most = MOST_READ // 10 if origin.is_slow else MOST_READ
    lines = [*origin.each(lambda row: read_tail(origin, row), failed[:most])]
    unread = failed[most:]
    found = map(failure_of, failed, [*lines, *([] for _ in unread)])
    return group(found, rows, {row.trial for row in unread})


def read_tail(origin: Origin, row: Row) -> list[str]:
    """The last lines of the last log of the stage that failed, harmless; none if they cannot be read."""
    stage = failed_stage(row)
    read = origin.logs(row).get(stage) if stage else None
    return [] if read is None else clean(read(_TAIL))


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
    begins = [place for place, line in enumerate(lines) if line.endswith(_TRACEBACK)]
    if not begins:
        return None
    frames: list[tuple[str, str]] = []
    for line in (line[:_LONGEST] for line in lines[begins[-1] + 1 :]):
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
    known = {126: ", it cannot be run", 127: ", there is no such command"}.get(code, "")
    head = f"{stage}: " + (f"exit code {code}{known}" if code is not None else told.get("why") or "failed")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return Cause((head, usual(last)), printable(f"{head}: {last[:200]}" if last else head))


def usual(line: str) -> str:
    """A line without what differs from one run to the next."""
    line = line[:_LONGEST]
    for pattern, word in _VARYING:
        line = pattern.sub(word, line)
    return line[:200]


# Together


def group(failures: Iterable[Failure], rows: Sequence[Row], unread: Collection[TrialId] = ()) -> Causes:
    """Failures of one cause together, the most frequent first."""
    found: dict[tuple[str, ...], list[Failure]] = {}
    for failure in failures:
        found.setdefault(failure.cause.key, []).append(failure)
    others = Others([row for row in rows if row.status == "finished"]) if found else Others([])
    made = []
    for same in found.values():
        count = sum(failure.row.trial in unread for failure in same)
        note = f"the logs of {count:,} were not read" if count else ""
        told = tuple(in_common([failure.row for failure in same], others))
        made.append(Group(same[0].cause.title, tuple(same), told, note))
    return Causes(sorted(made, key=lambda one: -one.count))


class Others:
    """The parameters of trials that finished; of each, the texts and the range are computed once."""

    def __init__(self, rows: Sequence[Row]) -> None:
        values: dict[str, list[Value]] = {}
        for row in rows:
            for name, value in row.params.items():
                values.setdefault(name, []).append(value)
        self.texts = {name: frozenset(map(text, own)) for name, own in values.items()}
        numbers = {name: as_numbers(own) for name, own in values.items()}
        self.ranges = {name: (min(own), max(own)) for name, own in numbers.items() if own}


def in_common(failed: Sequence[Row], others: Others, most: int = 4) -> list[str]:
    """What the parameters of these trials share and those of the others do not: `lr = 100`, `depth ≥ 8`."""
    told = []
    for name in failed[0].params if failed else ():
        ours = [row.params[name] for row in failed if name in row.params]
        if len(ours) == len(failed) and name in others.texts and (word := _shared(name, ours, others)):
            told.append(f"{printable(name)} {word}")
    return told[:most]


def _shared(name: str, ours: Sequence[Value], others: Others) -> str:
    """One value that no other trial has, or a side of the scale where no other trial is.

    Any number of a single trial may be its own, by chance; so only one beyond all others tells something.
    """
    values = {text(value) for value in ours}
    numbers = as_numbers(ours)
    beyond = _beyond(numbers, *others.ranges[name]) if numbers and name in others.ranges else ""
    if len(values) > 1 or (len(ours) == 1 and numbers and not beyond):
        return beyond
    return "" if values & others.texts[name] else f"= {printable(values.pop())}"


def _beyond(numbers: Sequence[float], low: float, high: float) -> str:
    if min(numbers) > high:
        return f"≥ {min(numbers):g}"
    return f"≤ {max(numbers):g}" if max(numbers) < low else ""
