"""Real agents that preload: studies run, plugs are pulled, and neither parents nor stages are left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.agent import guardian
from tests.agent.beats import wait_until
from tests.local.test_agents import leftovers, prepare, records, results

pytestmark = pytest.mark.skipif(not guardian.LINUX, reason="only Linux hands children over")
SHORT = "import sys; print('decimal' in sys.modules, sys.argv[1])"
LONG = "import time; print('ready', flush=True); time.sleep(60)"


class Agent:
    """An agent on two slots, its events, and who is who."""

    def __init__(self, output: Path, slots: int = 2) -> None:
        program = str(Path(__file__).with_name("agent_process.py"))
        self.process = subprocess.Popen(
            [sys.executable, program, str(output), str(slots)],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def events(self) -> list[dict[str, Any]]:
        """All that it told, once it has ended."""
        told, _ = self.process.communicate(timeout=60)
        return [json.loads(line) for line in told.splitlines()]

    def pids(self) -> list[int]:
        """Launcher, guardian, agent."""
        shown, found = guardian.table(), [self.process.pid]
        while len(found) < 3:
            found.append(next(one.pid for one in shown.values() if one.parent == found[-1]))
        return found

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where scripts are: in the command line of parents and of stages, not in that of agents."""
    path = tmp_path / "scripts"
    path.mkdir()
    return path


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "output"


@pytest.fixture
def long(place: Path, output: Path) -> Iterator[Agent]:
    """An agent with two stages that take long."""
    (place / "train.py").write_text(LONG)
    prepare(output, f"template: {sys.executable} {place}/train.py {{n}}\npreload: decimal\n---\nn: [1, 2]\n")
    agent = Agent(output)
    try:
        assert wait_until(lambda: _ready(output) == 2, 20)
        assert len(leftovers(str(place))) == 4
        yield agent
    finally:
        agent.close()


def _ready(output: Path) -> int:
    return sum(path.read_text() == "ready\n" for path in output.glob("*/log.train.*"))


def test_a_study_preloads(place: Path, output: Path) -> None:
    (place / "train.py").write_text(SHORT)
    numbers = ", ".join(map(str, range(50)))
    stages = f"{{train: '{sys.executable} {place}/train.py {{n}}', test: 'test {{n}} != 7'}}"
    prepare(output, f"template: {stages}\npreload: [decimal, fractions]\n---\nn: [{numbers}]\n")
    events = Agent(output).events()
    assert results(output) == {n + 1: "failed" if n == 7 else "finished" for n in range(50)}
    logs = sorted(path.read_text() for path in output.glob("*/log.train.*"))
    assert logs == sorted(f"True {n}\n" for n in range(50))
    assert [event for event in events if event["event"] == "note"] == []
    assert leftovers(str(place)) == []


def test_why_a_study_cannot_preload_is_said_once_for_each_slot(place: Path, output: Path) -> None:
    (place / "train.py").write_text(SHORT)
    template = f"{sys.executable} {place}/train.py {{n}}"
    prepare(
        output, f"template: {template}\npreload: no_such_module\n---\nn: [{', '.join(map(str, range(6)))}]\n"
    )
    events = Agent(output).events()
    assert set(results(output).values()) == {"finished"}
    notes = [event["text"] for event in events if event["event"] == "note"]
    assert sorted(note.partition(":")[0] for note in notes) == ["cpu 0", "cpu 1"]
    assert all("cannot import no_such_module" in note for note in notes)


@pytest.mark.parametrize("who", [0, 1, 2], ids=["launcher", "guardian", "agent"])
def test_parents_and_stages_end_with_whoever_is_killed(long: Agent, place: Path, who: int) -> None:
    os.kill(long.pids()[who], signal.SIGKILL)
    assert wait_until(lambda: not leftovers(str(place)), 10)


def test_parents_end_by_themselves_if_all_are_killed_and_the_next_agent_ends_the_stages(
    long: Agent, place: Path, output: Path
) -> None:
    pids = long.pids()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    assert wait_until(lambda: len(leftovers(str(place))) == 2, 10)
    (place / "train.py").write_text("print(7)")
    assert Agent(output).events()
    assert leftovers(str(place)) == []


def test_parents_that_are_killed_do_not_matter(long: Agent, place: Path, output: Path) -> None:
    for pid, process in guardian.table().items():
        if process.parent == long.pids()[2] and b"preload.py" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: len(leftovers(str(place))) == 2)
    long.process.terminate()
    assert {event["outcome"] for event in long.events() if event["event"] == "end"} == {"released"}


def test_an_agent_leaves_while_modules_are_imported(place: Path, output: Path) -> None:
    """A machine that is taken away does not wait for imports."""
    (place / "train.py").write_text(SHORT)
    (place / "slow.py").write_text("import time; open(__file__ + '.began', 'w').close(); time.sleep(50)")
    prepare(output, f"template: {sys.executable} {place}/train.py {{n}}\npreload: slow\n---\nn: [1]\n")
    agent = Agent(output)
    try:
        assert wait_until((place / "slow.py.began").exists, 20)
        agent.process.terminate()
        assert agent.process.wait(15) == 0
    finally:
        agent.close()
    assert [key for key in records(output) if key.endswith(".released")]
    assert leftovers(str(place)) == []


SERVING = """
import os, sys
from stoker import Manager

def run(manager, params_path, best_params_path):
    print(os.getpid(), manager.get_hyparams()["n"], sys.argv[1:])
    if manager.get_hyparams()["n"] == 3:
        raise ValueError("three")

Manager.create_manager().hyparam_search(run)
"""


@pytest.mark.parametrize("preload", ["", "preload: decimal\n"], ids=["cold", "preloaded"])
def test_a_study_serves_many_trials_in_one_process(place: Path, output: Path, preload: str) -> None:
    (place / "train.py").write_text(SERVING)
    template = f"{sys.executable} {place}/train.py --name {{_name}}"
    numbers = ", ".join(map(str, range(20)))
    prepare(output, f"template: {template}\nwarm: true\n{preload}---\nn: [{numbers}]\n")
    events = Agent(output).events()
    assert [event for event in events if event["event"] == "note"] == []
    assert results(output) == {n + 1: "failed" if n == 3 else "finished" for n in range(20)}
    logs = {path.parent.name: path.read_text().splitlines() for path in output.glob("*/log.train.*")}
    assert len({lines[0].split()[0] for lines in logs.values()}) == 2  # two slots
    for n in range(20):
        assert logs[f"N_{n}"][0].endswith(f" {n} ['--name', 'N_{n}']")
        assert (logs[f"N_{n}"][-1] == "ValueError: three") == (n == 3)
    assert leftovers(str(place)) == []
