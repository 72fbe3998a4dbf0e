"""Disks and snapshots. What is on them is not copied: a VM's files lie in a place of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from stoker.emulator.compute.catalog import DISK_TYPES, ZONES
from stoker.emulator.compute.images import find_image, set_labels
from stoker.emulator.compute.listing import aggregated, listed
from stoker.emulator.compute.resources import (
    Resource,
    Shelf,
    check_name,
    fingerprint,
    last,
    new_id,
    path_of,
    shown,
    timestamp,
)
from stoker.emulator.compute.routes import Call, Route
from stoker.emulator.compute.world import World
from stoker.emulator.errors import ApiError, invalid, not_found


def new_disk(shelf: Shelf, zone: str, name: str, params: Mapping[str, Any], field: str) -> Resource:
    """A disk as JSON; it lies nowhere yet. `field` is where the request speaks of it."""
    kind = last(params.get("diskType") or params.get("type") or "pd-standard")
    if kind not in DISK_TYPES:
        raise not_found(shelf.full(f"zones/{zone}/diskTypes/{kind}"))
    least, source = _source(shelf, params, field)
    size = int(params.get("diskSizeGb") or params.get("sizeGb") or least or DISK_TYPES[kind][1])
    if size < least:
        message = f"Requested disk size cannot be smaller than the image size ({least} GB)"
        raise invalid(f"Invalid value for field '{field}.diskSizeGb': '{size}'. {message}")
    labels = dict(params.get("labels", {}))
    made = {
        "kind": "compute#disk",
        "id": new_id(),
        "creationTimestamp": timestamp(time.time()),
        "name": check_name(name),
        "sizeGb": str(size),
        "zone": shelf.link(f"zones/{zone}"),
        "status": "READY",
        **source,
        "selfLink": shelf.link(f"zones/{zone}/disks/{name}"),
        "type": shelf.link(f"zones/{zone}/diskTypes/{kind}"),
        "labelFingerprint": fingerprint(labels),
        "physicalBlockSizeBytes": "4096",
    }
    return made | ({"labels": labels} if labels else {})


def _source(shelf: Shelf, params: Mapping[str, Any], field: str) -> tuple[int, Resource]:
    """How large it must be at least, and where it comes from."""
    if params.get("sourceSnapshot"):
        found = shelf.get(path_of(params["sourceSnapshot"]))
        source = {"sourceSnapshot": found["selfLink"], "sourceSnapshotId": found["id"]}
        return int(found["diskSizeGb"]), source
    link = params.get("sourceImage")
    if not link:
        return 0, {}
    image = find_image(shelf, link)
    if image is None:
        raise invalid(
            f"Invalid value for field '{field}.sourceImage': '{link}'. "
            "The referenced image resource cannot be found."
        )
    return int(image["diskSizeGb"]), {"sourceImage": image["selfLink"], "sourceImageId": image["id"]}


class Disks:
    """The calls on disks and snapshots."""

    def __init__(self, world: World) -> None:
        self._world, self._shelf = world, world.shelf

    def routes(self) -> list[Route]:
        """All calls."""
        all_, one, snapshots = "zones/{zone}/disks", "zones/{zone}/disks/{name}", "global/snapshots"
        return [
            ("GET", "aggregated/disks", "compute.disks.list", self.list_everywhere),
            ("GET", all_, "compute.disks.list", self.list_),
            ("POST", all_, "compute.disks.create", self.insert),
            ("GET", one, "compute.disks.get", self.get),
            ("DELETE", one, "compute.disks.delete", self.delete),
            ("POST", f"{one}/resize", "compute.disks.update", self.resize),
            ("POST", f"{one}/setLabels", "compute.disks.setLabels", self.set_labels),
            ("POST", f"{one}/createSnapshot", "compute.disks.createSnapshot", self.create_snapshot),
            ("GET", snapshots, "compute.snapshots.list", self.list_snapshots),
            ("POST", snapshots, "compute.snapshots.create", self.insert_snapshot),
            ("GET", f"{snapshots}/{{name}}", "compute.snapshots.get", self.get),
            ("DELETE", f"{snapshots}/{{name}}", "compute.snapshots.delete", self.delete),
            ("POST", f"{snapshots}/{{name}}/setLabels", "compute.snapshots.setLabels", self.set_labels),
        ]

    def get(self, call: Call) -> Resource:
        """One of them."""
        return shown(self._shelf.get(call.target))

    def list_(self, call: Call) -> Resource:
        """Those of one zone."""
        path = f"projects/{self._shelf.project}/{call.collection}"
        return listed(self._shelf.all(call.collection), call.query, "diskList", path)

    def list_everywhere(self, call: Call) -> Resource:
        """Those of all zones."""
        scopes = {f"zones/{zone}": self._shelf.all(f"zones/{zone}/disks") for zone in ZONES}
        path = f"projects/{self._shelf.project}/aggregated/disks"
        return aggregated(scopes, call.query, "diskAggregatedList", path)

    def list_snapshots(self, call: Call) -> Resource:
        """All snapshots."""
        path = f"projects/{self._shelf.project}/global/snapshots"
        return listed(self._shelf.all("global/snapshots"), call.query, "snapshotList", path)

    def insert(self, call: Call) -> Resource:
        """Make one."""
        body = {**call.body}
        if call.query.get("sourceImage"):
            body["sourceImage"] = call.query["sourceImage"]
        zone, name = call.names["zone"], check_name(body.get("name"))
        made = self._shelf.put(
            f"zones/{zone}/disks/{name}", new_disk(self._shelf, zone, name, body, "resource")
        )
        return self._over(call, "insert", f"zones/{zone}/disks/{name}", made["id"])

    def delete(self, call: Call) -> Resource:
        """Unless a VM has it."""
        found = self._shelf.get(call.target)
        if found.get("users"):
            user = path_of(found["users"][0])
            what = f"The disk resource '{self._shelf.full(call.target)}' is already being used"
            raise ApiError(400, "resourceInUseByAnotherResource", f"{what} by '{self._shelf.full(user)}'")
        self._shelf.remove(call.target)
        return self._over(call, "delete", call.target, found["id"])

    def resize(self, call: Call) -> Resource:
        """They only grow."""
        found, size = self._shelf.get(call.target), int(call.body.get("sizeGb") or 0)
        if size <= int(found["sizeGb"]):
            message = f"New disk size '{size}' must be larger than existing size '{found['sizeGb']}'."
            raise invalid(f"Invalid value for field 'sizeGb': '{size}'. {message}")
        found["sizeGb"] = str(size)
        return self._over(call, "resizeDisk", call.target, found["id"])

    def set_labels(self, call: Call) -> Resource:
        """All labels anew."""
        found = self._shelf.get(call.target)
        set_labels(found, call.body)
        return self._over(call, "setLabels", call.target, found["id"])

    def create_snapshot(self, call: Call) -> Resource:
        """Of this disk."""
        return self._snapshot(call, call.target, "createSnapshot")

    def insert_snapshot(self, call: Call) -> Resource:
        """Of the disk that it names."""
        return self._snapshot(call, path_of(call.body.get("sourceDisk", "")), "insert")

    def _snapshot(self, call: Call, source: str, kind: str) -> Resource:
        disk, name = self._shelf.get(source), check_name(call.body.get("name"))
        labels = dict(call.body.get("labels", {}))
        made = {
            "kind": "compute#snapshot",
            "id": new_id(),
            "creationTimestamp": timestamp(time.time()),
            "name": name,
            "description": call.body.get("description", ""),
            "status": "READY",
            "sourceDisk": disk["selfLink"],
            "sourceDiskId": disk["id"],
            "diskSizeGb": disk["sizeGb"],
            "storageBytes": "0",
            "storageBytesStatus": "UP_TO_DATE",
            "labels": labels,
            "labelFingerprint": fingerprint(labels),
            "storageLocations": list(call.body.get("storageLocations") or ["us"]),
            "selfLink": self._shelf.link(f"global/snapshots/{name}"),
        }
        self._shelf.put(f"global/snapshots/{name}", made)
        return self._over(call, kind, source, disk["id"])

    def _over(self, call: Call, kind: str, path: str, id_: str) -> Resource:
        """An operation that is over after a while."""
        operation = self._world.operations.begin(call.scope, kind, path, call.user, id_)
        self._world.agenda.after(self._world.pace("operation"), lambda: self._finish(operation))
        self._world.changed()
        return shown(operation)

    def _finish(self, operation: Resource) -> None:
        with self._world.lock:
            self._world.operations.finish(operation)
