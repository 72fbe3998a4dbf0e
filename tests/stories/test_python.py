"""A person works with a study from Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from tests.stories.studies import TEXT, running, write


def test_from_a_file_to_its_best_trial(workplace: Path) -> None:
    write(TEXT)
    study = stoker.run("params.yaml", output="output", slots=["0"])
    assert (study.name, study.where) == (workplace.name, "output")
    assert (study.counts.finished, study.counts.failed, study.counts.total) == (2, 1, 3)
    (best,) = study.best()
    assert (best.number, best.name, best.params, best.metrics) == (3, "N_3", {"n": 3}, {"acc": 0.3})
    assert best.directory == Path("output/N_3")
    assert [(log.stage, log.text()) for log in best.logs()] == [
        ("train", "epoch 1 acc 0.3\n"),
        ("test", "tested 3\n"),
    ]
    assert repr(study) == f"<Study {workplace.name} in output: 2 of 3 finished>"


def test_opening_one_that_is_there(study: Path) -> None:
    found = stoker.open(study)
    assert [(trial.number, trial.status, trial.round) for trial in found.trials] == [
        (1, "finished", 1),
        (2, "failed", 1),
        (3, "finished", 1),
    ]
    assert found.trial(2) == found.trial("N_2")
    assert found.wait(timeout=0)
    assert found.retry() == 1
    assert (found.trial(2).status, found.trial(2).round) == ("waiting", 2)
    assert not found.wait(timeout=0)
    found.stop()
    assert found.wait(timeout=0), "nothing runs in a study that is stopped"
    assert found.retry(1) == 0
    assert found.retry(1, fresh=True) == 1


def test_running_what_is_left(workplace: Path) -> None:
    write("template: 'test -e mended || [ {n} = 1 ]'\nresource: [0]\n---\nn: [1, 2]\n")
    study = stoker.run()
    assert study.counts.failed == 1
    Path("mended").touch()
    study.stop()
    assert study.run(slots=["0"]).counts.finished == 2


def test_looking_while_it_runs(workplace: Path) -> None:
    with running():
        study = stoker.open()
        assert study.trial(1).status == "running"
        Path("go").touch()
        assert study.wait(timeout=30)
        assert study.counts.finished == 2


def test_mistakes_are_raised(workplace: Path, study: Path) -> None:
    with pytest.raises(stoker.StokerError, match="there is no study in nowhere"):
        stoker.open("nowhere")
    with pytest.raises(stoker.StokerError, match="there is no trial 'N_7'"):
        stoker.open().trial("N_7")
    with pytest.raises(stoker.StokerError, match="means 3 trials"):
        stoker.open().trial("N_*")
    write("temp: echo\n")
    with pytest.raises(stoker.StokerError, match="did you mean 'template'"):
        stoker.run()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = stoker.nonsense


def test_in_a_bucket(bucket: str) -> None:
    study = stoker.open(bucket)
    assert [trial.metrics["acc"] for trial in study.best(2)] == [0.3, 0.1]
    assert study.trial(1).directory is None
    assert study.trial(1).logs()[0].text() == "epoch 1 acc 0.1\n"


def test_importing_loads_nothing_of_it() -> None:
    script = "import stoker, sys; print([name for name in sys.modules if name.startswith('stoker')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "['stoker']\n"
    assert {"open", "run", "Study"} <= set(dir(stoker))
