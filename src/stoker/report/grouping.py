"""Trials that share some parameters, taken together: mean, spread and number over the rest, as over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf, isfinite, isnan, nan
from statistics import fmean, stdev

from stoker.core.values import key
from stoker.report import table
from stoker.report.curves import InLogs
from stoker.report.rows import Row, main_number
from stoker.report.table import Cell, Columns, Table
from stoker.study.opened import Objective

FINISHED = "finished"


def group(
    rows: Iterable[Row],
    objective: Objective | None,
    names: Sequence[str],
    where: str = "",
    in_logs: InLogs | None = None,
) -> Table:
    """A row for each value of these columns: how many trials finished, and of each metric mean and std.

    The std is that of a sample; of one trial it is unknown. NaN makes a mean NaN, as it should.
    """
    found = list(rows)
    known = Columns(found, objective, in_logs)
    names = list(dict.fromkeys(names))
    finished = [row for row in table.chosen(found, known, where) if row.status == FINISHED]
    getters = [known.get(name) for name in names]
    known.prepare(finished)
    groups: dict[tuple[object, ...], tuple[tuple[Cell, ...], list[Row]]] = {}
    for row in finished:
        values = tuple(get(row) for get in getters)
        place = tuple(map(_identity, values))
        groups.setdefault(place, (values, []))[1].append(row)
    taken = set(names)
    columns = [*names, table.free("count", taken, "trials")]
    columns += [
        table.free(f"{name}.{what}", taken, "metric") for name in known.metric_of for what in ("mean", "std")
    ]
    made = [(*values, len(some), *_spread(some, known, objective)) for values, some in groups.values()]
    return Table(tuple(columns), _best_first(made, len(names) + 1, known, objective))


def _identity(cell: Cell) -> object:
    """Numbers are the same however they are written: 1e-2 is 0.01, and NaN is NaN."""
    if cell is None or isinstance(cell, (str, bool)):
        return "" if cell is None else key(cell)
    return "nan" if isinstance(cell, float) and isnan(cell) else (cell,)


def _spread(rows: Sequence[Row], known: Columns, objective: Objective | None) -> Iterable[Cell]:
    for metric in known.metric_of.values():
        values = [
            main_number(row.metrics[metric], metric, objective) for row in rows if metric in row.metrics
        ]
        yield mean(values)
        yield spread(values)


def mean(values: Sequence[float]) -> float | None:
    """The mean; None of nothing. As sums of floats go, so do infinity and NaN."""
    if not values:
        return None
    if all(map(isfinite, values)):
        try:
            return fmean(values)
        except OverflowError:  # of the sum
            return sum(value / len(values) for value in values)
    return sum(values)


def spread(values: Sequence[float]) -> float | None:
    """The standard deviation of a sample; None of fewer than two values, NaN where one is not finite."""
    if len(values) < 2:
        return None
    if not all(map(isfinite, values)):
        return nan
    try:
        return stdev(values)
    except OverflowError:
        return inf


def _best_first(
    rows: list[tuple[Cell, ...]], first: int, known: Columns, objective: Objective | None
) -> list[tuple[Cell, ...]]:
    """By the mean of the objective, whose column is the `first` of the metrics; the unknown come last."""
    if known.objective() is None or objective is None:
        return rows
    sign = -1 if objective.goal == "max" else 1

    def rank(row: tuple[Cell, ...]) -> tuple[bool, float]:
        value = row[first]
        if not isinstance(value, float) or isnan(value):
            return True, 0.0
        return False, sign * value

    return sorted(rows, key=rank)
