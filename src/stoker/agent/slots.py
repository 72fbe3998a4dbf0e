"""Which slots this machine has: what is asked for and what is there, made into a plan.

How an agent uses it: plan, lock the identities of each slot (`locks`), run on those it got, show the others
with who holds them, and plan again now and then while some are missing. Numbers stay the same from plan to
plan as long as the machine and the study file do.

GPU indices mean the machine's, in the order of the PCI bus, as `nvidia-smi` shows them. If the agent was
itself started with CUDA_VISIBLE_DEVICES they count within that list, from 0, as they do for every CUDA
program started so. A scheduler that allots GPUs by this variable is thereby obeyed, and a study file that
says `resource: [0, 1]` runs in any allotment of two.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from stoker import manager
from stoker.agent.gpus import Gpu
from stoker.agent.locks import MOST_SHARES
from stoker.core.errors import UsageError

MOST_CPU_SLOTS = 8
"""Trials on a CPU mostly run out of memory before they run out of cores, and nobody asked for so many."""

_FOLLOW_OMP = ("MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
_THREADS = (
    "OMP_NUM_THREADS",
    *_FOLLOW_OMP,
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
    "TF_NUM_INTRAOP_THREADS",
)
_UNBUFFERED = ("PYTHONUNBUFFERED", "1")  # what a Python script prints is in its log at once
_NO_GPU = ("", "-1")
_MIB = 1024 * 1024


@dataclass(frozen=True)
class Slot:
    """A share of this machine, for one trial at a time."""

    number: int
    label: str  # "gpu 0", "gpus 2,3", "cpu 1"; a second slot on the same GPUs is "gpu 0 (2)"
    devices: str  # CUDA_VISIBLE_DEVICES; "" without GPUs
    identities: tuple[str, ...]  # what to lock; `#1` at the end is the second share of the same GPU
    environment: Mapping[str, str]  # must be set for whatever runs here
    defaults: Mapping[str, str]  # is set unless the user did


@dataclass(frozen=True)
class Busy:
    """A GPU that would be a slot, but others use it."""

    label: str
    identity: str
    reason: str


@dataclass(frozen=True)
class SlotPlan:
    """The slots that can be taken now, and what to tell the user about the others.

    There are no slots if and only if all GPUs are busy: then it is time to wait, not to train on the CPU.
    """

    slots: tuple[Slot, ...]
    busy: tuple[Busy, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Device:
    value: str  # as CUDA_VISIBLE_DEVICES takes it
    name: str
    identity: str
    gpu: Gpu | None = None


def plan_slots(
    resource: tuple[str, ...] | None,
    gpus: tuple[Gpu, ...] | None,
    inherited: str | None,
    cores: int,
    others: frozenset[str] = frozenset(),
) -> SlotPlan:
    """The slots that `resource` asks for; None is auto.

    `gpus` is None if they cannot be read, `inherited` the agent's own CUDA_VISIBLE_DEVICES, and `others` what
    `used_by_others` tells. Raises UsageError if what is asked for is not there.

    A list gives its slots, one for each entry, on GPUs that others use too: who names a GPU means it. Auto
    gives one slot for each visible GPU that is free. Without GPUs it gives one for every two cores.
    """
    visible = _visible(gpus, inherited)
    if resource is not None:
        chosen = [_resolve(entry, gpus, inherited, visible) for entry in resource]
        notes = (*_missing(resource, gpus), *_remarks(chosen, others))
        return SlotPlan(_slots(resource, chosen, cores), notes=notes)
    if visible:
        slots = _slots([device.value for device in visible], [[device] for device in visible], cores)
        return _without_busy(slots, visible, others)
    if gpus is None and inherited is None:
        raise UsageError(
            "resource: auto: this machine has GPUs, but the driver does not tell which; "
            'name them (resource: [0, 1]), or say that none shall be used (resource: [""])'
        )
    hidden = f"CUDA_VISIBLE_DEVICES={inherited} leaves no GPU to use: the slots are shares of the CPU"
    return SlotPlan(_cpu_slots(cores), notes=() if gpus == () else (hidden,))


def used_by_others(gpus: Iterable[Gpu], held: frozenset[str] = frozenset()) -> frozenset[str]:
    """Identities of the GPUs that somebody computes on. What runs on those that we hold is ours.

    Processes are not compared with our own: inside a container their ids are the host's.
    """
    return frozenset(identity(gpu) for gpu in gpus if _in_use(gpu)) - held


def identity(gpu: Gpu) -> str:
    """What the GPU is called wherever it is locked; the same for all users and containers of a host."""
    return gpu.uuid or _by_index(gpu.index)


def child_environment(slot: Slot, inherited: Mapping[str, str], study: Mapping[str, str]) -> dict[str, str]:
    """All variables of a process in this slot.

    The user's words, of the study file before those of the shell, go before our defaults, but not before the
    slot's GPUs, which are locked. MKL and others follow OMP_NUM_THREADS by themselves, so who sets that one
    has set them all.
    """
    users = {**inherited, **study}
    given = {*users, *(_FOLLOW_OMP if "OMP_NUM_THREADS" in users else ())}
    defaults = {name: value for name, value in (*slot.defaults.items(), _UNBUFFERED) if name not in given}
    return {**defaults, **users, **slot.environment}


def with_manager(environment: Mapping[str, str]) -> dict[str, str]:
    """With the package and the command `stoker` on the paths, whatever else is there."""
    return {
        **environment,
        "PATH": os.pathsep.join(filter(None, (environment.get("PATH"), manager.BIN))),
        "PYTHONPATH": os.pathsep.join(filter(None, (manager.PATH, environment.get("PYTHONPATH")))),
        "STOKER_PYTHON": sys.executable,
    }


# What is visible, and what is meant


def _visible(gpus: tuple[Gpu, ...] | None, inherited: str | None) -> list[_Device]:
    """The GPUs that CUDA would show to this process, in its order. Like CUDA, stops at what is no GPU.

    If the GPUs cannot be read, the inherited list is taken at its word: a scheduler wrote it. Its spelling is
    kept, since a daemon such as MPS may take only that one.
    """
    if inherited is None:
        divided = any(gpu.instance is not None for gpu in gpus or ())
        return [_known(gpu, by_uuid=divided) for gpu in gpus or ()]
    found: dict[str, _Device] = {}
    for entry in inherited.replace(" ", "").split(","):
        device = _find(entry, gpus) if gpus is not None else _unread(entry)
        if device is None:
            break
        found.setdefault(device.identity, replace(device, value=entry))
    return list(found.values())


def _find(entry: str, gpus: Iterable[Gpu]) -> _Device | None:
    """The GPU by its index or the beginning of its UUID; a divided one by its index is its first instance."""
    for gpu in gpus:
        if entry == str(gpu.index) or (entry.startswith(("GPU-", "MIG-")) and gpu.uuid.startswith(entry)):
            return _known(gpu)
    return None


def _known(gpu: Gpu, by_uuid: bool = False) -> _Device:
    # Scripts that read the variable themselves expect indices. But instances have none, and beside them
    # CUDA does not count the other GPUs as NVML does.
    whole = gpu.instance is None
    value = gpu.uuid if gpu.uuid and (by_uuid or not whole) else str(gpu.index)
    return _Device(value, str(gpu.index) if whole else f"{gpu.index}:{gpu.instance}", identity(gpu), gpu)


def _unread(entry: str) -> _Device | None:
    if entry.isdecimal():
        return _Device(entry, entry, _by_index(int(entry)))
    return _Device(entry, entry[:12], entry) if entry.startswith(("GPU-", "MIG-")) else None


def _by_index(index: int) -> str:
    return f"gpu-index:{index}"


def _resolve(
    entry: str, gpus: tuple[Gpu, ...] | None, inherited: str | None, visible: list[_Device]
) -> list[_Device]:
    """The GPUs that an entry of `resource` means."""
    if entry in _NO_GPU:
        return []
    return [_meant(word, gpus, inherited, visible) for word in entry.split(",")]


def _meant(word: str, gpus: tuple[Gpu, ...] | None, inherited: str | None, visible: list[_Device]) -> _Device:
    device: _Device | None
    if gpus == () or (gpus is None and (inherited is None or not word.isdecimal())):
        device = _unread(word)  # nothing to compare it with
    elif inherited is not None and word.isdecimal():
        device = visible[int(word)] if int(word) < len(visible) else None
    else:
        device = _find(word, [each.gpu for each in visible if each.gpu is not None])
    if device is None:
        raise UsageError(_not_there(word, inherited, visible))
    return device


def _not_there(word: str, inherited: str | None, visible: list[_Device]) -> str:
    if inherited is None:
        names = ", ".join(device.value for device in visible)
        told = f"resource {word}: this machine has no such GPU; it has {names}"
        return f"{told} ({word} is a number, not how many; auto is all of them)" if word.isdecimal() else told
    what = f"resource {word}: not among the GPUs that CUDA_VISIBLE_DEVICES={inherited} shows"
    if not visible:
        return f"{what}, which are none; unset the variable to use the machine's"
    counted = "0" if len(visible) == 1 else f"0 to {len(visible) - 1}"
    return f"{what}; say {counted}, counted within that list, or unset the variable to count the machine's"


# What others use


def _in_use(gpu: Gpu) -> bool:
    """Whether somebody computes on it.

    Where processes cannot be seen, as in containers, memory tells. A desktop's share of it does not count: up
    to a twentieth, within 512 MB and 1 GB.
    """
    allowed = min(max(512 * _MIB, (gpu.memory_total or 0) // 20), 1024 * _MIB)
    return bool(gpu.processes) or (gpu.memory_used or 0) > allowed


def _without_busy(slots: Sequence[Slot], devices: Sequence[_Device], others: frozenset[str]) -> SlotPlan:
    pairs = list(zip(slots, devices, strict=True))
    free = tuple(slot for slot, device in pairs if device.identity not in others)
    busy = tuple(
        Busy(slot.label, device.identity, _usage(device.gpu))
        for slot, device in pairs
        if device.identity in others
    )
    return SlotPlan(free, busy)


def _usage(gpu: Gpu | None) -> str:
    parts = []
    if gpu and gpu.memory_used:
        parts.append(f"{gpu.memory_used / 1e9:.1f} GB in use")
    if gpu and gpu.processes:
        some = ", ".join(map(str, gpu.processes[:3])) + ", …" * (len(gpu.processes) > 3)
        parts.append(f"process{'es' * (len(gpu.processes) > 1)} {some}")
    return ", ".join(parts) or "in use"


def _missing(resource: Sequence[str], gpus: tuple[Gpu, ...] | None) -> Iterator[str]:
    """Slots that name GPUs where there are none. `resource: 4` is often meant as four of them."""
    named = [entry for entry in resource if entry not in _NO_GPU]
    if gpus != () or not named:
        return
    if len(resource) == 1 and resource[0].isdecimal() and int(resource[0]) > 1:
        only = f"`resource: {resource[0]}` is one slot, on the GPU of that number"
        yield f"no GPU is found here, and {only}; two slots without a GPU are resource: ['', '']"
    else:
        yield "no GPU is found here; the slots are those of `resource` all the same"


def _remarks(chosen: Iterable[Sequence[_Device]], others: frozenset[str]) -> Iterator[str]:
    devices = {device.identity: device for each in chosen for device in each}
    for device in devices.values():
        if device.identity in others:
            yield f"gpu {device.name}: others use it too ({_usage(device.gpu)})"


# Slots


def _slots(entries: Sequence[str], chosen: Sequence[Sequence[_Device]], cores: int) -> tuple[Slot, ...]:
    """A slot for each entry. Threads are shared out by GPU, since a trial on two has a process for each."""
    processes = sum(max(1, len(devices)) for devices in chosen)
    # Alone on the machine a trial finds what it would if started by hand.
    defaults = _threads(cores // processes) if len(chosen) > 1 else {}
    seen: Counter[str] = Counter()
    slots = []
    for number, (entry, devices) in enumerate(zip(entries, chosen, strict=True)):
        value = ",".join(device.value for device in devices) or entry
        identities = tuple(_share(device.identity, seen[device.identity]) for device in devices)
        seen.update(device.identity for device in devices)
        if any(seen[device.identity] > MOST_SHARES for device in devices):
            raise UsageError(f"resource {entry}: one GPU can have {MOST_SHARES} slots at most")
        label = _label(number, devices, seen)
        environment = {"CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        slots.append(Slot(number, label, value if devices else "", identities, environment, defaults))
    return tuple(slots)


def _share(name: str, earlier: int) -> str:
    return f"{name}#{earlier}" if earlier else name


def _label(number: int, devices: Sequence[_Device], seen: Mapping[str, int]) -> str:
    if not devices:
        return f"cpu {number}"
    turn = max(seen[device.identity] for device in devices)
    names = ",".join(device.name for device in devices)
    return f"gpu{'s' * (len(devices) > 1)} {names}{f' ({turn})' * (turn > 1)}"


def _cpu_slots(cores: int) -> tuple[Slot, ...]:
    """Two cores each, one to compute and one for the rest of a program; more where there are many."""
    count = min(max(1, cores // 2), MOST_CPU_SLOTS)
    threads = _threads(cores // count)
    return tuple(Slot(number, f"cpu {number}", "", (), {}, threads) for number in range(count))


def _threads(share: int) -> dict[str, str]:
    return dict.fromkeys(_THREADS, str(max(1, share)))


# The cores of this machine


def usable_cores(root: Path = Path("/")) -> int:
    """How many cores this process may use: those it is bound to, within the quota of its control groups.

    Slurm need not bind a job to the cores that it gave it; but it tells how many they are.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    given = os.environ.get("SLURM_CPUS_ON_NODE", "")
    allotted = [int(given)] if given.isdecimal() and "SLURM_JOB_ID" in os.environ else []
    return max(1, min([bound, *allotted, *(int(quota) for quota in _quotas(root))]))


def _quotas(root: Path) -> Iterator[float]:
    """The quotas, in cores, of this process's control groups and of those around them."""
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        mount = root / "sys/fs/cgroup" / ("cpu" if controllers else "")
        # In a container the place may be told as the host sees it; the mount then is the group itself.
        inner = mount / place.lstrip("/")
        for group in (inner, *inner.parents):
            if not group.is_relative_to(mount):
                break
            yield from _quota(_read(group / "cpu.max") or _old_quota(group))


def _old_quota(group: Path) -> str:
    quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    return f"{quota} {period}" if quota and period else ""


def _quota(text: str) -> Iterator[float]:
    """From `quota period`, both in microseconds; the quota is `max` or -1 if there is none."""
    words = text.split()
    if len(words) == 2 and words[0].isdecimal() and words[1].isdecimal() and int(words[1]):
        yield int(words[0]) / int(words[1])


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
