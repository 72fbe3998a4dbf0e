"""A person asks for trials again."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli import main
from stoker.study.opened import open_study
from tests.stories.command import stoker
from tests.stories.studies import make, refusal, running


def test_what_failed_is_tried_again(workplace: Path) -> None:
    make(
        "template: {a: 'echo {n} >> a', b: 'test -e mended || [ {n} = 1 ]'}\nresource: [0]\n---\nn: [1, 2]\n"
    )
    retried = stoker("retry", "--failed")
    assert (retried.returncode, retried.stdout) == (0, "")
    assert retried.stderr == "1 trial to run again: `stoker run` does it\n"
    Path("mended").touch()
    assert stoker("run").returncode == 0
    assert Path("a").read_text() == "1\n2\n", "a finished stage ran again"
    none = stoker("retry", "--failed")
    assert (none.returncode, none.stderr) == (0, "no trial has failed\n")
    assert stoker("retry", "N_*", "--fresh").stderr == "2 trials to run again: `stoker run` does it\n"
    assert stoker("run").returncode == 0
    assert Path("a").read_text() == "1\n2\n1\n2\n"


def test_what_is_left_alone(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retry", "1"]) == 1
    assert capsys.readouterr().err == "1 N_1 is finished: --fresh runs it again\nnothing to try again\n"
    assert main(["retry", "1", "2"]) == 0
    assert capsys.readouterr().err.endswith("1 trial to run again: `stoker run` does it\n")
    assert main(["retry", "2"]) == 1
    assert capsys.readouterr().err == "2 N_2 is waiting: left as it is\nnothing to try again\n"
    assert "which trials? name some, or say --failed" in refusal(capsys, "retry")
    assert "there is no trial '9'" in refusal(capsys, "retry", "9").replace("trial 9", "trial '9'")


def test_agents_at_work_pick_it_up(workplace: Path) -> None:
    text = "template: 'touch {_output}/begun; [ {n} = 1 ] || test -e mended || exit 1; while [ ! -e go ]; do sleep 0.05; done'\n"
    with running(f"{text}resource: [0, 1]\n---\nn: [1, 2]\n", "output/N_1/begun") as process:
        state = open_study("output").state
        while not state.counts().failed:
            state.refresh()
        Path("mended").touch()
        retried = stoker("retry", "--failed")
        assert retried.stderr == "1 trial to run again: 1 agent at work will see\n"
        Path("go").touch()
        assert process.wait(timeout=30) == 0


def test_in_a_bucket(bucket: str, workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["retry", "-o", bucket, "3"]) == 1
    assert "3 N_3 is finished: --fresh runs it again" in capsys.readouterr().err
