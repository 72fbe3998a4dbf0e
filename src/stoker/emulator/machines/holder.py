"""The process outside a VM that holds its place: it makes the namespaces, and starts the VM in them.

    emulator ──► holder ──► (boot) ──► first process, and all of the VM

The emulator and its holder speak over a socket. When the emulator closes its end, or dies, the power is cut.
With the holder all of it ends: no process, no namespace and no mount can outlive it. A VM that reboots gets a
new first process in the same place.
"""

# Paths are text here: the processes of a VM start faster without pathlib.
# ruff: noqa: PTH103, PTH112, PTH123, PTH208

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from stoker.emulator.machines import init, linux, tree
from stoker.emulator.machines.disk import Disk, files_of, make_writable, parse_mounts
from stoker.emulator.machines.power import POWER
from stoker.emulator.machines.spec import Spec

METADATA = "169.254.169.254", 80
_LOOK_AFTER = 1.0  # seconds between two looks at the console
_CONSOLE = 1 << 23  # bytes of the console that are kept, or at most twice as many


def main(channel_number: int, ssh_number: int) -> None:
    """The holder's life. `ssh_number` is a descriptor of a listening socket, or -1."""
    for descriptor in (channel_number, *([ssh_number] if ssh_number >= 0 else [])):
        os.set_inheritable(descriptor, False)
    # A power button that is pressed before anybody listens is heard later.
    signal.pthread_sigmask(signal.SIG_BLOCK, {POWER, signal.SIGTERM})
    channel = socket.socket(fileno=channel_number)
    spec = Spec(**json.loads(channel.recv(1 << 20)))
    holder = Holder(spec, ssh_number)
    try:
        listening = holder.make_place()
    except OSError as error:
        channel.send(f"{error}".encode())
        return
    socket.send_fds(channel, [b"ready"], [one.fileno() for one in listening])
    for one in listening:
        one.close()
    if channel.recv(100) == b"boot":
        while holder.run(channel) == init.AGAIN:
            pass


class Holder:
    """Has the place of one VM."""

    def __init__(self, spec: Spec, ssh: int) -> None:
        self._spec, self._ssh, self._console = spec, ssh, _Console()
        linux.adopt_orphans()
        linux.rename("stoker-vm")

    def make_place(self) -> list[socket.socket]:
        """All but processes and mounts; with sockets that listen inside, for metadata and the cloud."""
        if not self._spec.has_place:
            return []
        flags = linux.NEWNS | linux.NEWUTS | linux.NEWIPC | linux.NEWNET
        user, group = os.getuid(), os.getgid()
        if self._spec.is_user:
            linux.unshare(linux.NEWUSER)
            linux.map_ids(0, user, group)
        linux.unshare(flags)
        linux.mount("", "/", flags=linux.REC | linux.PRIVATE)
        make_writable(self._spec)
        linux.set_hostname(self._spec.name)
        linux.start_loopback(METADATA[0])
        return [_listen(METADATA), _listen(self._spec.api)]

    def run(self, channel: socket.socket) -> int:
        """One boot. Returns the exit code of the first process when all is gone."""
        _clear(f"{self._spec.directory}/tmp")  # noqa: S108
        alive, line = os.pipe()
        tell, hear = os.pipe()[::-1]
        booter = os.fork()
        if not booter:
            _guarded(lambda: self._boot(alive, line, tell))
        for descriptor in (alive, tell):
            os.close(descriptor)
        first = int(os.read(hear, 20) or booter)
        os.close(hear)
        code = self._wait(channel, booter, first)
        os.close(line)
        return code

    def _boot(self, alive: int, line: int, tell: int) -> int:
        """Between holder and VM, since a process can make only one pid namespace for its children."""
        os.close(line)
        if self._spec.has_place:
            linux.die_with_parent(signal.SIGKILL)
            linux.unshare(linux.NEWPID | linux.NEWNS)
        else:
            linux.adopt_orphans()
        first = os.fork()
        if not first:
            os.close(tell)
            _guarded(lambda: self._be_first(alive))
        os.write(tell, str(first).encode())
        os.close(tell)
        os.close(alive)
        _, status = os.waitpid(first, 0)
        if not self._spec.has_place:
            tree.end_all()
        return max(os.waitstatus_to_exitcode(status), 0)

    def _be_first(self, alive: int) -> int:
        if self._spec.has_place:
            linux.die_with_parent(signal.SIGKILL)
            mounts = parse_mounts(_read("/proc/self/mountinfo"))
            Disk(self._spec, files_of(self._spec), mounts).enter()
        return init.Init(self._spec, alive, self._ssh).live()

    def _wait(self, channel: socket.socket, booter: int, first: int) -> int:
        ended = os.pidfd_open(booter)
        watched: list[socket.socket | int] = [ended, channel]
        while ended not in (ready := select.select(watched, [], [], _LOOK_AFTER)[0]):
            self._console.shorten()
            if channel in ready and not self._obey(channel.recv(100), first):
                watched.remove(channel)
        os.close(ended)
        self._console.shorten()
        code = os.waitstatus_to_exitcode(os.waitpid(booter, 0)[1])
        if not self._spec.has_place:
            tree.end_all()
        return code if channel in watched else init.OFF

    @staticmethod
    def _obey(word: bytes, first: int) -> bool:
        """False if there is nobody any more to be obeyed."""
        with suppress(ProcessLookupError):
            os.kill(first, POWER if word else signal.SIGKILL)
        return bool(word)


class _Console:
    """The file that all of a VM's output goes to: ours, too. Its oldest bytes become a hole.

    So it takes no more room, while each byte keeps its number, for those who read on from where they were.
    """

    def __init__(self) -> None:
        self._hole = 0

    def shorten(self) -> None:
        """If that is worth it."""
        with suppress(OSError):  # a file system without holes
            old = os.fstat(1).st_size - _CONSOLE
            if old - self._hole >= _CONSOLE:
                linux.punch(1, old)
                self._hole = old


def _guarded(live: Callable[[], int]) -> NoReturn:
    """A child must never go on as its parent."""
    code = 70
    try:
        code = live()
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _listen(address: tuple[str, int]) -> socket.socket:
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind(tuple(address))
    found.listen(128)
    return found


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


def _clear(directory: str) -> None:
    """As every boot of a VM clears its /tmp."""
    if os.path.isdir(directory) and os.listdir(directory):
        from stoker.emulator.machines.removal import remove_tree

        with suppress(OSError):
            remove_tree(directory)
        os.makedirs(directory, exist_ok=True)
