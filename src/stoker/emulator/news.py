"""What happened to VMs between two looks at them, in words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_WORDS = {"RUNNING": "runs", "STOPPING": "shuts down", "TERMINATED": "has ended", "SUSPENDED": "is suspended"}

Resource = Mapping[str, Any]


@dataclass(frozen=True)
class Look:
    """What there is, by ids: a name may come again."""

    vms: Mapping[str, Resource]
    operations: Mapping[str, Resource]


def look(instances: Iterable[Resource], operations: Iterable[Resource]) -> Look:
    """What has to be remembered of them."""
    return Look({str(one["id"]): one for one in instances}, {str(one["id"]): one for one in operations})


def news(before: Look, after: Look) -> Iterator[str]:
    """A line for each thing that happened. What was and passed between two looks may be missing."""
    for id_, vm in after.vms.items():
        if id_ not in before.vms:
            spot = ", spot" if vm.get("scheduling", {}).get("provisioningModel") == "SPOT" else ""
            yield f"{vm['name']} is created: {_last(vm['machineType'])}{spot}, {_last(vm['zone'])}"
    for id_, operation in after.operations.items():
        yield from _of_operation(before.operations.get(id_), operation)
    for id_, vm in before.vms.items():
        if id_ not in after.vms:
            yield f"{vm['name']} is deleted"
    for id_, vm in after.vms.items():
        if vm["status"] in _WORDS and vm["status"] != before.vms.get(id_, {}).get("status"):
            yield f"{vm['name']} {_WORDS[vm['status']]}"


def _of_operation(old: Resource | None, new: Resource) -> Iterator[str]:
    kind, name = new["operationType"], _last(new["targetLink"])
    if old is None and kind == "compute.instances.preempted":
        yield f"{name} is preempted"
    if "error" in new and "error" not in (old or {}):
        codes = ", ".join(str(one["code"]) for one in new["error"]["errors"])
        yield f"{name}: {kind} failed: {codes}"


def _last(path: object) -> str:
    return str(path).rpartition("/")[2]
