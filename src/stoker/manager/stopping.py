"""Being asked to stop: the trial was stopped, or the machine is taken away."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

STOPPED = 75
"""The exit code of a script that was asked to stop, saved, and can go on later."""
GRACE = 10.0
"""Seconds between the request to stop and the end of the process, if nothing else is said."""
ECHO = 1.0
"""Seconds in which SIGTERM may be heard twice: from whoever takes the machine away, and from the agent."""


class Stopped(SystemExit):
    """The trial is stopped, or the machine is taken away: everything is saved, let it pass."""

    def __init__(self, why: str = "asked to stop") -> None:
        super().__init__(STOPPED)
        self.why = why


class Signals:
    """SIGTERM asks to stop. One that comes later, and is no echo, ends the process as it always would."""

    def __init__(self) -> None:
        self.asked = 0.0  # when; 0 if nobody has
        self._forking = threading.local()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(before=self._hold, after_in_parent=self._let_go, after_in_child=self._forget)

    def listen(self) -> None:
        """From now on, unless the script has a handler of its own. Only the main thread can."""
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: Any) -> None:
        if not self.asked:
            self.asked = time.monotonic()
            self.hush()
        elif time.monotonic() > self.asked + ECHO:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTERM)

    def hush(self) -> None:
        """Workers of a DataLoader heard it too: that they end must not raise amid a step or a save."""
        if "torch" in sys.modules and _is_main_thread():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def next(self, batches: Iterator[Any], end: Any) -> Any:
        """The next batch, or the end; none after a request to stop.

        One that is being made is waited for: it has drawn random numbers, which must not be drawn again.
        """
        if self.asked:
            raise InterruptedError("asked to stop")
        return next(batches, end)

    def _hold(self) -> None:
        """Before a fork: a child that is asked to end must not take it for its parent's, and stay."""
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _let_go(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _forget(self) -> None:
        self.asked = 0.0
        if signal.getsignal(signal.SIGTERM) == self._hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._let_go()

    def ignore(self) -> None:
        """What is done need not be stopped any more: from now on SIGTERM means what it always means."""
        self.asked = 0.0
        if _is_main_thread() and signal.getsignal(signal.SIGTERM) == self._hear:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


signals = Signals()
"""Of this process."""


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
