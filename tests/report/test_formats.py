"""Every form of a table is read back by its own reader, whatever stands in it."""

from __future__ import annotations

import csv
import io
import json
import re
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.values import Spelled, text
from stoker.report.formats import (
    _width,
    as_csv,
    as_json,
    as_latex,
    as_markdown,
    as_text,
    as_tsv,
    fitted,
    shown,
)
from stoker.report.frames import frame, one_kind
from stoker.report.table import Cell, Table
from tests.report.test_rows import TEXTS, same, values
from tests.store.needs import need

words = st.one_of(st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=6))
breaking = st.text(st.sampled_from("\t\n\r\x0b\x85\u2028,\"'ab|\\ "), max_size=4)
cells = st.one_of(st.none(), values, words, breaking, st.just(Spelled("1e-3")), st.integers(2**60, 2**70))
FEWER = settings(max_examples=max(60, settings().max_examples // 3))


@st.composite
def tables(draw: st.DrawFn) -> Table:
    names = draw(st.lists(words.filter(lambda word: word.strip()), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(0, 4))
    return Table(tuple(names), [tuple(draw(cells) for _ in names) for _ in range(count)])


def exact(table: Table) -> list[list[str]]:
    return [list(table.columns), *([("" if c is None else text(c)) for c in row] for row in table.rows)]


@FEWER
@given(tables())
def test_csv(table: Table) -> None:
    assert list(csv.reader(io.StringIO(as_csv(table), newline=""))) == exact(table)


@FEWER
@given(tables())
def test_tsv(table: Table) -> None:
    lines = as_tsv(table).splitlines()
    assert [line.split("\t") for line in lines] == [
        [re.sub(r"[\t\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]+", " ", cell) for cell in row]
        for row in exact(table)
    ]


@FEWER
@given(tables())
def test_json(table: Table) -> None:
    def told(cell: Cell) -> Cell:
        return None if isinstance(cell, float) and not isfinite(cell) else cell

    def refuse(word: str) -> None:
        raise AssertionError(word)

    found = json.loads(as_json(table), parse_constant=refuse)
    expected = [dict(zip(table.columns, map(told, row), strict=True)) for row in table.rows]
    assert found == expected


@FEWER
@given(tables())
def test_markdown(table: Table) -> None:
    head, rule, *rows = map(markdown_cells, as_markdown(table).splitlines())
    assert all(re.fullmatch(r"---:?", cell) for cell in rule)
    assert len(head) == len(rule) == len(table.columns)
    expected = [[shown(c, n).strip() for c, n in zip(row, table.columns, strict=True)] for row in table.rows]
    assert rows == expected


def markdown_cells(line: str) -> list[str]:
    """A cell ends at a bar that no backslash stands before; a backslash before a sign vanishes."""
    found, cell, signs = [], "", iter(line)
    for sign in signs:
        if sign == "\\":
            sign = next(signs)  # noqa: PLW2901
        elif sign == "|":
            found.append(cell.strip())
            cell = ""
            continue
        elif sign in "<>*_`[]":
            raise AssertionError(f"{sign} would be read as more than a sign")
        cell += sign
    assert cell == ""
    return found[1:]


@FEWER
@given(tables())
def test_latex_is_balanced(table: Table) -> None:
    written = as_latex(table)
    bare = re.sub(
        r"\\[{}$&#_%]", "", written.replace("\\\\\n", "\n")
    )  # without signs that only look like ones
    depth = 0
    for sign in bare:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    assert depth == 0
    assert not set("$#%~^_") & set(bare)
    lines = bare.splitlines()
    body = [line for line in lines[2:-2] if line != r"\midrule"]
    assert [line.count("&") for line in body] == [len(table.columns) - 1] * (len(table.rows) + 1)


@FEWER
@given(tables())
def test_text_has_a_line_for_each_trial(table: Table) -> None:
    lines = as_text(table).split("\n")
    assert len(lines) == len(table.rows) + 2
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", "".join(lines))


@FEWER
@given(tables(), st.integers(20, 80))
def test_text_fits_the_terminal(table: Table, width: int) -> None:
    told, dropped = fitted(table, width, [])
    assert all(_width(line) <= width for line in told.split("\n"))
    assert [name for name in table.columns if name not in dropped]
    whole, none = fitted(table, width, table.columns)
    assert none == []
    assert len(whole.splitlines()) == len(as_text(table).splitlines())


def test_what_gives_way() -> None:
    table = Table(
        ("trial", "name", "lr", "acc", "loss", "status"),
        [("1", "a-very-long-name-of-a-trial", 0.1, 0.5, 2.0, "finished")],
    )
    kept = ("trial", "name", "status", "acc")
    assert fitted(table, 100, kept) == (as_text(table), [])
    told, dropped = fitted(table, 50, kept)
    assert dropped == []
    assert told.splitlines()[1] == "1      a-very-long…trial  0.1  0.5     2  finished"
    assert fitted(table, 43, kept)[1] == ["loss"]
    assert fitted(table, 20, kept)[1] == ["lr", "loss"]


def test_wide_signs_take_two_cells() -> None:
    lines = as_text(Table(("a", "b"), [("世界", 1), ("xy", 22)])).splitlines()
    assert lines == ["a      b", "世界   1", "xy    22"]


def test_people_read_five_digits_and_the_spelling_of_the_file() -> None:
    assert [shown(cell) for cell in (1 / 3, Spelled("1e-3"), None, True, 2**70, float("nan"))] == [
        "0.33333", "1e-3", "–", "true", str(2**70), "nan",
    ]  # fmt: skip
    assert shown(123456789, "memory") == "123.5 MB"


# Data frames and parquet


@FEWER
@given(tables())
def test_a_frame_has_the_same_cells(table: Table) -> None:
    made = frame(table)
    assert list(made.columns) == list(table.columns)
    for name in table.columns:
        for got, cell in zip(made[name].tolist(), table.column(name), strict=True):
            is_missing = got is None or repr(got) in ("nan", "<NA>")
            is_float = str(made[name].dtype) == "float64" or isinstance(cell, float)
            expected = float(cell) if is_float and cell is not None else cell
            assert is_missing if cell is None else same(got, expected) or got == cell


def test_whole_numbers_of_any_size_stay_what_they_are() -> None:
    made = frame(Table(("a",), [(None,), (2**63 + 1,)]))
    assert made["a"].tolist() == [None, 2**63 + 1]


@FEWER
@given(tables())
def test_parquet(tmp_path_factory: pytest.TempPathFactory, table: Table) -> None:
    need("pyarrow")
    import pandas

    path: Path = tmp_path_factory.mktemp("parquet") / "table.parquet"
    one_kind(table).to_parquet(path)
    found = pandas.read_parquet(path)
    assert list(found.columns) == list(table.columns)
    for name in table.columns:
        for got, cell in zip(found[name].tolist(), table.column(name), strict=True):
            if cell is None:
                assert got is None or repr(got) in ("nan", "<NA>")
            else:
                assert got == cell or text(cell) == str(got) or same(got, float(cell))
