"""Trials that share some parameters, taken together: mean, spread and number over the rest, as over seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan, nan
from statistics import fmean, stdev

from stoker.core.values import key
from stoker.report import table
from stoker.report.rows import Row, main_number
from stoker.report.table import Cell, Columns, Table
from stoker.study.opened import Objective

FINISHED = "finished"


def group(rows: Iterable[Row], objective: Objective | None, names: Sequence[str], where: str = "") -> Table:
    """A row for each value of these columns: how many trials finished, and of each metric mean and std.

    The std is that of a sample; of one trial it is unknown. NaN makes a mean NaN, as it should.
    """
    found = list(rows)
    known = Columns(found, objective)
    found = [row for row in table.chosen(found, known, where) if row.status == FINISHED]
    getters = [known.get(name) for name in names]
    groups: dict[tuple[str, ...], tuple[tuple[Cell, ...], list[Row]]] = {}
    for row in found:
        values = tuple(get(row) for get in getters)
        place = tuple("" if value is None else key(value) for value in values)
        groups.setdefault(place, (values, []))[1].append(row)
    columns = [*names, "count"]
    for name in known.metric_of:
        columns += [f"{name}.mean", f"{name}.std"]
    made = [(*values, len(some), *_spread(some, known, objective)) for values, some in groups.values()]
    return Table(tuple(columns), _best_first(made, columns, known, objective))


def _spread(rows: Sequence[Row], known: Columns, objective: Objective | None) -> Iterable[Cell]:
    for metric in known.metric_of.values():
        values = [
            main_number(row.metrics[metric], metric, objective) for row in rows if metric in row.metrics
        ]
        if not values:
            yield from (None, None)
        elif any(map(isnan, values)):
            yield from (nan, nan)
        else:
            yield fmean(values)
            yield stdev(values) if len(values) > 1 else None


def _best_first(
    rows: list[tuple[Cell, ...]], columns: Sequence[str], known: Columns, objective: Objective | None
) -> list[tuple[Cell, ...]]:
    wanted = [name for name, metric in known.metric_of.items() if objective and metric == objective.metric]
    if not wanted or objective is None:
        return rows
    place = columns.index(f"{wanted[0]}.mean")
    sign = -1 if objective.goal == "max" else 1

    def rank(row: tuple[Cell, ...]) -> tuple[bool, float]:
        value = row[place]
        is_known = isinstance(value, float) and not isnan(value)
        return not is_known, sign * float(value) if isinstance(value, float) and is_known else 0.0

    return sorted(rows, key=rank)
