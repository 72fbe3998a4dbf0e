"""GPUs are booked once: with real processes, real users and a hostile directory."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stoker.agent.gpus import Gpu
from stoker.agent.locks import Holder, Lock, Locks, Owner, find_locks
from stoker.agent.slots import plan_slots

A, B, C = "GPU-aaaa", "GPU-bbbb", "GPU-cccc"
NOW = 1_700_000_000.0
MINE = Owner.here("/studies/mine", NOW)
YOURS = Owner.here("/studies/yours", NOW)

# Takes what it is told, says how that went, and keeps it until its input ends.
AGENT = """
import sys
from pathlib import Path
from stoker.agent.locks import Lock, Owner, find_locks
_, directory, study, *identities = sys.argv
got = find_locks((Path(directory),)).try_acquire(tuple(identities), Owner.here(study, 1.7e9))
print("held" if isinstance(got, Lock) else got, *getattr(got, "problems", ()), flush=True)
sys.stdin.read()
"""
# Starts a program, and forks a process that runs no other, as one that starts trials warm does.
PARENT = AGENT.replace(
    "print(",
    """
import os, subprocess, time
stage = subprocess.Popen(["sleep", "60"], close_fds=False, stdout=subprocess.DEVNULL)
ready, tell = os.pipe()
forked = os.fork()
if not forked:
    got.release()
    os.write(tell, b".")
    os.closerange(0, 3)
    time.sleep(60)
    os._exit(0)
os.close(tell)
os.read(ready, 1)
print(""",
).replace(", flush", ", stage.pid, forked, flush")
# Becomes another user once it has all it imports, which that user may not be able to read.
NOBODYS = AGENT.replace(
    "_, directory", "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534); _, directory"
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory like /run/lock. Not under pytest's own, which other users may not enter."""
    with tempfile.TemporaryDirectory() as directory:
        Path(directory).chmod(0o1777)
        yield Path(directory)


@pytest.fixture
def locks(place: Path) -> Locks:
    found = find_locks((place,))
    assert found == Locks(place)
    return found


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    agents = []

    def begin(study: str, *identities: str, script: str = AGENT) -> subprocess.Popen[str]:
        agent = subprocess.Popen(
            [sys.executable, "-c", script, str(place), study, *identities],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            umask=0o077,
        )
        agents.append(agent)
        return agent

    yield begin
    for agent in agents:
        agent.kill()
        agent.communicate()


def _said(agent: subprocess.Popen[str]) -> str:
    assert agent.stdout is not None
    return agent.stdout.readline().strip()


def _take(locks: Locks, *identities: str, owner: Owner = MINE) -> Lock:
    got = locks.try_acquire(identities, owner)
    assert isinstance(got, Lock), got
    return got


def _refused(locks: Locks, *identities: str, owner: Owner = MINE) -> Holder:
    got = locks.try_acquire(identities, owner)
    assert isinstance(got, Holder)
    return got


# Studies and shares


def test_another_study_waits_and_sees_for_whom(locks: Locks) -> None:
    with _take(locks, A):
        holder = _refused(locks, A, owner=YOURS)
        assert (holder.identity, holder.owner) == (A, MINE)
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(NOW))
        assert str(holder) == f"{MINE.user}, study /studies/mine, process {os.getpid()}, since {when}"
        assert locks.holder(A) == holder
        assert locks.holder(B) is None
    assert locks.holder(A) is None
    _take(locks, A, owner=YOURS).release()


def test_shares_are_for_one_study(locks: Locks) -> None:
    with _take(locks, f"{A}#1"):
        assert _refused(locks, A, owner=YOURS).owner == MINE
        assert _refused(locks, f"{A}#2", owner=YOURS).owner == MINE
        assert _refused(locks, f"{A}#1").owner == MINE  # another agent of the same study
        with _take(locks, A):
            pass
    with _take(locks, A, owner=YOURS):
        assert _refused(locks, f"{A}#1").owner == YOURS


def test_two_agents_of_a_study_share_as_the_study_says(locks: Locks) -> None:
    gpus = (Gpu(0, A, "X", None, None), Gpu(1, B, "X", None, None))
    slots = plan_slots(("0", "0", "0,1"), gpus, None, cores=8).slots
    first = [locks.try_acquire(slot.identities, MINE) for slot in slots]
    second = [locks.try_acquire(slot.identities, MINE) for slot in slots]
    assert [type(lock) for lock in first] == [Lock] * 3
    assert [type(lock) for lock in second] == [Holder] * 3
    for lock in first:
        assert isinstance(lock, Lock)
        lock.release()


def test_all_or_nothing(locks: Locks) -> None:
    with _take(locks, B, owner=YOURS):
        assert _refused(locks, C, A, B).identity == B
        for free in (A, C):
            _take(locks, free, owner=YOURS).release()
    _take(locks, C, A, B).release()


def test_slots_of_the_cpu_are_not_locked(locks: Locks, place: Path) -> None:
    assert _take(locks).problems == ()
    assert list(place.iterdir()) == []


def test_releasing_twice_releases_nobody_elses(locks: Locks) -> None:
    first = _take(locks, A)
    first.release()
    with _take(locks, A):  # has the numbers of the files that were closed
        first.release()
        _refused(locks, A, owner=YOURS)


def test_a_released_lock_is_free_though_a_process_that_is_about_to_start_has_a_copy(locks: Locks) -> None:
    lock = _take(locks, A)
    fds = [fd for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and A in str(fd.readlink())]
    copies = [os.dup(int(fd.name)) for fd in fds]
    lock.release()
    _take(locks, A, owner=YOURS).release()
    assert len(copies) == 1
    os.close(copies[0])


def test_the_last_holder_is_told(locks: Locks) -> None:
    for owner in (MINE, Owner.here("/studies/of a longer name", NOW), YOURS):
        with _take(locks, A, owner=owner):
            assert _refused(locks, A).owner == owner


def test_identities_of_any_spelling(locks: Locks, place: Path) -> None:
    names = ("gpu-index:0", "gpu-index_0", "MIG-GPU-1/2/3", "../../etc/x", "x" * 500, "\udcff")
    with _take(locks, *names):
        for name in names:
            _refused(locks, name)
    assert len(list(place.iterdir())) == len(names) + 1


def test_too_many_shares(locks: Locks) -> None:
    with pytest.raises(ValueError, match="no more than 64"):
        locks.try_acquire((f"{A}#64",), MINE)


# Processes


def test_a_killed_process_holds_nothing(locks: Locks, start: Start) -> None:
    agent = start("/studies/theirs", A, B)
    assert _said(agent) == "held"
    holder = _refused(locks, B)
    assert holder.owner is not None
    assert (holder.owner.pid, holder.owner.study) == (agent.pid, "/studies/theirs")
    agent.kill()
    agent.wait()
    _take(locks, A, B).release()


def test_what_an_agent_starts_does_not_hold_its_locks(locks: Locks, start: Start) -> None:
    agent = start("/studies/theirs", A, script=PARENT)
    said, *children = _said(agent).split()
    try:
        assert said == "held"
        _refused(locks, A)
        agent.kill()
        agent.wait()
        _take(locks, A).release()
    finally:
        for child in children:
            os.kill(int(child), signal.SIGKILL)  # raises if it did not outlive the agent
    assert len(children) == 2


def test_of_many_at_once_one_wins(start: Start) -> None:
    agents = [start(f"/studies/{number}", A, B, f"{C}#{number}") for number in range(6)]
    said = [_said(agent) for agent in agents]
    (winner,) = (number for number, words in enumerate(said) if words == "held")
    others = [words for number, words in enumerate(said) if number != winner]
    assert all(f"study /studies/{winner}, process {agents[winner].pid}" in words for words in others)


@as_root
def test_two_users(locks: Locks, start: Start) -> None:
    theirs = start("/studies/theirs", A, script=NOBODYS)
    assert _said(theirs) == "held"
    assert str(_refused(locks, A)).startswith("nobody, study /studies/theirs, ")
    theirs.kill()
    theirs.wait()
    with _take(locks, A, B) as lock:  # writes its name over theirs
        assert lock.refresh()
        again = start("/studies/theirs", B, script=NOBODYS)
        assert _said(again).startswith(f"{MINE.user}, study /studies/mine, ")
    last = start("/studies/theirs", A, B, script=NOBODYS)
    assert _said(last) == "held"


# What others may have put there


def _path(locks: Locks, identity: str = A) -> Path:
    """Where the lock of a GPU is; there is none yet."""
    assert locks.directory
    before = set(locks.directory.iterdir())
    _take(locks, identity).release()
    (path,) = {path for path in set(locks.directory.iterdir()) - before if identity in path.name}
    path.unlink()
    return path


@pytest.mark.parametrize(
    "kind",
    ["symlink", "empty symlink", "dangling", "hardlink", "empty hardlink", "content", "fifo", "directory"],
)
@pytest.mark.parametrize("gate", [False, True])
def test_what_is_no_lock_is_left_alone(locks: Locks, tmp_path: Path, kind: str, gate: bool) -> None:
    path = _path(locks)
    if gate:
        path = path.parent / "stoker-gpus.lock"
        path.unlink()
    victim = tmp_path / "victim"
    precious = "" if "empty" in kind else "precious"
    if "hardlink" in kind:  # which must be of the same file system
        victim = path.parent / "victim"
    if kind != "dangling":
        victim.write_text(precious)
        victim.chmod(0o640)
    if "symlink" in kind or kind == "dangling":
        path.symlink_to(victim)
    elif "hardlink" in kind:
        path.hardlink_to(victim)
    elif kind == "content":
        shutil.copy(victim, path)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    with _take(locks, A) as lock:
        (problem,) = lock.problems
        assert "cannot be locked against other studies on this machine: " in problem
        assert path.name in problem
    if kind == "dangling":
        assert not victim.exists()
    else:
        assert (victim.read_text(), stat.S_IMODE(victim.stat().st_mode)) == (precious, 0o640)
    if kind == "content":
        assert path.read_text() == precious


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 9000,
        "17",
        '{"study": "/x"}',
        '{"study": 1, "user": "x", "pid": 1, "since": 1}',
        '{"study": "/x", "user": "x", "pid": 1, "since": Infinity}',
        '{"study": "/x", "user": "x", "pid": 1, "since": 1e99}',
        '{"study": "/x", "user": "x", "pid": 1, "since": 1, "more": 2}',
    ],
)
def test_a_holder_that_tells_nonsense_is_unknown(locks: Locks, text: str) -> None:
    path = _path(locks)
    with _take(locks, A):
        path.write_text(f"stoker lock\n{text}")
        assert _refused(locks, A) == Holder(A, None)
        assert _refused(locks, f"{A}#1") == Holder(A, None)
        assert str(_refused(locks, A)) == "somebody unknown"
    _take(locks, A).release()


def test_what_a_holder_tells_cannot_drive_a_terminal(locks: Locks) -> None:
    with _take(locks, A, owner=Owner("/x\x1b[2J\n" + "y" * 1000, "a\rb\udcff", 5, NOW)):
        text = str(_refused(locks, A))
    assert text.isprintable()
    assert text.startswith("a?b?, study /x?[2J?yyy")
    assert len(text) < 300


def test_a_lock_that_was_removed_is_noticed(locks: Locks) -> None:
    path = _path(locks)
    with _take(locks, A) as lock:
        os.utime(path, (1, 1))
        assert lock.refresh()
        assert path.stat().st_mtime > 1e9  # new again to whoever cleans up
        path.unlink()
        assert not lock.refresh()


def test_a_lock_file_of_ours_that_others_could_not_use_is_mended(locks: Locks) -> None:
    path = _path(locks)
    path.touch(0o600)
    with _take(locks, A) as lock:
        assert lock.problems == ()
        assert stat.S_IMODE(path.stat().st_mode) == 0o666


# No place for locks


def test_places_that_are_not_for_everybody(place: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    private, open_ = tmp_path / "private", tmp_path / "open"
    private.mkdir(0o700)
    open_.mkdir()
    open_.chmod(0o777)  # anybody could remove anything
    unfit = (tmp_path / "missing", tmp_path / "file", private, open_)
    assert find_locks((*unfit, place)) == Locks(place)
    locks = find_locks(unfit)
    assert locks.directory is None
    assert locks.problem == (
        "GPUs are not locked against other studies on this machine: "
        f"{unfit[0]} cannot be used (No such file or directory); {unfit[1]} is not a directory; "
        f"{private} is not open to all users (mode 1777); {open_} is not open to all users (mode 1777)"
    )
    with _take(locks, A), _take(locks, A, owner=YOURS):
        assert locks.holder(A) is None


@as_root
def test_a_place_of_another_user(place: Path) -> None:
    os.chown(place, 65534, 65534)
    assert "belongs to another user" in find_locks((place,)).problem


def test_a_place_that_vanishes(locks: Locks, place: Path) -> None:
    place.rename(place.with_name(f"{place.name}-away"))
    try:
        assert "cannot be locked" in _take(locks, A).problems[0]
    finally:
        place.with_name(f"{place.name}-away").rename(place)
