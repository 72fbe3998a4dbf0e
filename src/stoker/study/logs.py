"""The logs of a trial, in its directory or in a bucket: which there are, and what they say."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.core.times import seconds
from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.metrics import ENOUGH, read_metrics
from stoker.study.opened import Opened
from stoker.study.state import Attempt

_PIECE = 1 << 20
_END = 1 << 16
_STAMP = "%Y%m%d.%H%M%S"


@dataclass(frozen=True)
class Log:
    """What one stage of one attempt said."""

    stage: str
    began: float  # as its name tells
    trial: TrialId
    path: str  # a file, or the name of one in a bucket
    size: int
    attempt: tuple[int, int] | None = None  # its round and number, where the store tells
    file: files.File | None = None  # in a bucket


class Logs:
    """The logs of a trial; of several iterations of it, if there are."""

    def __init__(self, opened: Opened, trials: Sequence[TrialId]) -> None:
        self._opened, self._trials = opened, trials

    def all(self) -> list[Log]:
        """All logs there are now, oldest first."""
        found = [log for trial in self._trials for log in self._of(trial)]
        unique = {log.path: log for log in found}  # iterations share a directory
        place: dict[str, int] = {}
        if len({log.began for log in unique.values()}) < len(unique):  # names of logs have seconds
            order = (stage for trial in self._trials for stage in self._opened.work.stages(trial))
            place = {stage: position for position, stage in enumerate(order)}
        return sorted(unique.values(), key=lambda log: (log.began, place.get(log.stage, -1)))

    def _of(self, trial: TrialId) -> Iterator[Log]:
        name = self._opened.trial(trial).name
        end = f".{name}" if self._opened.work.planned(trial.iteration).is_flat else ""
        pattern = re.compile(rf"log\.(.+)\.(\d{{8}}\.\d{{6}}){re.escape(end)}", re.DOTALL)
        directory = self._opened.directory(trial)
        if directory is not None:
            yield from _in_directory(directory, pattern, trial)
            return
        manifest = files.newest(self._opened.place.store, trial)
        for path, file in manifest.files.items() if manifest else ():
            if match := pattern.fullmatch(path):
                yield Log(match[1], _moment(match[2]), trial, path, file.size, _sender(file), file)

    def read(self, log: Log, start: int = 0) -> Iterator[bytes]:
        """What a log says from `start` on, piece by piece."""
        if log.file is not None:
            yield from files.read_file(self._opened.place.store, log.file, start)
            return
        with Path(log.path).open("rb") as file:
            file.seek(start)
            while piece := file.read(_PIECE):
                yield piece

    def shown_path(self, log: Log) -> str:
        """Where a log is, for people."""
        if log.file is None:
            return log.path
        return f"{self._opened.place.url}: {self._opened.trial(log.trial).name}/{log.path}"


def read_again(opened: Opened, trial: TrialId, patterns: Mapping[str, str]) -> dict[str, float]:
    """Metrics in the logs that a trial has now: the last of each stage, a later stage before an earlier one.

    Only where it is quick: not in a bucket, nor in a directory that all trials share. The end of a log is
    looked at first, and further back only for what is not found there.
    """
    if opened.place.is_remote or opened.work.planned(trial.iteration).is_flat:
        return {}
    last = {log.stage: log.path for log in Logs(opened, [trial]).all()}
    found: dict[str, float] = {}
    for path in reversed(last.values()):
        for reach in (_END, ENOUGH):
            missing = {name: pattern for name, pattern in patterns.items() if name not in found}
            found |= read_metrics(path, missing, reach) if missing else {}
    return found


def _in_directory(directory: Path, pattern: re.Pattern[str], trial: TrialId) -> Iterator[Log]:
    try:
        paths = sorted(directory.glob("log.*"))
    except OSError:
        return
    for path in paths:
        match = pattern.fullmatch(path.name)
        if match and path.is_file() and not path.is_symlink():
            yield Log(match[1], _moment(match[2]), trial, str(path), path.stat().st_size)


def _moment(told: str) -> float:
    """Log names have the local time of the machine that wrote them."""
    try:
        return time.mktime(time.strptime(told, _STAMP))
    except (ValueError, OverflowError):
        return 0.0


def _sender(file: files.File) -> tuple[int, int] | None:
    """The attempt that sent a file, which is part of its key."""
    match = re.match(r"files/\d+/\d+/(\d+)\.(\d+)/", file.parts[0].key) if file.parts else None
    return (int(match[1]), int(match[2])) if match else None


def attempt_of(log: Log, attempts: Sequence[Attempt]) -> Attempt | None:
    """The attempt that wrote a log: as the store tells, else the last that was claimed before it began."""
    found = None
    for attempt in attempts:
        if log.attempt is not None:
            found = attempt if (attempt.round, attempt.number) == log.attempt else found
        elif (seconds(attempt.claim.get("time")) or 0.0) <= log.began:
            found = attempt
    return found
