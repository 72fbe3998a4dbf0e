"""Contents of objects, in files whose names tell nothing; memory holds a piece at a time."""

from __future__ import annotations

import base64
import hashlib
import mmap
import os
import secrets
import shutil
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from stoker.emulator.storage.crc32c import crc32c
from stoker.emulator.storage.errors import wrong

PIECE = 1 << 20
Content = bytes | mmap.mmap | memoryview


@dataclass(frozen=True)
class Body:
    """Contents that never change. Those composed of others have no `md5`."""

    file: str
    size: int
    md5: str  # hexadecimal
    crc32c: int

    @property
    def md5_hash(self) -> str:
        """As the JSON interface tells it."""
        return base64.b64encode(bytes.fromhex(self.md5)).decode()

    @property
    def crc32c_hash(self) -> str:
        """As both interfaces tell it."""
        return base64.b64encode(self.crc32c.to_bytes(4, "big")).decode()

    @property
    def hashes(self) -> dict[str, str]:
        """All there are."""
        return {"crc32c": self.crc32c_hash, **({"md5": self.md5_hash} if self.md5 else {})}

    def composed(self) -> Body:
        """The same, as contents that were put together from several."""
        return replace(self, md5="")

    def check(self, expected: dict[str, str]) -> None:
        """Raise ApiError if somebody computed another hash of what they sent."""
        for name, value in expected.items():
            if value and self.hashes.get(name, value) != value:
                xml = "BadDigest" if name == "md5" else "CrcMismatch"
                message = f'Provided {name} hash "{value}" doesn\'t match calculated {name} hash '
                raise wrong(f'{message}"{self.hashes[name]}".', xml)


class Growing:
    """Contents that are still arriving, piece by piece. One thread at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size, self._md5, self._crc = 0, hashlib.md5(usedforsecurity=False), 0
        if path.exists():  # a restart came between the pieces
            with path.open("rb") as file:
                self._count(iter(lambda: file.read(PIECE), b""))

    def add(self, data: Content) -> None:
        """Some more."""
        with self._path.open("ab") as file:
            for piece in pieces(data):
                file.write(piece)
                self._count([piece])

    def body(self) -> Body:
        """All of it."""
        self._path.touch()
        return Body(self._path.name, self.size, self._md5.hexdigest(), self._crc)

    def _count(self, found: Iterable[bytes | memoryview]) -> None:
        for piece in found:
            self._md5.update(piece)
            self._crc = crc32c(piece, self._crc)
            self.size += len(piece)


class Bodies:
    """All contents, in one directory.

    If they outlive the emulator (`lasts`), what is removed stays until a state without it has been saved: the
    last one that was saved may be all that is left of this emulator.
    """

    def __init__(self, directory: Path, lasts: bool = False) -> None:
        self._directory, self._lasts = directory, lasts
        self._removed: deque[str] = deque()
        self._unnamed: list[str] = []  # removed before the state that is being saved
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    def keep(self, parts: Iterable[Content]) -> Body:
        """New contents, of these parts one after the other."""
        growing = self.growing(self.name())
        for part in parts:
            growing.add(part)
        return growing.body()

    def name(self) -> str:
        """For a new file."""
        return secrets.token_hex(16)

    def growing(self, name: str) -> Growing:
        """Contents that go on arriving."""
        return Growing(self._directory / name)

    def open(self, body: Body) -> BinaryIO:
        """For reading; it can still be read when it has been removed meanwhile."""
        return (self._directory / body.file).open("rb")

    def copied(self, body: Body) -> Body:
        """The same contents once more, which are removed on their own."""
        name = self.name()
        try:
            os.link(self._directory / body.file, self._directory / name)
        except OSError:  # a file system without links
            shutil.copyfile(self._directory / body.file, self._directory / name)
        return replace(body, file=name)

    def remove(self, name: str) -> None:
        """May be repeated. To be called when nothing has it any more."""
        if self._lasts:
            self._removed.append(name)
        else:
            self._unlink(name)

    def begin_save(self) -> None:
        """To be called before the state is taken."""
        while self._removed:
            self._unnamed.append(self._removed.popleft())

    def end_save(self) -> None:
        """To be called when that state is on the disk; by the same thread."""
        while self._unnamed:
            self._unlink(self._unnamed.pop())

    def _unlink(self, name: str) -> None:
        with suppress(FileNotFoundError):
            (self._directory / name).unlink()

    def has(self, name: str) -> bool:
        """Whether it is there, after a restart."""
        return (self._directory / name).is_file()

    def sweep(self, known: set[str]) -> None:
        """Remove what nobody knows, after a restart."""
        for path in self._directory.iterdir():
            if path.name not in known:
                path.unlink()


def pieces(data: Content) -> Iterator[bytes | memoryview]:
    """In small parts, without a copy of all."""
    if isinstance(data, bytes) and len(data) <= PIECE:
        if data:
            yield data
        return
    with memoryview(data) as view:
        for start in range(0, len(view), PIECE):
            with view[start : start + PIECE] as piece:
                yield piece


def from_file(file: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    """What lies between two places; closes the file in the end."""
    with file:
        file.seek(start)
        while start < end and (data := file.read(min(PIECE, end - start))):
            start += len(data)
            yield data
        if start < end:
            raise OSError(f"{file.name} is shorter than it was")


def body_of(data: dict[str, Any]) -> Body:
    """From what was dumped."""
    return Body(data["file"], data["size"], data["md5"], data["crc32c"])
