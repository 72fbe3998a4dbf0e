"""No stage outlives its agent: three processes that watch one another, and end everything below them.

    launcher ──► guardian ──► agent ──► stages, and whatever they start

The launcher is the process that was started; it passes signals on to the agent. The other two have a session
each, so that no signal to a group or from a terminal reaches two of them. Linux hands an orphan to its
nearest living ancestor that is a *subreaper*, and all three are. So no process of a stage can leave the tree,
however often it forks and whatever session or environment it takes: it only moves up to the next of the
three. Nobody has to be told of a stage, and starting one costs nothing more.

    killed with -9              what ends the stages
    agent                       the guardian, its parent
    guardian                    the agent: it sees a pipe close, and leaves; the launcher makes sure of that
    launcher                    the agent likewise; the guardian makes sure of that
    a whole process group       the same: each of the three is in another one
    any two of the three        the third
    all three at once           the next agent that starts on this host, by the stages' mark

`pkill -9 -f stoker` does not kill all three: the guardian shows another name.

Not covered: after the death of all three, what took another environment, and so has no mark; what a stage
asks somebody else to run (docker, sbatch, systemd-run, ssh); what it runs as another user (sudo); a process
in an uninterruptible wait, which ends when the wait does; watchers that were stopped (SIGSTOP) before they
were needed.

A pid namespace would cover the death of all three too. But inside one `os.getpid()` disagrees with /proc,
which breaks psutil in training scripts, and without root it takes a user namespace, which breaks setuid
programs.

Elsewhere than on Linux there are no subreapers: `enter` does nothing there, and an agent that is killed
leaves its stages running.
"""

from __future__ import annotations

import ctypes
import os
import re
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

LINUX = sys.platform == "linux"
MARK = "STOKER_MARK"
"""In the environment of every stage: whose it is (`mark_of_this_agent`), a dot, and its number."""

_MARK = re.compile(r"(?P<place>[\w-]+)\.(?P<agent>\d+)\.(?P<start>\d+)\.\d+", re.ASCII)
_LEAVE = 30.0  # seconds that an agent has to leave after one of its watchers was killed
_STUBBORN = 10.0  # seconds after which a process that does not die is left to the kernel
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PR_SET_PDEATHSIG, _PR_SET_NAME, _PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 1, 15, 36, 37
_CLOSE_RANGE, _CLOSE_RANGE_CLOEXEC = 436, 4
_syscall = ctypes.CDLL(None).syscall if LINUX else None
if _syscall is not None:
    _syscall.argtypes = [ctypes.c_long, *[ctypes.c_ulong] * 3]
_FORWARDED = frozenset(
    getattr(signal, f"SIG{name}") for name in ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "WINCH")
)


# Watching


@dataclass(frozen=True)
class Guard:
    """What an agent holds of its watchers."""

    launcher: int = 0
    guardian: int = 0
    lifelines: tuple[int, ...] = ()  # descriptors that become readable when a watcher is dead


def enter(leave: float = _LEAVE) -> Guard:
    """Split this process in three; only the agent returns.

    Called once, at the very beginning, before there are threads: the process that was started becomes the
    launcher, passes signals on to the agent, and ends as the agent ends. The agent has no controlling
    terminal: Ctrl-C reaches it through the launcher, and Ctrl-Z stops the launcher alone, so that the agent
    goes on beating. After a watcher was killed the agent has `leave` seconds to go.
    Stages of an agent of this host that died together with its watchers are ended here.
    """
    if not LINUX:
        return Guard()
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        raise RuntimeError(
            "the guardian must be started before there are threads, those of libraries included"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    set_subreaper(True)
    launcher, (launcher_lives, launcher_line) = os.getpid(), os.pipe()
    tell_agent, hear_agent = os.pipe()[::-1]
    guardian = os.fork()
    if guardian:
        os.close(tell_agent)
        os.close(launcher_lives)
        _stand(lambda: _launch(guardian, hear_agent, leave))
    os.close(launcher_line)
    os.close(hear_agent)
    os.setsid()
    set_subreaper(True)
    guardian, (guardian_lives, guardian_line) = os.getpid(), os.pipe()
    agent = os.fork()
    if agent:
        os.write(tell_agent, str(agent).encode())
        for descriptor in (tell_agent, launcher_lives, guardian_lives):
            os.close(descriptor)
        _stand(lambda: _guard(launcher, agent, guardian_line, leave))
    os.close(tell_agent)
    os.close(guardian_line)
    os.setsid()
    set_subreaper(True)
    os.read(guardian_lives, 1)  # from here on the guardian stands
    end_strays()
    return Guard(launcher, guardian, (launcher_lives, guardian_lives))


def _stand(watch: Callable[[], int | None]) -> NoReturn:
    """Watch, and end this process as the agent ended; nothing else of the program runs in a watcher."""
    status: int | None = None
    try:
        status = watch()
    except BaseException:  # the process must end here, and not go on as a second agent
        traceback.print_exc()
    finally:
        _end_as(status)


def _guard(launcher: int, agent: int, line: int, leave: float) -> int | None:
    """The guardian's life: wait for the death of the agent, or of the launcher and then of the agent."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _rename(f"guardian of {agent}: ends its stages if it dies")
    _prctl(_PR_SET_PDEATHSIG, signal.SIGUSR1)
    os.write(line, b".")
    statuses: dict[int, int] = {}
    until = float("inf")
    while _reap(statuses) and agent not in statuses and time.monotonic() < until:
        if os.getppid() != launcher:
            until = min(until, time.monotonic() + leave)
        _wait_for_signal({signal.SIGCHLD, signal.SIGUSR1}, until)
    end_descendants(statuses)
    return statuses.get(agent)


def _launch(guardian: int, hear_agent: int, leave: float) -> int | None:
    """The launcher's life: wait for the guardian; if it was killed, for the agent, by then our child."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED | {signal.SIGCHLD})
    agent = int(os.read(hear_agent, 20) or 0)
    statuses: dict[int, int] = {}
    until = float("inf")
    while _reap(statuses) and agent not in statuses and time.monotonic() < until:
        if guardian in statuses:
            until = min(until, time.monotonic() + leave)
        told = _wait_for_signal(_FORWARDED | {signal.SIGCHLD}, until)
        if told in _FORWARDED and agent:
            with suppress(ProcessLookupError):
                os.kill(agent, told)
    end_descendants(statuses)
    return statuses.get(agent, statuses.get(guardian))


def _wait_for_signal(signals: Iterable[int], until: float) -> int:
    """The signal that came; 0 if time is up."""
    told = signal.sigtimedwait(signals, min(max(until - time.monotonic(), 0.0), 3600.0))
    return told.si_signo if told is not None else 0


def _reap(statuses: dict[int, int]) -> bool:
    """Note how children ended; False if there are none any more."""
    try:
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return True
            statuses[pid] = status
    except ChildProcessError:
        return False


def _end_as(status: int | None) -> NoReturn:
    """End as the agent did, so that a shell or a scheduler sees its exit code or its signal."""
    if status is not None and os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status) if status is not None else 70)


# Ending


def end_descendants(statuses: dict[int, int]) -> None:
    """Kill everything below this process until nothing is left. Only for a process without other children.

    That nothing is left is the kernel's word and not a search's: a subreaper that has no children has no
    descendants.
    """
    orphans, pause, until = Orphans(), 0.001, time.monotonic() + _STUBBORN
    while _reap(statuses) and time.monotonic() < until:
        # Children first, without looking at the rest: what forks and ends all the time would be gone by then.
        for pid in orphans.children():
            kill(pid, signal.SIGKILL)
        for pid in descendants([os.getpid()], table()):
            kill(pid, signal.SIGKILL)
        time.sleep(pause)
        pause = min(2 * pause, 0.1)


def end_strays() -> int:
    """End stages whose agent died together with its watchers, and return how many processes that were.

    A stray carries the mark of a dead agent of this host, and hangs below an ancestor of ours, as orphans do.
    A batch job that a stage submitted carries the mark too; it hangs below its own starter and is left alone.
    """
    shown, own = table(), mark_in(os.getpid())
    adopters, pid = set(), os.getpid()
    while pid in shown and (pid := shown[pid].parent):
        adopters.add(pid)
    strays = [
        pid
        for pid, process in shown.items()
        if process.parent in adopters and pid not in adopters and _is_stray(pid, own)
    ]
    found = descendants(strays, shown) | set(strays)
    for pid in found:
        kill(pid, signal.SIGKILL)
    return len(found)


def _is_stray(pid: int, own: str) -> bool:
    mark = mark_in(pid)
    parts = _MARK.fullmatch(mark)
    inherited = mark.rpartition(".")[0] == own.rpartition(".")[0]
    if parts is None or inherited or parts["place"] != _place():
        return False
    agent = read(int(parts["agent"]))
    return agent is None or agent.start != int(parts["start"]) or agent.state == "Z"


def kill(pid: int, number: int) -> None:
    """Send a signal to a process, or to a group (-pid), that may be gone or somebody else's."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


# Looking


class Process(NamedTuple):
    """A line of the process table."""

    pid: int
    state: str  # Z: dead, and not yet waited for; T: stopped
    parent: int
    group: int
    cpu: float  # seconds, of it and of children that it waited for
    start: int  # clock ticks since boot; pid and start together name a process for ever
    memory: int  # bytes; pages that processes share count for each of them


def read(pid: int) -> Process | None:
    """A process, or None if there is none."""
    fields = _stat(pid)
    if not fields:
        return None
    cpu = sum(map(int, fields[11:15])) / _TICKS
    return Process(
        pid, fields[0].decode(), int(fields[1]), int(fields[2]), cpu, int(fields[19]), int(fields[21]) * _PAGE
    )


def table() -> dict[int, Process]:
    """All processes, by pid; none where there is no /proc. Takes some ten microseconds for each."""
    names = os.listdir("/proc") if LINUX else ()  # noqa: PTH208  a Path for each would double the time
    return {found.pid: found for name in names if name.isdigit() and (found := read(int(name)))}


def descendants(roots: Iterable[int], shown: dict[int, Process]) -> set[int]:
    """Everything below the roots that is not yet dead."""
    children: dict[int, list[int]] = {}
    for process in shown.values():
        children.setdefault(process.parent, []).append(process.pid)
    found: set[int] = set()
    left = list(roots)
    while left:
        below = children.get(left.pop(), ())
        found.update(below)
        left.extend(below)
    return {pid for pid in found if shown[pid].state != "Z"}


def is_python_with_handler(pid: int, number: int) -> bool:
    """Whether a process is a Python program that has a handler for a signal."""
    try:
        name = os.readlink(f"/proc/{pid}/exe").rpartition("/")[2]  # noqa: PTH115
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            caught = next((line for line in file if line.startswith("SigCgt:")), "SigCgt: 0")
    except OSError:
        return False
    return name.startswith("python") and bool(int(caught.split()[1], 16) >> (number - 1) & 1)


def has_children(pid: int) -> bool:
    """Whether a process has children, dead ones included."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
        return any(_content(f"/proc/{pid}/task/{task}/children") for task in tasks)
    except OSError:  # it ended, or a kernel without CONFIG_PROC_CHILDREN
        return True


class Orphans:
    """Descendants that lost their parent, and so became children of this process, which is a subreaper.

    They are told from children that this process started by itself: those stay in its process group.
    """

    def __init__(self) -> None:
        self._me, self._group = os.getpid(), os.getpgrp()
        self._children: int | None = None
        # The list of the first thread: that is the one the kernel gives orphans to.
        with suppress(OSError):
            self._children = os.open(f"/proc/{self._me}/task/{self._me}/children", os.O_RDONLY | os.O_CLOEXEC)

    def living(self, known: Set[int]) -> list[int]:
        """All but the known ones; the dead are reaped. Takes a few microseconds when there are none."""
        children = self.children()
        return [] if known >= children else [pid for pid in children - known if self._is_living(pid)]

    def children(self) -> set[int]:
        """All of them: orphans, those known, and those that this process started by itself."""
        if self._children is None:  # a kernel without CONFIG_PROC_CHILDREN
            return {process.pid for process in table().values() if process.parent == self._me}
        text = b""
        while part := os.pread(self._children, 1 << 16, len(text)):
            text += part
        return set(map(int, text.split()))

    def close(self) -> None:
        """Ask nothing afterwards."""
        if self._children is not None:
            os.close(self._children)

    def _is_living(self, pid: int) -> bool:
        try:
            return os.getpgid(pid) != self._group and os.waitpid(pid, os.WNOHANG)[0] == 0
        except (ProcessLookupError, ChildProcessError):
            return False


class _Select:
    """What is needed of epoll where there is none. Its own descriptor tells nothing."""

    def __init__(self) -> None:
        self._watched: set[int] = set()
        self._own, self._other = os.pipe()

    def register(self, descriptor: int, _events: int) -> None:
        self._watched.add(descriptor)

    def unregister(self, descriptor: int) -> None:
        self._watched.remove(descriptor)

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        return [(found, select.POLLIN) for found in select.select(self._watched, (), (), seconds)[0]]

    def fileno(self) -> int:
        return self._own

    def close(self) -> None:
        os.close(self._own)
        os.close(self._other)


Epoll = select.epoll if LINUX else _Select


def ticks_since_boot() -> int:
    """Now, as `Process.start` counts."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS) if LINUX else 0


def mark_of_this_agent() -> str:
    """What tells this agent from all others, of this host and of those its stages' environment may get to."""
    this = read(os.getpid())
    return f"{_place()}.{os.getpid()}.{this.start if this else 0}"


def mark_in(pid: int) -> str:
    """The mark of a stage in a process's environment, or an empty text."""
    try:
        text = _content(f"/proc/{pid}/environ")
    except OSError:
        return ""
    _, found, mark = (b"\0" + text).partition(f"\0{MARK}=".encode())
    return mark.partition(b"\0")[0].decode(errors="replace") if found else ""


def set_subreaper(wanted: bool) -> bool:
    """Adopt the orphans among this process's descendants, or cease to; returns what was before."""
    if not LINUX:
        return False
    before = ctypes.c_int()
    _prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(_PR_SET_CHILD_SUBREAPER, int(wanted))
    return bool(before.value)


def _place() -> str:
    """This boot of this host, and the numbering of processes in it: containers have their own."""
    if not LINUX:
        return ""
    boot = _content("/proc/sys/kernel/random/boot_id").decode()
    return f"{boot[:8]}-{os.stat('/proc/self/ns/pid').st_ino:x}"  # noqa: PTH116


def _stat(pid: int) -> list[bytes]:
    """/proc/PID/stat from the state on; the name before it may contain anything."""
    try:
        return _content(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _content(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def has_terminal() -> bool:
    """Whether this process has a controlling terminal, from which a child could ask for a password."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def seal_descriptors() -> None:
    """Let no child inherit a descriptor, not even one that a library opened carelessly."""
    if _syscall is not None and _syscall(_CLOSE_RANGE, 3, 2**32 - 1, _CLOSE_RANGE_CLOEXEC) == 0:
        return
    for name in os.listdir("/dev/fd"):  # noqa: PTH208  macOS, Linux before 5.11
        with suppress(OSError):
            os.set_inheritable(int(name), int(name) <= 2)


def _rename(title: str) -> None:
    """Show another name and command line than the agent's to ps and pkill."""
    _prctl(_PR_SET_NAME, b"guardian")
    start, end = map(int, _stat(os.getpid())[45:47])
    if 0 < start < end:
        text = title.encode()[: end - start - 1]
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, text, len(text))


def _prctl(option: int, value: object) -> None:
    # all five as longs: a variadic call leaves the upper halves of int arguments undefined
    words = [value if not isinstance(value, int) else ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3]
    if ctypes.CDLL(None, use_errno=True).prctl(ctypes.c_int(option), *words):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
