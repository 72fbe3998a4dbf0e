"""The calls on instances."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stoker.emulator.compute.catalog import ZONES
from stoker.emulator.compute.disks import new_disk
from stoker.emulator.compute.images import set_labels
from stoker.emulator.compute.inside import attributes
from stoker.emulator.compute.kinds import LABELS, METADATA, SCHEDULING, TAGS, check_kinds
from stoker.emulator.compute.listing import aggregated, listed
from stoker.emulator.compute.operations import Problem
from stoker.emulator.compute.resources import (
    Resource,
    check_fingerprint,
    fingerprint,
    path_of,
    region_of,
    shown,
)
from stoker.emulator.compute.routes import LATER, Call, Handler, Route
from stoker.emulator.compute.shape import check_labels, check_metadata, check_type, instance_of, scheduling_of
from stoker.emulator.compute.vm import Vm
from stoker.emulator.compute.world import World
from stoker.emulator.errors import ApiError, exists_already, invalid, not_found
from stoker.emulator.identity import Caller

_NUMBER = re.compile(r"-?[0-9]{1,18}")
_CONSOLE = 1 << 20  # bytes of the console that are kept
_MOVES = {"stop": "RUNNING", "start": "TERMINATED", "reset": "RUNNING", "simulateMaintenanceEvent": "RUNNING"}
_ALREADY = {
    "stop": ("STOPPING", "TERMINATED"),
    "start": ("RUNNING",),
}  # states in which there is nothing to do


class Instances:
    """All of them; whoever calls holds the lock."""

    def __init__(self, world: World) -> None:
        self._world, self._shelf = world, world.shelf

    def routes(self) -> list[Route]:
        """All calls."""
        all_, one = "zones/{zone}/instances", "zones/{zone}/instances/{name}"
        posts: Mapping[str, Handler] = {
            "stop": self._mover("stop", lambda vm, done: vm.stop(done)),
            "start": self._mover("start", lambda vm, done: vm.power_on(done)),
            "reset": self._mover("reset", lambda vm, done: vm.reset(done)),
            "simulateMaintenanceEvent": self._mover(
                "simulateMaintenanceEvent", lambda vm, done: vm.maintain(done)
            ),
            "setMetadata": self.set_metadata,
            "setLabels": self.set_labels,
            "setMachineType": self.set_machine_type,
            "setTags": self.set_tags,
            "setScheduling": self.set_scheduling,
            "setServiceAccount": self.set_service_account,
            "setDeletionProtection": self.set_deletion_protection,
        }
        return [
            ("GET", "aggregated/instances", "compute.instances.list", self.list_everywhere),
            ("GET", all_, "compute.instances.list", self.list_),
            ("POST", all_, "compute.instances.create", self.insert),
            ("GET", one, "compute.instances.get", self.get),
            ("DELETE", one, "compute.instances.delete", self.delete),
            ("GET", f"{one}/serialPort", "compute.instances.getSerialPortOutput", self.serial_port),
            (
                "GET",
                f"{one}/getGuestAttributes",
                "compute.instances.getGuestAttributes",
                self.guest_attributes,
            ),
            *(("POST", f"{one}/{verb}", f"compute.instances.{verb}", done) for verb, done in posts.items()),
        ]

    # Reading

    def get(self, call: Call) -> Resource:
        """One of them."""
        return shown(self._shelf.get(call.target))

    def list_(self, call: Call) -> Resource:
        """Those of one zone."""
        path = f"projects/{self._world.project}/{call.collection}"
        return listed(self._shelf.all(call.collection), call.query, "instanceList", path)

    def list_everywhere(self, call: Call) -> Resource:
        """Those of all zones."""
        scopes = {f"zones/{zone}": self._shelf.all(f"zones/{zone}/instances") for zone in ZONES}
        path = f"projects/{self._world.project}/aggregated/instances"
        return aggregated(scopes, call.query, "instanceAggregatedList", path)

    def serial_port(self, call: Call) -> Resource:
        """What it said on its console, from a byte on."""
        self._shelf.get(call.target)
        if call.query.get("port", "1") != "1":
            raise invalid(f"Invalid value for field 'port': '{call.query['port']}'.")
        start = call.query.get("start") or "0"
        if not _NUMBER.fullmatch(start):
            raise invalid(f"Invalid value for field 'start': '{start}'. Must be a number.")
        told = {
            "kind": "compute#serialPortOutput",
            "selfLink": f"{self._shelf.link(call.target)}/serialPort",
        }
        vm = self._world.vms.get(call.target)
        console = vm.machine.serial if vm is not None else None
        return {LATER: lambda: told | _said(console, int(start))}

    def guest_attributes(self, call: Call) -> Resource:
        """What it wrote about itself: all, of a namespace, or one."""
        found = self._shelf.get(call.target)
        enabled = attributes(self._world.common) | attributes(found["metadata"].get("items", ()))
        if enabled.get("enable-guest-attributes", "").upper() not in ("TRUE", "Y", "YES", "1"):
            message = "Guest attributes endpoint access is disabled."
            raise ApiError(412, "conditionNotMet", message)
        asked = call.query.get("queryPath") or call.query.get("variableKey", "")
        namespace, _, key = asked.partition("/")
        items = [
            {"namespace": space, "key": name, "value": value}
            for space, pairs in found.get("_guest", {}).items()
            for name, value in pairs.items()
            if namespace in ("", space) and key in ("", name)
        ]
        if not items:
            raise not_found(f"{self._shelf.full(call.target)}/getGuestAttributes/{asked}")
        reply: Resource = {
            "kind": "compute#guestAttributes",
            "selfLink": f"{self._shelf.link(call.target)}/getGuestAttributes",
        }
        if call.query.get("variableKey"):
            return reply | {"variableKey": asked, "variableValue": items[0]["value"]}
        return reply | {"queryPath": asked, "queryValue": {"items": items}}

    # Making and removing

    def insert(self, call: Call) -> Resource:
        """Make one."""
        body = self._with_template(call.body, call.query.get("sourceInstanceTemplate", ""))
        return shown(self.create(body, call.names["zone"], call.caller, call.user)[0])

    def _with_template(self, body: Mapping[str, Any], link: str) -> Resource:
        if not link:
            return dict(body)
        found = self._shelf.get(path_of(link))
        return {
            **found["properties"],
            **{key: value for key, value in body.items() if value not in ("", [], {})},
        }

    def create(
        self,
        body: Mapping[str, Any],
        zone: str,
        caller: Caller,
        user: str,
        failed: Callable[[Problem], None] | None = None,
    ) -> tuple[Resource, Resource]:
        """Make one: its operation, and it. `failed` is called, with the lock held, if it is given up."""
        identity = self._world.around.identity
        made = instance_of(body, zone, self._shelf, identity.default_account)
        for one in made.get("serviceAccounts", ()):
            identity.require(caller, "iam.serviceAccounts.actAs", one["email"])
        path = f"zones/{zone}/instances/{made['name']}"
        if self._shelf.find(path) is not None:
            raise exists_already(self._shelf.full(path))
        disks = self._disks(body, made, zone)
        self._address(made, zone)
        self._shelf.put(path, made)
        for disk in disks:
            self._shelf.put(path_of(disk["selfLink"]), disk)
        vm = self._world.vms[path] = Vm(self._world, path)
        operation = self._world.operations.begin(f"zones/{zone}", "insert", path, user, made["id"])

        def done(problem: Problem | None) -> None:
            if problem is not None:
                self._give_up(path, vm)
                if failed is not None:
                    failed(problem)
            self._world.operations.finish(operation, problem)

        vm.power_on(done)
        self._world.changed()
        return operation, made

    def _give_up(self, path: str, vm: Vm) -> None:
        made = self._shelf.get(path)
        for disk in made["_made"]:
            self._shelf.remove(disk)
        for attached in made["disks"]:
            disk = self._shelf.find(path_of(attached.get("source", "")))
            if disk is not None:
                disk.pop("users", None)
        self._shelf.remove(path)
        self._world.vms.pop(path, None)
        self._world.agenda.after(0, vm.machine.remove)

    def _disks(self, body: Mapping[str, Any], made: Resource, zone: str) -> list[Resource]:
        """Those that are to be made for it; it names all that it has."""
        asked = list(body.get("disks", ()))
        if not asked:
            raise invalid("Invalid value for field 'resource.disks': ''. No disks are specified.")
        if not asked[0].get("boot", len(asked) == 1):
            message = "Boot disk must be the first disk attached to the instance."
            raise invalid(f"Invalid value for field 'resource.disks[0].boot': 'false'. {message}")
        new: list[Resource] = []
        found = [self._disk(one, number, made["name"], zone) for number, one in enumerate(asked)]
        self._check_once(found)
        for number, (one, disk) in enumerate(zip(asked, found, strict=True)):
            if one.get("type") != "SCRATCH" and not one.get("source"):
                new.append(disk)
            disk.setdefault("users", []).append(made["selfLink"])
            made["disks"].append(_attached(one, disk, number))
            if number == 0:
                made["_image"] = disk.get("sourceImage", "").partition("/v1/")[2]
        made["_made"] = [path_of(disk["selfLink"]) for disk in new]
        return new

    def _check_once(self, disks: list[Resource]) -> None:
        counts = Counter(disk["selfLink"] for disk in disks if "selfLink" in disk)
        for link, count in counts.items():
            if count > 1:
                raise exists_already(self._shelf.full(path_of(link)))

    def _disk(self, asked: Mapping[str, Any], number: int, name: str, zone: str) -> Resource:
        if asked.get("type") == "SCRATCH":
            return {"sizeGb": "375"}
        if asked.get("source"):
            found = self._shelf.get(path_of(asked["source"]))
            if found.get("users"):
                message = (
                    f"The disk resource '{self._shelf.full(path_of(asked['source']))}' is already being used"
                )
                raise ApiError(400, "resourceInUseByAnotherResource", f"{message} by '{found['users'][0]}'")
            return found
        params = dict(asked.get("initializeParams", {}))
        field = f"resource.disks[{number}].initializeParams"
        if number == 0 and not params.get("sourceImage") and not params.get("sourceSnapshot"):
            raise invalid(f"Invalid value for field '{field}.sourceImage': ''. A boot disk needs a source.")
        params.setdefault("diskSizeGb", asked.get("diskSizeGb"))
        called = params.get("diskName") or (name if number == 0 else f"{name}-{number}")
        path = f"zones/{zone}/disks/{called}"
        if self._shelf.find(path) is not None:
            raise exists_already(self._shelf.full(path))
        return new_disk(self._shelf, zone, called, params, field)

    def _address(self, made: Resource, zone: str) -> None:
        """Addresses that no other instance has; nothing outside can reach them."""
        number = int(made["id"]) % 60000 + 2
        region = sorted({region_of(zone) for zone in ZONES}).index(region_of(zone))
        for index, one in enumerate(made["networkInterfaces"]):
            one["networkIP"] = f"10.{128 + region * 4 + index}.{number // 256}.{number % 256}"
            for config in one.get("accessConfigs", ()):
                config["natIP"] = f"198.{18 + region % 2}.{number // 256}.{number % 256}"

    def delete(self, call: Call) -> Resource:
        """End it and leave nothing."""
        found = self._shelf.get(call.target)
        if found["deletionProtection"]:
            message = (
                "Invalid resource usage: 'Resource cannot be deleted if it's protected against deletion.'."
            )
            raise ApiError(400, "invalidResourceUsage", message)
        return shown(self.remove(call.target, call.user))

    def remove(self, path: str, user: str) -> Resource:
        """End it and leave nothing: the operation."""
        found = self._shelf.get(path)
        operation = self._world.operations.begin(
            path.rpartition("/instances/")[0], "delete", path, user, found["id"]
        )
        self._world.vms[path].stop(lambda problem: self._finish(operation, problem), is_deleted=True)
        return operation

    def _finish(self, operation: Resource, problem: Problem | None = None) -> None:
        self._world.operations.finish(operation, problem)

    # Moving and changing

    def _mover(self, verb: str, move: Callable[[Vm, Callable[[Problem | None], None]], None]) -> Handler:
        def handler(call: Call) -> Resource:
            found = self._shelf.get(call.target)
            if found["status"] not in (_MOVES[verb], *_ALREADY.get(verb, ())):
                raise ApiError(
                    400, "resourceNotReady", f"The resource '{self._shelf.full(call.target)}' is not ready"
                )
            operation = self._world.operations.begin(call.scope, verb, call.target, call.user, found["id"])
            if (verb, found["status"]) in (("stop", "TERMINATED"), ("start", "RUNNING")):
                self._finish(operation)
            else:
                move(self._world.vms[call.target], lambda problem: self._finish(operation, problem))
            self._world.changed()
            return shown(operation)

        return handler

    def _changed(self, call: Call, verb: str, id_: str) -> Resource:
        operation = self._world.operations.begin(call.scope, verb, call.target, call.user, id_)
        self._world.agenda.after(self._world.pace("operation"), lambda: self._late(operation))
        vm = self._world.vms.get(call.target)
        if vm is not None:
            vm.touch()
        self._world.changed()
        return shown(operation)

    def _late(self, operation: Resource) -> None:
        with self._world.lock:
            self._finish(operation)

    def set_metadata(self, call: Call) -> Resource:
        """All metadata anew, if nobody else changed it meanwhile."""
        found = self._shelf.get(call.target)
        check_kinds(call.body, METADATA)
        items = list(call.body.get("items", ()))
        check_metadata(items)
        check_fingerprint(call.body.get("fingerprint"), found["metadata"].get("items", []))
        found["metadata"] = {
            "kind": "compute#metadata",
            "fingerprint": fingerprint(items),
            **({"items": items} if items else {}),
        }
        return self._changed(call, "setMetadata", found["id"])

    def set_labels(self, call: Call) -> Resource:
        """All labels anew, if nobody else changed them meanwhile."""
        found = self._shelf.get(call.target)
        check_kinds(call.body, {"labels": LABELS})
        check_labels(call.body.get("labels", {}))
        set_labels(found, call.body)
        return self._changed(call, "setLabels", found["id"])

    def set_tags(self, call: Call) -> Resource:
        """All tags anew, if nobody else changed them meanwhile."""
        found = self._shelf.get(call.target)
        check_kinds(call.body, TAGS)
        check_fingerprint(call.body.get("fingerprint"), found["tags"].get("items", []))
        items = sorted(call.body.get("items", ()))
        found["tags"] = {"fingerprint": fingerprint(items), **({"items": items} if items else {})}
        return self._changed(call, "setTags", found["id"])

    def set_machine_type(self, call: Call) -> Resource:
        """Another type, while it is stopped."""
        found = self._stopped(call)
        kind = check_type(self._shelf, call.body.get("machineType"), call.names["zone"])
        found["machineType"] = self._shelf.link(f"zones/{call.names['zone']}/machineTypes/{kind.name}")
        return self._changed(call, "setMachineType", found["id"])

    def set_service_account(self, call: Call) -> Resource:
        """Another account, while it is stopped."""
        found = self._stopped(call)
        identity = self._world.around.identity
        email = call.body.get("email") or ""
        email = identity.default_account if email == "default" else email
        if not email:
            found.pop("serviceAccounts", None)
        else:
            identity.require(call.caller, "iam.serviceAccounts.actAs", email)
            found["serviceAccounts"] = [{"email": email, "scopes": list(call.body.get("scopes", ()))}]
        return self._changed(call, "setServiceAccount", found["id"])

    def set_scheduling(self, call: Call) -> Resource:
        """How it is run, while it is stopped."""
        found = self._stopped(call)
        check_kinds(call.body, SCHEDULING)
        found["scheduling"] = scheduling_of(
            {**found["scheduling"], **call.body}, bool(found.get("guestAccelerators"))
        )
        return self._changed(call, "setScheduling", found["id"])

    def set_deletion_protection(self, call: Call) -> Resource:
        """Whether it may be deleted."""
        found = self._shelf.get(call.target)
        found["deletionProtection"] = call.query.get("deletionProtection", "true") == "true"
        return self._changed(call, "setDeletionProtection", found["id"])

    def _stopped(self, call: Call) -> Resource:
        found = self._shelf.get(call.target)
        if found["status"] != "TERMINATED":
            message = (
                f"The instance resource '{self._shelf.full(call.target)}' must be in the TERMINATED state"
            )
            raise ApiError(400, "badRequest", f"{message} to update this setting.")
        return found

    # Starting anew

    def wake(self) -> None:
        """After a restart of the cloud: what can start by itself starts again, the rest is stopped."""
        for path, found in list(self._shelf.everywhere("instances")):
            vm = self._world.vms[path] = Vm(self._world, path)
            if found.get("_doomed"):
                found["status"] = "TERMINATED"
                vm.stop(lambda problem: None, is_deleted=True)
            elif found["status"] in ("RUNNING", "STAGING", "PROVISIONING"):
                self._wake(vm, found)
            else:
                found["status"] = "TERMINATED"

    def _wake(self, vm: Vm, found: Resource) -> None:
        vm.machine.cut()  # if the cloud was killed, its VMs may have been left
        found["status"] = "TERMINATED"
        if found["scheduling"]["automaticRestart"]:
            vm.power_on(lambda problem: None)


def _said(console: Path | None, start: int) -> Resource:
    """The part of a console that begins there; of one that is too long, the end."""
    data, size = b"", 0
    with suppress(OSError):
        if console is not None:
            with console.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = max(size + start if start < 0 else start, size - _CONSOLE)
                file.seek(start)
                data = file.read(max(0, size - start))
    start = max(0, start)
    return {
        "contents": data.decode(errors="replace"),
        "start": str(start),
        "next": str(max(start, size)),
    }


def _attached(asked: Mapping[str, Any], disk: Resource, number: int) -> Resource:
    name = asked.get("deviceName") or (
        f"persistent-disk-{number}" if disk.get("name") else f"local-ssd-{number}"
    )
    made: Resource = {
        "kind": "compute#attachedDisk",
        "type": asked.get("type") or "PERSISTENT",
        "mode": asked.get("mode") or "READ_WRITE",
        "deviceName": name,
        "index": number,
        "boot": number == 0,
        "autoDelete": bool(asked.get("autoDelete")),
        "interface": asked.get("interface") or "SCSI",
        "diskSizeGb": disk["sizeGb"],
        "architecture": "X86_64",
    }
    if disk.get("selfLink"):
        made |= {"source": disk["selfLink"]}
    return made
