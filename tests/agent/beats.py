"""Stages that show by a growing file that they are alive, and try to stay so in several ways."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path

BEAT = "trap '' TERM HUP INT; while :; do echo >> \"$0\"; sleep 0.02; done"


def _beating(file: Path) -> str:
    return f"bash -c {shlex.quote(BEAT)} {shlex.quote(str(file))}"


def plain(file: Path) -> str:
    """Ignores SIGTERM."""
    return f"exec {_beating(file)}"


def daemon(file: Path) -> str:
    """Forks twice and takes a session of its own; its first process stays."""
    return f"(setsid {_beating(file)} &); sleep 60"


def hidden_daemon(file: Path) -> str:
    """The same, with another environment, so that it bears no mark."""
    return f'(setsid env -i PATH="$PATH" {_beating(file)} &); sleep 60'


def hidden_in_session(file: Path) -> str:
    """Forks twice with another environment, but stays where it is."""
    return f'(env -i PATH="$PATH" {_beating(file)} &); sleep 60'


WAYS: list[Callable[[Path], str]] = [plain, daemon, hidden_daemon]


def alive(word: str | Path) -> list[int]:
    """Processes with a word in their command line, other than this one."""
    return [pid for pid, text in command_lines() if str(word) in text and pid != os.getpid()]


def command_lines() -> Iterator[tuple[int, str]]:
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                yield int(path.name), (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue


def wait_until(true: Callable[[], object], seconds: float = 3.0) -> bool:
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True
