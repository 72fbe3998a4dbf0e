"""Whoever of an agent's processes is killed, and however: no process of a stage is left."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from stoker.agent import guardian
from tests.agent.beats import WAYS, alive, wait_until

pytestmark = pytest.mark.skipif(not guardian.LINUX, reason="there are no subreapers elsewhere")
DRIVER = Path(__file__).with_name("driver.py")


class Agent:
    """An agent with three stages, each of which tries to stay alive in another way."""

    def __init__(self, place: Path, driver: Path = DRIVER, **environment: str) -> None:
        self.files = [place / f"{way.__name__}.{os.urandom(4).hex()}" for way in WAYS]
        commands = [way(file) for way, file in zip(WAYS, self.files, strict=True)]
        self.process = subprocess.Popen(
            [sys.executable, str(driver), str(place), *commands],
            stdout=subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.pids: dict[str, Any] = json.loads(self.process.stdout.readline())
        assert wait_until(lambda: all(file.exists() for file in self.files))

    def kill(self, *names: str) -> None:
        """All at once: the first is stopped and so cannot react before the last one is dead."""
        for action in (signal.SIGSTOP, signal.SIGKILL) if len(names) > 1 else (signal.SIGKILL,):
            for name in names:
                os.kill(self.pids[name], action)

    def left(self) -> list[int]:
        """The processes of stages that still run; the agent's own show the same words."""
        own = {self.pids[name] for name in ("launcher", "guardian", "agent")}
        return [pid for file in self.files for pid in alive(file) if pid not in own]

    def sizes(self) -> list[int]:
        return [file.stat().st_size for file in self.files]

    def close(self) -> None:
        for name in ("launcher", "guardian", "agent"):
            guardian.kill(self.pids[name], signal.SIGKILL)
        for pid in self.left():
            guardian.kill(pid, signal.SIGKILL)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.wait(10)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    assert wait_until(lambda: not alive(tmp_path))


def all_is_over(agent: Agent) -> bool:
    """Within three seconds no process is left, and so no file grows."""
    over = wait_until(lambda: not agent.left())
    before = agent.sizes()
    time.sleep(0.1)
    return over and agent.sizes() == before


@pytest.mark.parametrize(
    "names",
    [
        ["agent"],
        ["guardian"],
        ["launcher"],
        ["agent", "guardian"],
        ["agent", "launcher"],
        ["guardian", "launcher"],
    ],
    ids="+".join,
)
def test_nothing_is_left_after_killing(names: list[str], place: Path) -> None:
    agent = Agent(place)
    try:
        assert len(agent.left()) >= 3
        agent.kill(*names)
        assert all_is_over(agent)
        assert wait_until(lambda: not alive(place))
    finally:
        agent.close()


@pytest.mark.parametrize("name", ["launcher", "guardian", "agent"])
def test_nothing_is_left_after_killing_a_process_group(name: str, place: Path) -> None:
    agent = Agent(place)
    try:
        os.killpg(os.getpgid(agent.pids[name]), signal.SIGKILL)
        assert all_is_over(agent)
    finally:
        agent.close()


def test_the_guardian_has_a_name_and_a_session_of_its_own(place: Path) -> None:
    """So that `pkill -9 -f stoker` leaves it to do its work."""
    driver = place / f"driver{os.getpid()}.py"
    driver.write_bytes(DRIVER.read_bytes())
    agent = Agent(place, driver)
    try:
        names = ("launcher", "guardian", "agent")
        assert len({os.getsid(agent.pids[name]) for name in names}) == 3
        subprocess.run(["pkill", "-9", "-f", driver.name], check=True)
        assert all_is_over(agent)
    finally:
        agent.close()


def test_what_all_three_left_is_ended_by_the_next_agent(place: Path) -> None:
    with ExitStack() as ending:
        first = Agent(place)
        ending.callback(first.close)
        marked = [file for file in first.files if not file.name.startswith("hidden")]
        first.kill("agent", "guardian", "launcher")
        ending.callback(Agent(place).close)
        assert wait_until(lambda: not any(alive(file) for file in marked))


def test_the_next_agent_leaves_stages_of_living_agents_alone(place: Path) -> None:
    with ExitStack() as ending:
        first = Agent(place)
        ending.callback(first.close)
        second = Agent(place)
        ending.callback(second.close)
        before = first.sizes()
        assert wait_until(lambda: all(now > old for now, old in zip(first.sizes(), before, strict=True)))


def test_an_agent_without_a_guardian_ends_its_stages_before_it_leaves(place: Path) -> None:
    agent = Agent(place, STAY="1")
    try:
        agent.kill("guardian")
        assert all_is_over(agent)
        assert guardian.read(agent.pids["agent"])
    finally:
        agent.close()


def test_who_is_a_stray() -> None:
    """A process whose mark names a dead agent of this boot; not one of a living agent, or of another host."""
    with ExitStack() as ending:
        dead = subprocess.Popen(["true"])
        dead.wait()
        living, boot = guardian.mark_of_this_agent(), guardian.mark_of_this_agent().partition(".")[0]
        marks = [f"{living}.1", f"{boot}.{dead.pid}.1.7", f"elsewhere.{dead.pid}.1.7", f"{boot}.rubbish", ""]
        sleepers = []
        for mark in marks:
            sleeper = subprocess.Popen(["sleep", "60"], env={**os.environ, guardian.MARK: mark})
            ending.callback(sleeper.wait)
            ending.callback(sleeper.kill)
            sleepers.append(sleeper)
        wait_until(
            lambda: all(guardian.mark_in(one.pid) or not m for one, m in zip(sleepers, marks, strict=True))
        )
        command = "from stoker.agent import guardian; guardian.end_strays()"
        subprocess.run([sys.executable, "-c", command], check=True)
        assert wait_until(lambda: sleepers[1].poll() is not None)
        assert [sleeper.poll() for sleeper in sleepers] == [None, -signal.SIGKILL, None, None, None]


@pytest.mark.parametrize("name", ["guardian", "launcher"])
def test_an_agent_that_hangs_is_ended_by_the_watcher_that_is_left(name: str, place: Path) -> None:
    agent = Agent(place, HANG="1", LEAVE="0.3")
    try:
        agent.kill(name)
        assert all_is_over(agent)
        assert wait_until(lambda: not alive(place))
    finally:
        agent.close()


def run(place: Path, *commands: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(place), *commands], stdout=subprocess.PIPE, start_new_session=True
    )


def test_the_launcher_ends_as_the_agent_ends(place: Path) -> None:
    with run(place, "true", "false") as process:
        assert process.wait(10) == 0


def test_a_signal_to_the_launcher_reaches_the_agent(place: Path) -> None:
    with run(place, "sleep 60") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 5


def test_the_terminal_belongs_to_the_launcher(place: Path) -> None:
    """Ctrl-C reaches the agent through it, and once. A stage has no terminal to ask for a password."""
    pid, terminal = pty.fork()
    if pid == 0:
        command = "(exec < /dev/tty) || echo none >> log; sleep 60"
        os.chdir(place)
        os.execv(sys.executable, [sys.executable, str(DRIVER), str(place), command])  # noqa: S606
    try:
        assert b"launcher" in os.read(terminal, 4096)
        assert wait_until(lambda: (place / "log").exists() and b"none" in (place / "log").read_bytes())
        os.write(terminal, b"\x03")
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
    finally:
        os.close(terminal)


def test_the_launcher_shows_the_signal_that_killed_the_agent(place: Path) -> None:
    with run(place, "sleep 60") as process:
        assert process.stdout is not None
        os.kill(json.loads(process.stdout.readline())["agent"], signal.SIGKILL)
        assert process.wait(10) == -signal.SIGKILL


def test_an_agent_whose_guardian_died_says_so(place: Path) -> None:
    with run(place, "sleep 60") as process:
        assert process.stdout is not None
        os.kill(json.loads(process.stdout.readline())["guardian"], signal.SIGKILL)
        assert process.wait(10) == 3
