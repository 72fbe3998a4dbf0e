"""What an engine is: a way to place agents, to list them and to remove them. It never schedules trials.

Agents pull trials from the store, so an engine needs to know nothing of them. Another scheduler (LSF, PBS) is
a class with these four methods, offered as an entry point of the group `stoker.engines`: docs/engines.md.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Protocol


class State(Enum):
    """Where something that was placed stands, as its engine tells. Agents tell better, by their beats."""

    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True)
class Placed:
    """A place for one agent: a job, a process."""

    id: str  # as people call it there: 123_4 for Slurm
    state: State
    where: str = ""  # the machine
    why: str = ""  # what it waits for, or how it ended
    starts: str = ""  # when it is expected to start
    log: str = ""  # the file that has what the agent said


@dataclass(frozen=True)
class Site:
    """A study, as an engine has to know it."""

    name: str
    store: str  # an absolute path, or a URL
    directory: str  # where its commands run
    settings: Any = None  # the engine's section of the study file
    words: tuple[str, ...] = ()  # more options for `stoker agent`

    @property
    def mark(self) -> str:
        """A name for whatever is placed, by which it is found again: no engine's ids are kept."""
        store = self.store if "://" in self.store else os.path.realpath(self.store)
        words = [word for word in store.split("/") if word not in ("", "output")]
        study = re.sub(r"[^A-Za-z0-9_.-]+", "_", words[-1] if words else "").strip("_.-")[:30] or "study"
        return f"stoker-{study}-{hashlib.sha256(store.encode(errors='surrogateescape')).hexdigest()[:8]}"

    @property
    def records(self) -> Path | None:
        """The directory of the study's records; None if they are in a bucket."""
        return None if "://" in self.store else Path(self.store) / ".stoker"


class Engine(Protocol):
    """A way to place agents. Each method may raise UsageError: a message and what to do about it."""

    def check(self) -> None:
        """Refuse what could not be placed, before anything has been started or changed."""

    def place(self, most: int) -> list[str]:
        """Place the agents that the settings ask for, at most so many; tells the user what was placed."""

    def list(self) -> Sequence[Placed]:
        """Everything placed for this study that is known still; what ended may be missing."""

    def remove(self, waiting_only: bool = False) -> None:
        """Take back what was placed, or only what has not begun. Agents that run are asked to leave."""


Make = Callable[[Site], Engine]
