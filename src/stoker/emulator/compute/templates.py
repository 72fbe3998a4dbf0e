"""Instance templates: what the instances of a group are made from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from stoker.emulator.compute.catalog import REGIONS, TYPES, custom
from stoker.emulator.compute.kinds import INSTANCE, check_kinds
from stoker.emulator.compute.listing import aggregated, listed
from stoker.emulator.compute.resources import (
    Resource,
    check_name,
    fingerprint,
    last,
    new_id,
    shown,
    timestamp,
)
from stoker.emulator.compute.routes import Call, Route
from stoker.emulator.compute.shape import accounts_of, check_labels, check_metadata, scheduling_of
from stoker.emulator.compute.world import World
from stoker.emulator.errors import ApiError, invalid


class Templates:
    """The calls on templates, of the whole project or of a region."""

    def __init__(self, world: World) -> None:
        self._world, self._shelf = world, world.shelf

    def routes(self) -> list[Route]:
        """All calls."""
        found: list[Route] = [
            ("GET", "aggregated/instanceTemplates", "compute.instanceTemplates.list", self.list_everywhere)
        ]
        for all_ in ("global/instanceTemplates", "regions/{region}/instanceTemplates"):
            found += [
                ("GET", all_, "compute.instanceTemplates.list", self.list_),
                ("POST", all_, "compute.instanceTemplates.create", self.insert),
                ("GET", f"{all_}/{{name}}", "compute.instanceTemplates.get", self.get),
                ("DELETE", f"{all_}/{{name}}", "compute.instanceTemplates.delete", self.delete),
            ]
        return found

    def get(self, call: Call) -> Resource:
        """One of them."""
        return shown(self._shelf.get(call.target))

    def list_(self, call: Call) -> Resource:
        """Those of one place."""
        path = f"projects/{self._world.project}/{call.collection}"
        return listed(self._shelf.all(call.collection), call.query, "instanceTemplateList", path)

    def list_everywhere(self, call: Call) -> Resource:
        """Those of all places."""
        names = ["global", *(f"regions/{region}" for region in REGIONS)]
        scopes = {name: self._shelf.all(f"{name}/instanceTemplates") for name in names}
        path = f"projects/{self._world.project}/aggregated/instanceTemplates"
        return aggregated(scopes, call.query, "instanceTemplateAggregatedList", path)

    def insert(self, call: Call) -> Resource:
        """Make one. What only a zone can tell is found out when an instance is made."""
        name = check_name(call.body.get("name"))
        self._check_accounts(call)
        path = f"{call.collection}/{name}"
        made: Resource = {
            "kind": "compute#instanceTemplate",
            "id": new_id(),
            "creationTimestamp": timestamp(time.time()),
            "name": name,
            "description": call.body.get("description", ""),
            "properties": _properties(call.body.get("properties", {})),
            "selfLink": self._shelf.link(path),
        }
        if call.scope != "global":
            made["region"] = self._shelf.link(call.scope)
        self._shelf.put(path, made)
        self._world.changed()
        return shown(self._world.operations.done(call.scope, "insert", path, call.user, made["id"]))

    def _check_accounts(self, call: Call) -> None:
        """Raise ApiError unless the caller may use the accounts that its VMs would have."""
        check_kinds({"properties": call.body.get("properties", {})}, {"properties": INSTANCE})
        identity = self._world.around.identity
        for one in accounts_of(call.body.get("properties", {}), identity.default_account):
            identity.require(call.caller, "iam.serviceAccounts.actAs", one["email"])

    def delete(self, call: Call) -> Resource:
        """Unless a group uses it."""
        found = self._shelf.get(call.target)
        for path, group in self._shelf.everywhere("instanceGroupManagers"):
            if group["instanceTemplate"] == found["selfLink"]:
                what = (
                    f"The instance_template resource '{self._shelf.full(call.target)}' is already being used"
                )
                message = f"{what} by '{self._shelf.full(path)}'"
                raise ApiError(400, "resourceInUseByAnotherResource", message)
        self._shelf.remove(call.target)
        self._world.changed()
        return shown(self._world.operations.done(call.scope, "delete", call.target, call.user, found["id"]))


def _properties(asked: Mapping[str, Any]) -> Resource:
    """Checked, and with what others expect to read."""
    kind = str(asked.get("machineType") or "")
    if "/" in kind or (kind not in TYPES and custom(kind) is None):
        message = "The machine type must be a name without a zone, and known."
        raise invalid(f"Invalid value for field 'resource.properties.machineType': '{kind}'. {message}")
    for field in ("disks", "networkInterfaces"):
        if not asked.get(field):
            raise invalid(
                f"Invalid value for field 'resource.properties.{field}': ''. At least one is required."
            )
    metadata = list(asked.get("metadata", {}).get("items", ()))
    check_metadata(metadata)
    check_labels(asked.get("labels", {}))
    has_gpus = bool(asked.get("guestAccelerators")) or bool(kind in TYPES and TYPES[kind].gpu)
    told = {"kind": "compute#metadata", "fingerprint": fingerprint(metadata)}
    gpus = [
        {**one, "acceleratorType": last(one.get("acceleratorType"))}
        for one in asked.get("guestAccelerators", ())
    ]
    return {
        **asked,
        "scheduling": scheduling_of(asked.get("scheduling", {}), has_gpus),
        "metadata": told | ({"items": metadata} if metadata else {}),
        **({"guestAccelerators": gpus} if gpus else {}),
    }
