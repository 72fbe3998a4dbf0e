"""Locks on GPUs, so that two studies or two users of one machine do not book the same one.

A lock is `flock` on a file in a directory that belongs to the system and that everybody may write to. It goes
with the process that holds it, however that dies. Locks are advice: they bind those who ask.

Each GPU has a file for each of its shares. A study that names a GPU twice has two slots on it and takes the
shares 0 and 1. A share has one holder, and all shares of a GPU that are held are of one study. To look at
some files and then lock another must be one step, so there is one more file, the gate, locked meanwhile.

Anybody may have put anything into that directory under any name. So files are opened without following links,
used only if they are plain files with one name that are empty or begin as ours do, and never removed. What
they say is shown, but only as text.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

PLACES = (Path("/run/lock"), Path("/tmp"))  # noqa: S108  # not TMPDIR: all users must find the same place
MOST_SHARES = 64
"""More slots on one GPU than anybody has; every one of them is looked for."""
_MAGIC = b"stoker lock\n"
_LONGEST = 8192  # bytes of a lock file that are read
_GATE = "stoker-gpus.lock"
_PATIENCE = 1.0  # seconds at the gate, where nobody stays longer than milliseconds
_TRIES = 10
# O_NONBLOCK: a fifo with our name must not stop us. What is created is O_EXCL besides: where
# fs.protected_regular is set, O_CREAT alone is refused for a file of another user.
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_open_here: set[int] = set()


def _forget() -> None:
    """A process that is forked and runs no other program would keep our locks beyond our death."""
    for fd in _open_here:
        os.close(fd)
    _open_here.clear()


os.register_at_fork(after_in_child=_forget)


@dataclass(frozen=True)
class Owner:
    """Who takes a lock. Two agents are of the same study if and only if they call it the same."""

    study: str  # absolute path or URL
    user: str
    pid: int
    since: float  # seconds since 1970

    @classmethod
    def here(cls, study: str, now: float) -> Owner:
        """This process."""
        uid = os.geteuid()
        try:
            user = pwd.getpwuid(uid).pw_name
        except KeyError:
            user = f"user {uid}"
        return cls(study, user, os.getpid(), now)

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.since))
        return f"{_plain(self.user)}, study {_plain(self.study)}, process {self.pid}, since {since}"


@dataclass(frozen=True)
class Holder:
    """Somebody else has the GPU."""

    identity: str
    owner: Owner | None  # None if it is not known

    def __str__(self) -> str:
        return str(self.owner or "somebody unknown")


class Lock:
    """Shares of GPUs that are ours until they are released or this process ends."""

    def __init__(self, held: dict[Path, int], problems: tuple[str, ...] = ()) -> None:
        self.problems = problems  # why some or all of it is not locked in truth, for the user to read
        self._held = held
        self._pid = os.getpid()

    def refresh(self) -> bool:
        """Whether the lock still stands; False if somebody removed its files.

        To be called once a day at least: what is old is cleaned from /tmp, and this makes it new.
        """
        for path, fd in self._held.items():
            if not _is_at(fd, path):
                return False
            os.utime(fd)
        return True

    def release(self) -> None:
        """Let others have it. May be repeated."""
        held, self._held = self._held, {}
        if self._pid == os.getpid():
            _release(held)

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


@dataclass(frozen=True)
class Locks:
    """The locks of this machine."""

    directory: Path | None  # None if there is no place for them: everything can then be had
    problem: str = ""  # why, for the user to read once

    def try_acquire(self, identities: tuple[str, ...], owner: Owner) -> Lock | Holder:
        """Take all of these, or none and tell who holds one of them. Does not wait, but at the gate.

        `GPU-1234#1` is the share number 1 of GPU-1234; without a number it is 0. What cannot be locked for
        another reason than a holder is given without a lock, and the lock tells the problem: training matters
        more than being sure. May be called from several threads.
        """
        if self.directory is None or not identities:
            return Lock({})
        shares = sorted({_Share.of(identity) for identity in identities})
        try:
            with _gate(self.directory) as open_:
                return _take_all(self.directory, shares, owner) if open_ else Holder(shares[0].identity, None)
        except OSError as error:
            return Lock({}, (_unlocked("GPUs", error),))

    def holder(self, identity: str) -> Holder | None:
        """Who holds a share of the GPU, whatever its number; None if nobody does or nobody can tell."""
        if self.directory is None:
            return None
        with suppress(OSError), _gate(self.directory) as open_:
            holders = _holders(self.directory, _Share.of(identity).identity) if open_ else {}
            return next(iter(holders.values()), None)
        return None


def find_locks(places: tuple[Path, ...] = PLACES) -> Locks:
    """The first of these places that every user can use. All users must come to the same one, so what counts
    is not whether we may write there but whether everybody may."""
    reasons = []
    for place in places:
        reason = _unfit(place)
        if not reason:
            return Locks(place)
        reasons.append(f"{place} {reason}")
    what = "GPUs are not locked against other studies on this machine"
    return Locks(None, f"{what}: {'; '.join(reasons)}")


def _unfit(place: Path) -> str:
    try:
        status = place.stat()
    except OSError as error:
        return f"cannot be used ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "is not a directory"
    if status.st_mode & 0o1777 != 0o1777:
        return "is not open to all users (mode 1777)"
    if status.st_uid not in (0, os.geteuid()):
        return "belongs to another user"  # who could remove our files there
    return "" if os.access(place, os.W_OK | os.X_OK) else "cannot be written to"


# Shares


@dataclass(frozen=True, order=True)
class _Share:
    identity: str
    number: int

    @classmethod
    def of(cls, text: str) -> _Share:
        identity, _, number = text.partition("#")
        share = cls(identity, int(number or 0))
        if share.number >= MOST_SHARES:
            raise ValueError(f"{text}: a GPU has no more than {MOST_SHARES} shares")
        return share

    def path(self, directory: Path) -> Path:
        readable = re.sub(r"[^A-Za-z0-9-]", "_", self.identity)[:60]
        digest = hashlib.blake2b(self.identity.encode(errors="replace"), digest_size=4).hexdigest()
        return directory / f"stoker-{readable}-{digest}.{self.number}.lock"


def _take_all(directory: Path, shares: list[_Share], owner: Owner) -> Lock | Holder:
    held: dict[Path, int] = {}
    problems = []
    for share in shares:
        path = share.path(directory)
        try:
            taken = _take(directory, share, owner)
        except OSError as error:
            problems.append(_unlocked(share.identity, error))
            continue
        if isinstance(taken, Holder):
            _release(held)
            return taken
        held[path] = taken
    return Lock(held, tuple(problems))


def _take(directory: Path, share: _Share, owner: Owner) -> int | Holder:
    """The open file of the share, locked and with our name in it."""
    holders = _holders(directory, share.identity)
    if share.number in holders:
        return holders[share.number]
    for holder in holders.values():
        if holder.owner is None or holder.owner.study != owner.study:
            return holder
    fd = _open_locked(share.path(directory))
    if fd is None:
        return Holder(share.identity, None)  # somebody who does not mind the gate
    with suppress(OSError):  # a full disk: the lock stands, if nameless
        _write(fd, owner)
    return fd


def _holders(directory: Path, identity: str) -> dict[int, Holder]:
    """Who holds which share of this GPU. Only to be asked at the gate: it locks what it looks at."""
    found = {}
    for number in range(MOST_SHARES):
        try:
            fd = _open_existing(_Share(identity, number).path(directory))
        except OSError:  # mostly there is none; and what is not ours nobody has locked
            continue
        if not _flock(fd, fcntl.LOCK_SH):
            found[number] = Holder(identity, _read(fd))
        _close(fd)
    return found


@contextmanager
def _gate(directory: Path) -> Iterator[bool]:
    """Keeps all others of this machine from looking and locking meanwhile; False if it stays shut."""
    path = directory / _GATE
    fd = _wait_locked(path)
    try:
        yield fd is not None
    finally:
        _release({} if fd is None else {path: fd})


def _wait_locked(path: Path) -> int | None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        late = time.monotonic() > deadline
        try:
            fd = _open_locked(path)
        except PermissionError:  # somebody has just created it and not yet opened it to all
            fd = None
            if late:
                raise
        if late or fd is not None:
            return fd
        time.sleep(0.001)


def _unlocked(what: str, error: OSError) -> str:
    return f"{what} cannot be locked against other studies on this machine: {error}"


# Files


def _open_locked(path: Path) -> int | None:
    """The file, locked for us alone; None if somebody else has it."""
    for _ in range(_TRIES):
        fd = _open(path)
        locked = _flock(fd, fcntl.LOCK_EX)
        if locked and _is_at(fd, path):  # a file that was cleaned away before we had it locks nothing
            return fd
        _close(fd)
        if not locked:
            return None
    raise OSError(f"{path}: removed again and again")


def _open(path: Path) -> int:
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return _open_existing(path)
        with suppress(FileExistsError):
            fd = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o666)
            _open_here.add(fd)
            os.fchmod(fd, 0o666)  # whatever the umask: other users write their names into it
            return fd
    raise OSError(f"{path}: comes and goes")


def _open_existing(path: Path) -> int:
    fd = os.open(path, _FLAGS)
    _open_here.add(fd)
    try:
        _check(fd, path)
    except OSError:
        _close(fd)
        raise
    return fd


def _check(fd: int, path: Path) -> None:
    """That the file is one of ours: another name of somebody's file would have us write into that."""
    status = os.fstat(fd)
    if not status.st_nlink:
        raise FileNotFoundError(path)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise OSError(f"{path}: not a lock file, but something else by that name")
    if os.pread(fd, len(_MAGIC), 0) not in (b"", _MAGIC):
        raise OSError(f"{path}: not a lock file; it has other content")
    if status.st_uid == os.geteuid() and stat.S_IMODE(status.st_mode) != 0o666:
        os.fchmod(fd, 0o666)  # we were killed before we could


def _close(fd: int) -> None:
    _open_here.discard(fd)
    os.close(fd)


def _release(held: dict[Path, int]) -> None:
    for fd in held.values():
        fcntl.flock(fd, fcntl.LOCK_UN)  # for the sake of copies that other processes may have
        _close(fd)


def _flock(fd: int, how: int) -> bool:
    """Whether it is locked now. Where files cannot be locked at all it is closed."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        _close(fd)
        raise
    return True


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.lstat())
    except FileNotFoundError:
        return False


# What the files say


def _write(fd: int, owner: Owner) -> None:
    os.ftruncate(fd, 0)
    os.pwrite(fd, _MAGIC + json.dumps(asdict(owner)).encode(), 0)


def _read(fd: int) -> Owner | None:
    """Who wrote it; None if that is not what it says. Any user may have written anything."""
    try:
        fields = json.loads(os.pread(fd, _LONGEST, 0).removeprefix(_MAGIC))
        owner = Owner(**fields)
    except (ValueError, TypeError, RecursionError):
        return None
    texts = isinstance(owner.study, str) and isinstance(owner.user, str)
    numbers = isinstance(owner.pid, int) and isinstance(owner.since, (int, float))
    return owner if texts and numbers and 0 <= owner.since < 1e11 else None


def _plain(text: str) -> str:
    """What others wrote, fit for a terminal."""
    return "".join(char if char.isprintable() else "?" for char in text[:200])
