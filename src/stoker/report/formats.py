"""A table as text in several forms. Numbers are exact, except where people read them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from math import isfinite

from stoker.core.values import text
from stoker.report.table import Cell, Table
from stoker.spec.problems import printable

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
    """As people read it: five digits are enough, bytes in units."""
    if cell is None:
        return "–"
    if column == "memory" and isinstance(cell, int):
        return f"{cell / 1e6:.4g} MB"
    if isinstance(cell, float) and isfinite(cell):
        return f"{cell:.5g}"
    return printable(text(cell))


def exact(cell: Cell) -> str:
    """As a program reads it."""
    return "" if cell is None else text(cell)


def is_number(cell: Cell) -> bool:
    """Whether it stands at the right of its column."""
    return isinstance(cell, (int, float)) and not isinstance(cell, bool)


def as_text(table: Table) -> str:
    """Columns of equal width, for a terminal or a file."""
    cells = [[shown(cell, name) for cell, name in zip(row, table.columns, strict=True)] for row in table.rows]
    heads = [printable(name) for name in table.columns]
    widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    right = [_is_right(table, place) for place in range(len(heads))]
    lines = [_line(row, widths, right) for row in [heads, *cells]]
    return "".join(f"{line}\n" for line in lines)


def _is_right(table: Table, place: int) -> bool:
    return any(is_number(row[place]) for row in table.rows) and table.columns[place] != "trial"


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    placed = (
        cell.rjust(width) if is_right else cell.ljust(width)
        for cell, width, is_right in zip(cells, widths, right, strict=True)
    )
    return "  ".join(placed).rstrip()


def as_tsv(table: Table) -> str:
    """Values between tabs. What would break a line is replaced by a space."""
    rows = [table.columns, *([exact(cell) for cell in row] for row in table.rows)]
    return "".join(
        "\t".join(" ".join(str(cell).split("\t")).replace("\n", " ") for cell in row) + "\n" for row in rows
    )


def as_csv(table: Table) -> str:
    """As RFC 4180 has it, with plain line ends."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([exact(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def as_json(table: Table) -> str:
    """A list with an object for each trial. What JSON has no number for is null."""
    rows = [{name: _json(cell) for name, cell in zip(table.columns, row, strict=True)} for row in table.rows]
    return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


def _json(cell: Cell) -> Cell:
    return None if isinstance(cell, float) and not isfinite(cell) else cell


def as_markdown(table: Table) -> str:
    """A table as GitHub shows it."""
    right = [_is_right(table, place) for place in range(len(table.columns))]
    heads = "|".join(f" {_bars(printable(name))} " for name in table.columns)
    rules = "|".join(" ---: " if is_right else " --- " for is_right in right)
    rows = (
        "|".join(f" {_bars(shown(cell, name))} " for cell, name in zip(row, table.columns, strict=True))
        for row in table.rows
    )
    return "".join(f"|{line}|\n" for line in (heads, rules, *rows))


def _bars(cell: str) -> str:
    for sign in "\\|*_`<>":
        cell = cell.replace(sign, f"\\{sign}")
    return cell


def as_latex(table: Table) -> str:
    """A tabular with rules of the package booktabs."""
    sides = "".join("r" if _is_right(table, place) else "l" for place in range(len(table.columns)))
    heads = " & ".join(printable(name).translate(_LATEX) for name in table.columns)
    rows = (
        " & ".join(shown(cell, name).translate(_LATEX) for cell, name in zip(row, table.columns, strict=True))
        for row in table.rows
    )
    body = "".join(f"{row} \\\\\n" for row in rows)
    top = f"\\begin{{tabular}}{{{sides}}}\n\\toprule\n{heads} \\\\\n\\midrule\n"
    return f"{top}{body}\\bottomrule\n\\end{{tabular}}\n"


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": as_text,
    "tsv": as_tsv,
    "csv": as_csv,
    "json": as_json,
    "markdown": as_markdown,
    "latex": as_latex,
}
