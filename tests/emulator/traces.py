"""What a cloud left behind: processes, mounts, network namespaces."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def descendants(pid: int | None = None) -> set[int]:
    """Processes that descend from one: from us, if none is named. Those that have ended do not count."""
    parents = {}
    for entry in [one / "stat" for one in _PROC.glob("[0-9]*")]:
        with suppress(OSError, ValueError):
            state, parent = entry.read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(entry.parent.name)] = int(parent)
    found = {os.getpid() if pid is None else pid}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid() if pid is None else pid}


def of_directory(directory: Path) -> list[str]:
    """Processes and mounts, ours among them, that know of a directory."""
    word = str(directory).encode()
    found = [f"process {pid} {_told(pid)}" for pid in _pids() if pid != os.getpid() and _knows(pid, word)]
    if _contains(_PROC / "self" / "mountinfo", word):
        found.append(f"a mount in {directory}")
    return found


def namespaces() -> set[str]:
    """Names of network namespaces."""
    with suppress(OSError):
        return {entry.name for entry in Path("/run/netns").iterdir()}
    return set()


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.glob("[0-9]*")]


def _knows(pid: int, word: bytes) -> bool:
    place = _PROC / str(pid)
    if any(_contains(place / name, word) for name in ("environ", "cmdline", "mountinfo")):
        return True
    with suppress(OSError):
        return os.readlink(place / "cwd").encode().startswith(word)  # noqa: PTH115  (may be gone)
    return False


def _contains(path: Path, word: bytes) -> bool:
    with suppress(OSError):
        return word in path.read_bytes()
    return False


def _told(pid: int) -> str:
    with suppress(OSError):
        return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return ""
