"""Images: those that everybody has, and one's own."""

from __future__ import annotations

import time
import zlib
from collections.abc import Mapping
from typing import Any

from stoker.emulator.compute.catalog import PUBLIC_IMAGES
from stoker.emulator.compute.listing import listed
from stoker.emulator.compute.resources import (
    ROOT,
    Resource,
    Shelf,
    check_name,
    fingerprint,
    last,
    new_id,
    path_of,
    project_of,
    shown,
    timestamp,
)
from stoker.emulator.compute.routes import Call, Route
from stoker.emulator.compute.world import World
from stoker.emulator.errors import ApiError, invalid, not_found


def find_image(shelf: Shelf, link: str) -> Resource | None:
    """The image, or the newest of the family, that a link means."""
    project = project_of(link) or shelf.project
    path = path_of(link)
    if "/family/" in path or "/imageFamilyViews/" in path:
        family = [one for one in images_of(shelf, project) if one.get("family") == last(path)]
        usable = [one for one in family if one.get("deprecated", {}).get("state", "ACTIVE") == "ACTIVE"]
        return max(usable, key=lambda one: str(one["creationTimestamp"]), default=None)
    return next((one for one in images_of(shelf, project) if one["name"] == last(path)), None)


def images_of(shelf: Shelf, project: str) -> list[Resource]:
    """All images of a project."""
    if project in PUBLIC_IMAGES:
        return [_public(project, name) for name in PUBLIC_IMAGES[project]]
    return shelf.all("global/images")


def _public(project: str, name: str) -> Resource:
    family, size = PUBLIC_IMAGES[project][name]
    path = f"projects/{project}/global/images/{name}"
    return {
        "kind": "compute#image",
        "id": str(zlib.crc32(path.encode()) + (1 << 60)),
        "creationTimestamp": "2026-09-15T08:00:00.000-07:00",
        "name": name,
        "family": family,
        "description": f"{name}, as it is called; in this cloud every VM has the system of its host",
        "status": "READY",
        "sourceType": "RAW",
        "diskSizeGb": str(size),
        "archiveSizeBytes": str(size << 27),
        "architecture": "X86_64",
        "labelFingerprint": fingerprint({}),
        "storageLocations": ["us", "eu", "asia"],
        "selfLink": ROOT + path,
    }


class Images:
    """The calls on images."""

    def __init__(self, world: World) -> None:
        self._world, self._shelf = world, world.shelf

    def routes(self) -> list[Route]:
        """All calls."""
        one = "global/images/{name}"
        return [
            ("GET", "global/images/family/{family}", "compute.images.getFromFamily", self.get_from_family),
            ("GET", one, "compute.images.get", self.get),
            ("GET", "global/images", "compute.images.list", self.list_),
            ("POST", "global/images", "compute.images.create", self.insert),
            ("DELETE", one, "compute.images.delete", self.delete),
            ("POST", f"{one}/deprecate", "compute.images.deprecate", self.deprecate),
            ("POST", f"{one}/setLabels", "compute.images.setLabels", self.set_labels),
        ]

    def get(self, call: Call) -> Resource:
        """One of them."""
        return self._of(call, f"projects/{call.project}/{call.target}")

    def get_from_family(self, call: Call) -> Resource:
        """The newest of a family."""
        return self._of(call, f"projects/{call.project}/global/images/family/{call.names['family']}")

    def _of(self, call: Call, link: str) -> Resource:
        self._check(call)
        found = find_image(self._shelf, link)
        if found is None:
            raise not_found(link)
        return shown(found)

    def _check(self, call: Call) -> None:
        if call.project not in PUBLIC_IMAGES:
            self._world.check_project(call.project)

    def list_(self, call: Call) -> Resource:
        """All of a project."""
        self._check(call)
        path = f"projects/{call.project}/global/images"
        return listed(images_of(self._shelf, call.project), call.query, "imageList", path)

    def insert(self, call: Call) -> Resource:
        """Make one of a disk, a snapshot or another image."""
        self._world.check_project(call.project)
        name = check_name(call.body.get("name"))
        path = f"global/images/{name}"
        made = self._shelf.put(path, self._made(call.body, name, call.query.get("forceCreate") == "true"))
        self._world.changed()
        operation = self._world.operations.begin("global", "insert", path, call.user, made["id"])
        self._world.agenda.after(self._world.pace("operation"), lambda: self._ready(path, operation))
        return shown(operation)

    def _ready(self, path: str, operation: Resource) -> None:
        with self._world.lock:
            found = self._shelf.find(path)
            if found is not None:
                found["status"] = "READY"
            self._world.operations.finish(operation)
            self._world.changed()

    def _made(self, body: Mapping[str, Any], name: str, is_forced: bool) -> Resource:
        size, source = self._source(body, is_forced)
        labels = dict(body.get("labels", {}))
        return {
            "kind": "compute#image",
            "id": new_id(),
            "creationTimestamp": timestamp(time.time()),
            "name": name,
            **{
                key: body[key]
                for key in ("family", "description", "licenses", "guestOsFeatures")
                if body.get(key)
            },
            **source,
            "status": "PENDING",
            "sourceType": "RAW",
            "diskSizeGb": str(size),
            "archiveSizeBytes": str(int(size) << 26),
            "architecture": "X86_64",
            "labels": labels,
            "labelFingerprint": fingerprint(labels),
            "storageLocations": list(body.get("storageLocations") or ["us"]),
            "selfLink": self._shelf.link(f"global/images/{name}"),
        }

    def _source(self, body: Mapping[str, Any], is_forced: bool) -> tuple[str, Resource]:
        """Its size, and where it comes from."""
        if body.get("sourceDisk"):
            disk = self._shelf.get(path_of(body["sourceDisk"]))
            if not is_forced:
                self._check_unused(disk)
            return disk["sizeGb"], {"sourceDisk": disk["selfLink"], "sourceDiskId": disk["id"]}
        if body.get("sourceSnapshot"):
            found = self._shelf.get(path_of(body["sourceSnapshot"]))
            return found["diskSizeGb"], {"sourceSnapshot": found["selfLink"], "sourceSnapshotId": found["id"]}
        if body.get("sourceImage"):
            image = find_image(self._shelf, body["sourceImage"])
            if image is None:
                raise not_found(path_of(body["sourceImage"]))
            return image["diskSizeGb"], {"sourceImage": image["selfLink"], "sourceImageId": image["id"]}
        raise invalid(
            "Invalid value for field 'resource.sourceDisk': ''. One source of the image is required."
        )

    def _check_unused(self, disk: Resource) -> None:
        for user in disk.get("users", ()):
            found = self._shelf.find(path_of(user))
            if found is not None and found["status"] != "TERMINATED":
                message = (
                    f"The disk resource '{self._shelf.full(path_of(disk['selfLink']))}' is already being used"
                )
                raise ApiError(400, "resourceInUseByAnotherResource", f"{message} by '{path_of(user)}'")

    def delete(self, call: Call) -> Resource:
        """No VM needs it any more: their disks are copies."""
        self._world.check_project(call.project)
        found = self._shelf.get(call.target)
        self._shelf.remove(call.target)
        self._world.changed()
        return shown(self._world.operations.done("global", "delete", call.target, call.user, found["id"]))

    def deprecate(self, call: Call) -> Resource:
        """Families show another one from now on."""
        self._world.check_project(call.project)
        found = self._shelf.get(call.target)
        if call.body.get("state", "ACTIVE") == "ACTIVE":
            found.pop("deprecated", None)
        else:
            found["deprecated"] = dict(call.body)
        self._world.changed()
        return shown(self._world.operations.done("global", "deprecate", call.target, call.user, found["id"]))

    def set_labels(self, call: Call) -> Resource:
        """All labels anew."""
        self._world.check_project(call.project)
        found = self._shelf.get(call.target)
        set_labels(found, call.body)
        self._world.changed()
        return shown(self._world.operations.done("global", "setLabels", call.target, call.user, found["id"]))


def set_labels(resource: Resource, body: Mapping[str, Any]) -> None:
    """All labels anew, if nobody else changed them meanwhile."""
    if body.get("labelFingerprint") != resource.get("labelFingerprint"):
        message = "Labels fingerprint either invalid or resource labels have changed"
        raise ApiError(412, "conditionNotMet", message)
    resource["labels"] = dict(body.get("labels", {}))
    resource["labelFingerprint"] = fingerprint(resource["labels"])
