"""The table of a study: columns that tell something, sorted and chosen as asked."""

from __future__ import annotations

import gc
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isnan
from typing import Any

from stoker.core.errors import UsageError
from stoker.core.values import Value, key, text
from stoker.report.curves import InLogs
from stoker.report.rows import NUMBERS, Row, main_number
from stoker.spec.problems import listing, suggest
from stoker.store.records import TrialId
from stoker.study.opened import Objective
from stoker.study.ranges import State

Cell = Value | None
Get = Callable[[Row], Cell]
_ABOUT = ("status", "attempts", "seconds", "cpu", "gpu", "memory", "slot", "agent", "sweep", "why")
_ALWAYS = ("trial", "name")
_NUMERIC = ("attempts", "seconds", "cpu", "gpu", "memory")


@dataclass(frozen=True)
class Table:
    """Columns, and for each trial a cell in each; None where nothing is known."""

    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]]

    def column(self, name: str) -> list[Cell]:
        """All cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def only(self, names: Sequence[str]) -> Table:
        """The same with these columns."""
        places = [self.columns.index(name) for name in names]
        return Table(tuple(names), [tuple(row[place] for place in places) for row in self.rows])


class Columns:
    """All columns that a study's trials have, and how to compute each.

    Of metrics that were found in logs a row has only the last value; `in_logs` knows the others.
    """

    def __init__(
        self, rows: Sequence[Row], objective: Objective | None, in_logs: InLogs | None = None
    ) -> None:
        self.params = list(dict.fromkeys(name for row in rows for name in row.params))
        self.metrics = list(dict.fromkeys(name for row in rows for name in row.metrics))
        if objective is not None and objective.metric in self.metrics:  # what matters most comes first
            self.metrics.remove(objective.metric)
            self.metrics.insert(0, objective.metric)
        self._rows, self._objective, self._in_logs = rows, objective, in_logs
        self._needs_logs = False  # for any column that was asked for
        taken = {*_ALWAYS, *_ABOUT}
        self.param_of = {free(name, taken, "param"): name for name in self.params}
        self.metric_of = {free(name, taken, "metric"): name for name in self.metrics}
        self.names = [*_ALWAYS, *self.param_of, *self.metric_of, *_ABOUT]

    def get(self, name: str) -> Get:
        """What computes a column; UsageError if there is no such one."""
        found = self.find(name)
        if found is None:
            raise UsageError(
                f"there is no column '{name}'; {suggest(name, self.names) or 'see --columns all'}"
            )
        return found

    def find(self, name: str) -> Get | None:
        """What computes a column, if there is such a one."""
        if name == "trial":
            return operator.attrgetter("number")
        if name in _ALWAYS or name in _ABOUT:
            return operator.attrgetter("title" if name == "sweep" else name)
        if name in self.param_of:
            param = self.param_of[name]
            return lambda row: row.params.get(param)
        if name in self.metric_of:
            return self._metric(self.metric_of[name], "")
        metric, _, which = name.rpartition(".")
        if which in NUMBERS and metric in self.metric_of:
            return self._metric(self.metric_of[metric], which)
        return None

    def _metric(self, metric: str, which: str) -> Get:
        objective = self._objective
        goal = objective.goal if objective is not None and objective.metric == metric else ""
        if which == "best" and not goal:
            raise UsageError(
                f"'{metric}.best': nothing says what is good, as {metric} is not the study's `objective`; "
                f"write {metric}.max or {metric}.min"
            )
        in_logs = self._in_logs if which in ("min", "max", "best") else None
        in_logs = in_logs if in_logs is not None and metric in in_logs.names else None
        self._needs_logs |= in_logs is not None

        def compute(row: Row) -> Cell:
            found = row.metrics.get(metric)
            if found is None:
                return None
            if in_logs is not None and found.min is None:
                found = in_logs.numbers(row, metric) or found
            if which == "best":
                return found.best(goal)
            return getattr(found, which) if which else main_number(found, metric, objective)

        return compute

    def has_numbers(self, name: str) -> bool:
        """Whether all that is known in a column are numbers."""
        if name in self.param_of:
            param = self.param_of[name]
            kinds = {type(row.params[param]) for row in self._rows if param in row.params}
            return not kinds & {str, bool}
        return name in _NUMERIC or (name not in _ALWAYS and name not in _ABOUT)

    def statuses(self) -> list[str]:
        """All that a trial can have, and those of these."""
        return list(dict.fromkeys([*(state.value for state in State), *(row.status for row in self._rows)]))

    def prepare(self, rows: Sequence[Row]) -> None:
        """Read what columns that were asked for need of these trials, if that is more than rows have."""
        if self._in_logs is not None and self._needs_logs:
            self._in_logs.read(rows)

    def usual(self) -> list[str]:
        """Parameters that differ, all metrics, status, and time and attempts if they tell anything."""
        params = [name for name in self.param_of if differs(map(self.get(name), self._rows))]
        seconds = ["seconds"] if any(row.seconds is not None for row in self._rows) else []
        attempts = ["attempts"] if any(row.attempts > 1 for row in self._rows) else []
        return [*_ALWAYS, *params, *self.metric_of, "status", *seconds, *attempts]

    def objective(self) -> str | None:
        """The column of the study's objective, if trials have it."""
        metric = self._objective.metric if self._objective is not None else None
        return next((name for name, found in self.metric_of.items() if found == metric), None)


def free(name: str, taken: set[str], kind: str) -> str:
    """The column of a parameter or metric: its name, unless something else has that."""
    while name in taken:
        name = f"{kind}.{name}"
    taken.add(name)
    return name


def differs(cells: Iterator[Cell]) -> bool:
    """Whether any two of them are not the same."""
    first = _identity(next(cells, None))
    return any(_identity(cell) != first for cell in cells)


def _identity(cell: Cell) -> str | None:
    return None if cell is None else key(cell)


@contextmanager
def uncollected() -> Iterator[None]:
    """Without looking for garbage, of which tables make none: that would take half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def make(
    rows: Iterable[Row],
    objective: Objective | None = None,
    columns: Sequence[str] = (),
    sort: str = "",
    where: str = "",
    in_logs: InLogs | None = None,
) -> Table:
    """The table. `columns` are names, or `all`; `sort` is a column, with `-` in front for the highest first.

    Without `sort` the best come first, if there is an objective. `in_logs` is asked only for what it alone
    knows, such as `loss.min` where `loss` stands in logs.
    """
    with uncollected():
        found = list(rows)
        known = Columns(found, objective, in_logs)
        names = known.names if list(columns) == ["all"] else list(dict.fromkeys(columns)) or known.usual()
        found = _sorted(chosen(found, known, where), known, objective, sort)
        getters = [known.get(name) for name in names]
        known.prepare(found)
        cells = [list(map(get, found)) for get in getters]
        return Table(tuple(names), list(zip(*cells, strict=True)))


# Sorting


def _sorted(rows: list[Row], known: Columns, objective: Objective | None, sort: str) -> list[Row]:
    if not sort:
        column = known.objective()
        if column is None or objective is None:
            return rows
        sort = f"-{column}" if objective.goal == "max" else column
    is_down = known.find(sort) is None and sort.startswith("-")
    column = sort[1:] if is_down else sort
    if column == "trial":
        return sorted(rows, key=lambda row: row.trial, reverse=is_down)
    get = known.get(column)
    known.prepare(rows)
    cells = [(row, get(row)) for row in rows]
    there = [(row, cell) for row, cell in cells if _is_known(cell)]
    there.sort(key=lambda found: _rank(found[1]), reverse=is_down)
    return [row for row, _ in there] + [row for row, cell in cells if not _is_known(cell)]


def _is_known(cell: Cell) -> bool:
    return cell is not None and not _is_nan(cell)


def _is_nan(cell: Cell) -> bool:
    return isinstance(cell, float) and isnan(cell)


def _rank(cell: Cell) -> tuple[bool, Any]:
    """Numbers before texts."""
    return isinstance(cell, str), cell


# Choosing


_AND = re.compile(r"\s+(?:and|AND)\s+")
_LOST_AND = re.compile(r"(?:and|AND)\s.*|(?:.*\s)?(?:and|AND)", re.DOTALL)
_OTHER_WORD = re.compile(r"\s(or|not|in|OR|NOT|IN)\s")
_SIGN = re.compile(r"<=|>=|!=|==|=|<|>|~")
_OPENED = re.compile(rf"""(?:{_SIGN.pattern})\s*(['"])""")
_QUOTED = re.compile(r"""(?<=[=<>~\s])(['"]).*?\1""", re.DOTALL)
_TURNED = {"=>": ">=", "=<": "<=", "=~": "~", "<>": "!="}
_COMMA = re.compile(r"[-+]?\d+,\d+", re.ASCII)
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_TRIAL_ORDERS = {**_ORDERS, "=": operator.eq, "==": operator.eq, "!=": operator.ne}


def chosen(rows: list[Row], known: Columns, where: str) -> list[Row]:
    """Rows for which a condition holds: `lr>0.1 and status=finished`."""
    for clause in _clauses(where.strip()) if where.strip() else ():
        holds = _condition(clause, known)
        known.prepare(rows)
        rows = [row for row in rows if holds(row)]
    return rows


def _clauses(where: str) -> Iterator[str]:
    """What stands between `and`. Quotes count only at the ends of a value: `name!=it's` has none."""
    begin = 0
    for word in _AND.finditer(where):
        if not _is_open(where[begin : word.start()]):
            yield where[begin : word.start()]
            begin = word.end()
    if _is_open(where[begin:]):
        raise UsageError(f"'{where[begin:]}': a quote is not closed")
    yield where[begin:]


def _is_open(clause: str) -> bool:
    """Whether its value begins with a quote, and does not end with it."""
    quote = _OPENED.search(clause)
    return quote is not None and not clause[quote.end() :].rstrip().endswith(quote[1])


def _condition(clause: str, known: Columns) -> Callable[[Row], bool]:
    """Tells whether a condition holds. Names of columns may contain signs: the first that fits counts."""
    plain = _QUOTED.sub("''", clause)
    if _LOST_AND.fullmatch(plain):
        raise UsageError(f"'{clause}': a condition is missing before or after `and`")
    signs = list(_SIGN.finditer(clause))
    if not signs or not clause[: signs[0].start()].strip():
        raise UsageError(
            f"'{clause}' is no condition; write `lr>0.1`, `status=finished` or `name~regular expression`"
        )
    if other := _OTHER_WORD.search(plain):
        raise UsageError(
            f"'{clause}': conditions are joined by `and` only; leave out `{other[1]}`, or quote it"
        )
    parts = [(clause[: sign.start()].strip(), sign[0], clause[sign.end() :].strip()) for sign in signs]
    name, sign, wanted = next((part for part in parts if known.find(part[0])), parts[0])
    get = known.get(name)
    if len(wanted) > 1 and wanted[0] == wanted[-1] and wanted[0] in "'\"":
        wanted = wanted[1:-1]
    else:
        _check_plain(clause, sign, wanted, known)
    if name == "trial" and sign in _TRIAL_ORDERS:
        order, trial = _TRIAL_ORDERS[sign], _trial(wanted)
        return lambda row: order(row.trial, trial)
    _check_wanted(name, sign, wanted, known)
    holds = _test(sign, wanted)
    return lambda row: holds(get(row))


def _check_plain(clause: str, sign: str, wanted: str, known: Columns) -> None:
    """Refuse what stands without quotes and was hardly meant."""
    if right := _TURNED.get(f"{sign}{wanted[:1]}"):
        raise UsageError(f"'{clause}': write `{right}`, or quote what begins with `{wanted[0]}`")
    for comma in re.finditer(",", wanted):
        rest = wanted[comma.end() :]
        if any(known.find(rest[: other.start()].strip()) for other in _SIGN.finditer(rest)):
            raise UsageError(f"'{clause}': conditions are joined by `and`, not by a comma")


def _check_wanted(name: str, sign: str, wanted: str, known: Columns) -> None:
    """Refuse what no trial can have."""
    is_equal = sign in ("=", "==", "!=")
    if name == "status" and is_equal and wanted and wanted not in (states := known.statuses()):
        raise UsageError(f"there is no status '{wanted}'; there are {listing(states, len(states), 'and')}")
    if sign == "~" or _number(wanted) is not None or not known.has_numbers(name):
        return
    if _COMMA.fullmatch(wanted):
        raise UsageError(f"'{wanted}' is no number; decimals have a point, as in 0.1, and thousands no comma")
    if not is_equal:
        raise UsageError(f"'{wanted}' is no number, and '{name}' has nothing but numbers")


def _test(sign: str, wanted: str) -> Callable[[Cell], bool]:
    number = _number(wanted)
    if sign == "~":
        pattern = _pattern(wanted)
        return lambda cell: cell is not None and pattern.search(text(cell)) is not None
    if sign in _ORDERS:
        order = _ORDERS[sign]
        return lambda cell: _is_ordered(order, cell, wanted, number)
    return lambda cell: _equals(cell, wanted, number) == (sign != "!=")


def _equals(cell: Cell, wanted: str, number: float | None) -> bool:
    """Numbers however they are written; what is unknown equals nothing, as in `lr=`."""
    if cell is None:
        return not wanted
    if isinstance(cell, bool):
        return text(cell) == wanted.lower()
    if isinstance(cell, str) or number is None:
        return text(cell) == wanted
    return cell == number or (_is_nan(cell) and _is_nan(number))


def _is_ordered(order: Callable[[Any, Any], bool], cell: Cell, wanted: str, number: float | None) -> bool:
    """There is no order between a number and a text."""
    if cell is None or isinstance(cell, bool):
        return False
    if isinstance(cell, str):
        return number is None and order(cell, wanted)
    return number is not None and order(cell, number)


def _pattern(wanted: str) -> re.Pattern[str]:
    try:
        return re.compile(wanted)
    except re.error as error:
        raise UsageError(f"'{wanted}' is no regular expression: {error}") from None


def _trial(word: str) -> TrialId:
    match = re.fullmatch(r"(?:(\d{1,18})\.)?(\d{1,18})", word, re.ASCII)
    if match is None:
        raise UsageError(f"'{word}' is no number of a trial; write `trial<17`, or `trial>=2.1`")
    return TrialId(int(match[1] or 1), int(match[2]))


def _number(word: str) -> float | None:
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    return None
