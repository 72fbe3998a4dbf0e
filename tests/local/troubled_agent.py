"""An agent that trouble is made for: `python troubled_agent.py PLACE OPTIONS`. It prints what it tells,
and reads what it is told.

OPTIONS is JSON: `slots`, how many without a GPU (else those that this machine has); `lease`; `locks`, a
directory for the locks of GPUs; and `cut`: the output is on a network, and cut off while that file is there.
What is in the file says how: the store `raises`, or `hangs`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.agent import guardian

if __name__ == "__main__":
    guard = guardian.enter()  # before anything starts a thread

from stoker.agent.keeper import Keeper
from stoker.agent.local import Contact, run_agent
from stoker.agent.locks import find_locks
from stoker.agent.process import Control
from stoker.agent.world import Settings
from stoker.store.directory import DirectoryStore
from stoker.store.interface import Entry, StoreError
from stoker.study.place import RECORDS, Place, open_place


class CutOff(DirectoryStore):
    """A directory on a network that is away at times."""

    def __init__(self, root: Path, flag: Path) -> None:
        super().__init__(root)
        self._flag = flag

    def _wait(self) -> None:
        while self._flag.exists():
            if self._flag.read_text() == "raises":
                raise StoreError("the network is away")
            time.sleep(0.02)

    def create(self, key: str, data: bytes) -> bool:
        self._wait()
        return super().create(key, data)

    def read(self, key: str) -> bytes | None:
        self._wait()
        return super().read(key)

    def write(self, key: str, data: bytes) -> None:
        self._wait()
        super().write(key, data)

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        self._wait()
        return super().list(prefix, after)


def _place(word: str, options: dict[str, Any]) -> Place:
    if "cut" not in options:
        return open_place(word)
    output = Path(word)
    return Place(word, CutOff(output / RECORDS, Path(options["cut"])), output, is_shared=True)


def _tell(event: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def _peak() -> int:
    """The most memory that this process had, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    place = _place(sys.argv[1], options)
    resource = ("",) * options["slots"] if "slots" in options else None
    locks = find_locks((Path(options["locks"]),)) if "locks" in options else None
    settings = Settings(lease=options.get("lease", 20.0), beat=0.5, back_off=0.1)
    run_agent(
        place, Keeper(resource, place.url, locks=locks), settings, guard, Contact(_tell, Control(0).start)
    )
    _tell({"event": "memory", "peak": _peak()})
