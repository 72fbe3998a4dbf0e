"""What a VM reads about itself from its metadata server. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stoker.emulator.compute.resources import Resource, last


def tree(instance: Mapping[str, Any], common: Iterable[Resource], project: str, number: str) -> Resource:
    """`instance/…` and `project/…` of the metadata server."""
    start = f"projects/{number}"
    scheduling = instance["scheduling"]
    host = f"{instance['name']}.{last(instance['zone'])}.c.{project}.internal"
    return {
        "instance": {
            "attributes": attributes(instance["metadata"].get("items", ())),
            "cpu-platform": instance["cpuPlatform"],
            "description": instance["description"],
            "disks": [_disk(one) for one in instance["disks"]],
            "guest-attributes": instance.get("_guest", {}),
            "hostname": instance.get("hostname") or host,
            "id": int(instance["id"]),
            "image": instance.get("_image", ""),
            "machine-type": f"{start}/machineTypes/{last(instance['machineType'])}",
            "maintenance-event": instance.get("_maintenance", "NONE"),
            "name": instance["name"],
            "network-interfaces": [_interface(one, start) for one in instance["networkInterfaces"]],
            "preempted": _word(bool(instance.get("_preempted"))),
            "scheduling": {
                "automatic-restart": _word(scheduling["automaticRestart"]),
                "on-host-maintenance": scheduling["onHostMaintenance"],
                "preemptible": _word(scheduling["preemptible"]),
            },
            "service-accounts": _accounts(instance),
            "tags": instance["tags"].get("items", []),
            "zone": f"{start}/zones/{last(instance['zone'])}",
        },
        "project": {
            "attributes": attributes(common),
            "numeric-project-id": int(number),
            "project-id": project,
        },
    }


def attributes(items: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Metadata by key."""
    return {str(one["key"]): str(one.get("value", "")) for one in items}


def _word(is_so: bool) -> str:
    return str(is_so).upper()


def _disk(disk: Mapping[str, Any]) -> Resource:
    return {
        "device-name": disk["deviceName"],
        "index": disk["index"],
        "interface": disk["interface"],
        "mode": disk["mode"],
        "type": "PERSISTENT-BALANCED" if disk["type"] == "PERSISTENT" else "LOCAL-SSD",
    }


def _interface(one: Mapping[str, Any], start: str) -> Resource:
    outside = [
        {"external-ip": config.get("natIP", ""), "type": "ONE_TO_ONE_NAT"}
        for config in one.get("accessConfigs", ())
    ]
    return {
        "access-configs": outside,
        "ip": one.get("networkIP", ""),
        "network": f"{start}/networks/{last(one['network'])}",
    }


def _accounts(instance: Mapping[str, Any]) -> Resource:
    found: Resource = {}
    for one in instance.get("serviceAccounts", ())[:1]:
        told = {"aliases": ["default"], "email": one["email"], "scopes": one["scopes"]}
        found = {"default": told, one["email"]: told}
    return found


def authorized_keys(*sources: Iterable[Mapping[str, Any]]) -> str:
    """The keys of `ssh-keys`, without the names of their users."""
    lines = [line for items in sources for line in attributes(items).get("ssh-keys", "").splitlines()]
    return "".join(line.partition(":")[2].strip() + "\n" for line in lines if ":" in line)
