"""The scripts of docs/recipes.md: whatever ends them, they go on, and come to the same numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.callbacks.conftest import ROOT, Trials
from tests.store.needs import need

BLOCK = re.compile(r"^```python\n(# train_(\w+)\.py\n.*?)^```$", re.DOTALL | re.MULTILINE)
SCRIPTS = {name: body for body, name in BLOCK.findall((ROOT / "docs/recipes.md").read_text("utf-8"))}
NEEDS = {"huggingface": ("torch", "transformers", "accelerate"), "keras": ("torch", "keras")}
STOPPED = 75


def recipe(name: str, **changes: str) -> str:
    """A script of the page, with some of its text replaced."""
    need(*NEEDS.get(name, (name,)))
    text: str = SCRIPTS[name]
    for before, after in changes.items():
        assert before in text
        text = text.replace(before, after)
    return text


@pytest.mark.parametrize("name", SCRIPTS)
def test_whatever_ends_a_recipe_it_comes_to_the_same_numbers(
    name: str, trials: Trials, workplace: Path
) -> None:
    script = recipe(name)
    assert trials.run("straight", script) == 0, trials.log
    straight, total = trials.progress("straight"), trials.told("straight")
    assert total >= 12  # something in each of six epochs at least
    for signal, code in {"SIGTERM": STOPPED, "SIGKILL": -9}.items():
        assert trials.run(signal, script, signal, total // 2) == code, trials.log
        assert trials.run(signal, script) == 0, trials.log
        assert trials.told(signal) < total, "it began again"
        assert trials.progress(signal) == straight
        assert (workplace / signal / "finished.train.json").exists()
    assert trials.run("straight", script) == 0, trials.log  # as if it was lost right after its end
    assert trials.progress("straight") == straight


def test_lightning_is_stopped_within_an_epoch(trials: Trials) -> None:
    plug = 'os.environ["STOKER_ATTEMPT"] == "1" and self.global_step == 20 and os.kill(os.getpid(), 15)'
    script = "import os\n" + recipe("lightning", **{"        loss =": f"        {plug}\n        loss ="})
    assert trials.run("straight", recipe("lightning")) == 0, trials.log
    assert trials.run("stopped", script) == STOPPED, trials.log
    assert trials.run("stopped", script) == 0, trials.log
    assert trials.progress("stopped") == trials.progress("straight")


def test_huggingface_is_stopped_within_an_epoch(trials: Trials, workplace: Path) -> None:
    steps = "logging_steps=1, eval_steps=10, save_steps=10,\n    report_to"
    script = recipe("huggingface", **{'"epoch"': '"steps"', "report_to": steps})
    assert trials.run("straight", script) == 0, trials.log
    assert trials.run("stopped", script, "SIGTERM", trials.told("straight") * 2 // 3) == STOPPED, trials.log
    saved = {int(path.name.split("-")[1]) for path in (workplace / "stopped").glob("checkpoint-*")}
    assert 10 in saved
    assert max(saved) in range(11, 20)  # at once, not where the arguments say
    assert trials.run("stopped", script) == 0, trials.log
    assert trials.progress("stopped") == trials.progress("straight")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("save_total_limit=2", "save_total_limit=1", "save_total_limit is 1"),
        ("output_dir=manager.directory", 'output_dir="/nowhere"', "output_dir is /nowhere"),
    ],
)
def test_huggingface_arguments_that_lose_work_are_told(
    before: str, after: str, told: str, trials: Trials
) -> None:
    assert trials.run("one", recipe("huggingface", **{before: after})) == 1
    assert told in trials.log


def test_keras_tells_that_the_model_was_changed(trials: Trials) -> None:
    assert trials.run("one", recipe("keras"), "SIGTERM", 6) == STOPPED, trials.log
    layer = 'keras.layers.Dense(16, activation="relu"), '
    assert trials.run("one", recipe("keras", **{layer: f"{layer}keras.layers.Dense(16), "})) == 1
    assert "the checkpoint has 5 variables of the Sequential, and this one has 7" in trials.log
