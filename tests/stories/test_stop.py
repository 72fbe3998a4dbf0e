"""A person stops trials, or everything, and goes on later."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store import open_store
from stoker.study.opened import open_study
from stoker.study.work import add_plan, plan_body
from tests.stories.command import STOKER, stoker
from tests.stories.studies import TEXT, Here, refusal, running


def states(output: str = "output") -> list[str]:
    return [now.state.value for now in open_study(output).state.trials()]


def test_stopping_the_study_and_going_on(workplace: Path, here: Here) -> None:
    with running() as process:
        stopped = stoker("stop")
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stderr == (
            "stopping 1 running trial on 1 agent\nstopped; `stoker run` goes on with it\n"
        )
        assert process.wait(timeout=20) == 1
        assert states() == ["released", "waiting"]
        assert "the study is stopped; `stoker run` goes on with it" in here("status").stdout
        again = here("stop")
        assert (again.returncode, again.stderr.splitlines()[0]) == (0, "the study is stopped already")
    assert stoker("run").returncode == 0
    assert states() == ["finished", "finished"]


def test_stopping_one_trial(workplace: Path, here: Here) -> None:
    with running() as process:
        stopped = here("stop", "1")
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stderr == (
            "1 N_1 stops\n1 trial stopped; `stoker retry` or `stoker run` runs it again\n"
        )
        Path("go").touch()
        assert process.wait(timeout=20) == 1
    assert states() == ["stopped", "finished"]


def test_what_is_done_stays_so(study: Path, here: Here) -> None:
    done = here("stop")
    assert (done.returncode, done.stderr) == (0, "nothing is left to stop: all trials are done\n")
    done = here("stop", "N_1", "2")
    assert (done.returncode, done.stderr) == (1, "1 N_1 is finished already\n2 N_2 is failed already\n")
    assert "there is no trial 'N_7'" in refusal(here, "stop", "N_7")
    assert not (study / ".stoker/orders").exists()


@pytest.mark.parametrize(("answer", "is_stopped"), [("n", False), ("", False), ("yes", True)])
def test_a_person_is_asked(study: Path, here: Here, answer: str, is_stopped: bool) -> None:
    assert here("retry", "--failed").returncode == 0
    ours, theirs = pty.openpty()
    asked = subprocess.Popen([STOKER, "stop"], stdin=theirs, stderr=theirs)
    text = b""
    while b"[y/N]" not in text:
        text += os.read(ours, 4096)
    assert text == b"stop norms in output, with 0 running trials on 0 agents? [y/N] "
    os.write(ours, f"{answer}\n".encode())
    assert asked.wait(timeout=30) == (0 if is_stopped else 1)
    assert open_study("output").state.is_stopped is is_stopped
    os.close(ours)
    os.close(theirs)


def test_in_a_bucket(bucket: str, here: Here) -> None:
    place = f"{bucket}/stopped"
    plan = plan_body(load(Source("params.yaml", TEXT)), {}, "20260131.235959")
    add_plan(open_store(place), plan)
    assert here("stop", "-o", place, "1").stderr.startswith("1 N_1 will not run\n1 trial stopped; ")
    assert here("stop", "-o", place).returncode == 0
    assert open_study(place).state.is_stopped
    assert states(place) == ["stopped", "waiting", "waiting"]
