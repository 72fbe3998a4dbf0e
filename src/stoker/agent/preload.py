"""Stages that start from a parent which has imported their modules; see manager/preload.py for the parent.

A parent serves one slot: it has the slot's environment, and the interpreter, directory and first place on
the path of the stages it forks for. Whatever of these differs needs another parent, so that no module finds
anything else while it is imported than its stage would have found.

The first stage of a slot waits for its parent's imports. They are what the stage would import itself, so it
begins no later than it would alone, and the machine does the work once.

A stage that cannot be forked starts as without all this. Why is said once for each slot, unless the command
is simply no plain call of Python.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker import manager
from stoker.agent.guardian import LINUX, MARK
from stoker.agent.loop import Event, Loop
from stoker.agent.processes import HELPER_CHANNEL, LOG_FLAGS, Processes, Spec, Stage, StageError, argv_of

_IMPORTS = 60.0  # seconds that a parent has for its imports
_FORK = 5.0  # seconds that it has for a fork
_MOST = 3  # parents of a slot; scripts in many directories would fill the memory
_PATIENCE = 3  # parents that may be lost in a row before no more are tried
_ROOM = 2048  # bytes for the command line that a child shows
_PROGRAM = str(Path(manager.__file__).with_name("preload.py"))
_PYTHON = re.compile(r"python(3(\.\d+)?)?", re.ASCII)


@dataclass(frozen=True)
class Call:
    """A command that starts Python on a script or a module, and does nothing else."""

    python: tuple[str, ...]  # the interpreter, and -u
    argv: tuple[str, ...]  # the script, or -m and the module; then arguments


def call_of(command: str) -> Call | None:
    """What a command calls, if it is `PYTHON [-u] script.py …` or `PYTHON [-u] -m module …`."""
    words = argv_of(command) or [""]
    if not _PYTHON.fullmatch(words[0].rpartition("/")[2]):
        return None
    count = 2 if words[1:2] == ["-u"] else 1
    argv = tuple(words[count:])
    is_module = argv[:1] == ("-m",) and len(argv) > 1 and not argv[1].startswith("-")
    is_script = bool(argv) and argv[0].endswith(".py") and not argv[0].startswith("-")
    return Call(tuple(words[:count]), argv) if is_module or is_script else None


@dataclass(frozen=True)
class _Kind:
    """What a parent and the stages it forks for have in common."""

    slot: str
    modules: tuple[str, ...]
    program: bytes
    python: tuple[str, ...]
    root: str  # the first place on the path; "" is the current directory
    directory: str
    environment: tuple[tuple[str, str], ...]


@dataclass(eq=False)
class _Parent:
    pid: int
    channel: socket.socket
    is_ready: bool = False
    problem: str = ""  # why it cannot be used
    lost: str = ""  # why there must be another one
    files: Mapping[str, list[int]] = field(default_factory=dict)


class Lost(Exception):  # noqa: N818  (never leaves the agent)
    """A parent that is dead, or does not answer."""


class Parents:
    """All parents of an agent. Everything happens in the thread of its loop."""

    def __init__(self, loop: Loop, processes: Processes, complain: Callable[[str], None]) -> None:
        self._loop, self._processes, self._complain = loop, processes, complain
        self._parents: dict[_Kind, _Parent] = {}  # those used last at the end
        self._losses: Counter[_Kind] = Counter()
        self._useless: set[_Kind] = set()
        self._said: set[tuple[str, str]] = set()
        self._news: Event[None] = Event(loop)

    async def start(
        self, slot: str, modules: tuple[str, ...], spec: Spec, wanted: Callable[[], bool] = lambda: True
    ) -> Stage | None:
        """Start a stage; None if it must be started without a parent, or is no longer wanted.

        Raises OSError if its log cannot be written.
        """
        call, kind = call_of(spec.command), None
        if call is not None:
            kind = self._kind(slot, modules, spec, call)
        if call is None or kind is None or kind in self._useless:
            return None
        if not LINUX:
            self._say(slot, "only Linux can do that")
            return None
        parent = None
        try:
            parent = self._parent(kind, spec)
            while not parent.is_ready and wanted():
                await self._news.wait()
            if not wanted():
                return None
            if not parent.problem:
                stage = await self._fork(parent, spec, call)
                self._losses[kind] = 0
                return stage
            problem = parent.problem
            self._useless.add(kind)
        except (Lost, StageError) as error:
            problem = str(error)
            self._losses[kind] += 1
            if self._losses[kind] == _PATIENCE:
                self._useless.add(kind)
        if self._parents.get(kind) is parent:  # and not a newer one, which another stage has begun
            self._drop(kind)
        self._say(slot, problem)
        return None

    def wake(self) -> None:
        """Let `start` see that a stage is no longer wanted."""
        self._news.set(None)
        self._news = Event(self._loop)

    def close(self) -> None:
        """End all parents. May be repeated."""
        for kind in list(self._parents):
            self._drop(kind)

    def _say(self, slot: str, problem: str) -> None:
        if (slot, problem) not in self._said:
            self._said.add((slot, problem))
            self._complain(f"{slot}: trials start without `preload`: {problem}")

    def _kind(self, slot: str, modules: tuple[str, ...], spec: Spec, call: Call) -> _Kind | None:
        program = self._processes.program(spec)
        directory = os.path.abspath(spec.directory or "")  # noqa: PTH100  (paths are texts here: this runs for every trial)
        script = os.path.join(directory, call.argv[0])  # noqa: PTH118
        is_module = call.argv[0] == "-m"
        if program is None or not (is_module or os.path.isfile(script)):  # noqa: PTH113
            return None
        root = "" if is_module else os.path.dirname(os.path.realpath(script))  # noqa: PTH120
        environment = tuple(sorted(spec.environment.items()))
        return _Kind(slot, modules, program, call.python, root, directory, environment)

    # Parents

    def _parent(self, kind: _Kind, spec: Spec) -> _Parent:
        """The parent for a kind, in a state that is worth waiting for."""
        parent = self._parents.pop(kind, None)
        if parent is not None and _is_stale(parent.files):
            self._end(parent)
            parent = None
        if parent is None:
            others = [one for one, other in self._parents.items() if one.slot == kind.slot and other.is_ready]
            for other in others[: len(others) + 1 - _MOST]:
                self._drop(other)
            parent = self._begin(kind, spec)
        self._parents[kind] = parent
        return parent

    def _begin(self, kind: _Kind, spec: Spec) -> _Parent:
        options = {
            "channel": HELPER_CHANNEL,
            "session": self._processes.has_sessions,
            "root": kind.root,
            "modules": kind.modules,
            "mark": [MARK, self._processes.helper_mark],
        }
        command = shlex.join([*kind.python, _PROGRAM, json.dumps(options).ljust(_ROOM)])
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                started = Spec(command, os.devnull, spec.environment, directory=spec.directory)
                pid = self._processes.start_helper(started, theirs.fileno())
            except StageError:
                ours.close()
                raise
        ours.setblocking(False)
        parent = _Parent(pid, ours)
        self._loop.spawn(self._hear(parent))
        return parent

    async def _hear(self, parent: _Parent) -> None:
        """Wait for what a parent says when it has imported its modules."""
        try:
            told = json.loads(await self._line(parent.channel, _IMPORTS, "importing modules"))
            parent.problem, parent.files = told["problem"], told["files"]
        except Lost as error:
            parent.lost = str(error)
        parent.is_ready = True
        self.wake()

    def _drop(self, kind: _Kind) -> None:
        parent = self._parents.pop(kind, None)
        if parent is not None:
            self._end(parent)

    def _end(self, parent: _Parent) -> None:
        parent.channel.close()
        self._processes.end_helper(parent.pid)

    # Children

    async def _fork(self, parent: _Parent, spec: Spec, call: Call) -> Stage:
        if parent.lost:
            raise Lost(parent.lost)
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                log = os.open(spec.log, LOG_FLAGS, 0o666)
                try:
                    socket.send_fds(parent.channel, [b"."], [log, theirs.fileno()])
                except OSError as error:
                    raise Lost("the process that has imported the modules is gone") from error
                finally:
                    os.close(log)
            pid = int(await self._line(ours, _FORK, "forking"))
            return self._processes.adopt(spec, pid, lambda mark: _tell(ours, spec, call, mark))

    async def _line(self, channel: socket.socket, seconds: float, what: str) -> bytes:
        """What a parent or a child says: one line."""
        channel.setblocking(False)
        until, line = self._loop.now() + seconds, b""
        while not line.endswith(b"\n"):
            await self._readable(channel, until)
            try:
                part = channel.recv(1 << 16)
            except BlockingIOError:
                raise Lost(f"{what} took longer than {seconds:.0f} s") from None
            except OSError:
                part = b""
            if not part:
                raise Lost(f"the process that has imported the modules ended while {what}")
            line += part
        return line

    async def _readable(self, channel: socket.socket, until: float) -> None:
        """Wait until there is something to read, or time is up."""
        wake, descriptor = self._loop.at(until), channel.fileno()
        self._processes.watch(descriptor, lambda: wake.set(None))
        try:
            await wake.wait()
        finally:
            self._processes.unwatch(descriptor)


def send(channel: socket.socket, request: Mapping[str, Any], descriptors: list[int]) -> None:
    """Send a line to a process that reads it at once; the descriptors go with its first byte."""
    channel.settimeout(_FORK)
    line = json.dumps(request).encode() + b"\n"
    sent = socket.send_fds(channel, [line], descriptors) if descriptors else 0
    channel.sendall(line[sent:])
    channel.setblocking(False)


def _tell(channel: socket.socket, spec: Spec, call: Call, mark: str) -> None:
    """Let a child begin."""
    request: dict[str, Any] = {
        "argv": call.argv,
        "command": [*call.python, *call.argv],
        "environment": {**spec.about, MARK: mark},
        "mark": [MARK, mark],
    }
    try:
        send(channel, request, [])
    except OSError as error:
        raise Lost("a forked process is gone") from error


def _is_stale(files: Mapping[str, list[int]]) -> bool:
    """Whether a file that was imported has changed since."""
    for path, known in files.items():
        try:
            about = os.stat(path)  # noqa: PTH116
        except OSError:
            return True
        if [about.st_mtime_ns, about.st_size, about.st_ino] != known:
            return True
    return False
