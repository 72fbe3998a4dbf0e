"""Data frames as people use them, of studies that were written and of one that ran."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stoker
from stoker.report import frames
from stoker.report.recorded import Recorded
from stoker.report.rows import Numbers, Row
from stoker.report.table import make
from stoker.store.records import TrialId
from tests.report.test_rows import Fact, Try, facts, same, study

SCRIPT = """\
from stoker import Manager

manager = Manager.create_manager({"lr": 0.1, "seed": 0})
params = manager.get_hyparams()
for epoch in manager.epochs(3):
    manager.add_progress("acc", float(params["lr"]) * (epoch + 1) + int(params["seed"]))
"""
STUDY = f"""\
template: {{train: '{sys.executable} train.py'}}
objective: {{metric: acc, goal: max}}
resource: ["", ""]
---
lr: [1e-3, 0.5]
seed: [1, 2]
"""


@settings(max_examples=30)
@given(st.lists(facts, min_size=1, max_size=4))
def test_progress_is_all_series_below_one_another(found: list[Fact]) -> None:
    with study([{"seed": [1, 2, 3]}], found) as written:
        made = frames.progress(Recorded(written.opened))
        expected = []
        for number, fact in written.facts.items():
            for name, all_ in fact.series().items() if fact.status != "waiting" else ():
                expected += [(str(number), "train", name, float(n), v) for n, v in enumerate(all_)]
        got = made[["trial", "stage", "series", "step", "value"]].itertuples(index=False, name=None)
        assert same(sorted(got, key=repr), sorted(expected, key=repr))
        assert list(made.columns) == ["trial", "name", "stage", "series", "step", "value", "time"]
        assert str(made["time"].dt.tz) == "UTC"


def test_the_kinds_of_columns() -> None:
    rows = [
        Row(TrialId(1, 1), "a", "", {"seed": 1, "flag": True, "lr": 0.5}, "finished", {"loss": Numbers(1.0)}),
        Row(TrialId(1, 2), "b", "", {"lr": 1}, "running", {}),
    ]
    made = frames.frame(make(rows, None, ["all"]))
    kinds = {name: str(made[name].dtype) for name in ("seed", "flag", "lr", "loss", "gpu", "attempts")}
    assert kinds.pop("seed") == "Int64"
    assert kinds.pop("flag") == "boolean"
    assert kinds.pop("attempts") == "int64"
    assert set(kinds.values()) == {"float64"}
    assert made["seed"].isna().tolist() == [False, True]


def test_a_study_that_ran(workplace: Path) -> None:
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    Path("params.yaml").write_text(STUDY, encoding="utf-8")
    study = stoker.run()
    table = study.table()
    assert table["acc"].tolist() == [3.5, 2.5, 2.003, 1.003]
    assert table["lr"].tolist() == [0.5, 0.5, 0.001, 0.001]
    assert study.table("seed", "acc.min", where="lr<0.1", sort="seed").to_dict("list") == {
        "seed": [1, 2],
        "acc.min": [1.001, 2.001],
    }
    groups = study.group("lr")
    assert groups["count"].tolist() == [2, 2]
    assert groups["acc.mean"].tolist() == pytest.approx([3.0, 1.503])
    long = study.progress()
    best = long[(long["name"] == "Lr_0.5-Seed_2") & (long["series"] == "acc")]
    assert best["value"].tolist() == [2.5, 3.0, 3.5]
    assert best["time"].is_monotonic_increasing
    assert isinstance(table, pandas.DataFrame)
    with pytest.raises(stoker.StokerError, match="no column"):
        study.table("nonsense")


def test_nothing_needs_pandas_until_a_frame_is_asked_for() -> None:
    told = (
        "import sys, stoker, stoker.cli.table; stoker.open; stoker.Examiner; print('pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_a_study_of_which_nothing_is_known_yet() -> None:
    with study([{"seed": [1, 2]}], [Fact("waiting", (Try(1.0, {}),))]) as written:
        assert frames.progress(Recorded(written.opened)).empty
