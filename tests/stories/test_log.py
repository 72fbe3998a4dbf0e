"""Commands that are not written in Python record progress by `stoker log`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stories.command import STOKER, stoker

STUDY = """\
template: "stoker log loss=0.5 acc={x}; stoker log --step 10 loss=0.25 acc=0"
objective: {metric: acc, goal: max}
---
x: [1, 2]
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_progress_comes_into_the_results() -> None:
    Path("params.yaml").write_text(STUDY)
    bare = {**os.environ, "PATH": "/usr/bin:/bin"}  # where there is no stoker: its agent's is taken
    ran = subprocess.run([STOKER, "run"], env=bare, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "acc 2  X_2" in ran.stdout
    trials = json.loads(stoker("status", "--all", "--json").stdout)["trials"]
    assert [trial["metrics"] for trial in trials] == [{"loss": 0.25, "acc": 1.0}, {"loss": 0.25, "acc": 2.0}]
    lines = Path("output/X_1/progress.train.1-1.jsonl").read_text().splitlines()
    assert [json.loads(line).get("steps") for line in lines] == [None, None, None, [10.0], [10.0]]


def test_status_shows_what_a_running_trial_said_last() -> None:
    Path("params.yaml").write_text("template: 'stoker log loss=0.125; sleep 60'\n---\nx: [1]\n")
    with subprocess.Popen([STOKER, "run"], stdout=subprocess.DEVNULL) as running:
        try:
            for _ in range(100):
                shown = stoker("status").stdout
                if "loss 0.125" in shown:
                    break
            assert "loss 0.125" in shown
        finally:
            running.terminate()


@pytest.mark.parametrize("word", ["loss", "=1", "loss=much", ""])
def test_what_is_no_number_is_refused(word: str) -> None:
    inside = {"STOKER_DIRECTORY": "here", "STOKER_STAGE": "train"}
    said = stoker("log", word, **inside)
    assert said.returncode == 2
    assert "no KEY=VALUE with a number" in said.stderr
    assert not Path("here").exists()


def test_outside_a_study() -> None:
    said = stoker("log", "loss=1")
    assert said.returncode == 2
    assert "no stage of a study" in said.stderr


def test_the_package_on_the_path_adds_nothing_else() -> None:
    Path("params.yaml").write_text(
        f"template: '{sys.executable} show.py'\nenv: {{PYTHONPATH: mine}}\n---\nx: [1]\n"
    )
    Path("show.py").write_text(
        "import os, stoker\nassert os.environ['PYTHONPATH'].endswith(os.pathsep + 'mine')\n"
        "first = os.environ['PYTHONPATH'].split(os.pathsep)[0]\n"
        "assert sorted(os.listdir(first)) in (['bin', 'stoker'], ['__pycache__', 'bin', 'stoker'])\n"
        "assert stoker.__file__.startswith(os.path.dirname(os.path.dirname(os.path.dirname(first))))\n"
        "from stoker import Manager\n"
    )
    assert stoker("run").returncode == 0, stoker("logs", "1").stdout
