"""One row for each trial: its parameters, what became of it, and its numbers. Plain data, computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any, NamedTuple

from stoker.core.values import Value
from stoker.store.records import TrialId
from stoker.study.opened import Objective

NUMBERS = ("last", "min", "max", "best")
"""What can be asked of a metric, as in `loss.min`."""


# Both are named tuples, not data classes: a large study has many, and these are made in a third of the time.


class Numbers(NamedTuple):
    """What is known of a metric of a trial; of one that was found in a log, only its last value."""

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

    @property
    def number(self) -> str:
        """`5`, or `2.5` in the second iteration: as it is called on the command line."""
        return str(self.trial).removeprefix("1.")

    @property
    def end(self) -> float | None:
        """When its stages had ended, if that is known."""
        return None if self.began is None or self.seconds is None else self.began + self.seconds


def numbers_of(values: Sequence[float]) -> Numbers:
    """What some values come to; there must be one."""
    known = [value for value in values if not isnan(value)]
    low, high = (min(known), max(known)) if known else (None, None)
    return Numbers(values[-1], low, high, len(values))


def main_number(numbers: Numbers, name: str, objective: Objective | None) -> float:
    """The one that stands for a metric: the best of the objective, the last of others."""
    if objective is not None and name == objective.metric:
        return numbers.best(objective.goal)
    return numbers.last


def as_numbers(values: Sequence[Value | None]) -> list[float]:
    """All of them as numbers; none if any is something else, or beyond the largest float."""
    if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return []
    try:
        return [float(value) for value in values if value is not None]
    except OverflowError:
        return []
