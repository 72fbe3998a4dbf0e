"""Processes, threads and ends of a script."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from stoker.manager import PATH
from stoker.manager.trial import OUTSIDE
from tests.manager.running import Trial, bare

START = "from stoker import Manager\nmanager = Manager.create_manager()\n"


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return Trial(tmp_path / "trial", STOKER_SAVE_EVERY=1)


# Who writes


def test_forked_children_do_not_write(trial: Trial) -> None:
    script = """\
import os, sys, time
manager.add_progress("x", 1.0)
manager.save_progress({"by": "parent"})
for way in ("exit", "at once"):
    child = os.fork()
    if child == 0:
        manager.add_progress("x", 2.0)
        manager.add_progress("y", 2.0)
        manager.save_progress({"by": "child"})
        manager.finished()
        time.sleep(0.6)  # longer than progress waits
        os._exit(0) if way == "at once" else sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
manager.add_progress("x", 3.0)
"""
    trial.run(START + script)
    assert trial.values() == {"x": [1.0, 3.0]}
    assert len(trial.files(".state")) == 1
    assert not (trial.directory / "finished.train.json").exists()


def test_children_end_when_they_are_asked_to(trial: Trial) -> None:
    script = """\
import multiprocessing, time
multiprocessing.set_start_method("fork")
process = multiprocessing.Process(target=time.sleep, args=(60,))
process.start()
process.terminate()
process.join(10)
assert process.exitcode == -15, process.exitcode
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert not manager.should_stop()
"""
    trial.run(START + script)


def test_a_child_is_forked_while_a_checkpoint_is_written(trial: Trial) -> None:
    script = """\
import os
manager.set_compare_goal("score", "max")
manager.track(model=(model := {"data": bytes(8 << 20)}))
for score in range(8):
    manager.add_progress("score", score)
    manager.save_progress()
    child = os.fork()
    if child == 0:
        manager.add_progress("score", 100 + score)
        manager.save_progress()  # must not wait for a thread that is not there
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
    trial.run(START + script)
    assert trial.values() == {"score": [float(score) for score in range(8)]}


def test_other_ranks_read_and_do_not_write(trial: Trial) -> None:
    first = """\
manager.track(weights=(weights := {"w": 5}))
manager.add_progress("x", 1.0)
manager.add_progress("epochs", 3)
manager.save_progress({"w": 5})
"""
    trial.run(START + first, RANK="0")
    before = {path: path.read_bytes() for path in trial.directory.rglob("*") if path.is_file()}
    second = """\
assert manager.start_epoch() == 4
manager.track(weights=(weights := {}))
assert weights == {"w": 5} == manager.load(manager.params_path)
assert manager.get_progress() == {"x": [1.0], "epochs": [3.0]}
manager.add_progress("x", 2.0)
manager.save_progress({"w": 6})
manager.finished()
"""
    trial.run(START + second, RANK="1")
    assert {path: path.read_bytes() for path in trial.directory.rglob("*") if path.is_file()} == before


def test_a_manager_in_a_thread(trial: Trial) -> None:
    script = """\
import threading
from stoker import Manager

def train():
    manager = Manager.create_manager()
    for epoch in manager.epochs(3):
        manager.add_progress("x", epoch)

thread = threading.Thread(target=train)
thread.start()
thread.join()
"""
    trial.run(script)
    assert trial.values() == {"x": [0.0, 1.0, 2.0], "epochs": [0.0, 1.0, 2.0]}
    assert trial.told("finished.train.json")["last"]["x"] == 2.0


def test_two_managers_of_one_trial_are_one(trial: Trial) -> None:
    script = """\
from stoker import Manager
first = Manager.create_manager()
first.add_progress("x", 1.0)
second = Manager.create_manager({"lr": 7, "more": 8})
second.add_progress("x", 2.0)
assert second is first
assert second.get_hyparams() == {"lr": 0.1, "more": 8}
"""
    trial.run(script)
    assert trial.values() == {"x": [1.0, 2.0]}


# Ends


def test_an_error_is_recorded_with_all_that_helps(trial: Trial) -> None:
    script = """\
from stoker import Manager

def run(manager, params, best):
    manager.add_progress("loss", 0.5)
    manager.add_progress("loss", float("nan"))
    raise KeyError("no such thing")

Manager.create_manager().hyparam_search(run)
"""
    _, errors = trial.run(script, code=1)
    assert 'raise KeyError("no such thing")' in errors or "KeyError: 'no such thing'" in errors
    told = trial.told("error.train.1-1.json")
    assert (told["error"], told["message"]) == ("KeyError", "'no such thing'")
    assert "in run" in told["traceback"]
    assert told["hyparams"] == {"lr": 0.1}
    assert str(told["progress"]["loss"]) == "nan"
    assert trial.values()["loss"][0] == 0.5
    assert not (trial.directory / "finished.train.json").exists()


def test_a_request_to_stop_passes_those_who_catch_exceptions(trial: Trial) -> None:
    caught = """\
import os, signal
from stoker import Manager

manager = Manager.create_manager()
try:
    for epoch in manager.epochs(10):
        manager.add_progress("x", epoch)
        if epoch == 2:
            os.kill(os.getpid(), signal.SIGTERM)
except Exception:
    raise SystemExit(3)
"""
    trial.run(caught, code=75)
    trial.run(caught.replace("== 2", "== -1"))
    assert trial.values()["x"] == [float(x) for x in range(10)]


def test_an_error_after_a_request_to_stop_is_no_failure(trial: Trial) -> None:
    script = """\
import os, signal
from stoker import Manager

def run(manager, params, best):
    for epoch in manager.epochs(3):
        os.kill(os.getpid(), signal.SIGTERM)
        raise RuntimeError("a worker was asked to stop as well")

Manager.create_manager().hyparam_search(run)
"""
    _, errors = trial.run(script, code=75)
    assert "a worker was asked to stop as well" in errors
    assert not list(trial.directory.glob("error.*"))


def test_a_script_that_leaves_when_it_is_told_to_is_not_finished(trial: Trial) -> None:
    script = """\
import os, signal
from stoker import Manager

def run(manager, params, best):
    for epoch in range(manager.start_epoch(), 5):
        manager.add_progress("epochs", epoch)
        manager.save_progress()
        if epoch == 2 and not params:
            os.kill(os.getpid(), signal.SIGTERM)
        if manager.should_stop():
            return

Manager.create_manager().hyparam_search(run)
"""
    trial.run(script, code=75)
    assert not (trial.directory / "finished.train.json").exists()
    trial.run(script.replace("epoch == 2", "False"))
    assert trial.values()["epochs"] == [0, 1, 2, 3, 4]


def test_interrupted_from_the_keyboard(trial: Trial) -> None:
    script = """\
import time
manager.add_progress("x", 1.0)
manager.save_progress()
manager.add_progress("x", 2.0)
print("ready", flush=True)
time.sleep(60)
"""
    with trial.start(START + script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
    assert trial.values() == {"x": [1.0, 2.0]}
    assert len(trial.files(".state")) == 1


def test_parameters_that_are_missing_are_told(trial: Trial) -> None:
    _, errors = trial.run(f"{START}manager.get_hyparams()['momentum']", code=1)
    assert "the study sets no parameter 'momentum'; it has: lr" in errors


@pytest.mark.parametrize("every", ["often", "0", "-3", "2.5"])
def test_a_pace_that_is_none(trial: Trial, every: str) -> None:
    _, errors = trial.run(START, code=1, STOKER_SAVE_EVERY=every)
    assert "save_every is 'auto', a count such as 5 or a time such as '30s'" in errors


# Trying a script


SEARCH = "manager.hyparam_search(lambda *given: manager.add_progress('x', 2.0))"


@pytest.mark.parametrize("end", ["", SEARCH, "raise SystemExit(0)", "del manager"])
def test_trying_a_script_leaves_nothing(tmp_path: Path, end: str) -> None:
    script = """\
import os
from stoker import TestManager

manager = TestManager.create_manager({"lr": 1})
place = manager.directory
manager.track(weights={"w": 1})
manager.add_progress("x", 1.0)
manager.save_progress({"w": 1})
if os.fork() == 0:
    raise SystemExit
os.wait()
assert os.path.isdir(place)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{script}\n{end}"],
        env={**bare(), "PYTHONPATH": PATH, "TMPDIR": str(tmp_path), "STOKER_DIRECTORY": "/nowhere"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert os.listdir(tmp_path) == []  # noqa: PTH208


# Outside a study

ALONE = """\
import os
from stoker import Manager

manager = Manager.create_manager({"lr": 1})
begin = manager.start_epoch()
for epoch in manager.epochs(4):
    manager.add_progress("x", epoch)
    manager._saver.wait()
    if epoch == 2 and not begin:
        os._exit(9)
print(begin, manager.get_progress()["x"])
"""


def test_outside_a_study(tmp_path: Path) -> None:
    def run() -> subprocess.CompletedProcess[str]:
        environment = {**bare(), "PYTHONPATH": PATH, "STOKER_SAVE_EVERY": "1"}
        command = [sys.executable, "-c", ALONE]
        return subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    said = f"stoker: not in a study: progress and checkpoints go to {OUTSIDE}"
    for _ in range(2):
        fresh = run()
        assert (fresh.returncode, fresh.stderr) == (9, f"{said}\n")
        resumed = run()
        assert (resumed.returncode, resumed.stderr) == (0, f"{said}, and training goes on where it was\n")
        assert resumed.stdout == "2 [0.0, 1.0, 2.0, 3.0]\n"
        told = json.loads((tmp_path / OUTSIDE / "finished.train.json").read_text())
        assert told["attempt"] == [1, 2]


def test_outside_and_finished_twice_in_one_process(tmp_path: Path) -> None:
    script = """\
from stoker import Manager
for _ in range(2):
    manager = Manager.create_manager()
    assert manager is Manager.create_manager()
    assert manager.start_epoch() == 0
    for epoch in manager.epochs(2):
        manager.add_progress("x", epoch)
    assert manager.get_progress()["x"] == [0.0, 1.0]
"""
    environment = {**bare(), "PYTHONPATH": PATH}
    subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=tmp_path, capture_output=True, check=True
    )


def test_the_tests_leave_no_directories() -> None:
    assert not list(Path(tempfile.gettempdir()).glob("stoker-test-*"))
