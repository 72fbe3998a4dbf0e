"""A study as its records tell it: rows from results, series and logs from the files of trials."""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import accumulate
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeGuard

from stoker.core.values import Value
from stoker.manager import progress
from stoker.plan import naming
from stoker.plan.sweep import Sweep
from stoker.plan.trials import Plan
from stoker.report.origin import About, Found, Stages, Thing
from stoker.report.rows import Numbers, Row, numbers_of
from stoker.store.interface import StoreError
from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.logs import Log, Logs, read_again
from stoker.study.metrics import EPOCHS, TAIL, metrics_in
from stoker.study.opened import Opened, is_number
from stoker.study.place import FLAT
from stoker.study.ranges import DONE, State
from stoker.study.state import READERS, TrialNow

_BEGUN = (State.RUNNING, State.RELEASED, State.LOST, State.RETRYING)
_HASHED = re.compile(r"-[0-9a-f]{12}$")
_PROGRESS = files.Select(("/progress.*.jsonl",))


class Recorded:
    """A study in a directory or a bucket, as it was when it was looked at; files are read as they are."""

    def __init__(self, opened: Opened) -> None:
        self.opened = opened

    @cached_property
    def about(self) -> About:
        """What is known of the study besides its trials."""
        opened = self.opened
        planned, patterns = opened.work.planned(opened.state.iterations[-1]), _patterns(opened)
        return About(
            name=opened.name,
            where=opened.place.url,
            objective=opened.objective,
            patterns=patterns,
            file=planned.study.source.name,
            text=planned.study.source.text,
            directory=planned.directory or "",
            agents=opened.state.agents(),
        )

    @cached_property
    def is_slow(self) -> bool:
        """Whether a log costs requests, or is one of very many in the same directory."""
        planned = map(self.opened.work.planned, self.opened.state.iterations)
        return self.opened.place.is_remote or any(one.is_flat for one in planned)

    def rows(self, with_waiting: bool = True) -> Iterator[Row]:
        """All trials in order; those that nobody has begun only if they are wanted."""
        state, known, begun = self.opened.state, Trials(self.opened), self._begun()
        results = state.results()
        result = next(results, None)
        for now in state.trials(*(() if with_waiting else (*_BEGUN, *DONE))):
            while result is not None and result.trial < now.trial:
                result = next(results, None)
            body = result.body if result is not None and result.trial == now.trial else {}
            if now.trial in begun:
                metrics = begun[now.trial]
            else:
                metrics = _numbers(self.opened.metrics(now.trial, body), body.get("series"))
            yield _row(known, now, body, metrics)

    def sweep(self, row: Row) -> str:
        """The sweep of a trial: its title, or its place in the file."""
        if row.title:
            return row.title
        iteration, number = row.trial
        place = self._sweeps[iteration - 1].find(number).sweep.place + 1
        return f"sweep {place}" + (f" of iteration {iteration}" if iteration > 1 else "")

    @cached_property
    def _sweeps(self) -> list[Sweeps]:
        planned = map(self.opened.work.planned, self.opened.state.iterations)
        return [Sweeps(one.plan) for one in planned]

    def series(self, row: Row) -> Stages:
        """What the managers of a trial's scripts recorded, read now."""
        return self._series(row.trial, row.name)

    def logs(self, row: Row) -> dict[str, Callable[[int], str]]:
        """The last log of each stage of a trial, the last stage last."""
        logs = Logs(self.opened, [row.trial])
        try:
            last = {log.stage: log for log in logs.all()}
        except (OSError, StoreError):
            return {}
        return {stage: _reader(logs, log) for stage, log in last.items()}

    def each(self, read: Callable[[Thing], Found], things: Iterable[Thing]) -> Iterator[Found]:
        """One after the other from a disk, several at a time from a bucket."""
        if not self.opened.place.is_remote:
            yield from map(read, things)
            return
        with ThreadPoolExecutor(READERS) as pool:
            yield from pool.map(read, things)

    # Trials without a result: what they have recorded so far

    def _begun(self) -> dict[TrialId, dict[str, Numbers]]:
        """Of trials that run, or wait to go on."""
        trials = [now.trial for now in self.opened.state.trials(*_BEGUN)]
        return dict(zip(trials, self.each(self._so_far, trials), strict=True))

    def _so_far(self, trial: TrialId) -> dict[str, Numbers]:
        found = {name: Numbers(value) for name, value in _in_logs(self.opened, trial).items()}
        for stage in self._series(trial, self.opened.trial(trial).name).values():
            told = ((name, one.values) for name, one in stage.items() if one.values and name != EPOCHS)
            found.update((name, numbers_of(values)) for name, values in told)
        return found

    def _series(self, trial: TrialId, name: str) -> Stages:
        output = self.opened.place.output
        if output is not None:
            place = output / FLAT if self.opened.work.planned(trial.iteration).is_flat else output
            return self._read(trial, place / name)
        with TemporaryDirectory() as scratch:
            files.pull(self.opened.place.store, trial, Path(scratch), _PROGRESS)
            return self._read(trial, Path(scratch))

    def _read(self, trial: TrialId, directory: Path) -> Stages:
        since = self._fresh.get(str(trial), 1)
        stages = self.opened.work.stages(trial)
        return {stage: found for stage in stages if (found := progress.read(str(directory), stage, since))}

    @cached_property
    def _fresh(self) -> dict[str, int]:
        """Trial → the round before which nothing counts, as somebody asked for all stages afresh."""
        asked = (order.get("rounds") for order in self.opened.state.orders if order.get("fresh"))
        words = (str(word).rpartition(".") for rounds in asked if isinstance(rounds, list) for word in rounds)
        found: dict[str, int] = {}
        for trial, _, round_ in words:
            if round_.isdecimal():
                found[trial] = max(int(round_), found.get(trial, 1))
        return found


def _patterns(opened: Opened) -> Mapping[str, str]:
    found = opened.study.settings.get("metrics")
    return found if isinstance(found, dict) else {}


def _reader(logs: Logs, log: Log) -> Callable[[int], str]:
    def read(most: int) -> str:
        try:
            return b"".join(logs.read(log, max(0, log.size - most)))[-most:].decode(errors="replace")
        except (OSError, StoreError):
            return ""

    return read


def _in_logs(opened: Opened, trial: TrialId) -> dict[str, float]:
    """What the study's patterns find; of logs in a bucket, only at the end of the newest."""
    patterns = _patterns(opened)
    if not patterns:
        return {}
    if not opened.place.is_remote:
        return read_again(opened, trial, patterns)
    logs = Logs(opened, [trial])
    said = (_reader(logs, log)(TAIL) for log in logs.all()[-1:])
    return metrics_in("".join(said), patterns)


# Rows


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
        _why(str(body.get("why") or ""), stages),
    )


def _why(told: str, stages: Mapping[str, Mapping[str, Any]]) -> str:
    """Why a trial failed: which stage, and how it ended, if no more is told than that it did."""
    for stage, figures in stages.items() if told == "failed" else ():
        if figures.get("signal"):
            return f"{stage}: signal {figures['signal']}"
        if figures.get("code"):
            return f"{stage}: exit code {figures['code']}"
    return told


class Trials:
    """What is planned of many trials, with their names, which are dear to ask for one by one.

    Who owns a directory is told by its `param`. That need not be read of a trial that ran, if there is a
    directory with its plain name and none with that name and a hash: it is the one. Where there is neither,
    the first trial of the plan with that name will have it.
    """

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        planned = [opened.work.planned(iteration) for iteration in opened.state.iterations]
        self.stages = list(dict.fromkeys(stage.name for one in planned for stage in one.study.stages))
        self._sweeps = [Sweeps(one.plan) for one in planned]
        try:
            output = opened.place.output
            self._there = frozenset(os.listdir(output)) if output is not None else frozenset()  # noqa: PTH208
        except OSError:
            self._there = frozenset()
        self._doubtful = {name[:-13] for name in self._there if _HASHED.search(name)}

    def describe(self, now: TrialNow) -> tuple[str, str, Mapping[str, Value]]:
        """Name, title and parameters."""
        spot = self._sweeps[now.trial.iteration - 1].find(now.trial.number)
        sweep, choices = spot.sweep, spot.sweep.choices(spot.place)
        name = naming.join((axis.label, one.part) for axis, one in zip(sweep.axes, choices, strict=True))
        if self._is_plain(name, now, spot):
            params = {name: value for one in choices for name, value in one.sets}
            return name, sweep.title or "", {**params, **sweep.base}
        trial = self._opened.trial(now.trial)
        return trial.name, trial.sweep.title or "", trial.params

    def _is_plain(self, name: str, now: TrialNow, spot: Spot) -> bool:
        """Whether it is known without looking that this is the trial's name, without a hash."""
        if name in self._doubtful:
            return False
        if name in self._there:
            self._doubtful.add(name)  # who comes later and has the same must be looked at
            return now.state in DONE
        plan = self._opened.work.planned(now.trial.iteration).plan
        return not naming.too_long(name) and plan.named(name) == spot.start + spot.place


class Spot(NamedTuple):
    """Where a trial stands in a plan."""

    sweep: Sweep
    start: int  # how many trials of the plan come before the sweep
    place: int  # in the sweep


class Sweeps:
    """The sweeps of a plan by the numbers of trials; a plan may have hundreds."""

    def __init__(self, plan: Plan) -> None:
        self._sweeps = plan.sweeps
        self._firsts = [sweep.first for sweep in plan.sweeps]
        self._starts = [0, *accumulate(sweep.size for sweep in plan.sweeps)]

    def find(self, number: int) -> Spot:
        """Where the trial with a number stands; it must be one of the plan."""
        found = bisect_left(self._firsts, number) - 1
        sweep = self._sweeps[found]
        return Spot(sweep, self._starts[found], number - sweep.first - 1)


_Use = tuple[
    "float | None", "float | None", "float | None", "int | None", "float | None", str
]  # from `began` to `slot`
_NOTHING: _Use = (None, None, None, None, None, "")


def _use(stages: Iterable[Mapping[str, Any]]) -> _Use:
    """What the stages took, together."""
    first, slot, memory, seconds, cpu, busy, gpu = inf, None, 0.0, -1.0, 0.0, 0.0, 0.0
    for figures in stages:
        if not _is_sane(took := figures.get("seconds")):
            continue
        seconds = max(0, seconds) + took
        if _is_sane(began := figures.get("began")):
            first = min(first, began)
        if _is_sane(used := figures.get("cpu")):
            cpu += used
        if _is_sane(most := figures.get("memory")):
            memory = max(memory, most)
        if _is_sane(percent := figures.get("gpu")):
            busy, gpu = busy + took, gpu + took * percent
        if slot is None:
            slot = figures.get("slot")
    if seconds < 0:
        return _NOTHING
    return (
        first if first < inf else None,
        seconds,
        cpu / seconds if seconds else None,
        int(memory) or None,
        gpu / busy if busy else None,
        str("" if slot is None else slot),
    )


def _numbers(metrics: Mapping[str, float], series: Any) -> dict[str, Numbers]:
    """Of metrics that were recorded as series more is known."""
    recorded = series if isinstance(series, dict) else {}
    told = {name: one for name, one in recorded.items() if _is_told(name, one)}
    found = {
        name: Numbers(float(value))
        for name, value in metrics.items()
        if name not in told and is_number(value)
    }
    for name, one in told.items():
        low, high, count = one.get("min"), one.get("max"), one.get("count")
        found[name] = Numbers(
            float(one["last"]),
            float(low) if is_number(low) else None,
            float(high) if is_number(high) else None,
            _whole(count) or 1,
        )
    return found


def _is_told(name: str, one: Any) -> bool:
    """Whether it is a series with a value, and none that only counts."""
    return name != EPOCHS and isinstance(one, dict) and is_number(one.get("last"))


_MOST = 1e15


def _is_sane(value: Any) -> TypeGuard[float]:
    """Whether it can be a time or a use of anything: what is not finite, or beyond reason, is unknown."""
    return (type(value) is float or type(value) is int) and 0 <= value < _MOST


def _whole(value: Any) -> int:
    return value if type(value) is int and 0 <= value < _MOST else 0
