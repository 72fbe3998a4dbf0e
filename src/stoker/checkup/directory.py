"""A directory: whether it is there, and whether its file system does what the store relies on."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker.checkup import disk
from stoker.checkup.finding import Check, Verdict, bad, judge_clock, ok, warning
from stoker.store.directory import DirectoryStore
from stoker.store.interface import StoreError

_LONGEST = 255  # bytes of a name, almost everywhere
_UNICODE = "Größe_½-日本-🔥"
_OTHER_DISK = "put the study on another file system (-o), or in a bucket"


class FileSystem:
    """The calls that are tried out."""

    def create(self, path: Path, data: bytes) -> None:
        """Make a file that must not be there."""
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            os.write(file, data)
        finally:
            os.close(file)

    def link(self, source: Path, target: Path) -> None:
        """Give a file another name, which must not be there."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file the name of another, which goes."""
        source.rename(target)

    def read(self, path: Path) -> bytes:
        """All of a file."""
        return path.read_bytes()

    def names(self, directory: Path) -> list[str]:
        """What is in a directory."""
        return os.listdir(directory)  # noqa: PTH208

    def lock(self, path: Path) -> None:
        """Lock a file, and unlock it."""
        with path.open("wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def look(directory: Path, calls: FileSystem | None = None) -> Iterator[Check]:
    """A directory, and the disk it is on. Leaves nothing behind."""
    first = _look_at(directory)
    yield first
    if first.verdict is Verdict.BAD:
        return
    full = False
    for found in disk.look(directory):
        full = full or found.verdict is Verdict.BAD
        yield found
    if full:  # nothing could be written
        return
    try:
        with workplace(directory) as place:
            yield from try_out(place, calls or FileSystem())
    except OSError as error:
        yield bad("writing", f"{error.strerror}", _OTHER_DISK)


@contextmanager
def workplace(directory: Path) -> Iterator[Path]:
    """A directory in it that no listing of a study shows, for as long as the block runs."""
    place = Path(tempfile.mkdtemp(prefix=".stoker-doctor-", dir=directory))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _look_at(directory: Path) -> Check:
    name, told = "directory", str(directory)
    try:
        mode = directory.stat().st_mode
    except FileNotFoundError:
        return bad(name, f"{told} is not there", "make it with mkdir -p, or name another")
    except OSError as error:
        return bad(name, f"{told}: {error.strerror}", "ask whoever owns it for the right to use it")
    if not stat.S_ISDIR(mode):
        return bad(name, f"{told} is a file", "name the directory that the study is in, or will be")
    if not os.access(directory, os.W_OK | os.X_OK):
        return bad(name, f"{told} cannot be written to", "take another, or ask for the right to write there")
    return ok(name, f"{told} is there and can be written to")


def try_out(place: Path, calls: FileSystem) -> Iterator[Check]:
    """Everything that the store does to files, in an empty directory."""
    tries: tuple[tuple[str, Callable[[Path, FileSystem], Check]], ...] = (
        ("create", _try_create),
        ("link", _try_link),
        ("rename", _try_rename),
        ("read", _try_read),
        ("listing", _try_listing),
        ("names", _try_names),
        ("flock", _try_lock),
        ("clock", _try_clock),
    )
    for name, attempt in tries:
        room = place / name
        try:
            room.mkdir()
            yield attempt(room, calls)
        except OSError as error:
            yield bad(name, error.strerror or type(error).__name__, _OTHER_DISK)


def _try_create(room: Path, calls: FileSystem) -> Check:
    calls.create(room / "one", b"first")
    try:
        calls.create(room / "one", b"second")
    except FileExistsError:
        return ok("create", "exclusive: a name that is there is refused (O_EXCL)")
    return bad("create", "a file was created twice (O_EXCL)", _OTHER_DISK)


def _try_link(room: Path, calls: FileSystem) -> Check:
    one, two, three = room / "one", room / "two", room / "three"
    calls.create(one, b"first")
    calls.create(two, b"second")
    try:
        calls.link(one, three)
    except OSError as error:
        return _without_links(room, calls, error.strerror or "not possible")
    if three.is_symlink() or not three.samefile(one) or three.stat().st_nlink != 2:
        remedy = f"{_OTHER_DISK}; on BeeGFS, set sysCreateHardlinksAsSymlinks = false"
        return bad("link", "what link(2) makes is not the same file", remedy)
    try:
        calls.link(two, three)
    except FileExistsError:
        if calls.read(three) == b"first":
            return ok("link", "exclusive: a name that is there is refused (link)")
    return bad("link", "link(2) replaced a file that was there", _OTHER_DISK)


def _without_links(room: Path, calls: FileSystem, why: str) -> Check:
    """The store can do without, and says itself where it cannot."""

    def link(source: str, target: str) -> None:
        calls.link(Path(source), Path(target))

    try:
        made = DirectoryStore(room, link=link).create("record", b"{}")
    except StoreError as error:
        return bad("link", str(error), _OTHER_DISK)
    if not made:
        return bad("link", f"{why}, and O_EXCL does not do instead", _OTHER_DISK)
    remedy = "O_EXCL does instead; but a machine that dies while it writes may leave an empty record"
    return warning("link", f"there are no hard links: {why}", remedy)


def _try_rename(room: Path, calls: FileSystem) -> Check:
    old, new = room / "old", room / "new"
    calls.create(old, b"old")
    calls.create(new, b"new")
    calls.rename(new, old)
    if calls.read(old) == b"new" and calls.names(room) == ["old"]:
        return ok("rename", "replaces what is there")
    return bad("rename", "does not replace what is there", _OTHER_DISK)


def _try_read(room: Path, calls: FileSystem) -> Check:
    for number in range(20):
        data = os.urandom(100 * number)
        calls.create(room / str(number), data)
        if calls.read(room / str(number)) != data:
            return bad("read", "a file that was just written reads otherwise", _OTHER_DISK)
    return ok("read", "what was written is read")


def _try_listing(room: Path, calls: FileSystem) -> Check:
    for number in range(20):
        path = room / str(number)
        calls.create(path, b"")
        if calls.names(room) != [path.name]:
            return bad("listing", "does not show a file that this process just made", _OTHER_DISK)
        path.unlink()
    return ok("listing", "shows a new name at once")


def _try_names(room: Path, calls: FileSystem) -> Check:
    for told, name in (("letters of all scripts", _UNICODE), (f"{_LONGEST} bytes", "x" * _LONGEST)):
        try:
            calls.create(room / name, b"")
        except (OSError, ValueError):
            shown = []
        else:
            shown = calls.names(room)
        if name not in shown:
            remedy = "a trial is called as its values are: keep them short and plain, or it will fail"
            return warning("names", f"a name may not have {told}", remedy)
    return ok("names", f"may have letters of all scripts, and {_LONGEST} bytes")


def _try_lock(room: Path, calls: FileSystem) -> Check:
    try:
        calls.lock(room / "lock")
    except OSError as error:
        return ok("flock", f"does not work ({error.strerror}); managers use it if they can, nobody needs it")
    return ok("flock", "works")


def _try_clock(room: Path, calls: FileSystem) -> Check:
    before = time.time()
    calls.create(room / "now", b"now")
    after = time.time()
    then = (room / "now").stat().st_mtime
    return judge_clock("clock", "the clock of the file system", then - (before + after) / 2, after - before)
