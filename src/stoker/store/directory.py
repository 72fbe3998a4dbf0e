"""A store in a directory: of one machine, or of a file system that many machines share."""

# Paths are strings here: a Path costs as much time as the system call that it is made for.
# ruff: noqa: PTH100, PTH103, PTH104, PTH108, PTH112, PTH116, PTH118, PTH120

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from operator import itemgetter
from pathlib import Path

from stoker.store.interface import Entry, StoreError, check_key

ABANDONED = 60.0
"""Seconds, by the clock of the file system, after which an empty file is no record on its way."""

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EXDEV, errno.EMLINK}
_ABSENT = (FileNotFoundError, NotADirectoryError, IsADirectoryError)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_TOKEN = os.urandom(4).hex()  # tells apart machines whose processes have the same number
_numbers = count()


class DirectoryStore:
    """Objects are files, and keys are their paths below `root`, which is made when it is first needed.

    Every file is written under a temporary name beside its place (`.tmp-…`, which no listing shows) and
    then linked or renamed into it, so that it is seen whole or not at all. After a crash of the machine
    the last seconds of records may be missing or empty: nothing is synced to disk.

    What is no object is passed over: symbolic links, pipes, and names that are no words. Since a file is
    no directory, a key cannot also begin another one (`a` and `a/b`); StoreError tells it.

    Where the file system has no hard links, an empty file may be a record on its way, and reads as None.
    """

    def __init__(
        self, root: Path, *, link: Callable[[str, str], None] = os.link, must_exist: bool = False
    ) -> None:
        self.url = os.path.abspath(root)
        self._root = os.path.join(self.url, "")
        self._link = link
        self._has_links: bool | None = None
        self._must_exist = must_exist

    def create(self, key: str, data: bytes) -> bool:
        """See Store. Atomic also between machines: link(2) and O_EXCL are, on NFS too (version 3 on)."""
        path = self._path(key)
        with _telling("create", path):
            self._check_root()
            temp = _write_temp(path, data)
            try:
                return self._settle(temp, path)
            finally:
                _forget(temp)

    def read(self, key: str) -> bytes | None:
        """See Store."""
        path = self._path(key)
        with _telling("read", path):
            try:
                data = _contents(path)
            except _ABSENT:
                data = _look_again(path)
            if data is None:
                return None
            return None if data == b"" and not self._links_work(path) else data

    def write(self, key: str, data: bytes) -> None:
        """See Store."""
        path = self._path(key)
        with _telling("write", path):
            self._check_root()
            temp = _write_temp(path, data)
            try:
                os.rename(temp, path)
            except OSError:
                _forget(temp)
                raise

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """See Store. Objects that come or go meanwhile may be in it or not. On NFS, what other machines
        wrote shows up within the time that attributes are cached (`acdirmax`, a minute by default)."""
        check_prefix(prefix)
        return self._walk(prefix, after)

    def delete(self, key: str) -> None:
        """See Store."""
        path = self._path(key)
        with _telling("delete", path), suppress(*_ABSENT):
            os.unlink(path)

    def upload(self, key: str, path: Path) -> None:
        """See Store. A file that cannot be opened raises its OSError: that is not the store's failure."""
        target = self._path(key)
        with path.open("rb"):
            pass
        with _telling("write", target), whole_file(target) as temp:
            _copy(str(path), temp)

    def download(self, key: str, path: Path) -> bool:
        """See Store."""
        source = self._path(key)
        with _telling("copy", source):
            try:
                if not stat.S_ISREG(os.stat(source).st_mode):
                    return False
            except _ABSENT:
                return False
            with whole_file(path) as temp:
                _copy(source, temp)
        return True

    def _check_root(self) -> None:
        """Whoever moved or removed the directory does not want it back from an agent that did not notice."""
        if self._must_exist and not os.path.isdir(self._root):
            raise FileNotFoundError(errno.ENOENT, "the directory of the study is gone")

    def _path(self, key: str) -> str:
        return self._root + check_key(key)

    def _settle(self, temp: str, path: str) -> bool:
        """Give the temporary file its name, if nobody has it.

        Of 300 bytes on tmpfs: open, write, link, unlink take 1; an unnamed file (O_TMPFILE) linked through
        /proc 0.9, but neither NFS nor old overlays have those; renameat2(2) 1.1; plain O_EXCL 0.6, but
        readers would see the record grow; obstore's local store 2 to 4.
        """
        try:
            self._link(temp, path)
        except FileExistsError:
            return _is_ours(temp, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return _reserve(temp, path)
        return True

    def _links_work(self, path: str) -> bool:
        """Whether files are linked into place; tried out beside `path` when first asked."""
        if self._has_links is None:
            self._has_links = self._try_link(path)
        return self._has_links

    def _try_link(self, path: str) -> bool:
        try:
            temp = _write_temp(path, b"")
        except OSError:  # read only: nobody can say, and links are the rule
            return True
        try:
            self._link(temp, temp + "-2")
        except OSError as error:
            return error.errno not in _NO_LINKS
        finally:
            _forget(temp)
            _forget(temp + "-2")
        return True

    def _walk(self, prefix: str, after: str) -> Iterator[Entry]:
        """Without recursion: the directory is not ours alone, and may be deep."""
        levels = [iter(self._scan(prefix))]
        while levels:
            key, found = next(levels[-1], ("", None))
            if found is None:
                levels.pop()
            elif key.endswith("/"):
                if key > after or after.startswith(key):
                    levels.append(iter(self._scan(key)))
            elif key > after and (entry := _entry(key, found)):
                yield entry

    def _scan(self, prefix: str) -> Sequence[tuple[str, os.DirEntry[str]]]:
        """What is in one directory, in order of the keys: a directory sorts by the slash behind its name."""
        path = self._root + prefix
        with _telling("list", path):
            try:
                with os.scandir(path) as entries:
                    words = [entry for entry in entries if is_word(entry.name)]
            except _ABSENT:
                return []
            keys = [prefix + entry.name + "/" * entry.is_dir(follow_symlinks=False) for entry in words]
            return sorted(zip(keys, words, strict=True), key=itemgetter(0))


def is_word(name: str) -> bool:
    """Whether this could be one word of a key, given that it has no slash."""
    try:
        check_key(name)
    except ValueError:
        return False
    return True


def check_prefix(prefix: str) -> str:
    """The prefix, if it is one; raises ValueError otherwise, which is a mistake of ours."""
    if prefix and not (prefix.endswith("/") and check_key(prefix[:-1])):
        raise ValueError(f"not a prefix: {prefix!r}")
    return prefix


@contextmanager
def whole_file(path: str | Path) -> Iterator[str]:
    """A name for a temporary file, which takes the place of `path` when the block ends well, and is gone
    otherwise. The directory is made if need be."""
    path = os.path.abspath(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temp = _temp_name(path)
    try:
        yield temp
        os.rename(temp, path)
    except BaseException:
        _forget(temp)
        raise


class _telling:  # noqa: N801  (reads as a word; a generator would cost a record's writing a tenth)
    """Turns an OSError into the StoreError that tells it."""

    __slots__ = ("doing", "path")

    def __init__(self, doing: str, path: str) -> None:
        self.doing, self.path = doing, path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, OSError):
            reason = error.strerror or type(error).__name__
            raise StoreError(f"cannot {self.doing} {self.path}: {reason}") from error


def _temp_name(path: str) -> str:
    """Beside `path`: links and renames never leave a directory, which some file systems are slow or unable
    to do."""
    return f"{path.rpartition('/')[0]}/.tmp-{_TOKEN}-{os.getpid()}-{next(_numbers)}"


def _write_temp(path: str, data: bytes) -> str:
    temp = _temp_name(path)
    try:
        file = os.open(temp, _NEW, 0o666)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        file = os.open(temp, _NEW, 0o666)
    try:
        _write_all(file, data)
    except OSError:
        _forget(temp)
        raise
    return temp


def _write_all(file: int, data: bytes) -> None:
    """Write and close, which on a network is when a full disk is told."""
    try:
        written = os.write(file, data)
        while written < len(data):
            written += os.write(file, memoryview(data)[written:])
    finally:
        os.close(file)


def _look_again(path: str) -> bytes | None:
    """What was not there at first: NFS remembers absences, until somebody opens the directory anew."""
    try:
        os.close(os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC))
        return _contents(path)
    except _ABSENT:
        return None


def _contents(path: str) -> bytes | None:
    """All of a file; None if it is none. A pipe must not keep us waiting for its writer."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            return None
        data = os.read(file, found.st_size)
        while len(data) < found.st_size and (more := os.read(file, found.st_size - len(data))):
            data += more
        return data
    finally:
        os.close(file)


def _is_ours(temp: str, path: str) -> bool:
    """Whether what is in place is our file: a link(2) sent again, as its answer was lost, finds itself."""
    if os.stat(temp).st_nlink > 1:
        return True
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    return False


def _reserve(temp: str, path: str) -> bool:
    """Without links: whoever makes the empty file owns the name, and renames the record over it.

    Readers take the empty file as absent. Whoever dies in between leaves it for ever, which is told as an
    error when it is old: it cannot be taken over, since nobody else can be kept from doing so at once.
    """
    try:
        os.close(os.open(path, _NEW, 0o666))
    except FileExistsError:
        _check_alive(os.stat(temp), os.lstat(path))
        return False
    os.rename(temp, path)
    return True


def _check_alive(ours: os.stat_result, found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if ours.st_size and not found.st_size and ours.st_mtime - found.st_mtime > ABANDONED:
        raise OSError(errno.EIO, "it is empty, as its writer was cut off; remove it to go on")


def _forget(temp: str) -> None:
    """Remove a temporary file, if it is there and can be: one that stays harms nobody."""
    with suppress(OSError):
        os.unlink(temp)


def _copy(source: str, target: str) -> None:
    from shutil import copyfile

    copyfile(source, target)


def _entry(key: str, found: os.DirEntry[str]) -> Entry | None:
    """The entry of a regular file that is still there."""
    with _telling("list", found.path):
        try:
            if not found.is_file(follow_symlinks=False):
                return None
            status = found.stat(follow_symlinks=False)
        except FileNotFoundError:
            return None
    return Entry(key, f"{status.st_mtime_ns:x}-{status.st_ino:x}-{status.st_size:x}")
