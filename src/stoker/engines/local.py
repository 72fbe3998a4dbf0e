"""This machine as an engine: an agent is a process of its own, watched or left alone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker.engines.interface import Placed, Site, State


class LocalAgent:
    """An agent that this process started and watches. It leaves when this process is gone."""

    def __init__(self, words: Sequence[str]) -> None:
        events, tell = os.pipe()
        hear, control = os.pipe()
        command = [*_command(words), "--events", str(tell), "--control", str(hear)]
        self._process = subprocess.Popen(
            command, pass_fds=(tell, hear), stdin=subprocess.DEVNULL, start_new_session=True
        )
        os.close(tell)
        os.close(hear)
        os.set_blocking(events, False)
        self._events, self._control = events, control
        self._rest = b""

    def fileno(self) -> int:
        """Readable when there are events, or when the agent is gone."""
        return self._events

    def events(self) -> Iterator[dict[str, Any]]:
        """What has happened since; raises EOFError once the agent is gone."""
        while True:
            try:
                data = os.read(self._events, 1 << 16)
            except BlockingIOError:
                return
            if not data:
                raise EOFError
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                with suppress(ValueError):
                    yield json.loads(line)

    def tell(self, word: str) -> None:
        """`pause`, `resume`, `leave`, or `kill`."""
        with suppress(BrokenPipeError):
            os.write(self._control, word.encode() + b"\n")

    def kill(self) -> None:
        """End it at once, and with it all its stages."""
        self._process.send_signal(signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, when it is gone."""
        return self._process.wait()


class Local:
    """This machine: one agent, in the background. It is found again by what its command line says."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def check(self) -> None:
        """Whatever is wrong, the agent tells."""

    def place(self, most: int) -> list[str]:
        """Start an agent, which takes all slots that are free."""
        if most < 1:
            return []
        records = self._site.records
        log = Path(f"{self._site.mark}.log") if records is None else records / "agent.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        words = [self._site.store, *self._site.words, "--placed", self._mark]
        return [f"local: process {start_detached(words, log, self._site.directory)}"]

    def list(self) -> Sequence[Placed]:
        """Agents of this study here."""
        return [Placed(str(pid), State.RUNNING, "this machine") for pid in self._pids()]

    def remove(self, waiting_only: bool = False) -> None:
        """Ask them to leave; nothing waits here."""
        for pid in () if waiting_only else self._pids():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    @property
    def _mark(self) -> str:
        return f"local:{self._site.mark}"

    def _pids(self) -> Sequence[int]:
        listed = subprocess.run(
            ["ps", "-wweo", "pid=,args="], capture_output=True, text=True, errors="replace", check=False
        )
        return launchers(listed.stdout, self._mark)


def launchers(listed: str, mark: str) -> list[int]:
    """The agents with a mark among what `ps` lists: of each, the process that passes signals on to it."""
    guarded = {int(pid) for pid in re.findall(r" guardian of (\d+):", listed)}
    lines = (line.split() for line in listed.splitlines())
    found = [int(words[0]) for words in lines if words[-2:] == ["--placed", mark]]
    return [pid for pid in found if pid not in guarded]


_detached: list[subprocess.Popen[bytes]] = []
"""Kept, as nobody waits for them: Python would complain about one that is forgotten while it runs."""


def start_detached(words: Sequence[str], log: Path, directory: str | None = None) -> int:
    """Start an agent that goes on when this process and its terminal are gone; its process id."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            _command(words),
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    _detached.append(process)
    return process.pid


def _command(words: Sequence[str]) -> list[str]:
    """`stoker agent …` with this very Python."""
    return [sys.executable, "-m", "stoker", "agent", *words]
