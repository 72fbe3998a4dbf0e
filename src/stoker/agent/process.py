"""An agent as a process: what it tells to whoever started it, what it is told, and how it joins a study."""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any

from stoker.agent import guardian
from stoker.agent.keeper import Keeper
from stoker.agent.local import Contact, Tell, Terms, run_agent
from stoker.agent.locks import Locks
from stoker.agent.world import Settings
from stoker.core.errors import UsageError
from stoker.study.place import open_place
from stoker.study.work import read_plans


class Events:
    """Sends what happens over a pipe, one line of JSON each. Never waits for a reader that is slow."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self._waiting: deque[bytes] = deque()
        self._lock = Lock()
        self._is_draining = False
        if descriptor is not None:
            os.set_blocking(descriptor, False)

    def send(self, event: dict[str, Any]) -> None:
        """Send an event, now or when the reader has caught up."""
        if self._descriptor is None:
            return
        line = json.dumps(event).encode() + b"\n"  # ASCII, whatever names are made of
        with self._lock:
            if not self._is_draining:
                line = self._write(line)
            if line:
                self._waiting.append(line)
                if not self._is_draining:
                    self._is_draining = True
                    Thread(target=self._drain, daemon=True).start()

    def _write(self, line: bytes) -> bytes:
        """What is left of a line after writing what fits."""
        assert self._descriptor is not None  # noqa: S101
        try:
            return line[os.write(self._descriptor, line) :]
        except BlockingIOError:
            return line
        except OSError:  # nobody reads any more
            return b""

    def _drain(self) -> None:
        import select

        assert self._descriptor is not None  # noqa: S101
        while True:
            select.select([], [self._descriptor], [], 1.0)
            with self._lock:
                self._waiting[0] = self._write(self._waiting[0])
                if not self._waiting[0]:
                    self._waiting.popleft()
                if not self._waiting:
                    self._is_draining = False
                    return


class Control:
    """Hears what it is told over a pipe, word by word; when the pipe closes, that it shall leave."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def start(self, obey: Callable[[str], None]) -> None:
        """Pass every word on, from a thread."""
        if self._descriptor is not None:
            Thread(target=self._listen, args=(obey,), daemon=True).start()

    def _listen(self, obey: Callable[[str], None]) -> None:
        assert self._descriptor is not None  # noqa: S101
        with os.fdopen(self._descriptor, encoding="ascii") as words:
            for word in words:
                obey(word.strip())
        obey("leave")


def join(
    word: str,
    resource: tuple[str, ...] | None,
    guard: guardian.Guard,
    tell: Tell,
    control: Control,
    terms: Terms,
) -> int:
    """Join the study at a place until nothing is left for it to do; the exit code."""
    place = open_place(word, must_exist=True)
    plans = read_plans(place)
    if not plans:
        raise UsageError(f"there is no study in {word}; `stoker run` makes one")
    slots = plans[-1].study.slots if resource is None else resource or None  # empty: whatever there is
    keeper = Keeper(slots, place.url, locks=Locks(None) if terms.is_allotted else None)
    run_agent(place, keeper, Settings(), guard, Contact(tell, control.start), terms)
    return 0
