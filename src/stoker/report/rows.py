"""One row for each trial: its parameters, what became of it, and its numbers. Plain data, computed once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isnan
from pathlib import Path
from typing import Any

from stoker.core.values import Value
from stoker.manager import progress
from stoker.store.records import TrialId
from stoker.study.opened import Objective, Opened
from stoker.study.ranges import State
from stoker.study.state import TrialNow

NUMBERS = ("last", "min", "max", "best")
"""What can be asked of a metric, as in `loss.min`."""


@dataclass(frozen=True)
class Numbers:
    """What is known of a metric of a trial; of one that was read from a log, only its last value."""

    last: float
    min: float | None = None
    max: float | None = None
    count: int = 1

    def best(self, goal: str) -> float:
        """The highest or the lowest."""
        found = self.max if goal == "max" else self.min
        return self.last if found is None else found


@dataclass(frozen=True)
class Row:
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
    stages: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # figures of each
    why: str = ""  # it failed


def rows(opened: Opened) -> Iterator[Row]:
    """All trials in order, those that wait or run included."""
    results = opened.state.results()
    result = next(results, None)
    for now in opened.state.trials():
        while result is not None and result.trial < now.trial:
            result = next(results, None)
        body = result.body if result is not None and result.trial == now.trial else {}
        yield _row(opened, now, body)


def _row(opened: Opened, now: TrialNow, body: Mapping[str, Any]) -> Row:
    trial = opened.trial(now.trial)
    stages = {name: body[name] for name in trial.stages if isinstance(body.get(name), dict)}
    if now.state is State.RUNNING and not body:
        metrics = _running(opened, now.trial)
    else:
        metrics = _numbers(opened.metrics(now.trial, body), body.get("series"))
    return Row(
        trial=now.trial,
        name=trial.name,
        title=trial.sweep.title or "",
        params=trial.params,
        status=now.state.value,
        metrics=metrics,
        attempts=_whole(body.get("attempt")) or now.attempt,
        agent=str(body.get("agent") or now.agent),
        why=str(body.get("why") or ""),
        stages=stages,
        **_use(stages),
    )


def _use(stages: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What the stages took, together."""
    known = [figures for figures in stages.values() if _is_number(figures.get("seconds"))]
    if not known:
        return {}
    seconds = sum(figures["seconds"] for figures in known)
    cpu = sum(figures.get("cpu", 0.0) for figures in known)
    used = [(figures["seconds"], figures["gpu"]) for figures in known if _is_number(figures.get("gpu"))]
    return {
        "seconds": seconds,
        "began": min((figures["began"] for figures in known if "began" in figures), default=None),
        "cpu": cpu / seconds if seconds else None,
        "memory": max(figures.get("memory", 0) for figures in known) or None,
        "gpu": sum(s * g for s, g in used) / sum(s for s, _ in used) if any(s for s, _ in used) else None,
        "slot": str(next((figures["slot"] for figures in known if "slot" in figures), "")),
    }


def _numbers(metrics: Mapping[str, float], series: Any) -> dict[str, Numbers]:
    found = {name: Numbers(float(value)) for name, value in metrics.items() if _is_number(value)}
    for name, told in series.items() if isinstance(series, dict) else ():
        if isinstance(told, dict) and _is_number(told.get("last")):
            known = Numbers(told["last"], told.get("min"), told.get("max"), _whole(told.get("count")))
            found[str(name)] = known
    return found


def _running(opened: Opened, trial: TrialId) -> dict[str, Numbers]:
    """What a trial that runs has recorded so far, where its files are at hand."""
    found = {}
    for stage_series in series_of(opened, trial).values():
        for name, series in stage_series.items():
            numbers = [value for value in series.values if not isnan(value)]
            if series.values:
                low, high = (min(numbers), max(numbers)) if numbers else (None, None)
                found[name] = Numbers(series.values[-1], low, high, len(series.values))
    return found


def series_of(opened: Opened, trial: TrialId) -> dict[str, dict[str, progress.Series]]:
    """Stage → name → series, as its scripts' managers recorded them; none for a study in a bucket."""
    output = opened.place.output
    if output is None:
        return {}
    directory = Path(output) / opened.trial(trial).name
    stages = opened.work.stages(trial)
    return {stage: found for stage in stages if (found := progress.read(str(directory), stage))}


def main_number(numbers: Numbers, name: str, objective: Objective | None) -> float:
    """The one that stands for a metric: the best of the objective, the last of others."""
    if objective is not None and name == objective.metric:
        return numbers.best(objective.goal)
    return numbers.last


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
