"""What figures and the report are made of, gathered once: rows, the curves that are drawn, and errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite

from stoker.report.curves import Curve, read_curves
from stoker.report.errors import Group, errors
from stoker.report.importance import importance
from stoker.report.origin import Origin
from stoker.report.rows import Row, main_number
from stoker.study.opened import Objective

CURVES = 40
"""So many curves of a sweep are drawn: more hide one another."""
ALL_CURVES = 400
BEST_CURVES = 10


@dataclass(frozen=True)
class Sweep:
    """The trials of a sweep, the best first, and the curves of some of them."""

    title: str
    rows: tuple[Row, ...]
    curves: tuple[tuple[Row, Curve], ...] = ()
    left: int = 0  # trials whose curves are not drawn, as there are too many

    @property
    def count(self) -> int:
        """How many trials have a curve, as far as it was looked for."""
        return len(self.curves) + self.left


@dataclass(frozen=True)
class Results:
    """All there is to see of a study, as plain data."""

    name: str
    rows: Sequence[Row]
    objective: Objective | None = None
    sweeps: tuple[Sweep, ...] = ()
    progress: Mapping[str, Curve] = field(default_factory=dict)  # of the best trial
    groups: tuple[Group, ...] = ()
    x: str = "step"

    @cached_property
    def metric(self) -> str:
        """What is drawn: the objective, or else the first metric; empty if there is none."""
        if self.objective is not None:
            return self.objective.metric
        return next((name for row in self.rows for name in row.metrics), "")

    @property
    def best(self) -> Row | None:
        """The best trial, if the study says what is good."""
        ranked = self.ranked if self.objective is not None else []
        return ranked[0][1] if ranked else None

    def value(self, row: Row) -> float | None:
        """What a trial came to; None if nothing is known."""
        found = row.metrics.get(self.metric)
        return None if found is None else main_number(found, self.metric, self.objective)

    @cached_property
    def ranked(self) -> list[tuple[float, Row]]:
        """Finished trials with a finite value, the best first; in order if nothing says what is good."""
        known = [(self.value(row), row) for row in self.rows if row.status == "finished"]
        found = [(value, row) for value, row in known if value is not None and isfinite(value)]
        if self.objective is not None:
            found.sort(key=lambda one: one[0], reverse=self.objective.goal == "max")
        return found

    @cached_property
    def shares(self) -> dict[str, float]:
        """How much each parameter matters, the most first."""
        return importance([row.params for _, row in self.ranked], [value for value, _ in self.ranked])


def gather(origin: Origin, x: str = "step", only: str = "") -> Results:
    """Read what figures need: all of them, or `only` that of a name.

    `x` is step, time, or the name of a series that others are drawn over.
    """
    about = origin.about
    found = Results(about.name, list(origin.rows()), about.objective, x=x)
    best = found.best if only in ("", "progress") else None
    return replace(
        found,
        sweeps=tuple(_sweeps(origin, found)) if only in ("", "sweeps") else (),
        progress={} if best is None else read_curves(origin, best, x=x),
        groups=tuple(errors(origin, found.rows)) if only in ("", "errors") else (),
    )


def _sweeps(origin: Origin, results: Results) -> Iterator[Sweep]:
    metric = results.metric
    members: dict[str, list[Row]] = {}
    for row in results.rows:
        members.setdefault(origin.sweep(row), []).append(row)
    rank = {row.trial: place for place, (_, row) in enumerate(results.ranked)}
    most = max(4, min(CURVES, ALL_CURVES // max(1, len(members))))
    for name, own in members.items():
        own.sort(key=lambda row: rank.get(row.trial, len(rank)))
        having = [row for row in own if metric in row.metrics]
        shown = spread(having, most)
        read = origin.each(lambda row: read_curves(origin, row, [metric], results.x).get(metric), shown)
        curves = ((row, curve) for row, curve in zip(shown, read, strict=True) if curve is not None)
        yield Sweep(name, tuple(own), tuple(curves), len(having) - len(shown))


def spread(ordered: Sequence[Row], most: int) -> list[Row]:
    """The first few, and of the others every so many: a fair picture of all of them."""
    if len(ordered) <= most:
        return list(ordered)
    first = min(BEST_CURVES, most // 2)
    rest, places = ordered[first:], most - first
    return [*ordered[:first], *(rest[place * len(rest) // places] for place in range(places))]
