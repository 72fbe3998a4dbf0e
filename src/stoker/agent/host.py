"""Which host this is, and whether a process of it lives."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from stoker.agent import guardian


@cache
def host() -> str:
    """This host and its boot, as one word."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    known = boot.read_text(encoding="ascii").strip() if boot.exists() else "0"
    name = re.sub(r"[^A-Za-z0-9_]", "_", os.uname().nodename)
    return f"{name}-{known[:8]}"


def here() -> dict[str, Any]:
    """This process, as it stands in a beat."""
    return {"host": host(), "pid": os.getpid(), "start": _start_of(os.getpid())}


def is_gone(beat: Mapping[str, Any]) -> bool:
    """Whether a beat is of a process of this host that is no more."""
    try:
        return beat.get("host") == host() and _start_of(int(beat.get("pid", 0))) != beat.get("start")
    except (TypeError, ValueError):
        return False


def _start_of(pid: int) -> int:
    """When a process was started, in ticks since boot; 0 if it is no more."""
    found = guardian.read(pid) if pid else None
    return found.start if found is not None and found.state != "Z" else 0
