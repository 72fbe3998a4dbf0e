"""What is used of what is allowed, in a region and in the whole project. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from stoker.emulator.compute.catalog import QUOTA_NAMES, MachineType, machine_type
from stoker.emulator.compute.resources import Resource, last, region_of

_OWN_CPUS = ("a2", "c2", "c3", "n2", "n2d", "t2d")  # families that are counted by themselves
_COUNTED = ("PROVISIONING", "STAGING", "RUNNING", "STOPPING", "REPAIRING")

REGIONAL: Mapping[str, float] = {
    "CPUS": 4000,
    "PREEMPTIBLE_CPUS": 4000,
    **{f"{family.upper()}_CPUS": 2000 for family in _OWN_CPUS},
    **{f"NVIDIA_{name}_GPUS": 256 for name in QUOTA_NAMES.values() if name != "H100"},
    **{f"PREEMPTIBLE_NVIDIA_{name}_GPUS": 256 for name in QUOTA_NAMES.values()},
    "INSTANCES": 6000,
    "IN_USE_ADDRESSES": 6000,
    "DISKS_TOTAL_GB": 400_000,
    "SSD_TOTAL_GB": 400_000,
    "LOCAL_SSD_TOTAL_GB": 50_000,
    "INSTANCE_GROUP_MANAGERS": 1000,
    "REGIONAL_INSTANCE_GROUP_MANAGERS": 1000,
}
PROJECT: Mapping[str, float] = {
    "CPUS_ALL_REGIONS": 12_000,
    "GPUS_ALL_REGIONS": 1024,
    "IMAGES": 2000,
    "SNAPSHOTS": 5000,
    "INSTANCE_TEMPLATES": 1000,
    "NETWORKS": 50,
}


def is_spot(instance: Mapping[str, Any]) -> bool:
    """Whether it can be taken away."""
    scheduling = instance.get("scheduling", {})
    return scheduling.get("provisioningModel") == "SPOT" or bool(scheduling.get("preemptible"))


def gpus_of(instance: Mapping[str, Any], kind: MachineType | None) -> list[tuple[str, int]]:
    """The GPUs that it has, built in or attached."""
    asked = instance.get("guestAccelerators", ())
    found = [(last(one.get("acceleratorType")), int(one.get("acceleratorCount", 0))) for one in asked]
    if not found and kind is not None and kind.gpu:
        found = [(kind.gpu, kind.gpus)]
    return found


def needs(instance: Mapping[str, Any]) -> dict[str, float]:
    """What one instance takes of each quota."""
    kind = machine_type(last(instance["zone"]), last(instance["machineType"]))
    if kind is None:
        return {}
    taken: Counter[str] = Counter({"INSTANCES": 1})
    taken[_cpus(kind, is_spot(instance))] += kind.cpus
    taken["CPUS_ALL_REGIONS"] += 0 if is_spot(instance) else kind.cpus
    start = "PREEMPTIBLE_" if is_spot(instance) else ""
    for gpu, count in gpus_of(instance, kind):
        taken[f"{start}NVIDIA_{QUOTA_NAMES.get(gpu, '')}_GPUS"] += count
        taken["GPUS_ALL_REGIONS"] += count
    taken["IN_USE_ADDRESSES"] += sum(bool(one.get("accessConfigs")) for one in instance["networkInterfaces"])
    return dict(taken)


def _cpus(kind: MachineType, is_taken_away: bool) -> str:
    if is_taken_away:
        return "PREEMPTIBLE_CPUS"
    return f"{kind.family.upper()}_CPUS" if kind.family in _OWN_CPUS else "CPUS"


def used(instances: Iterable[Resource], region: str = "") -> dict[str, float]:
    """What is used, in a region or everywhere."""
    total: Counter[str] = Counter()
    for one in instances:
        if one["status"] in _COUNTED and region in ("", region_of(last(one["zone"]))):
            total.update(needs(one))
    return dict(total)


def exceeded(instance: Resource, others: Iterable[Resource]) -> tuple[str, float] | None:
    """The first quota that one instance more would break, and its limit."""
    others = list(others)
    region = used(others, region_of(last(instance["zone"])))
    project = used(others)
    for metric, amount in needs(instance).items():
        limits, usage = (PROJECT, project) if metric in PROJECT else (REGIONAL, region)
        if metric in limits and usage.get(metric, 0) + amount > limits[metric]:
            return metric, limits[metric]
    return None


def shown(limits: Mapping[str, float], usage: Mapping[str, float]) -> list[Resource]:
    """As regions and projects show it."""
    return [
        {"metric": metric, "limit": limit, "usage": usage.get(metric, 0)} for metric, limit in limits.items()
    ]
