"""What two versions of a study file have not in common, as people are told."""

from __future__ import annotations

import pytest

from stoker.spec.changes import since_last_run
from stoker.spec.problems import Source

OLD = """\
template:
  train: python train.py [lr]
  test: {command: python test.py, timeout: 1h}
default: {lr: 0.1, seed: 0}
env: {TOKEN: abc}
metrics: {acc: 'acc (.)'}
---
_title: norms
norm: [new, batch]
---
seed: [1, 2]
"""
KEPT = " (finished trials are kept; -f runs them again)"


def told(new: str, added: int | None = 12, old: str = OLD) -> list[str]:
    lines = since_last_run(Source("params.yaml", old), Source("params.yaml", new), added)
    assert all(line.startswith("since the last run: ") for line in lines)
    return [line.removeprefix("since the last run: ") for line in lines]


@pytest.mark.parametrize(
    ("was", "is_now", "expected"),
    [
        ("train.py [lr]", "train.py {lr}", [f"the command of stage train changed{KEPT}"]),
        (" test.py", " eval.py", [f"the command of stage test changed{KEPT}"]),
        (".py", ".sh", [f"the commands of stages train and test changed{KEPT}"]),
        ("  test:", "  eval:", ["stage eval is new, stage test is gone"]),
        ("1h", "2h", ["template.test.timeout changed 1h → 2h"]),
        ("lr: 0.1", "lr: 0.2", ["default.lr changed 0.1 → 0.2: 12 new trials"]),
        ("lr: 0.1, ", "lr: 0.1, wd: 1, ", ["default.wd is new: 12 new trials"]),
        (", seed: 0", "", ["default.seed is gone: 12 new trials"]),
        ("[new, batch]", "[new, batch, none]", ["the sweep norms changed (norm): 12 new trials"]),
        ("seed: [1, 2]", "seed: [1, 3]", ["the sweep of line 11 changed (seed): 12 new trials"]),
        ("---\nseed: [1, 2]\n", "", ["the sweep of line 11 is gone: 12 new trials"]),
        (
            "_title: norms",
            "_title: other",
            ["the sweep other is new, the sweep norms is gone: 12 new trials"],
        ),
        ("acc (.)", "acc (..)", ["metrics.acc changed acc (.) → acc (..)"]),
        ("abc", "def", ["env.TOKEN changed"]),
        ("lr: 0.1", f"lr: {'9' * 30}", ["default.lr changed: 12 new trials"]),
    ],
)
def test_one_change(was: str, is_now: str, expected: list[str]) -> None:
    assert told(OLD.replace(was, is_now)) == expected


def test_what_is_no_change() -> None:
    assert told(OLD) == []
    assert (
        told("# a remark\n" + OLD.replace("python train.py [lr]", ">\n    python train.py\n    [lr]")) == []
    )
    assert told(OLD.replace("{lr: 0.1, seed: 0}", "{seed: 0, lr: 0.1}")) == []
    assert told("template: {train: run}\n", old="template: run\n") == []


def test_several_changes_take_two_lines_and_those_that_make_trials_come_first() -> None:
    new = OLD.replace("train.py", "t.py").replace("abc", "d").replace("acc:", "bleu:")
    new = new.replace("lr: 0.1", "lr: 1").replace("seed: 0", "seed: 1").replace("[1, 2]", "[3]")
    assert told(new, 1) == [
        f"the command of stage train changed{KEPT}",
        "default.lr changed 0.1 → 1, default.seed changed 0 → 1, the sweep of line 11 changed (seed), "
        "and 3 more: 1 new trial",
    ]


def test_how_many_trials_are_new() -> None:
    new = OLD.replace("lr: 0.1", "lr: 1")
    assert told(new, 0) == ["default.lr changed 0.1 → 1: no new trials"]
    assert told(new, 12345) == ["default.lr changed 0.1 → 1: 12,345 new trials"]
    assert told(new, None) == ["default.lr changed 0.1 → 1"]


def test_merges_are_resolved_and_may_lead_back() -> None:
    old = "template: run\ndefault: &all {<<: *all, lr: 1}\n"
    assert told(old.replace("1}", "2}"), old=old) == ["default.lr changed 1 → 2: 12 new trials"]


def test_another_file() -> None:
    lines = since_last_run(Source("a/rates.yaml", OLD), Source("norms.yaml", OLD), 3)
    assert lines == ["the last run in this output was of a/rates.yaml; this file adds to it: 3 new trials"]
