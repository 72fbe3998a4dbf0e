"""How numbers went: series that scripts' managers recorded, else all that patterns find in logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite

from stoker.manager.progress import Series
from stoker.report.origin import Origin
from stoker.report.rows import Numbers, Row, numbers_of
from stoker.store.records import TrialId
from stoker.study.metrics import ENOUGH, numbers_in

POINTS = 200
"""So many points of a curve are drawn: a figure has not many more pixels."""


@dataclass(frozen=True)
class Curve:
    """Values over something that grows; some of them only, where they are too many to be seen."""

    x: Sequence[float]
    y: Sequence[float]
    count: int  # of values that there are


def read_curves(origin: Origin, row: Row, names: Sequence[str] = (), x: str = "step") -> dict[str, Curve]:
    """Curves of a trial by name: these, or all. `x` is step, time, or the name of another series.

    Numbers in logs have neither steps nor times: they are counted.
    """
    found = {name: one for own in origin.series(row).values() for name, one in own.items()}
    made = {}
    for name in names or found:
        if name in found:
            made[name] = thinned(*_points(found[name], found.get(x), x))
    if x == "step":
        missing = [name for name in names or origin.about.patterns if name not in made]
        for name, values in in_logs(origin, row, missing).items():
            made[name] = thinned(range(1, len(values) + 1), values)
    return {name: curve for name, curve in made.items() if any(map(isfinite, curve.y))}


def _points(one: Series, other: Series | None, x: str) -> tuple[Sequence[float], Sequence[float]]:
    if x == "step":
        return one.steps, one.values
    if x == "time":
        return [moment - one.seconds[0] for moment in one.seconds], one.values
    at = dict(zip(other.steps, other.values, strict=True)) if other is not None else {}
    pairs = [(at[step], value) for step, value in zip(one.steps, one.values, strict=True) if step in at]
    return [place for place, _ in pairs], [value for _, value in pairs]


def in_logs(origin: Origin, row: Row, names: Iterable[str]) -> dict[str, list[float]]:
    """All numbers that patterns of metrics find in the last log of the last stage that has any."""
    patterns = {name: origin.about.patterns[name] for name in names if name in origin.about.patterns}
    found: dict[str, list[float]] = {}
    for read in reversed([*origin.logs(row).values()]) if patterns else ():
        said = read(ENOUGH)
        for name, pattern in patterns.items():
            if name not in found and (values := list(numbers_in(said, pattern))):
                found[name] = values
        if len(found) == len(patterns):
            break
    return found


class InLogs:
    """The lowest and the highest number of metrics that stand in logs, which no record has.

    They are read when they are asked for, and once.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._known: dict[TrialId, dict[str, Numbers]] = {}
        self.names = frozenset(origin.about.patterns)

    def numbers(self, row: Row, name: str) -> Numbers | None:
        """What a metric of a trial comes to; None if its logs do not have it."""
        self.read([row])
        return self._known[row.trial].get(name)

    def read(self, rows: Sequence[Row]) -> None:
        """Read those of many trials ahead, which from a bucket is quicker than one by one."""
        missing = [row for row in rows if row.trial not in self._known]
        for row, found in zip(missing, self._origin.each(self._read, missing), strict=True):
            self._known[row.trial] = {name: numbers_of(values) for name, values in found.items()}

    def _read(self, row: Row) -> dict[str, list[float]]:
        return in_logs(self._origin, row, self.names & row.metrics.keys())


def thinned(x: Sequence[float], y: Sequence[float], most: int = POINTS) -> Curve:
    """The lowest and the highest value of each stretch, in their order: no peak is lost."""
    count = len(y)
    if count <= most:
        return Curve(tuple(x), tuple(y), count)
    stretches = most // 2
    kept = []
    for stretch in range(stretches):
        places = range(stretch * count // stretches, (stretch + 1) * count // stretches)
        numbers = [place for place in places if isfinite(y[place])] or places[:1]
        kept += sorted({min(numbers, key=y.__getitem__), max(numbers, key=y.__getitem__)})
    return Curve(tuple(x[place] for place in kept), tuple(y[place] for place in kept), count)
