"""All processes below this one, found in /proc: how a VM without a pid namespace is signalled and ended."""

# Paths are text here: the processes of a VM start faster without pathlib.
# ruff: noqa: PTH123, PTH208

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

_STUBBORN = 10.0  # seconds after which a process that does not die is left to the kernel


def parents() -> dict[int, int]:
    """Each process of this machine that can be seen, and its parent."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError), open(f"/proc/{name}/stat", "rb") as file:
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def below(ancestor: int, shown: dict[int, int]) -> set[int]:
    """Those that have this ancestor."""
    children: dict[int, list[int]] = {}
    for pid, parent in shown.items():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    waiting = [ancestor]
    while waiting:
        new = children.get(waiting.pop(), [])
        found.update(new)
        waiting += new
    return found


def tell_all(number: int) -> None:
    """Send a signal to all below this process, those included that appear meanwhile."""
    told: set[int] = set()
    while new := below(os.getpid(), parents()) - told:
        for pid in new:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        told |= new


def reap() -> bool:
    """Wait for those that have ended; False if there is no child any more."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def end_all() -> None:
    """Kill all below this process, which must be the one that adopts orphans. Returns when they are gone."""
    until = time.monotonic() + _STUBBORN
    while reap() and time.monotonic() < until:
        tell_all(signal.SIGKILL)
        time.sleep(0.001)
