"""What an opened study tells of results: by the objective of now, whatever stands in the records."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

import stoker
from stoker.cli import main
from stoker.report.page import report
from stoker.report.recorded import Recorded
from stoker.report.table import make
from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store import records
from stoker.store.records import TrialId
from stoker.study.opened import open_study
from stoker.study.work import add_plan, plan_body
from tests.report.test_rows import Fact, Try, study, study_file

FACTS = [
    Fact("finished", (Try(1.0, {"score": [1.0, 9.0, 5.0]}),), {"logged": 3.0}),
    Fact("finished", (Try(1.0, {"score": [2.0, 4.0, 3.0]}),), {"logged": 4.0}),
]


@pytest.mark.parametrize(("goal", "values"), [("min", [1.0, 2.0]), ("max", [9.0, 4.0])])
def test_the_best_is_that_of_the_objective_of_now(goal: str, values: list[float]) -> None:
    with study([{"a": [1, 2]}], FACTS, ("score", "min")) as written:
        place = written.opened.place
        if goal == "max":
            text = study_file([{"a": [1, 2]}], ("score", "max"))
            add_plan(place.store, plan_body(load(Source("params.yaml", text)), {}, "20270131.235959"))
        opened = open_study(str(place.output))
        assert opened.best(2) == [(value, TrialId(1, n)) for n, value in enumerate(values, 1)]
        found = stoker.open(str(place.output))
        assert [trial.metrics["score"] for trial in found.best(2)] == values
        assert [trial.metrics["logged"] for trial in found.best(2)] == [3.0, 4.0]
        origin = Recorded(opened)
        assert make(origin.rows(), opened.objective, ["score"]).column("score") == values


HUGE = 10**400


@pytest.mark.parametrize(
    "odd",
    [
        {"train": {"seconds": 1.0, "memory": nan, "began": 5.0}},
        {"train": {"seconds": 1.0, "memory": inf, "cpu": HUGE, "gpu": inf, "began": inf}},
        {"train": {"seconds": HUGE, "memory": HUGE}},
        {"train": {"seconds": nan, "began": nan}},
        {"train": {"seconds": inf, "began": 5.0}},
        {"train": {"seconds": 1e308, "began": 1e308}},
        {"train": {"seconds": -5.0, "began": 5.0}},
        {"metrics": {"score": HUGE}, "series": {}},
        {"metrics": {"score": [1], "x": None, "y": "z"}, "series": [1]},
        {"metrics": [1], "series": {"score": {"last": HUGE}, "x": {"last": 1, "min": -HUGE, "count": HUGE}}},
        {"series": {"score": {"last": 1.0, "min": HUGE, "max": "high"}}},
        {"time": [1, 2], "attempt": HUGE},
        {"time": {"a": 1}, "attempt": True, "agent": ["a"], "why": {}},
    ],
)
def test_what_others_wrote_into_a_record_is_unknown(
    odd: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [Fact("finished", (Try(1.0, {"score": [1.0, 3.0]}),), {}, {"seconds": 2.0, "began": 9.0})]
    with study([{"a": [1, 2, 3]}], facts, ("score", "max")) as written:
        store, where = written.opened.place.store, str(written.opened.place.output)
        body = {"status": "finished", "attempt": 1, "agent": "a", "time": "x", **odd}
        store.write(records.result_key(TrialId(1, 2), 1), records.encode(body))
        opened = open_study(where)
        assert [value for value, _ in opened.best(2)] == [3.0, 3.0]
        for words in (["table"], ["status"], ["table", "--group", "a"], ["table", "--columns", "all"]):
            assert main([*words, where]) == 0, words
        capsys.readouterr()
        assert "score" in report(Recorded(opened), "1.0", with_code=False)
        made = {row.trial.number: row for row in Recorded(opened).rows()}
        assert made[2].memory is None
        assert all(type(one.last) is float for one in made[2].metrics.values())
