"""A folder as one file that has its contents in its name: the same files give the same name anywhere."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from stoker.core.errors import UsageError

_PIECE = 1 << 20
_QUICK = 1  # gzip's level: code is small, and data seldom becomes much smaller


@dataclass(frozen=True)
class Archive:
    """A compressed tar file."""

    path: Path
    digest: str  # of what is in it, not of the file
    files: int
    size: int  # bytes of the files in it

    @property
    def name(self) -> str:
        """By which it is known wherever it lies."""
        return f"{self.digest[:32]}.tar.gz"


def pack(
    root: Path, files: Iterable[str], into: Path, told: Callable[[int], None] = lambda size: None
) -> Archive:
    """Pack these files of a folder. `told` is called with the bytes that each took.

    Times and owners are left out, so that they change nothing; whether a file can be executed stays. A link
    stays one if it leads to something in the folder, and is followed if not.
    """
    digest, count, size = hashlib.sha256(), 0, 0
    with (
        into.open("wb") as raw,
        gzip.GzipFile("", "wb", _QUICK, raw, 0) as packed,
        tarfile.open(mode="w|", fileobj=packed, format=tarfile.PAX_FORMAT) as tar,
    ):
        for name in files:
            member = _member(root, name)
            digest.update(repr((member.name, member.mode, member.type, member.linkname)).encode())
            _add(tar, member, root / name, digest.update)
            count, size = count + 1, size + member.size
            told(member.size)
    return Archive(into, digest.hexdigest(), count, size)


def _member(root: Path, name: str) -> tarfile.TarInfo:
    path, member = root / name, tarfile.TarInfo(name)
    if path.is_symlink() and _stays_inside(root, path):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)  # noqa: PTH115
        return member
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{path} is no file; leave it out with a line in .stokerignore")
    member.size, member.mode = found.st_size, 0o755 if found.st_mode & stat.S_IXUSR else 0o644
    return member


def _stays_inside(root: Path, link: Path) -> bool:
    target = os.readlink(link)  # noqa: PTH115
    return not Path(target).is_absolute() and link.resolve().is_relative_to(root.resolve())


def _add(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path, note: Callable[[bytes], object]) -> None:
    if member.type == tarfile.SYMTYPE:
        tar.addfile(member)
        return
    with path.open("rb") as file:
        tar.addfile(member, _Noted(file, member.size, note, str(path)))  # type: ignore[arg-type]


class _Noted:
    """A file whose contents are noted while it is read; exactly as long as it was said to be."""

    def __init__(self, file: BinaryIO, size: int, note: Callable[[bytes], object], name: str) -> None:
        self._file, self._left, self._note, self._name = file, size, note, name

    def read(self, most: int) -> bytes:
        data = self._file.read(min(most, self._left))
        if len(data) < min(most, self._left):
            raise UsageError(f"{self._name} became shorter while it was read: something is writing to it")
        self._left -= len(data)
        self._note(data)
        return data
