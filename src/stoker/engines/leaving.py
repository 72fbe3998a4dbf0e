"""What an agent that was placed by an engine does when it leaves: another may be needed, or none any more."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stoker.engines.sites import engine_of
from stoker.study.opened import open_study

Tell = Callable[[dict[str, Any]], None]
TAKEN = "Slurm takes this job's node for others: the job waits in the queue again, and goes on"
NOWHERE = (
    "this job finished no trial and saved nothing to go on from, so it does not submit another: "
    "give jobs more time, or let the script save"
)
_OF_AGENTS = re.compile(r"(log|progress)\..*|param|stat", re.DOTALL)
"""Files that tell of a trial, and that it does not go on from."""


class Leaving:
    """Remembers what an agent did, and hears when the time of its job is nearly up."""

    def __init__(
        self, store: str, placed: str, renew: int | None, given: Mapping[str, str] | None = None
    ) -> None:
        self._store, self._renew, self._given = store, renew, given
        self._engine = placed.partition(":")[0]
        self._began = time.time()
        self._names: set[str] = set()  # of trials that ran here
        self._has_finished = self._is_time_up = False
        signal.signal(signal.SIGUSR1, self._hear)

    def _hear(self, *_: object) -> None:
        self._is_time_up = True
        os.kill(os.getpid(), signal.SIGTERM)

    def listen(self, tell: Tell) -> Tell:
        """Hear what is told to others as well."""

        def tell_both(event: dict[str, Any]) -> None:
            if event["event"] == "start":
                self._names.add(str(event["name"]))
            elif event["event"] == "end":
                self._has_finished = self._has_finished or event["outcome"] == "finished"
            tell(event)

        return tell_both

    def look_behind(self) -> str:
        """Where trials are left, another job goes on; where none are, those that wait are not needed.

        A job that got nowhere has no successor, which would get no further, and so for ever. Returns what is
        to be told, if anything is; raises StokerError if the engine refuses.
        """
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)  # it leaves already
        opened = open_study(self._store)
        counts = opened.state.counts()
        if opened.state.is_stopped or not counts.waiting + counts.running:
            engine_of(opened, self._engine).remove(waiting_only=True)
            return ""
        if not self._is_time_up:
            return ""
        from stoker.engines.slurm.engine import Slurm, come_back

        if self._engine == "slurm" and come_back():
            return TAKEN
        if self._renew is None:
            return "the time of this job is up; with `renew: true` it would submit another"
        if not self._got_somewhere(opened.place.output):
            return NOWHERE
        slurm = engine_of(opened, self._engine)
        job = slurm.renew(self._renew, self._given) if isinstance(slurm, Slurm) else ""
        return f"job {job} goes on" if job else ""

    def _got_somewhere(self, output: Path | None) -> bool:
        """Whether a stage finished, or a trial wrote files that it may go on from."""
        if self._has_finished or output is None:
            return bool(self._names)
        return any(_wrote(output / name, self._began) for name in self._names)


def _wrote(directory: Path, since: float) -> bool:
    for place, _, files in os.walk(directory):
        for name in files:
            if not _OF_AGENTS.fullmatch(name) and _changed(os.path.join(place, name)) >= since:  # noqa: PTH118
                return True
    return False


def _changed(path: str) -> float:
    try:
        return os.stat(path, follow_symlinks=False).st_mtime  # noqa: PTH116
    except OSError:
        return 0.0
