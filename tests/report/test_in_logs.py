"""Lowest and highest values of metrics that stand in logs, of which records have only the last."""

from __future__ import annotations

from math import isnan
from pathlib import Path

import pytest

import stoker
from stoker.cli import main

TEXT = """\
template:
  train: 'echo {values} | tr " " "\\n" | while read x; do echo "loss=$x, best=7"; done'
  test: 'echo tested'
metrics: {loss: 'loss=([^,]+)', gone: 'never (\\S+)', best: 'best=(\\S+)'}
objective: {metric: loss, goal: GOAL}
resource: ["", ""]
---
values: ["3 1 2", "nan", "nan 5 4 nan"]
"""


def ran(goal: str) -> None:
    Path("params.yaml").write_text(TEXT.replace("GOAL", goal), encoding="utf-8")
    stoker.run()


@pytest.mark.parametrize(("goal", "best"), [("min", [1.0, 4.0]), ("max", [3.0, 5.0])])
def test_they_are_read_when_they_are_asked_for(workplace: Path, goal: str, best: list[float]) -> None:
    ran(goal)
    found = stoker.open().table("loss", "loss.min", "loss.max", "loss.best", sort="trial")
    assert [found[name].iloc[0] for name in found] == [2.0, 1.0, 3.0, best[0]]
    assert isnan(found["loss.best"].iloc[1])
    assert found["loss.min"].isna().tolist() == [False, True, False]
    assert [found[name].iloc[2] for name in found][1:] == [4.0, 5.0, best[1]]
    assert isnan(found["loss"].iloc[2]), "the last value stands for it"


def test_conditions_order_and_groups(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran("min")
    assert main(["table", "--where", "loss.max>2", "--sort", "loss.max", "--columns", "trial,loss.max"]) == 0
    assert capsys.readouterr().out == "trial  loss.max\n1             3\n3             5\n"
    assert main(["table", "--group", "best.min", "--where", "loss.max>2"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["7", "2"]


def test_logs_that_are_gone(workplace: Path) -> None:
    ran("min")
    for log in Path("output").glob("*/log.*"):
        log.unlink()
    found = stoker.open().table("loss", "loss.min", "loss.best", sort="trial")
    assert found.iloc[0].isna().tolist() == [False, True, False], "the last value is recorded"
