"""What is to be done later: one thread that waits, and one for each thing that is done."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable

_AT_ONCE = 16
_LONGEST = 3600.0  # seconds: no clock waits for centuries


class Entry:
    """One thing that is planned."""

    def __init__(self, call: Callable[[], None]) -> None:
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """It is not done, unless it has begun; and nothing that it would need is held any more."""
        self.call = None


class Agenda:
    """Calls that are due at some moment. Nothing is begun after `close`."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Entry]] = []
        self._number = itertools.count()
        self._changed = threading.Condition()
        self._is_open = True
        self._places = threading.Semaphore(_AT_ONCE)
        self._thread = threading.Thread(target=self._wait, name="emulator agenda", daemon=True)
        self._thread.start()

    def after(self, seconds: float, call: Callable[[], None]) -> Entry:
        """Call it so many seconds from now, in another thread. Does not block."""
        made = Entry(call)
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + seconds, next(self._number), made))
            self._changed.notify()
        return made

    def close(self) -> None:
        """Wait for what is being done, and forget the rest."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._thread.join()
        for _ in range(_AT_ONCE):
            self._places.acquire()

    def _wait(self) -> None:
        while (entry := self._next()) is not None:
            call = entry.call
            if call is None:
                continue
            self._places.acquire()
            threading.Thread(target=self._do, args=(call,), name="emulator agenda", daemon=True).start()

    def _next(self) -> Entry | None:
        """What is due next, when it is due; None when all is over."""
        with self._changed:
            while self._is_open:
                pause = self._due[0][0] - time.monotonic() if self._due else None
                if pause is not None and pause <= 0:
                    return heapq.heappop(self._due)[2]
                self._changed.wait(None if pause is None else min(pause, _LONGEST))
        return None

    def _do(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:  # one thing that goes wrong must not be the end of the others
            traceback.print_exc()
        finally:
            self._places.release()
