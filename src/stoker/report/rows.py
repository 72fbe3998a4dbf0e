"""One row for each trial: its parameters, what became of it, and its numbers. Plain data, computed once."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import isnan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from stoker.core.values import Value
from stoker.manager import progress
from stoker.plan import naming
from stoker.report.reading import each
from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.logs import Logs, read_again
from stoker.study.metrics import TAIL, read_metrics
from stoker.study.opened import Objective, Opened
from stoker.study.place import FLAT
from stoker.study.ranges import DONE, State
from stoker.study.state import READERS, TrialNow

NUMBERS = ("last", "min", "max", "best")
"""What can be asked of a metric, as in `loss.min`."""

_BEGUN = (State.RUNNING, State.RELEASED, State.LOST, State.RETRYING)
_HASHED = re.compile(r"-[0-9a-f]{12}$")
_PROGRESS = files.Select(("/progress.*.jsonl",))


# Both are named tuples, not data classes: a large study has many, and these are made in a third of the time.


class Numbers(NamedTuple):
    """What is known of a metric of a trial; of one that was read from a log, only its last value."""

    last: float
    min: float | None = None
    max: float | None = None
    count: int = 1  # type: ignore[assignment]  # a tuple's own method of this name is not missed

    def best(self, goal: str) -> float:
        """The highest or the lowest."""
        found = self.max if goal == "max" else self.min
        return self.last if found is None else found


class Row(NamedTuple):
    """A trial and what came of it."""

    trial: TrialId
    name: str
    title: str  # of its sweep
    params: Mapping[str, Value]
    status: str
    metrics: Mapping[str, Numbers]
    attempts: int = 0
    began: float | None = None  # seconds since 1970, of its last attempt
    seconds: float | None = None  # of its stages, in that attempt
    cpu: float | None = None  # cores in use, on average
    memory: int | None = None  # bytes, at most
    gpu: float | None = None  # per cent in use, on average
    slot: str = ""
    agent: str = ""
    stages: Mapping[str, Mapping[str, Any]] = {}  # figures of each
    why: str = ""  # it failed


def rows(opened: Opened) -> Iterator[Row]:
    """All trials in order, those that wait or run included."""
    known, begun = Trials(opened), _begun(opened)
    results = opened.state.results()
    result = next(results, None)
    for now in opened.state.trials():
        while result is not None and result.trial < now.trial:
            result = next(results, None)
        body = result.body if result is not None and result.trial == now.trial else {}
        if now.trial in begun:
            metrics = begun[now.trial]
        else:
            metrics = _numbers(opened.metrics(now.trial, body), body.get("series"))
        yield _row(known, now, body, metrics)


def _row(known: Trials, now: TrialNow, body: Mapping[str, Any], metrics: Mapping[str, Numbers]) -> Row:
    name, title, params = known.describe(now)
    stages = {stage: body[stage] for stage in known.stages if isinstance(body.get(stage), dict)}
    use = _use(stages.values()) if stages else _NOTHING
    return Row(
        now.trial,
        name,
        title,
        params,
        now.state.value,
        metrics,
        _whole(body.get("attempt")) or now.attempt,
        *use,
        str(body.get("agent") or now.agent),
        stages,
        str(body.get("why") or ""),
    )


class Trials:
    """What is planned of many trials, with their names, which are dear to ask for one by one.

    Who owns a directory is told by its `param`. Of a trial that ran, that need not be read: if there is a
    directory with its plain name, and none with that name and a hash, it is the one.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        plans = map(opened.work.planned, opened.state.iterations)
        self.stages = list(dict.fromkeys(stage.name for planned in plans for stage in planned.study.stages))
        try:
            output = opened.place.output
            self._there = frozenset(os.listdir(output)) if output is not None else frozenset()  # noqa: PTH208
        except OSError:
            self._there = frozenset()
        self._doubtful = {name[:-13] for name in self._there if _HASHED.search(name)}

    def describe(self, now: TrialNow) -> tuple[str, str, Mapping[str, Value]]:
        """Name, title and parameters."""
        found = self._quickly(now.trial) if now.state in DONE else None
        if found is not None:
            return found
        trial = self._opened.trial(now.trial)
        return trial.name, trial.sweep.title or "", trial.params

    def _quickly(self, trial: TrialId) -> tuple[str, str, Mapping[str, Value]] | None:
        for sweep in self._opened.work.planned(trial.iteration).plan.sweeps:
            place = trial.number - sweep.first - 1
            if 0 <= place < sweep.size:
                choices = sweep.choices(place)
                name = naming.join(
                    (axis.label, one.part) for axis, one in zip(sweep.axes, choices, strict=True)
                )
                if name not in self._there or name in self._doubtful:
                    return None
                self._doubtful.add(name)  # who comes later and has the same must be looked at
                params = {name: value for one in choices for name, value in one.sets}
                return name, sweep.title or "", {**params, **sweep.base}
        return None


_Use = tuple[
    "float | None", "float | None", "float | None", "int | None", "float | None", str
]  # from `began` to `slot`
_NOTHING: _Use = (None, None, None, None, None, "")


def _use(stages: Iterable[Mapping[str, Any]]) -> _Use:
    """What the stages took, together."""
    known = [figures for figures in stages if _is_number(figures.get("seconds"))]
    if not known:
        return _NOTHING
    seconds = sum(figures["seconds"] for figures in known)
    used = [(figures["seconds"], figures["gpu"]) for figures in known if _is_number(figures.get("gpu"))]
    busy = sum(s for s, _ in used)
    return (
        min(_all(known, "began"), default=None),
        seconds,
        sum(_all(known, "cpu")) / seconds if seconds else None,
        int(max(_all(known, "memory"), default=0)) or None,
        sum(s * percent for s, percent in used) / busy if busy else None,
        str(next((figures["slot"] for figures in known if "slot" in figures), "")),
    )


def _all(stages: Iterable[Mapping[str, Any]], name: str) -> list[float]:
    return [figures[name] for figures in stages if _is_number(figures.get(name))]


def _numbers(metrics: Mapping[str, float], series: Any) -> dict[str, Numbers]:
    """Of metrics that were recorded as series more is known."""
    told = {name: one for name, one in series.items() if _is_told(one)} if isinstance(series, dict) else {}
    found = {
        name: Numbers(float(value))
        for name, value in metrics.items()
        if name not in told and _is_number(value)
    }
    for name, one in told.items():
        low, high, count = one.get("min"), one.get("max"), one.get("count")
        found[name] = Numbers(
            one["last"],
            low if _is_number(low) else None,
            high if _is_number(high) else None,
            _whole(count) or 1,
        )
    return found


def _is_told(one: Any) -> bool:
    return isinstance(one, dict) and _is_number(one.get("last"))


# Trials without a result: what they have recorded so far


def _begun(opened: Opened) -> dict[TrialId, dict[str, Numbers]]:
    """Of trials that run, or wait to go on; those in a bucket are asked for some at a time."""
    trials = [now.trial for now in opened.state.trials(*_BEGUN)]
    return dict(zip(trials, each(opened, lambda trial: _so_far(opened, trial), trials), strict=True))


def _so_far(opened: Opened, trial: TrialId) -> dict[str, Numbers]:
    found = {name: Numbers(value) for name, value in _in_logs(opened, trial).items()}
    for stage in series_of(opened, trial).values():
        found.update((name, numbers_of(series)) for name, series in stage.items() if series.values)
    return found


def numbers_of(series: progress.Series) -> Numbers:
    """What a series that is not empty comes to."""
    values = [value for value in series.values if not isnan(value)]
    low, high = (min(values), max(values)) if values else (None, None)
    return Numbers(series.values[-1], low, high, len(series.values))


def _in_logs(opened: Opened, trial: TrialId) -> dict[str, float]:
    """What the study's patterns find; of logs in a bucket, only at the end of the newest."""
    patterns = opened.study.settings.get("metrics")
    if not isinstance(patterns, dict) or not patterns:
        return {}
    if not opened.place.is_remote:
        return read_again(opened, trial, patterns)
    logs = Logs(opened, [trial])
    with TemporaryDirectory() as scratch:
        path = Path(scratch, "log")
        for log in logs.all()[-1:]:
            path.write_bytes(b"".join(logs.read(log, max(0, log.size - TAIL))))
        return read_metrics(str(path), patterns)


def series_of(opened: Opened, trial: TrialId, name: str = "") -> dict[str, dict[str, progress.Series]]:
    """Stage → name → series, as its scripts' managers recorded them, read now; a known `name` helps."""
    output = opened.place.output
    if output is not None:
        place = output / FLAT if opened.work.planned(trial.iteration).is_flat else output
        return _read_series(opened, trial, place / (name or opened.trial(trial).name))
    with TemporaryDirectory() as scratch:
        files.pull(opened.place.store, trial, Path(scratch), _PROGRESS)
        return _read_series(opened, trial, Path(scratch))


def _read_series(opened: Opened, trial: TrialId, directory: Path) -> dict[str, dict[str, progress.Series]]:
    since = _since(opened, trial)
    stages = opened.work.stages(trial)
    return {stage: found for stage in stages if (found := progress.read(str(directory), stage, since))}


def _since(opened: Opened, trial: TrialId) -> int:
    """The round before which nothing counts, as somebody asked for all stages afresh."""
    asked = (order.get("rounds") for order in opened.state.orders if order.get("fresh"))
    words = [str(word).split(".") for rounds in asked if isinstance(rounds, list) for word in rounds]
    mine = (word[2] for word in words if word[:2] == str(trial).split(".") and len(word) == 3)
    return max((int(round_) for round_ in mine if round_.isdecimal()), default=1)


class Part(NamedTuple):
    """A series of a trial, by names that people know."""

    trial: str
    name: str
    stage: str
    series: str
    values: progress.Series


def parts(opened: Opened, known: Iterable[tuple[TrialId, str]]) -> Iterator[Part]:
    """All series of trials, of which the names are known, read now; from a bucket, some trials at a time."""
    trials = list(known)
    if not opened.place.is_remote:
        yield from _parts(trials, (series_of(opened, *trial) for trial in trials))
        return
    with ThreadPoolExecutor(READERS) as pool:
        yield from _parts(trials, pool.map(lambda trial: series_of(opened, *trial), trials))


def _parts(
    trials: Sequence[tuple[TrialId, str]], found: Iterable[Mapping[str, Mapping[str, progress.Series]]]
) -> Iterator[Part]:
    for (trial, name), stages in zip(trials, found, strict=True):
        number = str(trial).removeprefix("1.")
        for stage, series in stages.items():
            yield from (Part(number, name, stage, title, values) for title, values in series.items())


def main_number(numbers: Numbers, name: str, objective: Objective | None) -> float:
    """The one that stands for a metric: the best of the objective, the last of others."""
    if objective is not None and name == objective.metric:
        return numbers.best(objective.goal)
    return numbers.last


def _is_number(value: Any) -> bool:
    """Of what JSON has: no bool, though Python counts it among numbers."""
    return type(value) in _NUMBERS


_NUMBERS = frozenset({int, float})


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
