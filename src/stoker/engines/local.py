"""This machine as an engine: an agent is a process of its own, watched or left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


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


def start_detached(words: Sequence[str], log: Path) -> int:
    """Start an agent that goes on when this process and its terminal are gone; its process id."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            _command(words), stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    return process.pid


def _command(words: Sequence[str]) -> list[str]:
    """`stoker agent …` with this very Python."""
    return [sys.executable, "-m", "stoker", "agent", *words]
