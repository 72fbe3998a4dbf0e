"""Which kind of VM this machine permits: found out by making one."""

from __future__ import annotations

import functools
import os
import socket
import sys
import tempfile
import threading
from pathlib import Path

from stoker.emulator.machines.interface import Guest, Machine, Mode
from stoker.emulator.machines.machine import HostedMachine

_LONGEST = 20.0  # seconds that a trial may take


def make_machine(guest: Guest, mode: Mode) -> Machine:
    """A VM that does not run yet."""
    return HostedMachine(guest, mode)


@functools.cache
def best_mode() -> Mode:
    """The one furthest from the machine that it runs on. Tried once."""
    if sys.platform == "linux":
        for mode in (Mode.NAMESPACES, Mode.USER) if os.geteuid() == 0 else (Mode.USER,):
            if works(mode):
                return mode
    return Mode.PROCESSES


def works(mode: Mode, longest: float = _LONGEST) -> bool:
    """Whether a VM of this mode comes up within seconds, as far as asking for its startup script."""
    over, directory = threading.Event(), Path(tempfile.mkdtemp(prefix="stoker-vm-"))
    machine = HostedMachine(Guest("trial", directory / "vm", {}, 1), mode)
    sockets: dict[str, socket.socket] = {}
    try:
        sockets = machine.prepare()
        machine.boot(over.set)
        sockets["metadata"].settimeout(longest)
        connection, _ = sockets["metadata"].accept()
        connection.close()
    except OSError:
        return False
    else:
        return True
    finally:
        for one in sockets.values():
            one.close()
        machine.remove()
        directory.rmdir()
