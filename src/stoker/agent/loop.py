"""A small scheduler for coroutines, in real time or in virtual time.

The agent is written as coroutines that wait for events and for time to pass. In earnest, waiting blocks in
`idle`, which the owner of the loop supplies (it watches child processes); in a simulation time jumps.
"""

from __future__ import annotations

import heapq
import types
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from itertools import count
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Event(Generic[T]):
    """Something that happens once, with a value or an error, and wakes whoever waits for it."""

    __slots__ = ("_error", "_loop", "_value", "_waiters", "done")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._waiters: list[Task] = []
        self._value: T | None = None
        self._error: BaseException | None = None
        self.done = False

    def set(self, value: T) -> None:
        """It happened. Later calls change nothing."""
        self._finish(value, None)

    def fail(self, error: BaseException) -> None:
        """It failed: whoever waits gets the error."""
        self._finish(None, error)

    def _finish(self, value: T | None, error: BaseException | None) -> None:
        if not self.done:
            self.done, self._value, self._error = True, value, error
            for task in self._waiters:
                self._loop.wake(task)

    @types.coroutine
    def wait(self) -> Generator[Event[Any], None, T]:
        """Wait until it happened, and return its value."""
        if not self.done:
            yield self
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # set together with done

    def add(self, task: Task) -> None:
        """Wake the task when it happens; for the loop."""
        self._waiters.append(task)


class Task:
    """A coroutine under way. `group` is whose it is: a simulated machine that can be paused or killed."""

    __slots__ = ("coroutine", "ended", "group")

    def __init__(self, loop: Loop, coroutine: Coroutine[Any, Any, Any], group: object) -> None:
        self.coroutine = coroutine
        self.ended: Event[Any] = Event(loop)
        self.group = group


class Loop:
    """Runs tasks until none is ready, then waits for the next timer or for what `idle` brings."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._ready: deque[Task] = deque()
        self._timers: list[tuple[float, int, Event[None]]] = []
        self._order = count()
        self._current: Task | None = None

    def spawn(self, coroutine: Coroutine[Any, Any, Any], group: object = None) -> Task:
        """Start a task; it belongs to the group of the one that starts it unless told otherwise."""
        if group is None and self._current is not None:
            group = self._current.group
        task = Task(self, coroutine, group)
        self._ready.append(task)
        return task

    def wake(self, task: Task) -> None:
        """Let a task go on at the next step."""
        self._ready.append(task)

    def at(self, time: float) -> Event[None]:
        """An event that happens at a time."""
        event: Event[None] = Event(self)
        heapq.heappush(self._timers, (time, next(self._order), event))
        return event

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.at(self.now() + seconds).wait()

    def next_timer(self) -> float | None:
        """When the next timer is due."""
        while self._timers and self._timers[0][2].done:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def step(self) -> bool:
        """Run what is ready and due; False if there was nothing."""
        due = self.now()
        while self._timers and self._timers[0][0] <= due:
            heapq.heappop(self._timers)[2].set(None)
        if not self._ready:
            return False
        for _ in range(len(self._ready)):
            self._run(self._ready.popleft())
        return True

    def _run(self, task: Task) -> None:
        self._current = task
        try:
            task.coroutine.send(None).add(task)
        except StopIteration as stop:
            task.ended.set(stop.value)
        except Exception as error:  # a mistake of ours: better to end, and be taken over, than to limp on
            task.ended.fail(error)
            raise
        finally:
            self._current = None
