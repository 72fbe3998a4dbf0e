"""The display in a real pseudo-terminal: keys, signals, resizing, and a terminal that is left as it was."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.display.emulator import Emulator

PATIENCE = 20.0
ROOT = Path(__file__).parent.parent.parent
ACTOR = [sys.executable, "-m", "tests.display.actor"]
OWN_TERMINAL = """\
import fcntl, signal, subprocess, sys, termios
for name in ("INT", "QUIT"):  # those are meant for the program
    signal.signal(getattr(signal, f"SIG{name}"), lambda *_: None)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
usual = termios.tcgetattr(0)
code = subprocess.call(sys.argv[1:])
print("left as it was" if termios.tcgetattr(0) == usual else "left changed", flush=True)
sys.exit(code)
"""
"""Starts the program, and looks at the terminal when it has ended: once its session ends it is reset."""


class Terminal:
    """A pseudo-terminal with a program in it."""

    def __init__(self, *command: str, columns: int = 80, wishes: Path, **environment: str) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns)
        self.seen = ""
        self._wishes = wishes
        env = {**os.environ, "TERM": "xterm-256color", "WISHES": str(wishes), "PS1": "$ ", **environment}
        for name in {"NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"} - set(environment):
            env.pop(name, None)
        end = self.slave
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWN_TERMINAL, *command],
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            env=env,
            cwd=ROOT,
        )

    def resize(self, columns: int, lines: int = 24) -> None:
        """Also sends SIGWINCH, as every terminal does."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self) -> str:
        """What came now; waits a moment for it."""
        if not select.select([self.master], [], [], 0.05)[0]:
            return ""
        new = os.read(self.master, 65536).decode(errors="replace")
        self.seen += new
        return new

    def until(self, seen: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not seen():
            assert time.monotonic() < deadline, f"never seen: {what}\n{self.seen[-3000:]}"
            self.read()

    def expect(self, text: str) -> str:
        """Wait for text that comes from now on, and return what came with it."""
        start = len(self.seen)
        self.until(lambda: text in self.seen[start:], text)
        return self.seen[start:]

    def wishes(self) -> list[str]:
        return self._wishes.read_text(encoding="utf-8").split() if self._wishes.exists() else []

    def expect_wishes(self, *wishes: str) -> None:
        self.until(lambda: self.wishes() == [*wishes], f"wishes {wishes}, only {self.wishes()}")

    def wait(self) -> int:
        self.until(lambda: self.process.poll() is not None, "the end")
        while self.read():
            pass
        return self.process.returncode

    def is_as_it_was(self) -> bool:
        """Settings and cursor."""
        cursor = self.seen.rfind("\x1b[?25l") <= self.seen.rfind("\x1b[?25h")
        return "left as it was" in self.seen and cursor

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*command: str, columns: int = 80, **environment: str) -> Terminal:
        opened.append(Terminal(*command, columns=columns, wishes=tmp_path / "wishes", **environment))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


Start = Callable[..., Terminal]
FRAME, FRAME_END = "\x1b[?2026h", "\x1b[?2026l"


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r", "")


def is_cbreak(terminal: Terminal) -> bool:
    flags: int = termios.tcgetattr(terminal.slave)[3]
    return not flags & (termios.ECHO | termios.ICANON) and bool(flags & termios.ISIG)


def test_keys_do_what_they_say(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--speed", "5")
    screen.expect("pause")
    assert is_cbreak(screen)
    screen.send("p")
    screen.expect("paused: running trials go on")
    screen.send("p")
    screen.expect_wishes("pause", "resume")
    screen.send("d")
    screen.expect("log of ")
    screen.send("d")
    screen.expect("show ended trials")
    screen.send("\x1b[1;5q")  # other keys are no wishes
    screen.send("\t")
    screen.expect(FRAME)
    assert screen.wishes() == ["pause", "resume"]
    screen.send("qqq")
    screen.expect("stopping")
    assert screen.wait() == 0
    assert screen.wishes() == ["pause", "resume", "finish", "quit"]
    assert screen.is_as_it_was()


def test_q_finishes_what_runs_unless_one_changes_ones_mind(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--speed", "9")
    screen.expect("4 running")
    screen.send("q")
    screen.expect("finishing 4 trials, then leaving · q again stops them now")
    screen.send("p")
    screen.expect("q\x1b[0m\x1b[2m finish and quit")
    screen.send("q")
    assert screen.wait() == 0
    assert screen.wishes() == ["finish", "resume", "finish"]


def test_q_leaves_at_once_if_nothing_runs(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--slots", "0")
    screen.expect("q\x1b[0m\x1b[2m finish and quit")
    screen.send("q")
    assert screen.wait() == 0
    assert screen.wishes() == ["quit"]


def test_ctrl_c_stops_also_what_q_would_finish(terminal: Start) -> None:
    screen = terminal(*ACTOR)
    screen.expect("4 running")
    screen.send("q")
    screen.expect("finishing 4 trials")
    screen.send("\x03")
    screen.expect("Ctrl-C again kills")
    screen.send("\x03")
    screen.expect_wishes("finish", "quit", "kill")
    assert screen.wait() == 0


def test_the_last_frame_stays(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--speed", "50", "--total", "4")
    assert screen.wait() == 0
    shown = plain(screen.seen.rpartition(FRAME)[2]).splitlines()
    assert shown[0].startswith("norms  output ")
    assert set(shown[1]) == {"━"}
    assert shown[2] == "trials     3 of 4 finished, 1 failed, 0 left"
    assert "\x1b[2J" not in screen.seen
    assert "\x1b[?1049h" not in screen.seen


def test_ctrl_c_asks_and_then_insists(terminal: Start) -> None:
    screen = terminal(*ACTOR)
    screen.expect(FRAME)
    screen.send("\x03")
    screen.expect("Ctrl-C again kills")
    screen.expect_wishes("quit")
    screen.send("\x03")
    screen.expect_wishes("quit", "kill")
    assert screen.wait() == 0
    assert screen.is_as_it_was()


def test_ctrl_backslash_insists_at_once(terminal: Start) -> None:
    screen = terminal(*ACTOR)
    screen.expect(FRAME)
    screen.send("\x1c")
    screen.expect_wishes("kill")
    assert screen.wait() == 0
    assert screen.is_as_it_was()


def test_it_follows_the_size_of_the_terminal(terminal: Start) -> None:
    screen = terminal(*ACTOR, columns=120)
    screen.expect("val_accuracy")
    for columns in (60, 30, 100):
        screen.resize(columns)
        expect_width(screen, columns - 1)
        assert max(len(line) for line in lines_of(frames(screen)[-1])) == columns - 1


@pytest.mark.parametrize("rewraps", [True, False])
def test_resizing_leaves_nothing_behind(terminal: Start, rewraps: bool) -> None:
    say = 'for n in 1 2 3; do echo "before $n"; done; exec "$@"'
    screen = terminal("bash", "-c", say, "bash", *ACTOR, "--speed", "0.01", columns=100)
    shown, fed = Emulator(100, 24, rewraps), 0
    for columns, lines in ((100, 24), (60, 24), (33, 24), (120, 24), (120, 40), (90, 12), (30, 7), (100, 40)):
        screen.resize(columns, lines)
        shown.resize(columns, lines)
        expect_width(screen, columns - 1)
        end = screen.seen.rindex(FRAME_END) + len(FRAME_END)
        shown.feed(screen.seen[fed:end])
        fed = end
        frame = [line.rstrip() for line in lines_of(frames(screen)[-1])]
        assert shown.everything() == ["before 1", "before 2", "before 3", *frame]
    screen.send("\x1c")
    assert screen.wait() == 0
    shown.feed(screen.seen[fed:])
    assert shown.everything()[3].startswith("norms  output ")
    assert shown.everything()[5].startswith("trials ")


def frames(screen: Terminal) -> list[str]:
    """All frames so far that are complete."""
    return screen.seen.rpartition(FRAME_END)[0].split(FRAME)[1:]


def lines_of(frame: str) -> list[str]:
    return plain(frame).splitlines()


def expect_width(screen: Terminal, width: int) -> None:
    """The header is as wide as it may be."""
    screen.until(lambda: frames(screen) and len(lines_of(frames(screen)[-1])[0]) == width, f"{width} cells")


def test_an_exception_leaves_the_terminal_as_it_was(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--raise")
    assert screen.wait() == 1
    assert "on purpose" in screen.seen
    assert screen.is_as_it_was()


def test_nothing_new_is_not_drawn(terminal: Start) -> None:
    """Ten ticks a second, but a frame only when a second has passed."""
    screen = terminal(*ACTOR, "--speed", "0.001", "--seconds", "2.5")
    screen.wait()
    seconds = set(re.findall(r"norms +output +(\d+:\d\d)", plain(screen.seen)))
    assert screen.seen.count(FRAME) <= len(seconds) + 3  # the first events, and the last frame


def test_no_color_means_none(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--speed", "50", "--total", "4", NO_COLOR="1")
    screen.wait()
    codes = {code for codes in re.findall(r"\x1b\[([0-9;]*)m", screen.seen) for code in codes.split(";")}
    assert codes <= {"", "0", "1", "2"}
    coloured = terminal(*ACTOR, "--speed", "50", "--total", "4")
    coloured.wait()
    assert "\x1b[32m" in coloured.seen


@pytest.mark.parametrize("how", [{"TERM": "dumb"}, {"PYTHONIOENCODING": "latin-1"}, {}])
def test_a_simple_terminal_gets_lines(terminal: Start, how: dict[str, str]) -> None:
    screen = terminal(*ACTOR, *([] if how else ["--plain"]), "--speed", "50", "--total", "4", **how)
    assert screen.wait() == 0
    running = screen.seen.partition("trials ")[0].removesuffix("\x1b[1m")
    assert "DONE  gpu 0 test 1/4 output/Norm_new-Moment_0.1" in running
    assert "\x1b" not in running
    assert screen.is_as_it_was()


@pytest.mark.skipif(not shutil.which("bash"), reason="needs a shell with job control")
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_back(terminal: Start) -> None:
    screen = terminal("bash", "--norc", "--noprofile", "-i")
    screen.send(f"'{sys.executable}' -m tests.display.actor --speed 9 --total 9999\n")
    screen.expect(FRAME)
    screen.send("\x1a")
    left = screen.expect("Stopped")
    assert "\x1b[?25h" in left
    screen.send("bg\n")  # the background neither draws nor takes the terminal
    screen.send("sleep 0.4; jobs; echo ju''st the shell\n")
    shell = screen.expect("just the shell")
    assert "Running" in shell
    assert FRAME not in shell
    screen.send("fg\n")
    screen.expect(FRAME)
    screen.until(lambda: is_cbreak(screen), "cbreak")
    screen.send("p")
    screen.expect_wishes("pause")
    screen.send("q")
    screen.expect_wishes("pause", "finish")
    screen.expect("stoker status")
    screen.send("exit\n")
    assert screen.wait() == 0


def test_it_takes_the_terminal_again_after_a_stop_that_it_did_not_see(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--speed", "9", "--total", "9999")
    usual = termios.tcgetattr(screen.slave)
    screen.expect(FRAME)
    os.killpg(screen.process.pid, signal.SIGSTOP)
    termios.tcsetattr(screen.slave, termios.TCSANOW, usual)  # as a shell does
    os.killpg(screen.process.pid, signal.SIGCONT)
    screen.until(lambda: is_cbreak(screen), "cbreak")
    screen.send("q")
    screen.expect_wishes("finish")
    assert screen.wait() == 0
    assert screen.is_as_it_was()


def test_a_terminal_that_goes_away_ends_the_study_gracefully(terminal: Start) -> None:
    screen = terminal(*ACTOR, "--speed", "20")
    screen.expect(FRAME)
    os.close(screen.slave)
    os.close(screen.master)
    screen.master, screen.slave = pty.openpty()  # another one, for the end of this test
    screen.expect_wishes("quit")
