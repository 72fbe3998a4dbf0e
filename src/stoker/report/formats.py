"""A table as text in several forms. Numbers are exact, except where people read them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple
from unicodedata import combining, east_asian_width

from stoker.core.values import Spelled, text
from stoker.report.table import Cell, Table
from stoker.spec.problems import printable

_GAP = 2  # cells between columns
_NARROW = 12  # cells that every column keeps
_BREAKS = re.compile(r"[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+")
_MARKDOWN = re.compile(r"([\\|*_`<>\[\]&~$])")
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "{": r"\{",
        "}": r"\}",
        "$": r"\$",
        "&": r"\&",
        "#": r"\#",
        "_": r"\_",
        "%": r"\%",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
)


def shown(cell: Cell, column: str = "") -> str:
    """As people read it: five digits are enough, bytes in units, parameters as the study file has them."""
    if cell is None:
        return "–"
    if column == "memory" and isinstance(cell, int):
        return f"{cell / 1e6:.4g} MB"
    if isinstance(cell, float) and isfinite(cell) and not isinstance(cell, Spelled):
        return f"{cell:.5g}"
    return printable(text(cell))


def exact(cell: Cell) -> str:
    """As a program reads it."""
    return "" if cell is None else text(cell)


# Text


class Column(NamedTuple):
    """A column as people read it."""

    name: str
    cells: list[str]
    width: int
    is_right: bool


def as_text(table: Table) -> str:
    """Columns of equal width, all of them."""
    return _lines([_column(table, name) for name in table.columns])


def fitted(table: Table, width: int, keeps: Sequence[str]) -> tuple[str, list[str]]:
    """The same in lines of so many cells, and the columns that were left out for that.

    What is widest is cut in its middle. If that is not enough, columns are left out, the last first, but for
    those to keep: if somebody asked for too many, lines are longer.
    """
    columns = [_column(table, name) for name in table.columns]
    dropped: list[str] = []
    for column in reversed(columns):
        left = [other for other in columns if other.name not in dropped]
        if _total(left, narrowed=True) > width and column.name not in keeps:
            dropped.insert(0, column.name)
    return _lines(_narrowed([column for column in columns if column.name not in dropped], width)), dropped


def _column(table: Table, name: str) -> Column:
    cells = table.column(name)
    told = [printable(name), *(shown(cell, name) for cell in cells)]
    return Column(name, told, max(map(_width, told)), is_right(cells, name))


def is_right(cells: Sequence[Cell], name: str) -> bool:
    """Whether a column stands at the right; a trial's number may have its iteration's in front."""
    return name != "trial" and any(isinstance(c, (int, float)) and not isinstance(c, bool) for c in cells)


def _width(told: str) -> int:
    """Cells of a terminal."""
    if told.isascii():
        return len(told)
    return sum(0 if combining(sign) else 1 + (east_asian_width(sign) in "WF") for sign in told)


def _total(columns: Sequence[Column], narrowed: bool = False) -> int:
    widths = [min(column.width, _NARROW) if narrowed else column.width for column in columns]
    return sum(widths) + _GAP * max(0, len(widths) - 1)


def _narrowed(columns: list[Column], width: int) -> list[Column]:
    """Take from the widest, until all fit."""
    most = max((column.width for column in columns), default=0)
    while most > _NARROW and _total(columns) > width:
        most -= 1
        columns = [column._replace(width=min(column.width, most)) for column in columns]
    return columns


def _lines(columns: Sequence[Column]) -> str:
    cut = [[_placed(cell, column) for cell in column.cells] for column in columns]
    return "".join(f"{(' ' * _GAP).join(line).rstrip()}\n" for line in zip(*cut, strict=True))


def _placed(cell: str, column: Column) -> str:
    cell = _cut(cell, column.width)
    if cell.isascii():
        return cell.rjust(column.width) if column.is_right else cell.ljust(column.width)
    space = " " * (column.width - _width(cell))
    return space + cell if column.is_right else cell + space


def _cut(told: str, width: int) -> str:
    """What is too long loses its middle, as both ends tell names apart."""
    if _width(told) <= width:
        return told
    end = (width - 1) // 3
    head, tail = told[: width - 1 - end], told[len(told) - end :]
    while _width(head) > width - 1 - end:
        head = head[:-1]
    while _width(tail) > end:
        tail = tail[1:]
    return f"{head}…{tail}"


# For programs


def as_tsv(table: Table) -> str:
    """Values between tabs. What would break a line is replaced by a space."""
    rows = [table.columns, *([exact(cell) for cell in row] for row in table.rows)]
    return "".join("\t".join(_BREAKS.sub(" ", cell) for cell in row) + "\n" for row in rows)


def as_csv(table: Table) -> str:
    """As RFC 4180 has it, but with plain line ends."""
    rows = [table.columns, *([exact(cell) for cell in row] for row in table.rows)]
    return "".join((",".join(map(_quoted, row)) or '""') + "\n" for row in rows)


def _quoted(word: str) -> str:
    return f'"{word.replace(chr(34), chr(34) * 2)}"' if re.search(r'[",\r\n]', word) else word


def as_json(table: Table) -> str:
    """A list with an object for each trial. What JSON has no number for is null."""
    rows = [{name: _json(cell) for name, cell in zip(table.columns, row, strict=True)} for row in table.rows]
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def _json(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not isfinite(cell) else cell


# For documents


def as_markdown(table: Table) -> str:
    """A table as GitHub shows it."""
    columns = [_column(table, name) for name in table.columns]
    cells = [[_MARKDOWN.sub(r"\\\1", cell) for cell in column.cells] for column in columns]
    head, *rows = zip(*cells, strict=True)
    rule = ["---:" if column.is_right else "---" for column in columns]
    return "".join(f"| {' | '.join(line)} |\n" for line in (head, rule, *rows))


def as_latex(table: Table) -> str:
    """A tabular with rules of the package booktabs."""
    columns = [_column(table, name) for name in table.columns]
    sides = "".join("r" if column.is_right else "l" for column in columns)
    head, *rows = zip(*([cell.translate(_LATEX) for cell in column.cells] for column in columns), strict=True)
    top = f"\\begin{{tabular}}{{{sides}}}\n\\toprule\n{' & '.join(head)} \\\\\n\\midrule\n"
    return f"{top}{''.join(' & '.join(row) + _END for row in rows)}\\bottomrule\n\\end{{tabular}}\n"


_END = " \\\\\n"

FORMATS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "tsv": as_tsv,
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}
