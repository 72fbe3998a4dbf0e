"""Directories as data, and a store that counts and fails."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from stoker.agent.world import Attempt
from stoker.store.interface import Entry, Store
from stoker.store.records import TrialId
from stoker.study.files import Manifest

TRIAL = TrialId(1, 5)


def attempt(number: int, round_: int = 1) -> Attempt:
    return Attempt(TRIAL, round_, number, f"{round_}-{number}")


def tree(directory: Path) -> dict[str, object]:
    """All there is in a directory: type, mode, time and contents."""
    found: dict[str, object] = {}
    for place, directories, files in os.walk(directory):
        for name in directories + files:
            path = Path(place, name)
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            told = str(path.relative_to(directory))
            if path.is_symlink():
                found[told] = ("link", str(path.readlink()))
            elif path.is_dir():
                found[told] = ("directory", mode)
            else:
                found[told] = ("file", mode, status.st_mtime_ns, path.read_bytes())
    return found


def put(path: Path, data: bytes | bytearray, age: int = 100) -> None:
    """Write a file so long ago that a change is sure to show in its time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    then = path.stat().st_mtime_ns - age * 10**9
    os.utime(path, ns=(then, then))


def objects(manifest: Manifest) -> set[str]:
    return {part.key for file in manifest.files.values() for part in file.parts}


class Watched:
    """A store that notes every call, and lets a test act before and after each."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self.calls: list[tuple[str, str]] = []
        self.sent = 0  # bytes
        self.before: Callable[[str, str], None] = lambda method, key: None
        self.after: Callable[[str, str], None] = lambda method, key: None
        self._store = store

    def clear(self) -> None:
        self.calls.clear()
        self.sent = 0

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    def create(self, key: str, data: bytes) -> bool:
        self._begin("create", key)
        done = self._store.create(key, data)
        self.after("create", key)
        return done

    def read(self, key: str) -> bytes | None:
        self._begin("read", key)
        return self._store.read(key)

    def write(self, key: str, data: bytes) -> None:
        self._begin("write", key)
        self._store.write(key, data)
        self.sent += len(data)
        self.after("write", key)

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        self._begin("list", prefix)
        return self._store.list(prefix, after)

    def delete(self, key: str) -> None:
        self._begin("delete", key)
        self._store.delete(key)
        self.after("delete", key)

    def upload(self, key: str, path: Path) -> None:
        raise NotImplementedError

    def download(self, key: str, path: Path) -> bool:
        raise NotImplementedError

    def _begin(self, method: str, key: str) -> None:
        self.calls.append((method, key))
        self.before(method, key)
