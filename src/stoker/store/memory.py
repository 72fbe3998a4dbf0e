"""A store in the memory of one process, for tests and for simulation."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

from stoker.store.directory import check_prefix, whole_file
from stoker.store.interface import Entry, check_key

_PAGE = 1000


class MemoryStore:
    """Forgets everything with the object. Versions count all writes, so that equal runs give equal ones."""

    url = "memory://"

    def __init__(self) -> None:
        self._objects: dict[str, tuple[str, bytes]] = {}
        self._keys: list[str] = []  # in order
        self._writes = 0
        self._lock = Lock()

    def create(self, key: str, data: bytes) -> bool:
        """See Store."""
        with self._lock:
            if check_key(key) in self._objects:
                return False
            self._put(key, data)
            return True

    def read(self, key: str) -> bytes | None:
        """See Store."""
        found = self._objects.get(check_key(key))
        return None if found is None else found[1]

    def write(self, key: str, data: bytes) -> None:
        """See Store."""
        with self._lock:
            self._put(check_key(key), data)

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """See Store. As in a bucket, pages are taken one by one while others write."""
        check_prefix(prefix)
        return self._pages(prefix, after)

    def delete(self, key: str) -> None:
        """See Store."""
        with self._lock:
            if self._objects.pop(check_key(key), None) is not None:
                del self._keys[bisect_right(self._keys, key) - 1]

    def upload(self, key: str, path: Path) -> None:
        """See Store. A file that cannot be read raises its OSError."""
        self.write(key, path.read_bytes())

    def download(self, key: str, path: Path) -> bool:
        """See Store."""
        data = self.read(key)
        if data is None:
            return False
        with whole_file(path) as temp:
            Path(temp).write_bytes(data)
        return True

    def _put(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._writes += 1
        self._objects[key] = (str(self._writes), bytes(data))

    def _pages(self, prefix: str, after: str) -> Iterator[Entry]:
        last = max(prefix, after)  # no key equals a prefix, which ends in a slash
        while page := self._page(last):
            for entry in page:
                if not entry.key.startswith(prefix):
                    return
                yield entry
            last = page[-1].key

    def _page(self, last: str) -> Sequence[Entry]:
        with self._lock:
            start = bisect_right(self._keys, last)
            return [Entry(key, self._objects[key][0]) for key in self._keys[start : start + _PAGE]]
