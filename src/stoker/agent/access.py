"""Two ways to wait for a store: at once, or in threads while the agent goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from stoker.agent.loop import Event, Loop
from stoker.store.interface import Entry, Store

T = TypeVar("T")


class Inline:
    """A store that answers at once: a directory on a disk of this machine."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, key: str, data: bytes) -> bool:  # noqa: D102
        return self._store.create(key, data)

    async def read(self, key: str) -> bytes | None:  # noqa: D102
        return self._store.read(key)

    async def write(self, key: str, data: bytes) -> None:  # noqa: D102
        self._store.write(key, data)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:  # noqa: D102
        return list(self._store.list(prefix, after))


class Threads:
    """Does things that block in threads, and hands the results to the agent's loop.

    `wakeup` is called from a thread when there is something to deliver, which `deliver` does in the loop's.
    """

    def __init__(self, loop: Loop, wakeup: Callable[[], None], threads: int) -> None:
        self._loop, self._wakeup = loop, wakeup
        self._asked: SimpleQueue[tuple[Event[Any], Callable[[], Any]]] = SimpleQueue()
        self._answers: deque[Callable[[], None]] = deque()
        for _ in range(threads):
            Thread(
                target=self._serve, daemon=True
            ).start()  # a store that hangs must not keep us from leaving

    def do(self, act: Callable[[], T]) -> Event[T]:
        """Do it in a thread; the event brings what it returns or raises."""
        event: Event[T] = Event(self._loop)
        self._asked.put((event, act))
        return event

    def deliver(self) -> None:
        """Let those go on whose answers have come."""
        while self._answers:
            self._answers.popleft()()

    def _serve(self) -> None:
        while True:
            event, act = self._asked.get()
            self._answers.append(self._answer(event, act))
            self._wakeup()

    @staticmethod
    def _answer(event: Event[Any], act: Callable[[], Any]) -> Callable[[], None]:
        try:
            value = act()
        except Exception as error:  # whoever waits gets it
            failure = error
            return lambda: event.fail(failure)
        return lambda: event.set(value)


class Threaded:
    """A store that takes its time: a bucket, or a file system that other machines share."""

    def __init__(self, store: Store, threads: Threads) -> None:
        self._store, self._threads = store, threads

    async def create(self, key: str, data: bytes) -> bool:  # noqa: D102
        return await self._threads.do(lambda: self._store.create(key, data)).wait()

    async def read(self, key: str) -> bytes | None:  # noqa: D102
        return await self._threads.do(lambda: self._store.read(key)).wait()

    async def write(self, key: str, data: bytes) -> None:  # noqa: D102
        return await self._threads.do(lambda: self._store.write(key, data)).wait()

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:  # noqa: D102
        return await self._threads.do(lambda: list(self._store.list(prefix, after))).wait()
