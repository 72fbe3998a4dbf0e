"""Tables of random rows against a slow and obvious computation, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, isfinite, isnan, nan, sqrt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.core.errors import UsageError
from stoker.core.values import Spelled, Value, text
from stoker.report.grouping import group, mean, spread
from stoker.report.rows import Numbers, Row
from stoker.report.table import Cell, Table, make
from stoker.store.records import TrialId
from stoker.study.opened import Objective
from tests.report.test_rows import METRICS, NAMES, numbers, same, values

FEWER = settings(max_examples=max(60, settings().max_examples // 3))
ABOUT = ["status", "attempts", "seconds", "cpu", "gpu", "memory", "slot", "agent", "sweep", "why"]
STATES = ("waiting", "running", "finished", "finished", "failed")


def of_series(all_: Sequence[float]) -> Numbers:
    known = [value for value in all_ if not isnan(value)]
    return Numbers(all_[-1], min(known, default=None), max(known, default=None), len(all_))


metrics = st.dictionaries(
    st.sampled_from(METRICS),
    st.one_of(numbers.map(Numbers), st.lists(numbers, min_size=1, max_size=3).map(of_series)),
    max_size=3,
)
some_rows = st.lists(
    st.builds(
        lambda *told: Row(*told),  # noqa: PLW0108  (of Row itself it would fill in what is optional)
        st.just(TrialId(1, 1)),
        st.sampled_from(["a", "b", "é\n"]),
        st.sampled_from(["", "grid"]),
        st.dictionaries(st.sampled_from(NAMES), values, max_size=4),
        st.sampled_from(STATES),
        metrics,
        st.integers(0, 3),
        st.none(),
        st.one_of(st.none(), st.integers(0, 9).map(float)),
    ),
    max_size=7,
).map(lambda found: [row._replace(trial=TrialId(1, n)) for n, row in enumerate(found, 1)])
objectives = st.one_of(
    st.none(), st.builds(Objective, st.sampled_from(METRICS), st.sampled_from(["min", "max"]))
)


def names_of(rows: list[Row], objective: Objective | None) -> tuple[dict[str, str], dict[str, str]]:
    """Column → parameter, and column → metric, in order; a name that is taken has a word before it."""
    taken = ["trial", "name", *ABOUT]
    found: tuple[dict[str, str], dict[str, str]] = ({}, {})
    params = [name for row in rows for name in row.params]
    told = [name for row in rows for name in row.metrics]
    if objective is not None and objective.metric in told:
        told = [objective.metric, *told]
    for place, (kind, names) in enumerate((("param", params), ("metric", told))):
        for name in names:
            if name not in found[place].values():
                column = name
                while column in taken:
                    column = f"{kind}.{column}"
                taken.append(column)
                found[place][column] = name
    return found


def cell(row: Row, column: str, rows: list[Row], objective: Objective | None) -> Cell:
    params, told = names_of(rows, objective)
    if column == "trial":
        return str(row.trial.number)
    if column in params:
        return row.params.get(params[column])
    if column in told:
        numbers_ = row.metrics.get(told[column])
        if numbers_ is None:
            return None
        if objective is None or told[column] != objective.metric:
            return numbers_.last
        best = numbers_.max if objective.goal == "max" else numbers_.min
        return numbers_.last if best is None else best
    found: Cell = getattr(row, "title" if column == "sweep" else column)
    return found


def is_known(found: Cell) -> bool:
    return found is not None and found == found  # noqa: PLR0124


@FEWER
@given(some_rows, objectives)
def test_all_columns(rows: list[Row], objective: Objective | None) -> None:
    made = make(rows, objective, ["all"], sort="trial")
    params, told = names_of(rows, objective)
    assert list(made.columns) == ["trial", "name", *params, *told, *ABOUT]
    expected = [tuple(cell(row, name, rows, objective) for name in made.columns) for row in rows]
    assert same(made.rows, expected)


@FEWER
@given(some_rows, objectives)
def test_only_parameters_that_differ_are_shown(rows: list[Row], objective: Objective | None) -> None:
    params, told = names_of(rows, objective)
    shown = ["trial", "name"]
    for column, name in params.items():
        found = [
            (type(row.params[name]), text(row.params[name])) if name in row.params else None for row in rows
        ]
        shown += [column] if any(one != found[0] for one in found) else []
    shown += [*told, "status"]
    shown += ["seconds"] if [row for row in rows if row.seconds is not None] else []
    shown += ["attempts"] if [row for row in rows if row.attempts > 1] else []
    assert list(make(rows, objective).columns) == shown


@FEWER
@given(some_rows, objectives, st.booleans(), st.data())
def test_sorting(rows: list[Row], objective: Objective | None, is_down: bool, data: st.DataObject) -> None:
    params, told = names_of(rows, objective)
    column = data.draw(st.sampled_from(["", *params, *told, "status", "seconds", "name"]))
    ordered = make(rows, objective, ["trial"], f"-{column}" if column and is_down else column).column("trial")
    if not column:
        column = next((c for c, name in told.items() if objective and name == objective.metric), "")
        is_down = objective is not None and objective.goal == "max"
    if not column:
        assert ordered == [str(row.trial.number) for row in rows]
        return
    cells = {str(row.trial.number): cell(row, column, rows, objective) for row in rows}
    known = [number for number, found in cells.items() if is_known(found)]
    # insertion, one at a time, behind all that are not greater
    expected: list[str] = []
    for number in known:
        place = 0
        while place < len(expected) and not comes_before(cells[number], cells[expected[place]], is_down):
            place += 1
        expected.insert(place, number)
    assert ordered == expected + [number for number in cells if number not in known]


def comes_before(one: Any, other: Any, is_down: bool) -> bool:
    if is_down:
        one, other = other, one
    if isinstance(one, str) != isinstance(other, str):
        return isinstance(other, str)
    return bool(one < other)


@FEWER
@given(some_rows, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), st.one_of(values, numbers), st.data())
def test_conditions(rows: list[Row], sign: str, wanted: Any, data: st.DataObject) -> None:
    params, told = names_of(rows, None)
    column = data.draw(st.sampled_from([*params, *told, "status", "seconds"]))
    word = text(wanted)
    if column == "status":
        word = data.draw(st.sampled_from(STATES))
    where = f"{column} {sign} '{word}'" if "'" not in word else f"{column}{sign}{word}"
    cells = {str(row.trial.number): cell(row, column, rows, None) for row in rows}
    is_numeric = not any(isinstance(found, (str, bool)) for found in cells.values()) and column != "status"
    if is_numeric and sign not in ("=", "!=") and not is_number(word):
        with pytest.raises(UsageError, match="is no number"):
            make(rows, None, ["trial"], where=where)
        return
    made = make(rows, None, ["trial"], where=where)
    assert made.column("trial") == [number for number, found in cells.items() if holds(found, sign, word)]


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def holds(found: Cell, sign: str, word: str) -> bool:
    try:
        number = float(word)
    except ValueError:
        number = None
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool)
    if sign in ("=", "!="):
        if is_number and number is not None:
            equal = found == number or (found != found and number != number)  # noqa: PLR0124
        else:
            equal = word == "" if found is None else text(found) == word
        return equal == (sign == "=")
    order = {"<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (1, 0)}[sign]
    if is_number and number is not None:
        return found == found and number == number and compare(found, number) in order  # noqa: PLR0124
    return isinstance(found, str) and number is None and compare(found, word) in order


def compare(one: Any, other: Any) -> int:
    return bool(one > other) - bool(one < other)


@FEWER
@given(some_rows, objectives, st.data())
def test_groups(rows: list[Row], objective: Objective | None, data: st.DataObject) -> None:
    params, told = names_of(rows, objective)
    names = data.draw(st.lists(st.sampled_from([*params, "status", "name"]), max_size=2, unique=True))
    made = group(rows, objective, names)
    assert made.columns[: len(names)] == tuple(names)
    finished = [row for row in rows if row.status == "finished"]
    keys = [[value_of(cell(row, name, rows, objective)) for name in names] for row in finished]
    distinct = [key for place, key in enumerate(keys) if key not in keys[:place]]
    assert len(made.rows) == len(distinct)
    for got in made.rows:
        key = [*map(value_of, got[: len(names)])]
        mine = [row for row, own in zip(finished, keys, strict=True) if own == key]
        assert got[len(names)] == len(mine)
        for place, column in enumerate(told):
            found = [cell(row, column, rows, objective) for row in mine]
            known: list[Any] = [one for one in found if one is not None]
            first = len(names) + 1 + 2 * place
            assert near(got[first], slow_mean(known)), column
            assert near(got[first + 1], slow_spread(known)), column
    if told and objective is not None and objective.metric in told.values():
        means = [row[len(names) + 1] for row in made.rows]
        ranked = [value for value in means if isinstance(value, float) and not isnan(value)]
        assert ranked == sorted(ranked, reverse=objective.goal == "max")
        assert all(not isinstance(value, float) or isnan(value) for value in means[len(ranked) :])


def value_of(found: Cell) -> tuple[str, str]:
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        return "number", repr(float(found))
    return type(found).__name__, repr(found)


def test_a_number_is_one_group_however_it_is_written() -> None:
    spelled: list[Value] = [Spelled("1e-2"), 0.01, Spelled("1.0e-2"), nan, float("nan"), True, 1, 1.0, "1"]
    rows = [Row(TrialId(1, n), "x", "", {"lr": value}, "finished", {}) for n, value in enumerate(spelled, 1)]
    assert [(text(lr), count) for lr, count in group(rows, None, ["lr"]).rows if lr is not None] == [
        ("1e-2", 3),
        ("nan", 2),
        ("true", 1),
        ("1", 2),
        ("1", 1),
    ]


def slow_mean(found: list[float]) -> float | None:
    if not found:
        return None
    if not all(map(isfinite, found)):
        return nan if any(map(isnan, found)) or {inf, -inf} <= set(found) else inf if inf in found else -inf
    return float(sum(map(Fraction, found)) / len(found))


def slow_spread(found: list[float]) -> float | None:
    if len(found) < 2:
        return None
    if not all(map(isfinite, found)):
        return nan
    middle = sum(map(Fraction, found)) / len(found)
    return sqrt(sum((Fraction(one) - middle) ** 2 for one in found) / (len(found) - 1))


def near(one: Any, other: Any) -> bool:
    if one is None or other is None or not isfinite(one) or not isfinite(other):
        return same(one, other)
    return bool(abs(one - other) <= 1e-9 * max(1.0, abs(other)))


def test_means_of_numbers_that_are_too_large_to_add() -> None:
    assert mean([1e308, 1e308, 1e308]) == pytest.approx(1e308)
    assert spread([1.7e308, -1.7e308]) in (inf, pytest.approx(2.4e308))
    assert spread([1.0]) is None


# Names and conditions that people write

NOTES: list[dict[str, Value]] = [
    {"lr": Spelled("1e-3"), "flag": True, "note": "x and y", "huge": 10**330},
    {"lr": 0.1, "flag": False, "note": "a=b"},
    {"lr": 7, "count": 2**70},
]
ROWS = [
    Row(TrialId(1, 2), "two", "", NOTES[0], "finished", {"loss": Numbers(0.5, 0.25, 2.0, 3)}),
    Row(TrialId(1, 10), "ten", "", NOTES[1], "failed", {"loss": Numbers(nan)}),
    Row(TrialId(2, 1), "other", "", NOTES[2], "waiting", {}),
]


def chosen(where: str) -> list[Cell]:
    return make(ROWS, None, ["name"], where=where).column("name")


@pytest.mark.parametrize(
    ("where", "names"),
    [
        ("lr=0.001", ["two"]),
        ("lr == 1e-3", ["two"]),
        ("lr>0.01 and lr<5", ["ten"]),
        ("flag=true", ["two"]),
        ("flag=False", ["ten"]),
        ("flag=", ["other"]),
        ("flag!=", ["two", "ten"]),
        ("note='x and y'", ["two"]),
        ('note="x and y" and status=finished', ["two"]),
        ("note=a=b", ["ten"]),
        ("name~^t", ["two", "ten"]),
        ("note~.", ["two", "ten"]),
        ("trial<10", ["two"]),
        ("trial>=2.1", ["other"]),
        ("trial=2.1", ["other"]),
        ("loss=nan", ["ten"]),
        ("loss!=nan", ["two", "other"]),
        ("loss.min<0.3", ["two"]),
        ("count=1180591620717411303424", ["other"]),
        ("name>other", ["two", "ten"]),
        ("lr>0.01 AND lr<5", ["ten"]),
        ("trial=1.2", ["two"]),
        ("trial!=1.2", ["ten", "other"]),
        ("name!=it's and lr<1", ["two", "ten"]),
        ("lr<1 and name!=it's", ["two", "ten"]),
        ("name!='it's' and lr<1", ["two", "ten"]),
        ("note='x and y' and name!='a or b'", ["two"]),
        ("status!=", ["two", "ten", "other"]),
        ("huge=5", []),
        ("huge>5", ["two"]),
        ("huge=nan", []),
        ("  ", ["two", "ten", "other"]),
    ],
)
def test_what_a_condition_means(where: str, names: list[str]) -> None:
    assert chosen(where) == names


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("lr", "'lr' is no condition"),
        ("=3", "'=3' is no condition"),
        ("los=1", "there is no column 'los'; did you mean 'loss'"),
        ("loss.mean=1", "there is no column 'loss.mean'"),
        ("name~(", "is no regular expression"),
        ("trial<x", "'x' is no number of a trial"),
        ("trial=x", "'x' is no number of a trial"),
        ("trial<" + "9" * 5000, "is no number of a trial"),
        ("lr>0,1", "'0,1' is no number; decimals have a point"),
        ("lr=0,1", "'0,1' is no number; decimals have a point"),
        ("lr<0.2, flag=true", "joined by `and`, not by a comma"),
        ("lr=0.2,flag=true", "joined by `and`, not by a comma"),
        ("lr=>0.1", "write `>=`"),
        ("lr = < 0.1", "write `<=`"),
        ("lr<>0.1", "write `!=`"),
        ("lr>0.1 and", "a condition is missing"),
        ("lr>0.1 and  and flag=true", "a condition is missing"),
        ("and", "a condition is missing"),
        ("lr>0.1 or lr<3", "leave out `or`"),
        ("name='a' OR name='b'", "leave out `OR`"),
        ("name='a and lr>1", "a quote is not closed"),
        ("lr>high", "'high' is no number, and 'lr' has nothing but numbers"),
        ("loss<x", "'x' is no number"),
        ("seconds<", "'' is no number"),
        ("status=done", "there is no status 'done'; there are .*finished"),
        ("loss.best<1", "'loss.best': nothing says what is good"),
    ],
)
def test_conditions_that_cannot_be_meant(where: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        chosen(where)


def test_trials_are_sorted_as_they_were_planned() -> None:
    assert make(ROWS[::-1], None, ["trial"], "trial").column("trial") == ["2", "10", "2.1"]
    assert make(ROWS, None, ["trial"], "-trial").column("trial") == ["2.1", "10", "2"]


def test_columns_are_named_once_and_must_exist() -> None:
    assert make(ROWS, None, ["lr", "name", "lr"]).columns == ("lr", "name")
    with pytest.raises(UsageError, match="there is no column 'learning'"):
        make(ROWS, None, ["learning"])
    with pytest.raises(UsageError, match="there is no column 'x'"):
        make([], None, (), "x")
    with pytest.raises(UsageError, match="there is no column 'x'"):
        group(ROWS, None, ["x"])


def test_names_that_clash_more_than_once() -> None:
    told = {"metric.status": Numbers(1.0), "status": Numbers(2.0), "lr": Numbers(3.0)}
    row = ROWS[0]._replace(metrics=told)
    made = make([row], None, ["metric.status", "metric.metric.status", "metric.lr", "lr"])
    assert made.rows == [(1.0, 2.0, 3.0, 0.001)]


def test_a_column_whose_name_begins_with_a_sign_can_be_sorted_by() -> None:
    rows = [ROWS[0]._replace(metrics={"-x": Numbers(2.0)}), ROWS[1]._replace(metrics={"-x": Numbers(1.0)})]
    assert make(rows, None, ["name"], "-x").column("name") == ["ten", "two"]
    assert make(rows, None, ["name"], "--x").column("name") == ["two", "ten"]


def test_only_the_objective_has_a_best() -> None:
    row = ROWS[0]._replace(metrics={"loss": Numbers(0.5, 0.25, 2.0, 3), "acc": Numbers(0.5, 0.1, 0.9, 3)})
    made = make([row], Objective("acc", "max"), ["acc", "acc.best", "acc.last", "loss", "loss.max"])
    assert made.rows == [(0.9, 0.9, 0.5, 0.5, 2.0)]
    for objective in (None, Objective("acc", "max")):
        with pytest.raises(UsageError, match=r"write loss\.max or loss\.min"):
            make([row], objective, ["loss.best"])
        with pytest.raises(UsageError, match=r"'loss\.best'"):
            make([row], objective, sort="loss.best")


def test_a_group_by_a_parameter_that_is_named_as_a_column_of_its_own() -> None:
    rows = [Row(TrialId(1, n), "x", "", {"count": n}, "finished", {"count": Numbers(1.0)}) for n in (1, 2)]
    made = group(rows, None, ["count", "count"])
    assert made == Table(
        ("count", "trials.count", "metric.count.mean", "metric.count.std"),
        [(1, 1, 1.0, None), (2, 1, 1.0, None)],
    )
