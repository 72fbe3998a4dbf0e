"""How numbers went: series that scripts' managers recorded, else all that patterns find in logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from stoker.report.rows import Row, series_of
from stoker.store.interface import StoreError
from stoker.study.logs import Logs
from stoker.study.metrics import ENOUGH, numbers_in
from stoker.study.opened import Opened

POINTS = 200
"""So many points of a curve are drawn: a figure has not many more pixels."""


@dataclass(frozen=True)
class Curve:
    """Values over something that grows; some of them only, where they are too many to be seen."""

    x: Sequence[float]
    y: Sequence[float]
    count: int  # of values that there are


def read_curves(opened: Opened, row: Row, names: Sequence[str] = (), x: str = "step") -> dict[str, Curve]:
    """Curves of a trial by name: these, or all. `x` is step, time, or the name of another series.

    Numbers in logs have neither steps nor times: they are counted.
    """
    found = {
        name: one for own in series_of(opened, row.trial, row.name).values() for name, one in own.items()
    }
    made = {}
    for name in names or found:
        if name in found and (not names or name in names):
            one = found[name]
            made[name] = thinned(*_pairs(one.steps, one.seconds, one.values, found.get(x), x))
    if x == "step":
        patterns = opened.study.settings.get("metrics")
        known = patterns if isinstance(patterns, dict) else {}
        missing = {name: known[name] for name in names or known if name in known and name not in made}
        made.update(_in_logs(opened, row, missing) if missing else {})
    return {name: curve for name, curve in made.items() if any(map(isfinite, curve.y))}


def _pairs(
    steps: Sequence[float], seconds: Sequence[float], values: Sequence[float], other: object, x: str
) -> tuple[Sequence[float], Sequence[float]]:
    if x == "step":
        return steps, values
    if x == "time":
        begin = seconds[0] if seconds else 0.0
        return [moment - begin for moment in seconds], values
    at = dict(zip(getattr(other, "steps", ()), getattr(other, "values", ()), strict=True))
    pairs = [(at[step], value) for step, value in zip(steps, values, strict=True) if step in at]
    return [one for one, _ in pairs], [value for _, value in pairs]


def _in_logs(opened: Opened, row: Row, patterns: Mapping[str, str]) -> dict[str, Curve]:
    """All numbers that patterns find in the last log of the last stage that has any."""
    logs = Logs(opened, [row.trial])
    found: dict[str, Curve] = {}
    try:
        last = {log.stage: log for log in logs.all()}
        for log in reversed(last.values()):
            missing = {name: pattern for name, pattern in patterns.items() if name not in found}
            if not missing:
                break
            said = b"".join(logs.read(log, max(0, log.size - ENOUGH)))[-ENOUGH:].decode(errors="replace")
            for name, pattern in missing.items():
                if values := list(numbers_in(said, pattern)):
                    found[name] = thinned(range(1, len(values) + 1), values)
    except (OSError, StoreError):
        pass
    return found


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
