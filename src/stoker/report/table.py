"""The table of a study: columns that tell something, sorted and chosen as asked."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

from stoker.core.errors import UsageError
from stoker.core.values import Value, text
from stoker.report.rows import NUMBERS, Row, main_number
from stoker.spec.problems import suggest
from stoker.study.opened import Objective

Cell = Value | None
_ABOUT = ("status", "attempts", "seconds", "cpu", "gpu", "memory", "slot", "agent", "sweep", "why")
_ALWAYS = ("trial", "name")
_SHOWN = ("status", "seconds")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
    "~": lambda value, pattern: re.search(str(pattern), str(value)) is not None,
}
_CLAUSE = re.compile(r"\s*(.+?)\s*(<=|>=|!=|==|=|<|>|~)\s*(.*?)\s*")


@dataclass(frozen=True)
class Table:
    """Columns, and for each trial a cell in each; None where nothing is known."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]

    def column(self, name: str) -> list[Cell]:
        """All cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]


class Columns:
    """All columns that a study's trials have, and how to compute each."""

    def __init__(self, rows: Sequence[Row], objective: Objective | None) -> None:
        self.params = list(dict.fromkeys(name for row in rows for name in row.params))
        self.metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
        if objective is not None and objective.metric in self.metrics:  # what matters most comes first
            self.metrics.remove(objective.metric)
            self.metrics.insert(0, objective.metric)
        self._objective = objective
        taken = {*_ALWAYS, *_ABOUT}
        self.param_of = {_free(name, taken, "param"): name for name in self.params}
        self.metric_of = {_free(name, taken, "metric"): name for name in self.metrics}
        self.names = [*_ALWAYS, *self.param_of, *self.metric_of, *_ABOUT]

    def get(self, name: str) -> Callable[[Row], Cell]:
        """What computes a column; UsageError if there is no such one."""
        if name in _ALWAYS:
            return (
                (lambda row: str(row.trial).removeprefix("1.")) if name == "trial" else (lambda row: row.name)
            )
        if name in _ABOUT:
            field = "title" if name == "sweep" else name
            return lambda row: getattr(row, field)
        if name in self.param_of:
            param = self.param_of[name]
            return lambda row: row.params.get(param)
        metric, dot, which = name.rpartition(".")
        if name in self.metric_of:
            return self._metric(self.metric_of[name], "")
        if dot and which in NUMBERS and metric in self.metric_of:
            return self._metric(self.metric_of[metric], which)
        raise UsageError(f"there is no column '{name}'; {suggest(name, self.names) or 'see --columns all'}")

    def _metric(self, metric: str, which: str) -> Callable[[Row], Cell]:
        goal = self._objective.goal if self._objective is not None else "min"

        def compute(row: Row) -> Cell:
            found = row.metrics.get(metric)
            if found is None:
                return None
            if which == "best":
                return found.best(goal)
            return getattr(found, which) if which else main_number(found, metric, self._objective)

        return compute

    def usual(self, rows: Sequence[Row]) -> list[str]:
        """Parameters that differ, all metrics, status and time."""
        params = [
            name for name, param in self.param_of.items() if _differs(row.params.get(param) for row in rows)
        ]
        attempts = ["attempts"] if any(row.attempts > 1 for row in rows) else []
        return [*_ALWAYS, *params, *self.metric_of, *_SHOWN, *attempts]


def _free(name: str, taken: set[str], kind: str) -> str:
    """The column of a parameter or metric: its name, unless something else has that."""
    found = name if name not in taken else f"{kind}.{name}"
    taken.add(found)
    return found


def _differs(values: Iterable[Cell]) -> bool:
    found = {(type(value), text(value)) if value is not None else None for value in values}
    return len(found) > 1


def make(
    rows: Iterable[Row],
    objective: Objective | None = None,
    columns: Sequence[str] = (),
    sort: str = "",
    where: str = "",
) -> Table:
    """The table. `columns` are names, or `all`; `sort` is a column, with `-` in front for the highest first.

    Without `sort` the best come first, if there is an objective.
    """
    found = list(rows)
    known = Columns(found, objective)
    found = _sorted(chosen(found, known, where), known, objective, sort)
    names = known.names if list(columns) == ["all"] else list(columns) or known.usual(found)
    getters = [known.get(name) for name in names]
    return Table(tuple(names), [tuple(get(row) for get in getters) for row in found])


def _sorted(rows: list[Row], known: Columns, objective: Objective | None, sort: str) -> list[Row]:
    if not sort:
        if objective is None or objective.metric not in known.metrics:
            return rows
        column = next(name for name, metric in known.metric_of.items() if metric == objective.metric)
        sort = f"-{column}" if objective.goal == "max" else column
    is_down = sort.startswith("-") and sort not in known.names
    get = known.get(sort[1:] if is_down else sort)
    cells = [(row, get(row)) for row in rows]
    there = [(row, cell) for row, cell in cells if _is_known(cell)]
    there.sort(key=lambda found: _key(found[1]), reverse=is_down)
    return [row for row, _ in there] + [row for row, cell in cells if not _is_known(cell)]


def _is_known(cell: Cell) -> bool:
    return cell is not None and not (isinstance(cell, float) and isnan(cell))


def _key(cell: Cell) -> tuple[bool, float, str]:
    """Numbers before texts."""
    if isinstance(cell, (int, float)):
        return False, float(cell), ""
    return True, 0.0, str(cell)


def chosen(rows: list[Row], known: Columns, where: str) -> list[Row]:
    """Rows for which a condition holds: `lr>0.1 and status=finished`."""
    clauses = re.split(r"\s+and\s+", where.strip()) if where.strip() else []
    return [row for row in rows if all(_holds(row, known, clause) for clause in clauses)]


def _holds(row: Row, known: Columns, clause: str) -> bool:
    match = _CLAUSE.fullmatch(clause)
    if not match:
        raise UsageError(
            f"'{clause}' is no condition; write `lr>0.1`, `status=finished` or `name~regular expression`"
        )
    cell, sign, wanted = (
        known.get(match[1])(row),
        "=" if match[2] == "==" else match[2],
        match[3].strip("'\""),
    )
    if cell is None:
        return sign == "!="
    if sign == "~":
        return _matches(wanted, text(cell))
    number = _number(wanted)
    if isinstance(cell, (int, float)) and not isinstance(cell, bool) and number is not None:
        return not isnan(cell) and _OPERATORS[sign](cell, number)
    return _OPERATORS[sign](text(cell), wanted)


def _matches(pattern: str, value: str) -> bool:
    try:
        return re.search(pattern, value) is not None
    except re.error as error:
        raise UsageError(f"'{pattern}' is no regular expression: {error}") from None


def _number(word: str) -> float | None:
    try:
        return float(word)
    except ValueError:
        return None
