"""This machine: what runs here, and with what."""

from __future__ import annotations

import fcntl
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from stoker.agent import gpus
from stoker.agent.gpus import Gpu, Inventory
from stoker.agent.locks import Locks, find_locks
from stoker.agent.slots import identity, usable_cores
from stoker.checkup import VERSION
from stoker.checkup.finding import Check, ask, bad, ok, size, warning

_OLDEST = (3, 10)
_BEFORE = 1_735_689_600  # 2025: earlier than any release
_AFTER = 4_102_444_800  # 2100


def look() -> Iterator[Check]:
    """What there is. May take seconds where a driver must first wake its GPUs."""
    yield judge_python(sys.version_info[:3], sys.executable)
    yield ok("Stoker", VERSION)
    yield ok("system", f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield ok("cores", f"{usable_cores()} usable of {os.cpu_count()}")
    yield _look_at_memory()
    locks = find_locks()
    yield from judge_gpus(gpus.read(), locks)
    yield _look_at_locks(locks)
    yield _look_at_program("bash", "install bash: commands of stages run in it", is_needed=True)
    yield _look_at_program("git", "install git, if reports shall tell of code that changed", is_needed=False)
    yield judge_now(time.time())


def judge_python(version: tuple[int, ...], path: str) -> Check:
    """Whether this Python is new enough."""
    told = f"{'.'.join(map(str, version))}, {path}"
    if version >= _OLDEST:
        return ok("Python", told)
    return bad("Python", told, "install Stoker with Python 3.10 or newer; training scripts may use another")


def judge_now(now: float) -> Check:
    """Whether the clock can be right."""
    told = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now))
    if _BEFORE < now < _AFTER:
        return ok("time", told)
    return warning("time", told, "set the clock: nothing is decided by it, but times shown will be odd")


# Memory


def parse_memory(text: str) -> tuple[int, int] | None:
    """Total and available bytes, from the text of /proc/meminfo."""
    found = dict(re.findall(r"^(MemTotal|MemAvailable):\s+(\d+) kB$", text, re.MULTILINE))
    if len(found) < 2:
        return None
    return int(found["MemTotal"]) * 1024, int(found["MemAvailable"]) * 1024


def memory_limit(root: Path = Path("/")) -> int | None:
    """The least bytes that the control groups of this process allow; None if they allow all."""
    limits = []
    for line in (_read(root / "proc/self/cgroup")).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        inner = mount / place.lstrip("/")
        groups = [group for group in (inner, *inner.parents) if group.is_relative_to(mount)]
        for file in (group / ("memory.limit_in_bytes" if controllers else "memory.max") for group in groups):
            limits += [int(word) for word in _read(file).split() if word.isdecimal()]
    return min(limits, default=None)


def _look_at_memory() -> Check:
    found = parse_memory(_read(Path("/proc/meminfo")))
    if found is None:
        return ok("memory", "not told by this system")
    total, available = found
    limit = memory_limit()
    within = f", of which this process may use {size(limit)}" if limit is not None and limit < total else ""
    return ok("memory", f"{size(available)} available of {size(total)}{within}")


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# GPUs


def judge_gpus(inventory: Inventory, locks: Locks) -> Iterator[Check]:
    """Each GPU, and who holds it."""
    if inventory.gpus is None:
        remedy = "see what `nvidia-smi` says: this machine has GPUs, but its driver does not answer"
        yield warning("GPUs", inventory.reason or "cannot be read", remedy)
        return
    if not inventory.gpus:
        yield ok("GPUs", f"none ({inventory.reason})" if inventory.reason else "none")
        return
    for gpu in inventory.gpus:
        yield ok(_called(gpu), _described(gpu, locks))
    if inventory.reason:
        yield warning("GPUs", inventory.reason, "see what `nvidia-smi` says; the others can be used")


def _called(gpu: Gpu) -> str:
    return f"GPU {gpu.index}" if gpu.instance is None else f"GPU {gpu.index}:{gpu.instance}"


def _described(gpu: Gpu, locks: Locks) -> str:
    told = [gpu.name or "of a kind that the driver does not tell"]
    if gpu.memory_total is not None and gpu.memory_used is not None:
        told.append(f"{size(gpu.memory_total - gpu.memory_used)} free of {size(gpu.memory_total)}")
    holder = locks.holder(identity(gpu))
    if holder is not None:
        told.append(f"held by {holder}")
    elif gpu.processes:
        told.append(f"in use by process {', '.join(map(str, gpu.processes))}")
    else:
        told.append("free")
    return ", ".join(told)


def _look_at_locks(locks: Locks) -> Check:
    remedy = "have /run/lock or /tmp with mode 1777; else two studies may use one GPU"
    if locks.directory is None:
        return warning("locks", locks.problem, remedy)
    try:
        with tempfile.NamedTemporaryFile(prefix="stoker-doctor-", dir=locks.directory) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return warning("locks", f"{locks.directory}: {error.strerror}", remedy)
    return ok("locks", f"GPUs can be locked, in {locks.directory}")


# Programs


def _look_at_program(name: str, remedy: str, is_needed: bool) -> Check:
    path = shutil.which(name)
    if path is None:
        return (bad if is_needed else warning)(name, "not found on the PATH", remedy)
    said = ask(name, "--version").out.partition("\n")[0]
    version = re.search(r"\d+(\.\d+)+", said)
    return ok(name, f"{version[0]}, {path}" if version else path)
