"""Which NVIDIA GPUs this machine has and who uses them, as the driver tells it; nothing is decided here.

NVML is asked first, through `nvidia-ml-py`; then `nvidia-smi`, which is there wherever the driver is, while
the package and the library may be missing. An instance of a divided GPU (MIG) counts as a GPU of its own.
"""

from __future__ import annotations

import functools
import importlib
import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FIELDS = "index,uuid,name,memory.total,memory.used"
_FORMAT = "--format=csv,noheader,nounits"
_MIB = 1024 * 1024
_PATIENCE = 30.0  # seconds; nvidia-smi takes several where the driver must first wake the GPUs


@dataclass(frozen=True)
class Gpu:
    """A device that CUDA can use: a GPU, or an instance of one that is divided."""

    index: int  # in the order of the PCI bus, which is NVML's; an instance has that of its GPU
    uuid: str  # "" if the driver does not tell
    name: str
    memory_total: int | None  # bytes; None if the driver does not tell
    memory_used: int | None
    processes: tuple[
        int, ...
    ] = ()  # that compute on it; inside a container these may be missing, or the host's
    instance: int | None = None  # which one of its GPU


@dataclass(frozen=True)
class Inventory:
    """The GPUs of this machine: none if it has none, None if it seems to have some that nobody can read."""

    gpus: tuple[Gpu, ...] | None
    reason: str = ""  # why there are none, or what was left out


@dataclass(frozen=True)
class Utilisation:
    """How busy a GPU was lately."""

    percent: int | None
    memory: int | None  # bytes in use


class _UnreadableError(Exception):
    """This way of asking does not work here; the text says why."""


def read(devices: Path = Path("/dev")) -> Inventory:
    """The GPUs of this machine now. May take seconds, never raises, and may be repeated."""
    reasons = []
    for ask in (_ask_nvml, _ask_smi):
        try:
            return ask()
        except _UnreadableError as error:
            reasons.append(str(error))
    # Device files tell a machine without GPUs from one whose driver is broken. /proc/driver would not: it
    # shows a host's GPUs in containers that were given none.
    broken = any(devices.glob("nvidia[0-9]*"))
    return Inventory(None if broken else (), "; ".join(reasons))


def utilisation(uuid: str) -> Utilisation | None:
    """How busy the GPU is, for samples every few seconds; None if it is not known. Never raises."""
    try:
        nvml = _session()
    except _UnreadableError:
        return None
    handle = _answer(nvml, "nvmlDeviceGetHandleByUUID", uuid)
    if handle is None:
        return None
    rates = _answer(nvml, "nvmlDeviceGetUtilizationRates", handle)
    _, used = _memory(nvml, handle)
    if rates is None and used is None:
        return None
    return Utilisation(None if rates is None else int(rates.gpu), used)


# NVML


@functools.cache
def _session() -> Any:
    """NVML, started once a process. A failure is not remembered: the driver may come up later."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        raise _UnreadableError("the package nvidia-ml-py is not installed") from None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise _UnreadableError(f"NVML: {error}") from None
    return nvml


def _answer(nvml: Any, call: str, *arguments: object, **options: object) -> Any:
    """What NVML answers, or None: neither every GPU nor every driver nor every binding knows every call."""
    try:
        return getattr(nvml, call)(*arguments, **options)
    except (nvml.NVMLError, AttributeError):
        return None


def _ask_nvml() -> Inventory:
    nvml = _session()
    try:
        count = nvml.nvmlDeviceGetCount()
    except nvml.NVMLError as error:
        raise _UnreadableError(f"NVML: {error}") from None
    gpus: list[Gpu] = []
    lost = []
    for index in range(count):
        try:
            gpus += _devices(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index)
        except nvml.NVMLError as error:  # one GPU that fell off the bus must not hide the others
            lost.append(f"GPU {index}: {error}")
    reason = "; ".join(lost) or ("" if gpus else "NVML finds no GPU that could be used")
    return Inventory(tuple(gpus), reason)


def _devices(nvml: Any, handle: Any, index: int) -> Iterator[Gpu]:
    """The GPU; or its instances, if it is divided: CUDA does not use such a GPU as a whole."""
    mode = _answer(nvml, "nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != 1:
        yield _device(nvml, handle, index)
        return
    for instance in range(_answer(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        part = _answer(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, instance)
        if part is not None:
            yield _device(nvml, part, index, instance)


def _device(nvml: Any, handle: Any, index: int, instance: int | None = None) -> Gpu:
    total, used = _memory(nvml, handle)
    running = _answer(nvml, "nvmlDeviceGetComputeRunningProcesses", handle) or ()
    return Gpu(
        index=index,
        uuid=_text(_answer(nvml, "nvmlDeviceGetUUID", handle)),
        name=_text(_answer(nvml, "nvmlDeviceGetName", handle)),
        memory_total=total,
        memory_used=used,
        processes=tuple(process.pid for process in running),
        instance=instance,
    )


def _memory(nvml: Any, handle: Any) -> tuple[int | None, int | None]:
    """Total and used bytes. Only the second version does not count as used what the driver keeps for itself,
    which on an idle GPU is hundreds of megabytes."""
    second = getattr(nvml, "nvmlMemory_v2", None)
    memory = second and _answer(nvml, "nvmlDeviceGetMemoryInfo", handle, version=second)
    memory = memory or _answer(nvml, "nvmlDeviceGetMemoryInfo", handle)
    return (int(memory.total), int(memory.used)) if memory else (None, None)


def _text(answer: Any) -> str:
    """Old bindings answer in bytes."""
    return answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer or "")


# nvidia-smi


def _ask_smi() -> Inventory:
    listed = _smi(f"--query-gpu={_FIELDS}", _FORMAT)
    gpus = parse_gpus(listed, _smi("--query-compute-apps=gpu_uuid,pid", _FORMAT), _smi("-L"))
    return Inventory(gpus, "" if gpus else f"nvidia-smi lists no GPU: {listed.strip() or 'no output'}")


def _smi(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PATIENCE,
            check=False,
        )
    except FileNotFoundError:
        raise _UnreadableError("there is no nvidia-smi") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _UnreadableError(f"nvidia-smi: {error}") from None
    text = done.stdout.decode(errors="replace")
    if done.returncode and "No devices were found" not in text:
        raise _UnreadableError(f"nvidia-smi: {' '.join(text.split()) or f'exit code {done.returncode}'}")
    return text


def parse_gpus(listed: str, apps: str, tree: str) -> tuple[Gpu, ...]:
    """The GPUs, from what nvidia-smi prints for its queries of GPUs (index, uuid, name, memory.total,
    memory.used) and of compute-apps (gpu_uuid, pid), and for -L. Lines of another form are remarks and errors
    between the lines, and are passed over."""
    processes, instances = _parse_apps(apps), _parse_tree(tree)
    whole = tuple(_parse_rows(listed, processes))
    return tuple(part for gpu in whole for part in _parts(gpu, instances.get(gpu.uuid, ()), processes))


def _parts(
    gpu: Gpu, instances: Iterable[tuple[int, str, str]], processes: dict[str, tuple[int, ...]]
) -> list[Gpu]:
    """The instances of the GPU; itself if there are none."""
    parts = []
    for number, profile, uuid in instances:
        # Some drivers tell an instance's processes for its GPU only: then they count for every instance.
        running = processes.get(uuid, ()) + gpu.processes
        parts.append(Gpu(gpu.index, uuid, f"{gpu.name} MIG {profile}", None, None, running, number))
    return parts or [gpu]


def _parse_rows(listed: str, processes: dict[str, tuple[int, ...]]) -> Iterator[Gpu]:
    for line in listed.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) >= 5 and cells[0].isdecimal():
            uuid = cells[1] if cells[1].startswith("GPU-") else ""
            name = ", ".join(cells[2:-2])  # no other cell can have a comma
            yield Gpu(
                int(cells[0]), uuid, name, _bytes(cells[-2]), _bytes(cells[-1]), processes.get(uuid, ())
            )


def _parse_apps(apps: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for line in apps.splitlines():
        uuid, _, pid = (cell.strip() for cell in line.partition(","))
        if pid.isdecimal() and uuid.startswith(("GPU-", "MIG-")):
            found[uuid] = (*found.get(uuid, ()), int(pid))
    return found


def _parse_tree(tree: str) -> dict[str, tuple[tuple[int, str, str], ...]]:
    """For each GPU that is divided: number, profile and UUID of its instances."""
    found: dict[str, tuple[tuple[int, str, str], ...]] = {}
    parent = ""
    for line in tree.splitlines():
        if whole := re.match(r"GPU \d+: .*\(UUID: (GPU-\S+)\)", line):
            parent = whole[1]
        elif part := re.match(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-\S+)\)", line):
            found[parent] = (*found.get(parent, ()), (int(part[2]), part[1], part[3]))
    return found


def _bytes(cell: str) -> int | None:
    """A number of MiB; words in brackets, such as [N/A], tell that there is none."""
    return int(cell) * _MIB if cell.isdecimal() else None
