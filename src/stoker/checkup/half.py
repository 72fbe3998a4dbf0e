"""What each of two processes does that use one directory at once; and the one that is told what to do.

It is told in lines of JSON. What is looked at never goes that way, but through the directory.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stoker.agent.host import host
from stoker.checkup import VERSION
from stoker.store.directory import DirectoryStore
from stoker.store.interface import Store, StoreError

NAMES = 200
"""So many names both halves try to create, in each of two ways."""
NEWS = ("name", "listing", "contents")
"""What a half may see of what the other one writes."""
_GAP = 0.001  # seconds between two names
_POLL = 0.005
_LATE = 1.0  # seconds: a name that nobody asked for before is looked up on the server


def _no_link(source: str, target: str) -> None:
    raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), target)


class Half:
    """One of two who use a directory at once."""

    def __init__(self, place: Path, who: str) -> None:
        self.who = who
        self._stores: Mapping[str, Store] = {
            "link": DirectoryStore(place, must_exist=True),
            "exclusive": DirectoryStore(place, link=_no_link, must_exist=True),
        }
        self._store = self._stores["link"]

    def create(self, way: str, begin: float) -> list[bool]:
        """Create names, each at its moment by this clock, and tell which were new."""
        heard = []
        for number in range(NAMES):
            time.sleep(min(max(0.0, begin + number * _GAP - time.time()), 10.0))
            try:
                heard.append(self._stores[way].create(_key(way, number), self.who.encode()))
            except StoreError:  # it may have landed: reading tells
                heard.append(False)
        return heard

    def read(self, way: str) -> list[str]:
        """Whose the names are; empty if they are nobody's."""
        found = [""] * NAMES
        for number in range(NAMES):
            with suppress(StoreError):
                found[number] = (self._stores[way].read(_key(way, number)) or b"").decode(errors="replace")
        return found

    def expect(self, turn: int) -> None:
        """See that the other one's news is not there yet, as an agent does that waits for it."""
        self._look(turn, ())

    def publish(self, turn: int) -> None:
        """Write what the other half waits for."""
        self._store.create(f"news/{turn}", b"new")
        self._store.write("beat", str(turn).encode())

    def watch(self, turn: int, latest: float, tell: Callable[[str], None]) -> None:
        """Tell each kind of news as it is seen; those that do not come in time are left out."""
        seen: list[str] = []
        until = time.monotonic() + latest
        while len(seen) < len(NEWS) and time.monotonic() < until:
            for kind in self._look(turn, seen):
                seen.append(kind)
                tell(kind)
            time.sleep(_POLL)

    def _look(self, turn: int, seen: Sequence[str]) -> list[str]:
        key, found = f"news/{turn}", []
        with suppress(StoreError):
            if "name" not in seen and self._store.read(key) is not None:
                found.append("name")
            if "listing" not in seen and key in [entry.key for entry in self._store.list("news/")]:
                found.append("listing")
            if "contents" not in seen and self._store.read("beat") == str(turn).encode():
                found.append("contents")
        return found


def _key(way: str, number: int) -> str:
    return f"{way}/{number:03}"


def serve(place: Path) -> int:
    """Be the other half, until whoever started it goes away."""
    half = Half(place, "there")

    def send(**said: object) -> None:
        sys.stdout.write(json.dumps({"stoker": "half", **said}) + "\n")
        sys.stdout.flush()

    send(answer={"host": host(), "version": VERSION, "sees": _sees(place)})
    acts: dict[str, Callable[..., object]] = {
        "time": time.time,
        "create": half.create,
        "read": half.read,
        "expect": half.expect,
        "publish": half.publish,
        "watch": lambda turn, latest: half.watch(turn, latest, lambda kind: send(seen=kind)),
    }
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            send(answer=acts[asked["do"]](*asked["with"]))
        except StoreError as error:
            send(error=str(error))
    return 0


def _sees(place: Path) -> bool:
    """Whether the directory is here; one that was just made elsewhere may come late."""
    until = time.monotonic() + _LATE
    while not place.is_dir():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True
