"""Rows of random studies against what was written, computed the slow and obvious way; and studies for others.

A study stands in a directory: real records, and a file of progress for each attempt that recorded something.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf, isnan, nan
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.agent.directory import write_param, write_stat
from stoker.core.times import stamp
from stoker.core.values import Value
from stoker.manager.progress import Series, head, signed
from stoker.manager.trial import Trial
from stoker.plan.trials import Trial as PlannedTrial
from stoker.report.recorded import Recorded
from stoker.report.rows import Numbers, Row, numbers_of
from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store import open_store, records
from stoker.store.records import TrialId
from stoker.study import summaries
from stoker.study.opened import Opened, open_study
from stoker.study.work import Planned, add_plan, plan_body

AGENT = "somebody"
BEGAN = 1_800_000_000.0
NAMES = ("lr", "seed", "status", "name", "loss", "größe", "count")
METRICS = ("loss", "acc", "status", "lr", "loss.min", "__proto__", "a b\t<i>", "größe 世界", "-x")
TEXTS = (
    "a",
    "x and y",
    "a\tb\nc\r\n",
    "世界",
    "é",
    "|_*",
    "1",
    "",
    "<script>alert(1)</script>",
    'say "hi", you',
    "a\\|b\\",
)

values = st.one_of(
    st.sampled_from(TEXTS), st.booleans(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, -2.25, 1e300]),
    st.sampled_from([float("inf"), float("-inf"), float("nan")]),
)  # fmt: skip
numbers = st.one_of(
    st.floats(-10, 10), st.sampled_from([float("nan"), float("inf"), float("-inf"), 0.0, 1.0])
)


@dataclass(frozen=True)
class Try:
    """An attempt: how much of each series of the one before it keeps, and what it adds."""

    keeps: float  # a share of what was there
    adds: Mapping[str, list[float]]


@dataclass(frozen=True)
class Fact:
    """What became of a trial."""

    status: str
    tries: tuple[Try, ...] = ()
    logged: Mapping[str, float] = field(default_factory=dict)  # metrics that patterns found
    figures: Mapping[str, Any] = field(default_factory=dict)

    def series(self) -> dict[str, list[float]]:
        """All values in order, as a script that was never interrupted would have recorded them."""
        found: dict[str, list[float]] = {}
        for one in self.tries:
            found = {name: kept for name, old in found.items() if (kept := old[: int(len(old) * one.keeps)])}
            for name, added in one.adds.items():
                found[name] = found.get(name, []) + added
        return {name: all_ for name, all_ in found.items() if all_}


tries = st.builds(
    Try,
    st.sampled_from([0.0, 0.5, 1.0]),
    st.dictionaries(st.sampled_from(METRICS), st.lists(numbers, max_size=4), max_size=3),
)
figures = st.fixed_dictionaries(
    {"seconds": st.integers(0, 50).map(float)},
    optional={
        "cpu": st.integers(0, 90).map(float),
        "memory": st.integers(0, 10**9),
        "gpu": st.integers(0, 100).map(float),
        "slot": st.sampled_from(["gpu 0", "cpu 1"]),
        "began": st.just(BEGAN),
    },
)
facts = st.builds(
    Fact,
    st.sampled_from(["waiting", "running", "finished", "finished", "finished", "failed", "stopped"]),
    st.lists(tries, min_size=1, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(METRICS), numbers, max_size=2),
    figures,
)
sweeps = st.dictionaries(st.sampled_from(NAMES), st.lists(values, min_size=1, max_size=2), max_size=3)
objectives = st.one_of(st.none(), st.tuples(st.sampled_from(METRICS), st.sampled_from(["min", "max"])))


@dataclass(frozen=True)
class Written:
    """A study in a directory, and what was written into it."""

    opened: Opened
    facts: Mapping[int, Fact]  # by the number of the trial
    params: Mapping[int, Mapping[str, Value]]


def yaml(value: Any) -> str:
    if isinstance(value, float) and (isnan(value) or abs(value) == float("inf")):
        return ".nan" if isnan(value) else ".inf" if value > 0 else "-.inf"
    if isinstance(value, list):
        return f"[{', '.join(map(yaml, value))}]"
    return json.dumps(value)


def study_file(parts: list[dict[str, list[Value]]], objective: tuple[str, str] | None) -> str:
    lines = ["template: {train: 'true'}"]
    if objective is not None:
        lines.append(f"objective: {{metric: {yaml(objective[0])}, goal: {objective[1]}}}")
    for part in parts:
        lines += ["---", *(f"{name}: {yaml(some)}" for name, some in part.items())]
        lines += [] if part else ["{}"]
    return "\n".join(lines) + "\n"


@contextmanager
def study(
    parts: list[dict[str, list[Value]]],
    found: list[Fact],
    objective: tuple[str, str] | None = None,
    is_summed_up: bool = False,
) -> Iterator[Written]:
    """Write a study whose trials came to these facts, in turn, and open it."""
    with TemporaryDirectory() as place:
        output = Path(place)
        store = open_store(str(output / ".stoker"))
        text = study_file(parts, objective)
        body = plan_body(load(Source("params.yaml", text)), {}, "20260131.235959")
        add_plan(store, body)
        planned = Planned(body, None)
        trials = {n: one for n in range(1, planned.size + 1) if (one := planned.trial(n)) is not None}
        chosen = {n: found[place % len(found)] for place, n in enumerate(trials)}
        claims, results = [], {}
        for number, fact in chosen.items():
            trial, described = TrialId(1, number), trials[number]
            directory = output / described.name
            if fact.status != "waiting":
                directory.mkdir()
                write_param(str(directory), described.params, {"_name": described.name}, {"train": "true"})
                write_stat(str(directory), {"train": fact.status})
                write_progress(directory, fact)
                last = len(fact.tries)
                claims += [records.claim_key(trial, 1, last)] if fact.status == "running" else []
                claim = {"agent": AGENT, "time": stamp(), "nonce": "1"}
                store.write(records.claim_key(trial, 1, last), records.encode(claim))
            if fact.status in ("finished", "failed", "stopped"):
                results[number] = (1, result(fact, objective))
                store.write(records.result_key(trial, 1), records.encode(results[number][1]))
        if is_summed_up and len(results) == len(trials):
            store.write(records.summary_key(1, 0), summaries.encode(1, 0, planned.size, results))
        beat = {"host": "h", "pid": 7, "running": claims, "time": stamp()}
        store.write(records.beat_key(AGENT), records.encode(beat))
        params = {number: one.params for number, one in trials.items()}
        yield Written(open_study(str(output)), chosen, params)


def write_progress(directory: Path, fact: Fact) -> None:
    """A file for each attempt, which tells how much of the one before it keeps."""
    before: dict[str, int] = {}
    for number, one in enumerate(fact.tries, 1):
        counts = {name: kept for name, count in before.items() if (kept := int(count * one.keeps))}
        after = {"attempt": [1, number - 1], "counts": counts} if number > 1 else None
        lines = [head(Trial({}, str(directory), attempt=(1, number)), after)]
        before = dict(counts)
        for name, added in one.adds.items():
            lines += [signed({"name": name, "values": added})] if added else []
            before[name] = before.get(name, 0) + len(added)
        (directory / f"progress.train.1-{number}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def result(fact: Fact, objective: tuple[str, str] | None) -> dict[str, Any]:
    """As an agent writes it."""
    series = {}
    for name, all_ in fact.series().items():
        told: dict[str, float] = {"count": len(all_), "last": all_[-1]}
        known = [value for value in all_ if not isnan(value)]
        series[name] = {**told, **({"min": min(known), "max": max(known)} if known else {})}
    metrics = {**fact.logged, **{name: told["last"] for name, told in series.items()}}
    return {
        "status": fact.status,
        "agent": AGENT,
        "attempt": len(fact.tries),
        "metrics": metrics,
        "series": series,
        "train": dict(fact.figures),
    }


def expected_numbers(fact: Fact) -> dict[str, Numbers]:
    """Slowly: a value at a time."""
    found = {} if fact.status in ("running", "waiting") else {n: Numbers(v) for n, v in fact.logged.items()}
    for name, all_ in fact.series().items() if fact.status != "waiting" else ():
        low = high = None
        for value in all_:
            if not isnan(value):
                low = value if low is None or value < low else low
                high = value if high is None or value > high else high
        found[name] = Numbers(all_[-1], low, high, len(all_))
    return found


def same(one: Any, other: Any) -> bool:
    """Equal, where NaN is."""
    return repr(one) == repr(other)


@settings(max_examples=60)
@given(
    st.lists(sweeps, min_size=1, max_size=2),
    st.lists(facts, min_size=1, max_size=5),
    objectives,
    st.booleans(),
)
def test_a_row_tells_what_became_of_its_trial(
    parts: list[dict[str, list[Value]]], found: list[Fact], objective: tuple[str, str] | None, summed: bool
) -> None:
    with study(parts, found, objective, summed) as written:
        made = list(Recorded(written.opened).rows())
        assert [row.trial.number for row in made] == list(written.facts)
        for row in made:
            check(row, written)


def check(row: Row, written: Written) -> None:
    fact, described = written.facts[row.trial.number], written.opened.trial(row.trial)
    assert (row.status, row.name, row.params) == (fact.status, described.name, described.params)
    assert sorted(row.metrics) == sorted(expected_numbers(fact))
    for name, numbers_ in expected_numbers(fact).items():
        assert same(tuple(row.metrics[name]), tuple(numbers_))
    is_done = fact.status in ("finished", "failed", "stopped")
    assert row.attempts == (len(fact.tries) if fact.status != "waiting" else 0)
    seconds = fact.figures["seconds"] if is_done else None
    assert row.seconds == seconds
    assert row.slot == (fact.figures.get("slot", "") if is_done else "")
    assert row.gpu == (fact.figures.get("gpu") if seconds else None)
    assert row.memory == ((fact.figures.get("memory") or None) if is_done else None)
    assert row.cpu == (fact.figures.get("cpu", 0.0) / seconds if seconds else None)


@settings(max_examples=30)
@given(st.lists(facts, min_size=1, max_size=4))
def test_series_are_those_of_an_uninterrupted_script(found: list[Fact]) -> None:
    with study([{"seed": [1, 2, 3]}], found) as written:
        origin = Recorded(written.opened)
        for row in origin.rows():
            fact, series = written.facts[row.trial.number], origin.series(row).get("train", {})
            told = {name: list(one.values) for name, one in series.items() if one.values}
            assert same(
                sorted(told.items()), sorted(fact.series().items() if fact.status != "waiting" else ())
            )


def test_a_directory_that_belongs_to_another_trial_is_not_taken_for_ones_own() -> None:
    parts: list[dict[str, list[Value]]] = [{"a": ["x/y"]}, {"a": ["x_y"]}, {"a": ["/x/y"]}]
    with study(parts, [Fact("finished")]) as written:
        names = [row.name for row in Recorded(written.opened).rows()]
        assert names == [written.opened.trial(TrialId(1, number)).name for number in written.facts]
        assert len(set(names)) == len(names)
        for name in names[1:]:  # which have a hash: also if nothing but the records is left of them
            shutil.rmtree(Path(str(written.opened.place.output), name))
        assert [row.name for row in Recorded(open_study(str(written.opened.place.output))).rows()] == names


def test_what_is_no_number_is_neither_lowest_nor_highest() -> None:
    series = Series()
    series.extend({"values": [nan, 2.0, 1.0, inf, nan]})
    assert same(numbers_of(series.values), Numbers(nan, 1.0, inf, 5))
    series.cut(1)
    assert same(numbers_of(series.values), Numbers(nan, None, None, 1))


def test_nonsense_in_a_record_is_passed_over() -> None:
    with study([{"a": [1]}], [Fact("finished", (Try(1.0, {}),))]) as written:
        body = {
            "status": "finished",
            "attempt": "many",
            "metrics": {"a": "high", "b": True, "c": 1},
            "series": {"d": 3, "e": {"last": "x"}, "f": {"last": 1.0, "min": "low", "count": None}},
            "train": {"seconds": 2.0, "cpu": "all", "memory": [], "gpu": None, "began": "once"},
        }
        written.opened.place.store.write(records.result_key(TrialId(1, 1), 1), records.encode(body))
        (row,) = Recorded(open_study(str(written.opened.place.output))).rows()
        assert row.metrics == {"c": Numbers(1.0), "f": Numbers(1.0, None, None, 1)}
        assert (row.seconds, row.cpu, row.memory, row.gpu, row.began) == (2.0, 0.0, None, None, None)


def test_a_fresh_round_does_not_show_what_the_one_before_recorded() -> None:
    with study([{"a": [1]}], [Fact("finished", (Try(1.0, {"loss": [1.0]}),))]) as written:
        output, store = written.opened.place.output, written.opened.place.store
        trial = TrialId(1, 1)
        for fresh, metrics in ((False, {"loss": Numbers(1.0, 1.0, 1.0, 1)}), (True, {})):
            order = {"rounds": [f"{trial}.2"], "fresh": fresh}
            store.write(records.order_key(1), records.encode(order))
            claim = records.claim_key(trial, 2, 1)
            store.write(claim, records.encode({"agent": AGENT, "time": stamp(), "nonce": "1"}))
            beat = {"host": "h", "pid": 7, "running": [claim], "time": stamp()}
            store.write(records.beat_key(AGENT), records.encode(beat))
            (row,) = Recorded(open_study(str(output))).rows()
            assert (row.status, dict(row.metrics)) == ("running", metrics)


class Unasked(Opened):
    """A study that computes no trial by itself, which takes long."""

    def trial(self, trial: TrialId) -> PlannedTrial:
        raise AssertionError(f"{trial} was asked for")


def test_names_of_very_many_trials_are_computed_quickly() -> None:
    parts: list[dict[str, list[Value]]] = [{"a": [1, 2], "b": ["x", "y"]}, {"c": [1, 2]}]
    with study(parts, [Fact("finished"), Fact("waiting"), Fact("waiting")]) as written:
        opened = Unasked(written.opened.place)
        opened.refresh()
        found = {row.trial: (row.name, row.params) for row in Recorded(opened).rows()}
        asked = map(written.opened.trial, found)
        assert list(found.values()) == [(trial.name, trial.params) for trial in asked]
        assert len(found) == 6
