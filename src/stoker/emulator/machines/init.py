"""The first process of a VM: runs its scripts, answers its power button, lets people log in.

signal      from the holder, or from `poweroff` and its relatives inside
POWER       SIGTERM for all, the shutdown script, and the end, as soon as nothing runs any more
RESTART     the same, and then it boots again
CRASH       the end at once
"""

# Paths are text here: the processes of a VM start faster without pathlib.
# ruff: noqa: PTH101, PTH123

from __future__ import annotations

import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from stoker.emulator.machines import linux, scripts, tree
from stoker.emulator.machines.power import CRASH, POWER, RESTART
from stoker.emulator.machines.spec import Spec

OFF, AGAIN = 0, 3
"""How it ends."""

_PATIENCE = 90.0  # seconds for what does not end by itself, as systemd has them
_SIGNALS = (signal.SIGCHLD, POWER, RESTART, CRASH, signal.SIGHUP)  # SIGTERM is blocked: see scripts
# Rights over what all VMs and this machine share: modules, the clock, raw devices, the kernel's log.
_NOT_FOR_GUESTS = (9, 16, 17, 20, 25, 27, 29, 30, 32, 33, 34, 35, 37, 38, 39)


class Init:
    """One life, from boot to end. `alive` is a pipe that ends with the holder, `ssh` a socket or -1."""

    def __init__(self, spec: Spec, alive: int, ssh: int) -> None:
        self._spec, self._alive = spec, alive
        self._told: list[int] = []
        self._code: int | None = None  # how to end, once that is clear
        self._until = 0.0  # when it ends in any case
        self._ssh = socket.socket(fileno=ssh) if ssh >= 0 else None
        self._console = -1

    def live(self) -> int:
        """Returns how it ended; whoever calls ends the process with it, and with that all others."""
        wake = self._listen_to_signals()
        self._settle()
        poll = select.poll()
        for descriptor in (self._alive, wake, self._console, self._ssh.fileno() if self._ssh else -1):
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN | select.POLLHUP)
        self._start(lambda: scripts.run("startup", self._spec))
        while True:
            ready = [descriptor for descriptor, _ in poll.poll(self._patience())]
            if self._alive in ready:
                self._code = OFF
                break
            if wake in ready:
                os.read(wake, 100)
            if self._console in ready:
                os.write(1, os.read(self._console, 1 << 16))
            if self._ssh is not None and self._ssh.fileno() in ready:
                self._let_in()
            if self._is_over():
                break
        if not self._spec.has_place:
            tree.end_all()
        return self._code or OFF

    # Signals

    def _listen_to_signals(self) -> int:
        hear, tell = os.pipe()
        os.set_blocking(tell, False)
        signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        for number in _SIGNALS:
            signal.signal(number, lambda number, frame: self._told.append(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {POWER})
        return hear

    def _is_over(self) -> bool:
        has_children = tree.reap()
        while self._told:
            number = self._told.pop(0)
            if number == CRASH:
                self._code = OFF
                return True
            if number in (POWER, RESTART) and self._code is None:
                self._shut_down(OFF if number == POWER else AGAIN)
                has_children = True
        if self._code is None:
            return False
        return not has_children or time.monotonic() >= self._until

    def _shut_down(self, code: int) -> None:
        """Everybody has until the end of the shutdown script, and longer if they need it."""
        self._code, self._until = code, time.monotonic() + _PATIENCE
        for number in (signal.SIGTERM, signal.SIGCONT):
            if self._spec.has_place:
                with suppress(ProcessLookupError):
                    os.kill(-1, number)
            else:
                tree.tell_all(number)
        self._start(lambda: scripts.run("shutdown", self._spec))

    def _patience(self) -> float | None:
        """Milliseconds to wait for news."""
        return None if self._code is None else max(0.0, self._until - time.monotonic()) * 1000 + 1

    # Children

    def _start(self, live: Callable[[], None]) -> None:
        if os.fork():
            return
        code = 70
        try:
            signal.set_wakeup_fd(-1)
            for number in (*_SIGNALS, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            live()
            code = 0
        except BaseException:  # a child must never go on as its parent
            import traceback

            traceback.print_exc()
        finally:
            os._exit(code)

    def _let_in(self) -> None:
        with suppress(OSError):  # who called has gone
            connection, _ = (self._ssh or socket.socket()).accept()
            with connection:
                self._start(lambda: self._be_sshd(connection.fileno()))

    def _be_sshd(self, connection: int) -> NoReturn:
        directory = "/run/ssh" if self._spec.has_place else f"{self._spec.directory}/ssh"
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(connection, 0)
        os.dup2(connection, 1)
        if self._spec.is_user:
            _pose_as_user(directory)
        words = [self._spec.sshd, "-i", "-e", "-f", f"{directory}/sshd_config"]
        os.execve(self._spec.sshd, words, self._spec.environment)  # noqa: S606

    # At the start

    def _settle(self) -> None:
        linux.rename("init")
        with suppress(PermissionError):
            os.setsid()
        os.umask(0o022)
        if self._ssh is not None:
            self._ssh.setblocking(False)
        if self._spec.has_place:
            linux.give_up(_NOT_FOR_GUESTS)
            self._console = os.open("/dev/ttyS0", os.O_RDWR | os.O_NONBLOCK)
        else:
            linux.adopt_orphans()
            self._write_commands()
            os.chdir(self._spec.environment["HOME"])

    def _write_commands(self) -> None:
        from stoker.emulator.machines import power

        for name in (*power.NAMES, "systemctl"):
            path = f"{self._spec.directory}/bin/{name}"
            with open(path, "w", encoding="utf-8") as file:
                file.write(power.command(os.getpid()))
            os.chmod(path, 0o755)  # noqa: S103


def _pose_as_user(directory: str) -> None:
    """sshd drops rights that root of a user namespace does not have; of others it asks none.

    So it sees itself as user 1000, by the name of root. It is the same user in truth, with the same files.
    """
    linux.unshare(linux.NEWUSER | linux.NEWNS)
    linux.map_ids(1000, 0, 0)
    for name in ("passwd", "shadow"):
        linux.bind(f"{directory}/{name}", f"/etc/{name}")
