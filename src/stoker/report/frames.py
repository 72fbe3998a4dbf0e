"""Tables as pandas data frames. Needs pandas, of the extra `report`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from stoker.core.errors import StokerError
from stoker.core.values import text
from stoker.report.origin import PARTS, Origin, Part, parts
from stoker.report.table import Cell, Table, uncollected

try:
    import numpy
    import pandas
    from pandas import DataFrame
except ImportError:
    raise StokerError("data frames need pandas: pip install 'stoker[report]'") from None


def frame(table: Table) -> DataFrame:
    """A data frame with the same columns; cells that are unknown are missing values."""
    with uncollected():
        names = [*map(_clean, table.columns)]
        cells = {name: _column(table.column(own)) for name, own in zip(names, table.columns, strict=True)}
        made: DataFrame = DataFrame(cells, columns=names)
        return made


def _column(cells: list[Cell]) -> Any:
    """Numbers that remember their spelling become plain ones; whole ones stay so where some are missing."""
    kinds = _kinds(cells)
    plain: Any = cells
    if "float" in kinds and {*map(type, cells)} != {float}:
        plain = [float(c) if isinstance(c, float) else c for c in cells]
    if "str" in kinds:
        plain = [_clean(c) if isinstance(c, str) else c for c in plain]
    if kinds in ({"int", None}, {"bool", None}):
        return pandas.Series(plain, dtype="Int64" if "int" in kinds else "boolean")
    if kinds == {None}:
        return pandas.Series(plain, dtype="float64")
    return pandas.Series(plain, dtype=object) if "large" in kinds else plain


def one_kind(table: Table) -> DataFrame:
    """A data frame for files whose columns have one type each: where they are mixed, all become texts."""
    made: dict[str, Any] = {}
    for name in table.columns:
        cells = table.column(name)
        kinds = _kinds(cells)
        is_plain = kinds <= {"int", "float", None} or kinds <= {"bool", None}
        found = _column(cells) if is_plain else [None if c is None else _clean(text(c)) for c in cells]
        made[_clean(name)] = found
    whole: DataFrame = DataFrame(made, columns=list(made))
    return whole


def _clean(told: str) -> str:
    """Without halves of signs, as names of files have them that are no UTF-8: no file can have them."""
    return told if told.isascii() else _HALVES.sub("\ufffd", told)


_HALVES = re.compile(r"[\ud800-\udfff]")


def _kinds(cells: list[Cell]) -> set[str | None]:
    """What there is in a column; `large` for whole numbers that take more than 64 bits."""
    types = {*map(type, cells)}
    kinds = {_KINDS.get(kind, "float") for kind in types}
    if int in types and any(type(cell) is int and abs(cell) >= 2**63 for cell in cells):
        kinds.add("large")
    return kinds


_KINDS: dict[type, str | None] = {type(None): None, bool: "bool", str: "str", int: "int"}


def progress(origin: Origin) -> DataFrame:
    """All series of all trials, a row for each value."""
    with uncollected():
        begun = list(origin.rows(with_waiting=False))
        return long([part for own in parts(origin, begun) for part in own])


def long(found: Sequence[Part]) -> DataFrame:
    """Series below one another."""
    counts = [len(part.values.values) for part in found]
    columns: dict[str, Any] = {
        title: numpy.repeat(numpy.array([_clean(str(part[place])) for part in found], dtype=object), counts)
        for place, title in enumerate(PARTS[:4])
    }
    for title, which in (("step", "steps"), ("value", "values"), ("time", "seconds")):
        arrays = [numpy.frombuffer(getattr(part.values, which)) for part in found]
        columns[title] = numpy.concatenate(arrays) if arrays else numpy.array([], dtype=float)
    columns["time"] = pandas.to_datetime(numpy.round(columns["time"] * 1000), unit="ms", utc=True)
    made: DataFrame = DataFrame(columns, columns=list(PARTS))
    return made
