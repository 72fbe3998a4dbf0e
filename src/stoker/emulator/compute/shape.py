"""What an instance becomes from what was asked for: everything is checked here, and nothing done. Pure."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from stoker.emulator.compute.catalog import ATTACHED, MachineType, gpus_at, machine_type
from stoker.emulator.compute.kinds import INSTANCE, check_kinds
from stoker.emulator.compute.resources import (
    Resource,
    Shelf,
    check_name,
    fingerprint,
    last,
    new_id,
    path_of,
    region_of,
    seconds_of,
    timestamp,
)
from stoker.emulator.errors import ApiError, invalid, not_found

DAY = 86400
_LABEL = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_VALUE = re.compile(r"[-_a-z0-9]{0,63}")
_KEY = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def instance_of(body: Mapping[str, Any], zone: str, shelf: Shelf, account: str) -> Resource:
    """The instance, but for its disks. `account`: the service account that is meant by `default`."""
    check_kinds(body, INSTANCE)
    name = check_name(body.get("name"))
    kind = check_type(shelf, body.get("machineType"), zone)
    path = f"zones/{zone}/instances/{name}"
    metadata, labels = list(body.get("metadata", {}).get("items", ())), dict(body.get("labels", {}))
    check_metadata(metadata)
    check_labels(labels)
    gpus = _accelerators(shelf, body, zone, kind)
    made: Resource = {
        "kind": "compute#instance",
        "id": new_id(),
        "creationTimestamp": timestamp(time.time()),
        "name": name,
        "description": body.get("description", ""),
        "tags": _tags(body),
        "machineType": shelf.link(f"zones/{zone}/machineTypes/{kind.name}"),
        "status": "PROVISIONING",
        "zone": shelf.link(f"zones/{zone}"),
        "canIpForward": bool(body.get("canIpForward")),
        "networkInterfaces": _interfaces(body, shelf, region_of(zone)),
        "disks": [],
        "metadata": {
            "kind": "compute#metadata",
            "fingerprint": fingerprint(metadata),
            **({"items": metadata} if metadata else {}),
        },
        "selfLink": shelf.link(path),
        "scheduling": scheduling_of(body.get("scheduling", {}), bool(gpus or kind.gpu)),
        "cpuPlatform": "Unknown CPU Platform",
        "labelFingerprint": fingerprint(labels),
        "startRestricted": False,
        "deletionProtection": bool(body.get("deletionProtection")),
        "fingerprint": fingerprint([name, time.time()]),
        "lastStartTimestamp": timestamp(time.time()),
        "shieldedInstanceConfig": {
            "enableSecureBoot": False,
            "enableVtpm": True,
            "enableIntegrityMonitoring": True,
        },
    }
    accounts = accounts_of(body, account)
    return made | {
        **({"labels": labels} if labels else {}),
        **({"guestAccelerators": gpus} if gpus else {}),
        **({"serviceAccounts": accounts} if accounts else {}),
        **{key: body[key] for key in ("hostname", "minCpuPlatform", "reservationAffinity") if body.get(key)},
    }


def check_type(shelf: Shelf, link: object, zone: str) -> MachineType:
    """The machine type that a link means. Raises ApiError if the zone has none such."""
    found = machine_type(zone, last(link)) if link else None
    if found is None:
        raise invalid(
            f"Invalid value for field 'resource.machineType': '{link or ''}'. "
            f"Machine type with name '{last(link)}' does not exist in zone '{zone}'."
        )
    place = path_of(str(link)).split("/")
    if place[0] == "zones" and place[1] != zone:
        raise invalid(
            f"Invalid value for field 'resource.machineType': '{link}'. "
            f"The machine type must be in the zone of the instance, '{zone}'."
        )
    return found


def check_labels(labels: Mapping[str, Any]) -> None:
    """Raise ApiError for what is no label."""
    for key, value in labels.items():
        if not _LABEL.fullmatch(str(key)) or not _VALUE.fullmatch(str(value)):
            message = f"Label key '{key}' or value '{value}' violates format constraints."
            raise invalid(f"Invalid value for field 'resource.labels': ''. {message}")


def check_metadata(items: list[Resource]) -> None:
    """Raise ApiError for keys that are none or stand twice, and for values that are too long."""
    keys = [str(one.get("key", "")) for one in items]
    for key in keys:
        if not _KEY.fullmatch(key):
            raise invalid(f"Invalid value for field 'metadata.items[].key': '{key}'.")
    if len(set(keys)) < len(keys):
        raise invalid("Metadata has duplicate keys.")
    if any(len(str(one.get("value", ""))) > 256 << 10 for one in items):
        raise invalid(
            "Value for field 'metadata.items[].value' is too large: maximum size 262144 character(s)"
        )


# Scheduling


def scheduling_of(asked: Mapping[str, Any], has_gpus: bool) -> Resource:
    """How it is run, and for how long."""
    model = asked.get("provisioningModel") or "STANDARD"
    is_taken_away = model == "SPOT" or bool(asked.get("preemptible"))
    _check_taken_away(asked, is_taken_away)
    _check_limits(asked)
    default = "TERMINATE" if is_taken_away else "MIGRATE"
    maintenance = asked.get("onHostMaintenance") or default
    if has_gpus and maintenance != "TERMINATE":
        raise invalid("Instances with guest accelerators do not support live migration.")
    action = asked.get("instanceTerminationAction")
    made: Resource = {
        "onHostMaintenance": maintenance,
        "automaticRestart": not is_taken_away and asked.get("automaticRestart") is not False,
        "preemptible": is_taken_away,
        "provisioningModel": model,
    }
    if action or model == "SPOT" or has_limit(asked):
        made["instanceTerminationAction"] = action or "STOP"
    return made | {key: asked[key] for key in ("maxRunDuration", "terminationTime") if asked.get(key)}


def has_limit(scheduling: Mapping[str, Any]) -> bool:
    """Whether it is to end by itself."""
    return bool(scheduling.get("maxRunDuration") or scheduling.get("terminationTime"))


def _check_taken_away(asked: Mapping[str, Any], is_taken_away: bool) -> None:
    field = "Invalid value for field 'resource.scheduling"
    if is_taken_away and asked.get("automaticRestart"):
        message = "Scheduling must have preemptible be false when automaticRestart is true."
        raise invalid(f"{field}.preemptible': 'true'. {message}")
    if is_taken_away and asked.get("onHostMaintenance") == "MIGRATE":
        message = "Scheduling must have preemptible be false when OnHostMaintenance is MIGRATE."
        raise invalid(f"{field}.preemptible': 'true'. {message}")
    if asked.get("instanceTerminationAction") and not is_taken_away and not has_limit(asked):
        message = "Instance termination action can only be set for Spot VMs or VMs with a limited run time."
        raise invalid(
            f"{field}.instanceTerminationAction': '{asked['instanceTerminationAction']}'. {message}"
        )


def _check_limits(asked: Mapping[str, Any]) -> None:
    field = "Invalid value for field 'resource.scheduling"
    if asked.get("maxRunDuration") and asked.get("terminationTime"):
        raise invalid(
            f"{field}.terminationTime': ''. Only one of maxRunDuration and terminationTime can be set."
        )
    if asked.get("maxRunDuration") and not 0 < _duration(asked["maxRunDuration"]) <= 120 * DAY:
        raise invalid(f"{field}.maxRunDuration': ''. It must be between 0 and 120 days.")
    if asked.get("terminationTime") and seconds_of(asked["terminationTime"]) < time.time():
        raise invalid(f"{field}.terminationTime': '{asked['terminationTime']}'. It must be in the future.")


def _duration(asked: Mapping[str, Any]) -> float:
    return int(asked.get("seconds") or 0) + int(asked.get("nanos") or 0) / 1e9


def ends_at(scheduling: Mapping[str, Any], started: float) -> float | None:
    """The moment at which it has to end; None if there is none."""
    if scheduling.get("terminationTime"):
        return seconds_of(scheduling["terminationTime"])
    if scheduling.get("maxRunDuration"):
        return started + _duration(scheduling["maxRunDuration"])
    if scheduling.get("preemptible") and scheduling.get("provisioningModel") != "SPOT":
        return started + DAY  # preemptible VMs of the older kind live for a day
    return None


# What belongs to it


def _tags(body: Mapping[str, Any]) -> Resource:
    items = sorted(body.get("tags", {}).get("items", ()))
    return {"fingerprint": fingerprint(items), **({"items": items} if items else {})}


def _accelerators(shelf: Shelf, body: Mapping[str, Any], zone: str, kind: MachineType) -> list[Resource]:
    found = []
    for one in body.get("guestAccelerators", ()):
        gpu, count = last(one.get("acceleratorType")), int(one.get("acceleratorCount") or 0)
        path = f"zones/{zone}/acceleratorTypes/{gpu}"
        if gpu not in gpus_at(zone):
            raise not_found(shelf.full(path))
        if count:
            _check_pair(gpu, count, kind)
            found.append({"acceleratorType": shelf.link(path), "acceleratorCount": count})
    return found


def _check_pair(gpu: str, count: int, kind: MachineType) -> None:
    if (gpu, count) == (kind.gpu, kind.gpus):
        return
    if gpu not in ATTACHED or kind.family != "n1":
        message = f"[{kind.name}, {gpu}] features are not compatible for creating instance."
        raise ApiError(400, "badRequest", message)
    if count > ATTACHED[gpu] or count & (count - 1):
        raise invalid(
            f"Number of accelerator cards attached to an instance must be one of the allowed: {count}."
        )


def accounts_of(body: Mapping[str, Any], default: str) -> list[Resource]:
    """Its service accounts. `default`: the one that is meant by that word."""
    return [
        {
            "email": default if one.get("email", "default") == "default" else one["email"],
            "scopes": list(one.get("scopes", ())),
        }
        for one in body.get("serviceAccounts", ())
    ]


def _interfaces(body: Mapping[str, Any], shelf: Shelf, region: str) -> list[Resource]:
    asked = list(body.get("networkInterfaces", ()))
    if not asked:
        message = "At least one network interface is required."
        raise invalid(f"Invalid value for field 'resource.networkInterfaces': ''. {message}")
    return [_interface(one, number, shelf, region) for number, one in enumerate(asked)]


def _interface(asked: Mapping[str, Any], number: int, shelf: Shelf, region: str) -> Resource:
    network = last(asked.get("network")) or "default"
    subnetwork = last(asked.get("subnetwork")) or network
    for path, name in (
        (f"global/networks/{network}", network),
        (f"regions/{region}/subnetworks/{subnetwork}", subnetwork),
    ):
        if name != "default":
            raise not_found(shelf.full(path))
    made: Resource = {
        "kind": "compute#networkInterface",
        "network": shelf.link("global/networks/default"),
        "subnetwork": shelf.link(f"regions/{region}/subnetworks/default"),
        "name": f"nic{number}",
        "fingerprint": fingerprint([number, time.time()]),
        "stackType": asked.get("stackType") or "IPV4_ONLY",
    }
    outside = [
        {
            "kind": "compute#accessConfig",
            "type": "ONE_TO_ONE_NAT",
            "name": "External NAT",
            "networkTier": "PREMIUM",
        }
        | {key: one[key] for key in ("name", "networkTier", "type") if one.get(key)}
        for one in asked.get("accessConfigs", ())
    ]
    return made | ({"accessConfigs": outside} if outside else {})
