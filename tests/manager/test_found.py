"""What hostile testers found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from stoker.manager import PATH
from stoker.manager.progress import Progress, read
from stoker.manager.trial import Trial
from stoker.store import records
from tests.manager.making import Make
from tests.stories.command import stoker


def run(script: str, directory: Path, attempt: int, **more: str) -> subprocess.CompletedProcess[str]:
    told = {"STOKER_DIRECTORY": str(directory), "STOKER_STAGE": "train", "STOKER_ATTEMPT": str(attempt)}
    env = {**os.environ, "PYTHONPATH": PATH, "STOKER_SAVE_EVERY": "1", **told, **more}
    return subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False
    )


def test_a_loop_that_counts_epochs_itself_goes_on_in_its_first_epoch(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "from stoker import Manager\n"
        "manager = Manager.create_manager()\n"
        "for epoch in range(manager.start_epoch(), 3):\n"
        "    for batch in manager.batches(range(20)):\n"
        "        manager.add_progress('batch', batch)\n"
        "        if batch == 9 and epoch == 0 and os.environ['STOKER_ATTEMPT'] == '1':\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "    manager.add_progress('epochs', epoch)\n"
        "    manager.save_progress()\n"
        "manager.finished()\n"
    )
    assert run(script, tmp_path, 1).returncode == 75
    assert run(script, tmp_path, 2).returncode == 0
    found = read(str(tmp_path), "train")
    assert list(found["epochs"].values) == [0, 1, 2]
    assert list(found["batch"].values) == [float(number) for _ in range(3) for number in range(20)]


def test_a_batch_that_is_being_made_is_waited_for(tmp_path: Path) -> None:
    """It has drawn random numbers, which must not be drawn again."""
    script = (
        "import os, random, signal\n"
        "from stoker import Manager\n"
        "manager = Manager.create_manager()\n"
        "random.seed(1)\n"
        "def data():\n"
        "    for number in range(6):\n"
        "        first = random.random()\n"
        "        if number == 3 and os.environ['STOKER_ATTEMPT'] == '1':\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        yield first + random.random()\n"
        "class Loader:\n"
        "    def __iter__(self): return data()\n"
        "for epoch in manager.epochs(2):\n"
        "    for value in manager.batches(Loader()):\n"
        "        manager.add_progress('value', value)\n"
    )
    assert run(script, tmp_path / "straight", 2).returncode == 0
    assert run(script, tmp_path / "stopped", 1).returncode == 75
    assert run(script, tmp_path / "stopped", 2).returncode == 0
    values = [list(read(str(tmp_path / name), "train")["value"].values) for name in ("straight", "stopped")]
    assert values[0] == values[1]
    assert len(values[0]) == 12


def test_what_was_given_last_is_kept_by_saves_without_it(make: Make, tmp_path: Path) -> None:
    first = make(Trial({}, str(tmp_path)))
    first.save_progress({"weight": 1})
    first._saver.wait()
    first.save_progress()
    first._saver.wait()
    first._close()
    again = make(Trial({}, str(tmp_path), attempt=(1, 2)))
    assert again.params_path is not None
    assert again.load(again.params_path) == {"weight": 1}
    again.save_progress()
    again._close()
    third = make(Trial({}, str(tmp_path), attempt=(1, 3)))
    assert third.params_path is not None


def test_one_process_of_an_attempt_writes(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys\n"
        "from stoker import Manager\n"
        "manager = Manager.create_manager()\n"
        "manager.add_progress('loss', len(sys.argv))\n"
    )
    child = (
        "from stoker import Manager\nmanager = Manager.create_manager()\nmanager.add_progress('loss', 9)\n"
    )
    script += f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\nmanager.finished()\n"
    ran = run(script, tmp_path, 1)
    assert ran.returncode == 0
    assert "another process records this trial already" in ran.stderr
    assert list(read(str(tmp_path), "train")["loss"].values) == [1]


def test_a_thousand_attempts(tmp_path: Path) -> None:
    counts: dict[str, int] = {}
    for number in range(1, 1201):
        progress = Progress(Trial({}, str(tmp_path), attempt=(1, number)))
        if number > 1:
            progress._after = {"attempt": [1, number - 1], "counts": counts}
        progress._writes = True
        counts = {"loss": number}
        line = json.dumps({"name": "loss", "values": [number]})
        Path(progress._trial.progress).write_text(f"{progress._head()}\n{line}\n")
    assert list(read(str(tmp_path), "train")["loss"].values) == list(range(1, 1201))


def test_a_name_that_is_no_unicode_is_recorded() -> None:
    body = {"metrics": {"\udcff": 1.0}}
    assert records.decode(records.encode(body)) == {"v": records.VERSION, **body}


def test_steps_that_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = stoker("log", "--step", "nan", "loss=1", STOKER_DIRECTORY="here", STOKER_STAGE="train")
    assert said.returncode == 2
    assert not Path("here").exists()


def test_a_flat_study_goes_on_and_keeps_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "from stoker import Manager\nmanager = Manager.create_manager()\n"
        "for epoch in manager.epochs(2):\n    manager.add_progress('loss', 1 / (1 + epoch))\n"
    )
    Path("params.yaml").write_text(f"template: '{sys.executable} train.py'\n---\nx: [1, 2]\n")
    assert stoker("run", "--no-subdir").returncode == 0
    told = json.loads(stoker("status", "--all", "--json").stdout)
    assert [trial["name"] for trial in told["trials"]] == ["X_1", "X_2"]
    assert [trial["metrics"] for trial in told["trials"]] == [{"loss": 0.5}] * 2
    assert stoker("logs", "1").returncode == 0


def test_a_debugged_trial_knows_its_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(
        "from stoker import Manager\nmanager = Manager.create_manager()\n"
        "print('x is', manager.get_hyparams()['x'], manager.is_resumed)\nmanager.finished()\n"
    )
    Path("params.yaml").write_text(f"template: '{sys.executable} train.py'\n---\nx: [7]\n")
    for _ in range(2):
        said = stoker("run", "--debug")
        assert said.returncode == 0, said.stderr
        assert "x is 7 False" in said.stdout
    assert not Path("stoker-trial").exists()


@pytest.mark.parametrize("where", range(1, 30))
def test_an_interrupt_while_values_are_settled_loses_and_doubles_nothing(tmp_path: Path, where: int) -> None:
    """An exception at every line of it in turn, as a handler of Ctrl-C raises it; then training goes on."""
    made = Progress(Trial({}, str(tmp_path)), writes=False)
    for value in range(3):
        made.add("loss", float(value), None)
    lines = 0

    def interrupt(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines
        if frame.f_code.co_name != "_settle_first":
            return None
        if event == "line":
            lines += 1
            if lines == where:
                raise KeyboardInterrupt
        return interrupt

    before = sys.gettrace()
    sys.settrace(interrupt)
    try:
        with suppress(KeyboardInterrupt):
            made.series  # noqa: B018
    finally:
        sys.settrace(before)
    made.add("loss", 3.0, None)
    assert list(made.series["loss"].values) == [0, 1, 2, 3]
    assert list(made.series["loss"].steps) == [0, 1, 2, 3]
    assert len(made.series["loss"].seconds) == 4


def test_a_handler_that_looks_at_progress_while_it_is_settled(tmp_path: Path) -> None:
    made = Progress(Trial({}, str(tmp_path)), writes=False)

    def look(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_name == "_settle_first":
            made.counts()
            return look
        return None

    for value in range(50):
        made.add("loss", float(value), None)
    before = sys.gettrace()
    sys.settrace(look)
    try:
        found = list(made.series["loss"].values)
    finally:
        sys.settrace(before)
    assert found == [*range(50)]


def test_where_no_thread_can_be_started_progress_is_written_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    made = Progress(Trial({}, str(tmp_path)))
    made.add("loss", 1.0, None)
    made.close()
    assert list(read(str(tmp_path), "train")["loss"].values) == [1.0]


def test_what_comes_after_the_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = Progress(Trial({}, str(tmp_path)))
    made.add("loss", 1.0, None)
    made.close()
    made.add("loss", 2.0, None)
    assert "loss is told after the end of the trial, and not kept" in capsys.readouterr().err


def test_a_damaged_line_does_not_shift_the_steps_of_others(tmp_path: Path) -> None:
    made = Progress(Trial({}, str(tmp_path)))
    for start in (0, 10, 20):
        for value in range(start, start + 10):
            made.add("loss", float(value), None)
        made.flush()
    made.close()
    (path,) = tmp_path.glob("progress.*")
    lines = path.read_text().splitlines()
    lines[2] = lines[2].replace("15", "16", 1)
    path.write_text("\n".join(lines) + "\n")
    series = read(str(tmp_path), "train")["loss"]
    assert list(series.steps) == [*range(10), *range(20, 30)] == list(series.values)
