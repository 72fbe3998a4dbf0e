"""File systems that do what the store relies on, and such as do not."""

from __future__ import annotations

import errno
import os
import shutil
import time
from pathlib import Path

import pytest

from stoker.checkup.directory import FileSystem, look, try_out
from stoker.checkup.finding import Check, Verdict


def tried(place: Path, calls: FileSystem) -> dict[str, Check]:
    return {check.name: check for check in try_out(place, calls)}


def test_a_good_one(tmp_path: Path) -> None:
    found = tried(tmp_path, FileSystem())
    assert list(found) == ["create", "link", "rename", "read", "listing", "names", "flock", "clock"]
    assert {check.verdict for check in found.values()} == {Verdict.OK}


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    assert all(check.verdict is Verdict.OK for check in look(tmp_path))
    assert list(tmp_path.iterdir()) == []


class CreatesTwice(FileSystem):
    def create(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)


class HasNoLinks(FileSystem):
    def link(self, source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


class FailsAtLinks(FileSystem):
    def link(self, source: Path, target: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


class LinksOver(FileSystem):
    def link(self, source: Path, target: Path) -> None:
        target.unlink(missing_ok=True)
        os.link(source, target)


class LinksBySymlinks(FileSystem):
    def link(self, source: Path, target: Path) -> None:
        target.symlink_to(source.name)


class Copies(FileSystem):
    def link(self, source: Path, target: Path) -> None:
        shutil.copyfile(source, target)


class RenamesNothing(FileSystem):
    def rename(self, source: Path, target: Path) -> None:
        source.unlink()


class ReadsLate(FileSystem):
    def read(self, path: Path) -> bytes:
        return b""


class ListsLate(FileSystem):
    def __init__(self) -> None:
        self._known: dict[Path, list[str]] = {}

    def names(self, directory: Path) -> list[str]:
        before, self._known[directory] = self._known.get(directory, []), super().names(directory)
        return before


class HasShortNames(FileSystem):
    def create(self, path: Path, data: bytes) -> None:
        if len(os.fsencode(path.name)) > 143:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        super().create(path, data)


class HasPlainNames(FileSystem):
    def names(self, directory: Path) -> list[str]:
        return [name.encode("ascii", "replace").decode() for name in super().names(directory)]


class HasNoLocks(FileSystem):
    def lock(self, path: Path) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


class IsLate(FileSystem):
    def create(self, path: Path, data: bytes) -> None:
        super().create(path, data)
        os.utime(path, (0, time.time() - 90))


@pytest.mark.parametrize(
    ("calls", "name", "verdict", "told"),
    [
        (CreatesTwice(), "create", Verdict.BAD, "created twice"),
        (HasNoLinks(), "link", Verdict.WARNING, "no hard links: Operation not permitted"),
        (FailsAtLinks(), "link", Verdict.BAD, "Input/output error"),
        (LinksOver(), "link", Verdict.BAD, "replaced a file"),
        (LinksBySymlinks(), "link", Verdict.BAD, "not the same file"),
        (Copies(), "link", Verdict.BAD, "not the same file"),
        (RenamesNothing(), "rename", Verdict.BAD, "does not replace"),
        (ReadsLate(), "read", Verdict.BAD, "reads otherwise"),
        (ListsLate(), "listing", Verdict.BAD, "does not show"),
        (HasShortNames(), "names", Verdict.WARNING, "may not have 255 bytes"),
        (HasPlainNames(), "names", Verdict.WARNING, "may not have letters of all scripts"),
        (HasNoLocks(), "flock", Verdict.OK, "does not work (Function not implemented); managers"),
        (IsLate(), "clock", Verdict.WARNING, "90.0 s behind ours"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, FileSystem) else "",
)
def test_others(tmp_path: Path, calls: FileSystem, name: str, verdict: Verdict, told: str) -> None:
    check = tried(tmp_path, calls)[name]
    assert check.verdict is verdict
    assert told in check.found
    assert bool(check.remedy) == (verdict is not Verdict.OK)
