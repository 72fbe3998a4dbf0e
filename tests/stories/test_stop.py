"""A person stops trials, or everything, and goes on later."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

import pytest

from stoker.cli import main
from stoker.study.opened import open_study
from tests.stories.command import STOKER, stoker
from tests.stories.studies import TEXT, refusal, running, write


def states(output: str = "output") -> list[str]:
    return [now.state.value for now in open_study(output).state.trials()]


def test_stopping_the_study_and_going_on(workplace: Path) -> None:
    with running() as process:
        stopped = stoker("stop")
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stderr == (
            "stopping 1 running trial on 1 agent\nstopped; `stoker run` goes on with it\n"
        )
        assert process.wait(timeout=20) == 1
        assert states() == ["released", "waiting"]
        assert "the study is stopped; `stoker run` goes on with it" in stoker("status").stdout
        again = stoker("stop")
        assert (again.returncode, again.stderr.splitlines()[0]) == (0, "the study is stopped already")
    assert stoker("run").returncode == 0
    assert states() == ["finished", "finished"]


def test_stopping_one_trial(workplace: Path) -> None:
    with running() as process:
        stopped = stoker("stop", "1")
        assert stopped.returncode == 0, stopped.stderr
        assert stopped.stderr == (
            "1 N_1 stops\n1 trial stopped; `stoker retry` or `stoker run` runs it again\n"
        )
        Path("go").touch()
        assert process.wait(timeout=20) == 1
    assert states() == ["stopped", "finished"]


def test_what_is_done_stays_so(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["stop"]) == 0
    assert capsys.readouterr().err == "nothing is left to stop: all trials are done\n"
    assert main(["stop", "N_1", "2"]) == 1
    assert capsys.readouterr().err == "1 N_1 is finished already\n2 N_2 is failed already\n"
    assert "there is no trial 'N_7'" in refusal(capsys, "stop", "N_7")
    assert not (study / ".stoker/orders").exists()


@pytest.mark.parametrize(("answer", "is_stopped"), [("n", False), ("", False), ("yes", True)])
def test_a_person_is_asked(workplace: Path, answer: str, is_stopped: bool) -> None:
    write("template: sleep 60\n")
    subprocess.run([STOKER, "run", "--detach"], check=True, capture_output=True)
    try:
        ours, theirs = pty.openpty()
        asked = subprocess.Popen([STOKER, "stop"], stdin=theirs, stderr=theirs)
        text = b""
        while b"[y/N]" not in text:
            text += os.read(ours, 4096)
        os.write(ours, f"{answer}\n".encode())
        assert asked.wait(timeout=30) == (0 if is_stopped else 1)
        assert open_study("output").state.is_stopped is is_stopped
        os.close(ours)
        os.close(theirs)
    finally:
        stoker("stop", "--yes")


def test_in_a_bucket(bucket: str, workplace: Path) -> None:
    write(TEXT)
    place = f"{bucket}/stopped"
    write("template: 'sleep 60'\nresource: [0]\n")
    agent = subprocess.Popen([STOKER, "run", "-o", place], stdout=subprocess.DEVNULL)
    while (
        "running" not in (states(place) if agent.poll() is None else "running") if _is_there(place) else True
    ):
        assert agent.poll() is None
    assert stoker("stop", "-o", place).returncode == 0
    assert agent.wait(timeout=20) == 1
    assert states(place) == ["released"]


def _is_there(place: str) -> bool:
    return stoker("status", place).returncode == 0
