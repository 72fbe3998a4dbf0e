"""Whether there is room for a VM: by the faults that were asked for, and by the quotas."""

from __future__ import annotations

from stoker.emulator.compute.operations import Problem
from stoker.emulator.compute.quotas import REGIONAL, exceeded, gpus_of, is_spot
from stoker.emulator.compute.resources import Resource, last, region_of
from stoker.emulator.compute.world import World

_LINK = "https://cloud.google.com/compute/docs/resource-error"


def shortage(world: World, instance: Resource) -> Problem | None:
    """Why it cannot be started now; None if it can."""
    zone, name = last(instance["zone"]), instance["name"]
    around = world.around
    fault = around.faults.of_vm(("exhausted", "quota"), zone, name, around.now())
    if fault is not None and fault.kind == "exhausted":
        return exhausted(world.project, instance)
    others = [one for one in world.instances() if one is not instance]
    broken = exceeded(instance, others)
    if fault is not None:
        metric = "PREEMPTIBLE_CPUS" if is_spot(instance) else "CPUS"
        broken = metric, REGIONAL[metric]
    return None if broken is None else over_quota(region_of(zone), *broken)


def exhausted(project: str, instance: Resource) -> Problem:
    """The zone has no such machine left."""
    zone, kind = last(instance["zone"]), last(instance["machineType"])
    gpus = ",".join(f"{gpu}:{count}" for gpu, count in gpus_of(instance, None))
    message = (
        f"The zone 'projects/{project}/zones/{zone}' does not have enough resources available to fulfill the "
        "request.  Try a different zone, or try again later."
    )
    local = (
        f"A {kind} VM instance is currently unavailable in the {zone} zone. Alternatively, you can try "
        "your request again with a different VM hardware configuration or at a later time."
    )
    info = {
        "reason": "resource_availability",
        "domain": "compute.googleapis.com",
        "metadatas": {"vmType": kind, "attachment": gpus, "zone": zone, "zonesAvailable": ""},
    }
    links = [{"description": "Troubleshooting documentation", "url": _LINK}]
    details: list[Resource] = [
        {"help": {"links": links}},
        {"localizedMessage": {"locale": "en-US", "message": local}},
        {"errorInfo": info},
    ]
    return "ZONE_RESOURCE_POOL_EXHAUSTED", 503, message, details


def over_quota(region: str, metric: str, limit: float) -> Problem:
    """The project may have no more of it."""
    info = {
        "metricName": f"compute.googleapis.com/{metric.lower()}",
        "limitName": f"{metric.replace('_', '-')}-per-project-region",
        "dimensions": {"region": region},
        "limit": limit,
    }
    message = f"Quota '{metric}' exceeded.  Limit: {limit:.1f} in region {region}."
    return "QUOTA_EXCEEDED", 403, message, [{"quotaInfo": info}]
