"""What a VM is to the cloud: something that boots, is asked to shut down, and loses its power."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol


class Mode(Enum):
    """How far a VM is from the machine it runs on."""

    NAMESPACES = "namespaces"  # as root: network, processes, mounts, an overlay on / as its disk
    USER = "user namespaces"  # the same, by the leave of the kernel, for ordinary users
    PROCESSES = "processes"  # plain processes: they see the whole machine, so no `setup` is run there


@dataclass(frozen=True)
class Guest:
    """What a VM is made from."""

    name: str
    directory: Path  # its own: disk, logs; kept while the VM is stopped
    environment: Mapping[str, str]  # for every process in it
    api_port: int  # where the cloud answers on loopback, outside; inside it is the same
    has_ssh: bool = False
    ssh_keys: str = ""  # lines for authorized_keys of the user who may log in
    hidden: tuple[Path, ...] = ()  # directories that its processes must not see, besides its own


class Machine(Protocol):
    """One VM. Its disk stays until `remove`; it may boot again after it has ended."""

    mode: Mode
    serial: Path
    """What it says on its console; grows over several boots."""
    ssh_port: int | None
    """A port of loopback, outside, behind which its sshd answers; None if it has none."""

    def prepare(self) -> dict[str, socket.socket]:
        """Make the place for its processes, with sockets that listen inside: `metadata`, and `api` where the
        cloud cannot be reached otherwise. Whoever calls answers on them, and closes them in the end.

        To be called before each boot: the place goes with the VM's last process, or with `cut`.
        """

    def boot(self, ended: Callable[[], None]) -> None:
        """Start its first process, which asks the metadata server for the startup script and runs it.

        `ended` is called from a thread, once, when all its processes are gone, for whatever reason: it
        powered itself off, was shut down, or lost its power.
        """

    def shut_down(self) -> None:
        """Press its power button: SIGTERM for all, then the shutdown script, then it ends. Does not wait."""

    def cut(self) -> None:
        """Take its power away: SIGKILL for all. Returns when nothing of it runs; may be repeated."""

    def remove(self) -> None:
        """Leave nothing of it: no process, namespace, mount, port or file. May be repeated."""
