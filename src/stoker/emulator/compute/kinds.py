"""Of which kind the values in a request's body have to be. What is not named here is not looked at."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stoker.emulator.errors import invalid

_NUMBER = re.compile(r"-?[0-9]{1,18}")  # numbers of 64 bits are sent as text

METADATA = {"items": [{"key": str, "value": str}]}
LABELS = {"": str}  # whatever the keys
TAGS = {"items": [str]}
SCHEDULING = {
    "provisioningModel": str,
    "onHostMaintenance": str,
    "instanceTerminationAction": str,
    "terminationTime": str,
    "maxRunDuration": {"seconds": int, "nanos": int},
}
INSTANCE = {
    "description": str,
    "machineType": str,
    "metadata": METADATA,
    "labels": LABELS,
    "tags": TAGS,
    "scheduling": SCHEDULING,
    "disks": [
        {
            "source": str,
            "deviceName": str,
            "diskSizeGb": int,
            "initializeParams": {
                "diskName": str,
                "diskType": str,
                "diskSizeGb": int,
                "sourceImage": str,
                "sourceSnapshot": str,
                "labels": LABELS,
            },
        }
    ],
    "networkInterfaces": [{"network": str, "subnetwork": str, "accessConfigs": [{"name": str}]}],
    "serviceAccounts": [{"email": str, "scopes": [str]}],
    "guestAccelerators": [{"acceleratorType": str, "acceleratorCount": int}],
}


def check_kinds(value: Any, kind: Any, field: str = "resource") -> None:
    """Raise ApiError for the first value that is of another kind."""
    if isinstance(kind, dict):
        _check_kind(value, Mapping, field)
        for key, one in value.items():
            inner = kind.get(key, kind.get(""))
            if inner is not None:
                check_kinds(one, inner, f"{field}.{key}")
    elif isinstance(kind, list):
        _check_kind(value, list, field)
        for number, one in enumerate(value):
            check_kinds(one, kind[0], f"{field}[{number}]")
    elif kind is not int or not (isinstance(value, str) and _NUMBER.fullmatch(value)):
        _check_kind(value, kind, field)


def _check_kind(value: object, kind: Any, field: str) -> None:
    if not isinstance(value, kind):
        raise invalid(f"Invalid value for field '{field}': '{value}'. It is of the wrong type.")
