"""Carries the files of running trials to a remote store, and back to the next machine; in threads."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from stoker.agent.access import Threads
from stoker.agent.loop import Event, Loop
from stoker.agent.mirror import Mirror
from stoker.agent.world import Attempt
from stoker.store.interface import Store, StoreError
from stoker.study import files
from stoker.study.files import Select


class Carrier:
    """One mirror for each attempt under way."""

    def __init__(self, store: Store, loop: Loop, threads: Threads, complain: Callable[[str], None]) -> None:
        self._store, self._loop, self._threads, self._complain = store, loop, threads, complain
        self._mirrors: dict[Attempt, tuple[Mirror, Path]] = {}
        self._busy: dict[Attempt, Event[None]] = {}
        self._unsaved: set[Attempt] = set()

    async def bring(
        self, attempt: Attempt, directory: Path, oldest_round: int, select: Select, every: float
    ) -> None:
        """Make the directory what earlier attempts left, and save it now and then from here on.

        A disk of ours that is full is told as a store that is away, and so waited for: one such machine
        would otherwise fail all trials of a study.
        """
        base = None
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if attempt.number > 1 or attempt.round > oldest_round:
                restore = lambda: files.restore(self._store, attempt, directory, oldest_round)  # noqa: E731
                base = await self._threads.do(restore).wait()
        except OSError as error:
            raise StoreError(f"cannot write to {directory}: {error.strerror}") from error
        self._mirrors[attempt] = Mirror(self._store, attempt, directory, select, base), directory
        self._loop.spawn(self._keep_saving(attempt, every))

    async def _keep_saving(self, attempt: Attempt, every: float) -> None:
        while attempt in self._mirrors:
            await self._loop.sleep(every)
            try:
                if attempt in self._mirrors and attempt not in self._busy:
                    await self._send(attempt, thorough=False)
            except (StoreError, OSError) as error:  # the next time will do
                self._complain(f"cannot save the files of {attempt.trial}: {error}")

    async def save(self, attempt: Attempt) -> None:
        """Send everything that changed, now that nobody writes."""
        while attempt in self._busy:
            await self._busy[attempt].wait()
        try:
            await self._send(attempt, thorough=True)
        except OSError as error:  # our own disk: the store has what was saved before, and the files stay here
            self._unsaved.add(attempt)
            self._complain(f"cannot save the files of {attempt.trial}: {error}")

    async def _send(self, attempt: Attempt, thorough: bool) -> None:
        if attempt not in self._mirrors:
            return
        mirror, over = self._mirrors[attempt][0], Event[None](self._loop)
        self._busy[attempt] = over
        try:
            await self._threads.do(lambda: mirror.save(thorough)).wait()
        finally:
            del self._busy[attempt]
            over.set(None)

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over, and its files are in the store: those here may go."""
        found = self._mirrors.pop(attempt, None)
        if found is not None and attempt not in self._unsaved:
            self._loop.spawn(self._remove(attempt, found[1]))

    async def _remove(self, attempt: Attempt, directory: Path) -> None:
        while attempt in self._busy:  # a look that began before: it must not find half a directory
            await self._busy[attempt].wait()
        await self._threads.do(lambda: shutil.rmtree(directory, ignore_errors=True)).wait()
