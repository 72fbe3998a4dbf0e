"""Scripts that serve many trials in one process; see manager/warm.py for their side.

Such a process is a stage while it has a trial, and a helper while it waits for the next one.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from stoker.agent import guardian
from stoker.agent.guardian import LINUX
from stoker.agent.preload import Call, Lost, call_of, send
from stoker.agent.processes import LOG_FLAGS, Processes, Spec, Stage, StageError


@dataclass(frozen=True)
class _Task:
    """What two stages have in common that can be served by one process."""

    slot: str
    stage: str
    program: tuple[str, ...]  # the command without the arguments of a script
    directory: Path | None
    environment: tuple[tuple[str, str], ...]


@dataclass(eq=False)
class _Server:
    task: _Task
    channel: socket.socket
    mark: str
    heard: bytes = b""


class Serving:
    """Processes that serve one trial after the other. Everything happens in the thread of `poll`."""

    def __init__(self, processes: Processes, complain: Callable[[str], None]) -> None:
        self._processes = processes
        self._complain, self._has_complained = complain, False
        self._listener: socket.socket | None = None
        self._tasks: dict[int, _Task] = {}  # pid → what its stage is, for those that may yet report
        self._servers: dict[int, _Server] = {}

    def address(self) -> str:
        """Where scripts report, for STOKER_WARM; "" where they cannot."""
        if not LINUX:
            if not self._has_complained:
                self._complain("every trial starts anew: only Linux can serve many in one process (`warm`)")
            self._has_complained = True
            return ""
        if self._listener is None:
            self._listener = socket.socket(socket.AF_UNIX)
            self._listener.bind(f"\0stoker-{os.getpid()}-{os.urandom(8).hex()}")
            self._listener.listen(64)
            self._processes.watch(self._listener.fileno(), self._accept)
        return "@" + str(self._listener.getsockname()[1:], "ascii")

    def expect(self, slot: str, name: str, stage: Stage) -> None:
        """A stage has started whose process may serve others of its name in this slot."""
        self._tasks = {pid: task for pid, task in self._tasks.items() if self._processes.stage(pid)}
        self._tasks[stage.pid] = _task(slot, name, stage.spec)

    def start(self, slot: str, name: str, spec: Spec) -> Stage | None:
        """Let a process that waits run a stage; None if there is none for it.

        Those that wait for what this slot's stages of that name no longer are, as after a change of the study
        file, are ended. Raises OSError if the log cannot be written.
        """
        task = _task(slot, name, spec)
        for pid, server in list(self._servers.items()):
            if (server.task.slot, server.task.stage) != (slot, name) or not self._processes.is_helper(pid):
                continue
            if server.task == task:
                log = os.open(spec.log, LOG_FLAGS, 0o666)
                try:
                    tell = lambda mark: _tell_next(server.channel, spec, log)  # noqa: B023, E731  (called at once)
                    return self._processes.adopt(spec, pid, tell, server.mark)
                except (StageError, Lost):
                    pass
                finally:
                    os.close(log)
            self._end(pid)
        return None

    def close(self, patience: float = 1.0) -> None:
        """End all that wait; they have a moment to do so by themselves. May be repeated."""
        waiting = [pid for pid in self._servers if self._processes.is_helper(pid)]
        for pid in list(self._servers):
            self._forget(pid)
        if self._listener is not None:
            self._processes.unwatch(self._listener.fileno())
            self._listener.close()
            self._listener = None
        until = time.monotonic() + patience
        while any(_lives(pid) for pid in waiting) and time.monotonic() < until:
            time.sleep(0.005)
        for pid in waiting:
            self._processes.end_helper(pid)

    def _accept(self) -> None:
        """A script reports. Only a stage's first process counts: others end before their stage does."""
        assert self._listener is not None  # noqa: S101
        channel, _ = self._listener.accept()
        pid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        stage, task = self._processes.stage(pid), self._tasks.pop(pid, None)
        if stage is None or task is None:
            channel.close()
            return
        channel.setblocking(False)
        self._servers[pid] = _Server(task, channel, stage.mark)
        self._processes.watch(channel.fileno(), lambda: self._hear(pid))

    def _hear(self, pid: int) -> None:
        """A script says that its trial is over, or is gone."""
        server, stage = self._servers[pid], self._processes.stage(pid)
        try:
            part = server.channel.recv(1 << 12)
        except OSError:
            part = b""
        server.heard += part
        if part and not server.heard.endswith(b"\n"):
            return
        if not part or stage is None or not self._processes.release(stage, json.loads(server.heard)["code"]):
            self._end(pid)
        server.heard = b""

    def _end(self, pid: int) -> None:
        """A process that still has a trial ends by itself, now that nobody tells it of another."""
        self._forget(pid)
        self._processes.end_helper(pid)

    def _forget(self, pid: int) -> None:
        channel = self._servers.pop(pid).channel
        self._processes.unwatch(channel.fileno())
        channel.close()


def _task(slot: str, name: str, spec: Spec) -> _Task:
    call = call_of(spec.command)
    program = (*call.python, *call.argv[: _words(call)]) if call else (spec.command,)
    return _Task(slot, name, program, spec.directory, tuple(sorted(spec.environment.items())))


def _words(call: Call) -> int:
    """How many words name what is called."""
    return 2 if call.argv[0] == "-m" else 1


def _tell_next(channel: socket.socket, spec: Spec, log: int) -> None:
    """Let a process that waits begin with the next trial."""
    call = call_of(spec.command)
    request = {"environment": spec.about, "arguments": call.argv[_words(call) :] if call else ()}
    try:
        send(channel, request, [log])
    except OSError as error:
        raise Lost("a process that waited is gone") from error


def _lives(pid: int) -> bool:
    found = guardian.read(pid)
    return found is not None and found.state != "Z"
