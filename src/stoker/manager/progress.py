"""Progress of a trial: series of numbers, kept in memory and written by a thread of their own.

Each attempt writes a file of its own, a line of JSON for what is new of a series, with its checksum. Its
first line tells where it goes on: after which attempt, and how much of each series was there when that one's
checkpoint was made.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import zlib
from array import array
from collections import deque
from time import time as now

from stoker.manager.trial import files, progress_path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterable, Mapping

    from stoker.manager.trial import Trial

EVERY = 0.5
"""Seconds between two looks for something to write: so much a crash may lose."""
MANY = 10_000
"""So many values wait for a thread; more of them only where there is none."""


class Series:
    """The values of one name, with their steps and times."""

    __slots__ = ("seconds", "steps", "values", "written")

    def __init__(self) -> None:
        self.values = array("d")
        self.steps = array("d")
        self.seconds = array("d")  # since the epoch of Unix
        self.written = 0

    def rows(self, begin: int, end: int) -> dict[str, Any]:
        """A part of it, as it stands in a file. Steps that count from 0 are left out."""
        steps = [int(step) if step == int(step) else step for step in self.steps[begin:end]]
        told: dict[str, Any] = {
            "values": [_short(value) for value in self.values[begin:end]],
            "times": [round(t, 3) for t in self.seconds[begin:end]],
        }
        if steps != list(range(begin, end)):
            told["steps"] = steps
        elif begin:
            told["at"] = begin  # should a line before this one be damaged
        return told

    def extend(self, line: Mapping[str, Any]) -> None:
        """What a line of a file adds."""
        values = line["values"]
        begin = len(self.values)
        at = line.get("at", begin)
        steps = line.get("steps") or range(at, at + len(values))
        times = line.get("times") or [0.0] * len(values)
        if not len(values) == len(steps) == len(times):
            raise ValueError("a line of different lengths")
        rows = [array("d", column) for column in (values, steps, times)]  # all of them, or none
        self.values.extend(rows[0])
        self.steps.extend(rows[1])
        self.seconds.extend(rows[2])

    def cut(self, count: int) -> None:
        """Forget what came later."""
        del self.values[count:], self.steps[count:], self.seconds[count:]


def _short(value: float) -> float | int:
    """Whole numbers without a point, as they are written shorter and read the same."""
    return int(value) if value and abs(value) < 1e15 and value.is_integer() else value  # -0.0 stays


class Progress:
    """All series of a trial's stage, with those of the attempt that it goes on from."""

    def __init__(self, trial: Trial, writes: bool = True) -> None:
        self._trial = trial
        self._writes = writes
        self._series: dict[str, Series] = {}
        self._names: set[str] = set()  # of series that have begun here
        self._news: deque[tuple[str, float, float | None, float]] = deque()  # not in the series yet
        self._after: dict[str, Any] | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # of those who write
        self._settling, self._settler = threading.Lock(), 0  # 0, or the thread that does it
        self._doing: object = None  # what is being put into its series, and how many values that had
        self._before = 0
        self._stop = threading.Event()
        self._began = False  # the file has its first line
        self._error = ""

    def add(self, name: str, value: float, step: float | None) -> None:
        """Add a value. This is what training waits for, so the rest of the work is done later."""
        if name not in self._names or len(self._news) > MANY:
            self._begin(name)
        self._news.append((name, value, step, now()))

    @property
    def series(self) -> dict[str, Series]:
        """All series, with all that was added."""
        if self._settler != threading.get_ident():  # else a signal came in the middle, and its handler asks
            with self._settling:
                try:
                    self._settler = threading.get_ident()
                    while self._news:
                        self._settle_first()
                finally:
                    self._settler = 0
        return self._series

    def _settle_first(self) -> None:
        """Put what was added first into its series. What an interrupt left half done is done again."""
        first = self._news[0]
        name, value, step, second = first
        series = self._series.get(name)
        if series is None:
            series = self._series[name] = Series()
        if self._doing is first:
            series.cut(self._before)
        self._before = len(series.values)
        self._doing = first
        series.steps.append(self._before if step is None else step)
        series.seconds.append(second)
        series.values.append(value)
        self._news.popleft()

    def _begin(self, name: str) -> None:
        """Before a new series, and now and then where no thread writes."""
        if not isinstance(name, str):
            raise TypeError(f"a series has a text for its name, not {name!r}")
        if self._stop.is_set():
            self._complain(f"{name} is told after the end of the trial, and not kept")
        self._names.add(name)
        if not self._writes:
            self.series  # noqa: B018  (settles what was added)
        elif self._thread is None and not self._stop.is_set():
            thread = threading.Thread(target=self._write_now_and_then, name="stoker progress", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads: it is written when the trial is saved, and in the end
                return
            self._thread = thread

    def counts(self) -> dict[str, int]:
        """How long each series is."""
        return {name: len(series.values) for name, series in list(self.series.items())}

    def go_on_after(self, attempt: tuple[int, int], counts: Mapping[str, int]) -> None:
        """Take over what an earlier attempt had when its checkpoint was made."""
        self._series = read_attempt(self._trial.directory, self._trial.stage, attempt, counts)
        for series in self._series.values():
            series.written = len(series.values)
        found = self.counts()
        lost = sum(max(0, count - found.get(name, 0)) for name, count in counts.items())
        if lost:
            self._complain(f"progress of attempt {attempt[1]} is damaged: {lost} values of it are missing")
        self._after = {"attempt": list(attempt), "counts": found}

    def flush(self) -> None:
        """Write what is new. A disk that is full is told once; what is not written stays to be written."""
        try:
            self._write()
            self._error = ""
        except OSError as error:
            self._complain(f"cannot write progress: {error}")

    def commit(self) -> None:
        """Write what is new, and be sure of it: a checkpoint counts on it. Raises OSError."""
        self._write()
        if self._writes:
            file = os.open(self._trial.progress, os.O_RDONLY)
            try:
                os.fsync(file)
            finally:
                os.close(file)

    def _write(self) -> None:
        with self._lock:
            news = []
            for name, series in list(self.series.items()):
                end = len(series.values)
                if end > series.written:
                    news.append((series, end, {"name": name, **series.rows(series.written, end)}))
            if not self._writes or not (news or not self._began):
                return
            lines = [] if self._began else [self._head()]
            lines += [signed(line) for _, _, line in news]
            append(self._trial.progress, "".join(f"{line}\n" for line in lines))
            self._began = True
            for series, end, _ in news:
                series.written = end

    def _head(self) -> str:
        return head(self._trial, self._after)

    def _complain(self, text: str) -> None:
        if text != self._error:
            self._error = text
            sys.stderr.write(f"stoker: {text}\n")

    def _write_now_and_then(self) -> None:
        while not self._stop.wait(EVERY):
            self.flush()

    def close(self) -> None:
        """Write what is left."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)
        self._thread = None
        self.flush()
        self._names.clear()

    def forget_thread(self) -> None:
        """In a forked child, which has no such thread and must not write."""
        self._writes, self._thread = False, None
        self._names.clear()
        self._lock, self._settling, self._settler = threading.Lock(), threading.Lock(), 0


def head(trial: Trial, after: Mapping[str, Any] | None = None) -> str:
    """The first line of a file."""
    return signed({"v": 1, "stage": trial.stage, "attempt": list(trial.attempt), "after": after})


_CRC = ', "crc": '


def signed(line: Mapping[str, Any]) -> str:
    """A line with its checksum at the end, as a disk may change it."""
    text = json.dumps(line)[:-1]
    return f"{text}{_CRC}{zlib.crc32(text.encode())}}}"


def _is_intact(line: str) -> bool:
    """Whether a line is as it was written; one without a checksum is believed."""
    text, found, crc = line.rpartition(_CRC)
    return not found or crc == f"{zlib.crc32(text.encode())}}}"


def append(path: str, text: str) -> None:
    """Add whole lines to a file, in one write: other processes may add to it as well."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        data = text.encode()
        before = os.fstat(file).st_size
        if os.write(file, data) != len(data):  # the disk is full: half a line would spoil the next
            os.ftruncate(file, before)
            raise OSError(28, "No space left on device")
    finally:
        os.close(file)


def read(directory: str, stage: str, since: int = 1) -> dict[str, Series]:
    """All series of a stage, as its last attempt has them."""
    last = None
    for file in files(directory, f"progress.{stage}", "jsonl"):
        if file.attempt[0] >= since:
            last = file.attempt
    return {} if last is None else read_attempt(directory, stage, last)


def read_attempt(
    directory: str, stage: str, attempt: tuple[int, int], counts: Mapping[str, int] | None = None
) -> dict[str, Series]:
    """The series of an attempt with those that it goes on from; of each only so many values, if told."""
    chain: list[tuple[list[dict[str, Any]], Mapping[str, int] | None]] = []
    before: tuple[int, int] | None = attempt
    while before is not None:  # from the last attempt back to the first: there may be a thousand
        lines = list(_lines(progress_path(directory, stage, before)))
        chain.append((lines, counts))
        after: dict[str, Any] = (lines[0].get("after") if lines else None) or {}
        is_known = isinstance(after, dict) and _is_before(after, before)
        before, counts = (tuple(after["attempt"]), after["counts"]) if is_known else (None, None)
    series: dict[str, Series] = {}
    for lines, most in reversed(chain):
        for line in lines:
            if isinstance(line.get("name"), str) and isinstance(line.get("values"), list):
                try:
                    series.setdefault(line["name"], Series()).extend(line)
                except (TypeError, ValueError, OverflowError):  # not written by us
                    continue
        if most is not None:
            _cut(series, most)
    return series


def _cut(series: dict[str, Series], counts: Mapping[str, int]) -> None:
    """Leave of each series as many values as are told, and none of which nothing is left."""
    for name in list(series):
        series[name].cut(max(0, counts.get(name, 0)))
        if not series[name].values:
            del series[name]


def _is_before(after: Mapping[str, Any], attempt: tuple[int, int]) -> bool:
    """Whether a first line tells of an attempt before this one, in words that can be used."""
    before, counts = after.get("attempt"), after.get("counts")
    return (
        isinstance(before, list)
        and [type(number) for number in before] == [int, int]
        and tuple(before) < attempt
        and isinstance(counts, dict)
        and all(type(count) is int for count in counts.values())
    )


def _lines(path: str) -> Iterable[dict[str, Any]]:
    """Lines that can be read: the last one may be torn."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return
    for line in text.split("\n"):
        try:
            found = json.loads(line) if _is_intact(line) else None
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
