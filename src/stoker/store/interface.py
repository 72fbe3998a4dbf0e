"""What the protocol asks of a store, and nothing more.

A store holds small objects under keys. Everything stands on `create`, which puts an object only if there
is none; see docs/records.md for what is built on it.

A key is several words joined by slashes. Words consist of ASCII letters, digits and `.`, `_`, `=`, `-`,
and begin with neither `.` nor `-`. Keys sort by their bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stoker.core.errors import StokerError

_KEY = re.compile(r"[A-Za-z0-9_=][A-Za-z0-9._=-]*(/[A-Za-z0-9_=][A-Za-z0-9._=-]*)*")


class StoreError(StokerError):
    """The store did not answer, or refused. Whether a write took place is not known."""


@dataclass(frozen=True)
class Entry:
    """One object of a listing. The version changes whenever the object is written."""

    key: str
    version: str


class Store(Protocol):
    """A place for objects that many machines share. All methods may block, may be called from several
    threads at once, and raise StoreError when the store is away."""

    url: str

    def create(self, key: str, data: bytes) -> bool:
        """Put an object if there is none.

        True: this call created it, and nobody else ever will. False: there is one. It may be our own all
        the same: a write that was answered with an error, and tried again underneath, finds itself. So
        False and StoreError are not answers; read the object to learn who won.
        """
        ...

    def read(self, key: str) -> bytes | None:
        """The whole object, or None if there is none. Never a part of one."""
        ...

    def write(self, key: str, data: bytes) -> None:
        """Put an object, whatever was there. Readers see the old one or the new one."""
        ...

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """Objects whose key begins with `prefix`, in order of their keys; only those behind `after`.

        The prefix is empty, or whole words and a slash.
        An object that this store object created or wrote is in it; others may come late.
        """
        ...

    def delete(self, key: str) -> None:
        """Remove an object; there need be none."""
        ...

    def upload(self, key: str, path: Path) -> None:
        """Put a file as an object, without reading all of it into memory."""
        ...

    def download(self, key: str, path: Path) -> bool:
        """Get an object into a file, which appears only when it is whole. False if there is no object."""
        ...


def check_key(key: str) -> str:
    """The key, if it is one; raises ValueError otherwise, which is a mistake of ours, not of a user."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a key: {key!r}")
    return key
