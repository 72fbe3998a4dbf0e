"""Stages as child processes: started, waited for, timed, suspended, measured and ended.

A stage is a process in a group of its own, with everything that it starts. On Linux everything is found, even
what forked twice and took another group, session and environment: orphans come to the agent, see guardian.py.
Elsewhere a stage is its process group, its end is noticed within 20 ms, and `usage` knows nothing.
"""

from __future__ import annotations

import os
import re
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any

from stoker.agent import guardian
from stoker.agent.guardian import LINUX, MARK, Guard
from stoker.core.errors import StokerError

_LINGER = 0.25  # seconds for what a stage leaves behind to end by itself, as the tee of `> >(tee log)` does
_STUBBORN = 5.0  # seconds after which a leftover that does not die no longer keeps the slot
_TICK, _SLOWEST_TICK = 0.005, 0.2  # seconds between two looks at what is to end
_TIDY = 1.0  # seconds between two looks for dead orphans
_SLOWEST_LOOK = 0.02  # seconds between two looks at stages without a pidfd
_NEW_DIRECTORY = 'cd -- "$1" || exit 126; shift; exec "$@"'
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND
HELPER_CHANNEL = 3
"""The descriptor by which a helper and its agent speak."""


class StageError(StokerError):
    """A stage could not be started, for a reason that is not the command's: no log, no processes, no bash."""


_WORD = re.compile(r"""(?:[\w./:@%+,=-]|'[^'\0]*'|"[^"$`\\\0]*")+""", re.ASCII)
_SIMPLE = re.compile(rf"[ \t\n]*{_WORD.pattern}(?:[ \t]+{_WORD.pattern})*[ \t\n]*", re.ASCII)
_QUOTES = re.compile(r"""'([^']*)'|"([^"]*)\"""")
_BUILTINS_AND_RESERVED_WORDS = """
. : [ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs
disown do done echo elif else enable esac eval exec exit export false fc fg fi for function getopts hash help
history if in jobs kill let local logout mapfile popd printf pushd pwd read readarray readonly return select
set shift shopt source suspend test then time times trap true type typeset ulimit umask unalias unset until
wait while
"""
_OF_BASH = frozenset(_BUILTINS_AND_RESERVED_WORDS.split())


def argv_of(command: str) -> list[str] | None:
    """The words of a command that means the same without a shell; None if bash has to run it.

    Such a command consists of plain and quoted words and starts with a program's name. Names that bash knows
    itself are left to it, except `true` and `false` alone, which are the same in every system.
    """
    if not _SIMPLE.fullmatch(command):
        return None
    written = _WORD.findall(command)
    words = [_QUOTES.sub(lambda quoted: quoted[1] or quoted[2] or "", word) for word in written]
    name = words[0]
    special = name in _OF_BASH and words not in (["true"], ["false"])
    return None if special or not name or "=" in name or name[0] == "%" else words


@dataclass(frozen=True)
class Spec:
    """What to run. Output and errors are appended to the log, whose directory exists; stdin is empty.

    A command runs in bash, or without it where that makes no difference. What bash would say about a program
    that is missing or not executable stands in the log, and the exit code is 127 or 126; so does a directory
    that is missing. SIGTERM comes at the timeout, and SIGKILL `grace` seconds later.
    """

    command: str
    log: Path | str
    environment: Mapping[str, str] = field(default_factory=dict)  # added to the agent's
    about: Mapping[str, str] = field(default_factory=dict)  # added as well: what other stages have otherwise
    directory: Path | None = None  # the agent's if None
    timeout: float | None = None
    grace: float = 10.0

    @property
    def shell(self) -> bool:
        """Whether only bash can run the command."""
        return argv_of(self.command) is None


class Why(Enum):
    """Why a stage ended."""

    EXITED = "exited"  # by itself, or killed by somebody else
    TIMEOUT = "timeout"
    KILLED = "killed"  # by `terminate`, `kill` or `close`
    UNGUARDED = "unguarded"  # a watcher of the agent died


@dataclass(frozen=True)
class Usage:
    """What a stage's living processes use now."""

    cpu: float = 0.0  # seconds, with those of children that they waited for
    memory: int = 0  # bytes; pages that processes share count for each of them
    processes: int = 0


@dataclass(eq=False)
class Stage:
    """A stage under way. Fields with an underscore belong to Processes."""

    spec: Spec
    pid: int
    mark: str
    started: float  # monotonic seconds
    why: Why = Why.EXITED
    _born: int = 0  # ticks since boot
    _pidfd: int | None = None
    _due: float = inf  # when something must be done about it
    _over: float = inf  # when its first process ended
    _mercy: float = inf  # until when leftovers may go on
    _killing: bool = False
    _left: float | None = None  # seconds to `_due`, while suspended
    _exit: tuple[int, Any] | None = None  # if it has been waited for
    _said: int | None = None  # its exit code, if it is over though its process goes on
    _cpu: float = 0.0  # seconds that its process had used before


@dataclass(frozen=True)
class Ended:
    """How a stage ended. By then none of its processes is left, but for one that SIGKILL cannot end."""

    stage: Stage
    code: int | None  # None if a signal ended it
    signal: int | None
    why: Why
    wall: float  # seconds, suspended ones included
    cpu: float  # seconds of the first process and of what it waited for
    memory: int  # bytes, the largest that one process had; at least the agent's own, which Linux counts in


class Processes(AbstractContextManager["Processes"]):
    """All stages of an agent.

    Everything but `wakeup` belongs to one thread. Other children of the agent must stay in its process group,
    or be helpers: one in a group of its own is taken for a stage's orphan. The agent's environment, directory
    and ignored signals are those it has when this is made.
    """

    def __init__(self, guard: Guard | None = None, *, pidfds: bool = True) -> None:
        self.guarded = True  # until a watcher dies: then all stages end, and the agent must leave
        self._stages: dict[int, Stage] = {}
        self._unwatched: set[Stage] = set()  # those without a pidfd: macOS, Linux before 5.3
        self._helpers: set[int] = set()
        self._acts: dict[int, Callable[[], None]] = {}
        self._count = 0
        self._pidfds = pidfds and hasattr(os, "pidfd_open")
        self._was_subreaper = guardian.set_subreaper(True)
        self._mark = guardian.mark_of_this_agent()
        self.helper_mark = self._make_mark()
        self._directory = os.getcwd()  # noqa: PTH109  compared as text
        self._environment = _environment(self._directory)
        self._orphans = guardian.Orphans()
        # Not always a session: where Linux schedules by session, a new one must wait for its turn.
        self._ways: Any = {"setsid": True} if guardian.has_terminal() else {"setpgroup": 0}
        self.has_sessions = "setsid" in self._ways
        ignored = [one for one in signal.valid_signals() if signal.getsignal(one) == signal.SIG_IGN]
        self._ways.update(setsigmask=(), setsigdef=ignored)  # handlers are reset by themselves
        self._last_environment: tuple[Mapping[str, str], Mapping[bytes, bytes]] = ({}, self._environment)
        self._programs: dict[tuple[str, bytes], tuple[float, bytes | None]] = {}
        self._epoll = guardian.Epoll()
        self._by_pidfd: dict[int, Stage] = {}
        self._woken, self._tidy = False, 0.0
        self._seen: tuple[float, dict[int, guardian.Process]] = (-inf, {})
        self._hear, self._wake = os.pipe()
        for descriptor in (self._hear, self._wake):
            os.set_blocking(descriptor, False)
        for descriptor in (self._hear, *(guard.lifelines if guard else ())):
            self._epoll.register(descriptor, select.POLLIN)

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, spec: Spec) -> Stage:
        """Start a stage. Raises StageError if that is impossible; a wrong command is told by `poll`."""
        if not self.guarded:
            raise StageError("a watcher of this agent was killed: it must leave, and starts no more stages")
        mark = self._make_mark()
        started, born = time.monotonic(), guardian.ticks_since_boot()
        return self._add(Stage(spec, self._spawn(spec, mark), mark, started, _born=born))

    def adopt(self, spec: Spec, pid: int, tell: Callable[[str], None], mark: str = "") -> Stage:
        """Make a stage of a helper, or of a helper's child. Raises StageError if it cannot be one.

        It leads a group and is a child of the agent's: Linux hands it over when its parent ends. It waits for
        `tell`, which lets it begin and passes its mark on to it; one that was a stage before keeps its own.
        """
        found = guardian.read(pid)
        if not self.guarded or found is None or (found.parent, found.group) != (os.getpid(), pid):
            raise StageError("it is no child of this agent")
        mark, born = mark or self._make_mark(), guardian.ticks_since_boot()
        tell(mark)
        self._helpers.discard(pid)
        return self._add(Stage(spec, pid, mark, time.monotonic(), _born=born, _cpu=found.cpu))

    def release(self, stage: Stage, code: int) -> bool:
        """A stage is over, but its process is to go on with another; False if it must end.

        Whatever else the stage started is ended, and `poll` tells of its end. From then on the process is a
        helper, until it is adopted again.
        """
        if self.stage(stage.pid) is not stage or stage.why is not Why.EXITED or stage._over < inf:
            return False
        now = time.monotonic()
        stage._said, stage._over, stage._due, stage._mercy = code, now, now, now + _LINGER
        return True

    def stage(self, pid: int) -> Stage | None:
        """The stage whose first process this is."""
        return self._stages.get(pid)

    def is_helper(self, pid: int) -> bool:
        """Whether a process is a helper, and not dead as far as is known."""
        return pid in self._helpers

    def start_helper(self, spec: Spec, channel: int) -> int:
        """Start a process that is no stage and gets a descriptor; a child of it can become one, by `adopt`.

        Whatever bears `helper_mark` belongs to no stage: helpers, and their children before they are adopted.
        """
        pid = self._spawn(spec, self.helper_mark, channel)
        self._helpers.add(pid)
        return pid

    def end_helper(self, pid: int) -> None:
        """End a helper at once. Its children that became stages go on."""
        if pid in self._helpers:
            guardian.kill(pid, signal.SIGKILL)
            self._helpers.discard(pid)  # from here on it is an orphan, and reaped like one

    def program(self, spec: Spec) -> bytes | None:
        """The file that a command runs without bash; None if bash has to run it."""
        argv, environment = argv_of(spec.command), self._encoded(spec.environment)
        if not argv or _changes_bash(environment, argv[0]):
            return None
        return self._program(argv[0], environment)

    def watch(self, descriptor: int, act: Callable[[], None]) -> None:
        """Do something whenever a descriptor is readable, in `poll`, which then returns."""
        self._acts[descriptor] = act
        self._epoll.register(descriptor, select.POLLIN)

    def unwatch(self, descriptor: int) -> None:
        """No longer; before it is closed."""
        del self._acts[descriptor]
        self._epoll.unregister(descriptor)

    def poll(self, timeout: float | None = None) -> list[Ended]:
        """Wait until stages ended, and return them; nothing after `wakeup`, a watcher's death or the timeout.

        Also what enforces timeouts and finishes kills, so it must be called all the time.
        """
        now = time.monotonic()
        until = inf if timeout is None else now + timeout
        while True:
            due = min((stage._due for stage in self._stages.values()), default=inf)
            self._wait(min(until, due, now + _TIDY) - now)
            now = time.monotonic()
            ended = self._act(now)
            if ended or self._woken or now >= until:
                self._woken = False
                return ended

    def wakeup(self) -> None:
        """Let the running `poll`, or the next one, return at once. For any thread and for signal handlers."""
        with suppress(OSError):  # it is full of calls, or nobody waits any more
            os.write(self._wake, b"\0")

    def fileno(self) -> int:
        """Readable when `poll` has news (a descriptor for another loop); it knows nothing of timeouts."""
        return self._epoll.fileno()

    def terminate(self, stage: Stage, grace: float | None = None, why: Why = Why.KILLED) -> None:
        """Ask the stage's group to end (SIGTERM), and kill what is left of it after the grace."""
        if stage.pid not in self._stages or stage._killing:
            return
        until = time.monotonic() + (stage.spec.grace if grace is None else grace)
        if stage._over < inf:
            stage._mercy = min(stage._mercy, until)
            return
        if stage.why is Why.EXITED:
            self._ask_to_end(stage)
            stage.why, stage._due = why, inf
            stage._left = None if stage._left is None else inf
        self.resume(stage)
        stage._due = min(stage._due, until)

    def kill(self, stage: Stage, why: Why = Why.KILLED) -> None:
        """End the stage and all its processes at once. `poll` makes sure of it and tells."""
        if stage.pid not in self._stages:
            return
        if stage.why is Why.EXITED and stage._over == inf:
            stage.why = why
        now = time.monotonic()
        stage._killing, stage._left, stage._mercy = True, None, min(stage._mercy, now)
        self._signal_all(stage, signal.SIGKILL)
        stage._due = _next_look(stage, now)

    def suspend(self, stage: Stage) -> None:
        """Stop all processes of a stage where they are. Until `resume` its timeout does not run."""
        if stage.pid not in self._stages or stage._killing or stage._over < inf or stage._left is not None:
            return
        stage._left, stage._due = stage._due - time.monotonic(), inf
        self._signal_all(stage, signal.SIGSTOP)

    def resume(self, stage: Stage) -> None:
        """Let a suspended stage go on."""
        if stage.pid in self._stages and stage._left is not None:
            stage._due, stage._left = time.monotonic() + stage._left, None
            self._signal_all(stage, signal.SIGCONT)

    def usage(self, stage: Stage) -> Usage:
        """What the stage uses now. One look at /proc serves all calls within a tenth of a second."""
        now = time.monotonic()
        if now - self._seen[0] > 0.1:
            self._seen = (now, guardian.table())
        shown = self._seen[1]
        found = [shown[pid] for pid in self._family(stage, shown) if pid in shown]
        return Usage(sum((one.cpu for one in found), 0.0), sum(one.memory for one in found), len(found))

    def close(self) -> None:
        """End all stages at once, and everything they started. May be repeated."""
        if self._wake < 0:
            return
        until = time.monotonic() + 2 * _STUBBORN
        for pid in list(self._helpers):
            self.end_helper(pid)
        for stage in list(self._stages.values()):
            self.kill(stage)
        while self._stages and time.monotonic() < until:
            self.poll(0.1)
        self._epoll.close()
        self._orphans.close()
        os.close(self._hear)
        wake, self._wake = self._wake, -1  # another thread may call at any moment
        os.close(wake)
        guardian.set_subreaper(self._was_subreaper)

    # Starting

    def _make_mark(self) -> str:
        """All are of one length: a process can change its own where it stands."""
        self._count += 1
        return f"{self._mark}.{self._count:09}"

    def _add(self, stage: Stage) -> Stage:
        if stage.spec.timeout is not None:
            stage._due = stage.started + stage.spec.timeout
        self._stages[stage.pid] = stage
        self._watch(stage)
        return stage

    def _spawn(self, spec: Spec, mark: str, channel: int | None = None) -> int:
        guardian.seal_descriptors()
        argv = argv_of(spec.command)
        here = spec.directory is None or os.path.abspath(spec.directory) == self._directory  # noqa: PTH100
        try:
            environment = {**self._encoded(spec.environment), MARK.encode(): mark.encode()}
            environment.update((os.fsencode(name), os.fsencode(value)) for name, value in spec.about.items())
            program = self._program(argv[0], environment) if argv and here else None
            if argv and program and not _changes_bash(environment, argv[0]):
                # Whatever goes wrong goes wrong in bash too, which says so in the log.
                with suppress(OSError):
                    return _posix_spawn(program, argv, environment, spec.log, self._ways, channel)
            words = ["bash", "-c", "--", spec.command]
            if spec.directory is not None and not here:
                words = ["bash", "-c", _NEW_DIRECTORY, "bash", str(Path(spec.directory).absolute()), *words]
            bash = self._program("bash", environment) or b"/bin/bash"
            return _posix_spawn(bash, words, environment, spec.log, self._ways, channel)
        except (OSError, ValueError) as error:
            raise StageError(f"cannot start {spec.command!r}: {error}") from error

    def _encoded(self, added: Mapping[str, str]) -> Mapping[bytes, bytes]:
        """The agent's environment and what is added to it; most stages of a slot have the same."""
        if self._last_environment[0] != added:
            encoded = {os.fsencode(name): os.fsencode(value) for name, value in added.items()}
            self._last_environment = ({**added}, {**self._environment, **encoded})
        return self._last_environment[1]

    def _program(self, name: str, environment: Mapping[bytes, bytes]) -> bytes | None:
        """The file to run for a name. The last look along the PATH serves for a second."""
        key, now = (name, environment.get(b"PATH", b"")), time.monotonic()
        known = self._programs.get(key)
        if known is None or now - known[0] > 1.0:
            known = self._programs[key] = (now, _program(name, environment))
        return known[1]

    def _watch(self, stage: Stage) -> None:
        with suppress(OSError):
            stage._pidfd = os.pidfd_open(stage.pid) if self._pidfds else None
        if stage._pidfd is None:
            self._unwatched.add(stage)
        else:
            self._epoll.register(stage._pidfd, select.POLLIN)
            self._by_pidfd[stage._pidfd] = stage

    def _unwatch(self, stage: Stage) -> None:
        self._unwatched.discard(stage)
        if stage._pidfd is not None:
            del self._by_pidfd[stage._pidfd]
            self._epoll.unregister(stage._pidfd)  # before closing: a child may still hold a copy
            os.close(stage._pidfd)
            stage._pidfd = None

    def _is_watched(self, stage: Stage) -> bool:
        """Whether its first process lives, as far as is known."""
        return stage._pidfd is not None or stage in self._unwatched

    # Waiting

    def _wait(self, seconds: float) -> None:
        """Wait for news, at most so long, and note it."""
        if self._unwatched:
            age = time.monotonic() - max(stage.started for stage in self._unwatched)
            seconds = min(seconds, max(0.0005, min(age / 10, _SLOWEST_LOOK)))
        for descriptor, _ in self._epoll.poll(max(0.0, seconds)):
            if descriptor in self._by_pidfd:
                self._note_end(self._by_pidfd[descriptor])
            elif descriptor == self._hear:
                self._woken = True
                with suppress(BlockingIOError):
                    os.read(self._hear, 4096)
            elif descriptor in self._acts:
                self._woken = True
                self._acts[descriptor]()
            else:
                self._lose_guard(descriptor)
        for stage in list(self._unwatched):
            pid, status, usage = os.wait4(stage.pid, os.WNOHANG)
            if pid:
                stage._exit = (status, usage)
                self._note_end(stage)

    def _note_end(self, stage: Stage) -> None:
        """The stage's first process ended. It stays unreaped: so its number is nobody else's for now."""
        now = time.monotonic()
        self._unwatch(stage)
        polite = stage.why is not Why.EXITED and not stage._killing
        for pid in self._leftovers(stage) if polite else ():
            with suppress(ProcessLookupError):
                if os.getpgid(pid) != stage.pid:  # not asked yet; `timeout` takes a group of its own
                    os.kill(pid, signal.SIGTERM)
        stage._mercy = stage._due if polite else now + _LINGER
        stage._over, stage._due, stage._left = now, now, None

    def _lose_guard(self, lifeline: int) -> None:
        self._epoll.unregister(lifeline)
        self.guarded, self._woken = False, True
        for stage in list(self._stages.values()):
            self.kill(stage, Why.UNGUARDED)

    def _act(self, now: float) -> list[Ended]:
        """Do what is due, and return what has ended."""
        if now >= self._tidy:
            self._tidy = now + _TIDY
            self._orphans.living(self._stages.keys() | self._helpers)
        ended = []
        for stage in [stage for stage in self._stages.values() if stage._due <= now]:
            if stage._over < inf:
                if self._is_settled(stage, now):
                    ended.append(self._end(stage))
            elif stage.why is Why.EXITED:
                self.terminate(stage, why=Why.TIMEOUT)
            else:
                self.kill(stage)
        return ended

    def _is_settled(self, stage: Stage, now: float) -> bool:
        """Whether nothing is left of a stage that is over; otherwise goes on ending it."""
        left = self._leftovers(stage) if stage._said is None else self._started_by(stage)
        if not left or now > stage._mercy + _STUBBORN:
            return True
        if stage._killing or now >= stage._mercy:
            if stage._said is None:
                stage._killing = True
                self._signal_all(stage, signal.SIGKILL)
            for pid in left:
                guardian.kill(pid, signal.SIGKILL)
        stage._due = _next_look(stage, now)
        return False

    def _end(self, stage: Stage) -> Ended:
        if stage._said is not None:
            return self._end_released(stage, stage._said)
        status, usage = stage._exit or os.wait4(stage.pid, 0)[1:]
        del self._stages[stage.pid]
        if not LINUX:
            guardian.kill(-stage.pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(status)
        return Ended(
            stage,
            code if code >= 0 else None,
            -code if code < 0 else None,
            stage.why,
            stage._over - stage.started,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss * (1024 if LINUX else 1),
        )

    def _end_released(self, stage: Stage, code: int) -> Ended:
        """Its process goes on as a helper; if it has died since, it is reaped like one."""
        del self._stages[stage.pid]
        if self._is_watched(stage):
            self._unwatch(stage)
            self._helpers.add(stage.pid)
        found, wall = guardian.read(stage.pid), stage._over - stage.started
        cpu, memory = (max(found.cpu - stage._cpu, 0.0), found.memory) if found else (0.0, 0)
        return Ended(stage, code, None, stage.why, wall, cpu, memory)

    # Finding

    def _leftovers(self, stage: Stage) -> list[int]:
        known = self._stages.keys() | self._helpers
        return [pid for pid in self._orphans.living(known) if self._is_of(pid, stage)]

    def _started_by(self, stage: Stage) -> list[int]:
        """All processes of a stage but the first."""
        shown = guardian.table() if guardian.has_children(stage.pid) else {}
        return [*self._leftovers(stage), *guardian.descendants([stage.pid], shown)]

    def _is_of(self, pid: int, stage: Stage) -> bool:
        """Whether an orphan belongs to a stage. One that hides belongs to the last that saw its birth."""
        process = guardian.read(pid)
        if process is None:
            return False
        if process.group in self._stages:
            return process.group == stage.pid
        mark = guardian.mark_in(pid)
        if any(mark == other.mark for other in self._stages.values()):
            return mark == stage.mark
        return mark != self.helper_mark and not any(
            other._born <= process.start and other._over == inf and not other._killing
            for other in self._stages.values()
            if other is not stage
        )

    def _family(self, stage: Stage, shown: dict[int, guardian.Process]) -> set[int]:
        """All processes of a stage."""
        if stage.pid not in self._stages:
            return set()
        roots = {*self._leftovers(stage), *([stage.pid] if stage._exit is None else ())}
        return roots | guardian.descendants(roots, shown)

    def _signal_all(self, stage: Stage, number: int) -> None:
        """Send a signal to all processes of a stage, those included that appear meanwhile."""
        self._signal_group(stage, number)
        told: set[int] = set()
        for _ in range(10):
            # Orphans first, before all of /proc is read: one that forks and ends all the time would be gone.
            for pid in self._leftovers(stage):
                guardian.kill(pid, number)
            new = self._family(stage, guardian.table()) - told
            if not new:
                return
            for pid in new:
                guardian.kill(pid, number)
            told |= new

    def _ask_to_end(self, stage: Stage) -> None:
        """SIGTERM for the group, but for children of a Python program that takes care of it itself: one that
        saves its work needs its workers for that, as those of a DataLoader."""
        shown = guardian.table()
        group = {pid for pid, process in shown.items() if process.group == stage.pid}
        careful = {pid for pid in group if guardian.is_python_with_handler(pid, signal.SIGTERM)}
        if not careful:
            self._signal_group(stage, signal.SIGTERM)
            return
        for pid in group - (guardian.descendants(careful, shown) - careful):
            guardian.kill(pid, signal.SIGTERM)

    def _signal_group(self, stage: Stage, number: int) -> None:
        if stage._exit is None:  # afterwards the number may be somebody else's
            guardian.kill(-stage.pid, number)


def _next_look(stage: Stage, now: float) -> float:
    """Soon at first, then less often: what does not end at once may be saving its work."""
    return now + max(_TICK, min((now - min(stage._over, stage._mercy)) / 10, _SLOWEST_TICK))


def _environment(directory: str) -> dict[bytes, bytes]:
    """The agent's, as a shell would pass it on."""
    environment = {name: value for name, value in os.environb.items() if name != b"_"}
    named = Path(os.fsdecode(environment.get(b"PWD", b"")))
    if not (named.is_absolute() and named.exists() and named.samefile(directory)):
        environment[b"PWD"] = os.fsencode(directory)
    return environment


def _changes_bash(environment: Mapping[bytes, bytes], name: str) -> bool:
    """Whether bash would do something before or instead of running a program, as on clusters with modules."""
    function = b"BASH_FUNC_%b%%%%" % os.fsencode(name)
    return not environment.keys().isdisjoint((b"BASH_ENV", b"SHELLOPTS", b"BASHOPTS", function))


def _program(name: str, environment: Mapping[bytes, bytes]) -> bytes | None:
    """The file that bash would run for a name, or None if it is not clear."""
    word = os.fsencode(name)
    if b"/" in word:
        return word
    for directory in environment.get(b"PATH", b"").split(b":"):
        if directory[:1] == b"~":
            return None
        path = (directory or b".") + b"/" + word
        if os.access(path, os.X_OK) and os.path.isfile(path):  # noqa: PTH113
            return path
    return None


def _posix_spawn(
    program: bytes,
    argv: list[str],
    environment: Mapping[bytes, bytes],
    log: Path | str,
    ways: dict[str, Any],
    channel: int | None,
) -> int:
    try:
        return os.posix_spawn(
            program,
            argv,
            environment,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, log, LOG_FLAGS, 0o666),
                (os.POSIX_SPAWN_DUP2, 1, 2),
                *([] if channel is None else [(os.POSIX_SPAWN_DUP2, channel, HELPER_CHANNEL)]),
            ],
            **ways,
        )
    except OSError:
        os.close(os.open(log, LOG_FLAGS, 0o666))  # if the log is to blame, this error says so
        raise
