"""Keeps managed instance groups as they have to be: looks again and again, and does what is to be done."""

from __future__ import annotations

import random
import string
import threading
import time
import traceback
from collections.abc import Mapping
from typing import Any

from stoker.emulator.compute.groups import Act, Group, Member, Step, decide
from stoker.emulator.compute.instances import Instances
from stoker.emulator.compute.operations import Problem
from stoker.emulator.compute.resources import Resource, last, path_of, timestamp
from stoker.emulator.compute.world import SYSTEM, World
from stoker.emulator.errors import ApiError
from stoker.emulator.identity import Caller

_ERRORS = 100  # those that a group remembers
_LETTERS = string.ascii_lowercase + string.digits


def path_of_vm(member: Mapping[str, Any], name: str) -> str:
    """Where its VM lies, or would."""
    return f"zones/{member['zone']}/instances/{name}"


class Keeper:
    """One thread for all groups."""

    def __init__(self, world: World, instances: Instances) -> None:
        self._world, self._shelf, self._instances = world, world.shelf, instances
        self._random = random.Random()  # noqa: S311  (names only)
        world.expired = self._expired
        self._thread = threading.Thread(target=self._run, name="emulator groups", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """The world is closed: wait until nothing is done any more."""
        self._world.stirred.set()
        self._thread.join()

    def _run(self) -> None:
        while self._world.is_open:
            self._world.stirred.clear()
            with self._world.lock:
                for path, group in self._shelf.everywhere("instanceGroupManagers"):
                    self._keep_safely(path, group)
            self._world.stirred.wait(self._world.pace("repair"))

    def status(self, member: Mapping[str, Any], name: str) -> str:
        """Of its VM; empty if there is none."""
        found = self._shelf.find(path_of_vm(member, name))
        return str(found["status"]) if found is not None else ""

    def recreate(self, group: Resource, name: str) -> None:
        """Make the VM of a member anew, now."""
        member = group["_members"][name]
        member |= {"action": "RECREATING", "since": 0.0, "failed": []}
        if self.status(member, name):
            self._instances.remove(path_of_vm(member, name), self._user)

    # Looking

    def _keep_safely(self, path: str, group: Resource) -> None:
        try:
            self._keep(path, group)
        except Exception:  # one group that goes wrong must not be the end of the others
            traceback.print_exc()

    def _keep(self, path: str, group: Resource) -> None:
        """Look at one, and do what is to be done."""
        for step in decide(self._seen(group), time.time()):
            self._do(path, group, step)
        if group.get("_ends") is not None and not group["_members"]:
            self._shelf.remove(path)
            for operation in group["_ends"]:
                self._world.operations.finish(self._world.operations.one(operation))
            self._world.around.changed()

    def _expired(self, path: str) -> None:
        """A member whose time was limited and is over is not made again: its group is that much smaller."""
        name = last(path)
        for _, group in self._shelf.everywhere("instanceGroupManagers"):
            member = group["_members"].get(name)
            if member is not None and path_of_vm(member, name) == path and member["action"] != "DELETING":
                member["action"] = "DELETING"
                group["targetSize"] = max(0, group["targetSize"] - 1)

    def _seen(self, group: Resource) -> Group:
        lifecycle = group.get("instanceLifecyclePolicy", {})
        policy = group.get("distributionPolicy", {})
        zones = [last(one["zone"]) for one in policy.get("zones", ())] or [last(group.get("zone"))]
        return Group(
            group["targetSize"],
            zones,
            self._types(group),
            policy.get("targetShape", "EVEN"),
            [self._member(name, one) for name, one in group["_members"].items()],
            lifecycle.get("defaultActionOnFailure") != "DO_NOTHING",
            lifecycle.get("onRepair", {}).get("allowChangingZone") == "YES",
            self._world.pace("recreate"),
            self._world.pace("repair"),
        )

    def _types(self, group: Resource) -> list[str]:
        """Machine types, best first."""
        selections = group.get("instanceFlexibilityPolicy", {}).get("instanceSelections", {})
        ranked = sorted(selections.values(), key=lambda one: int(one.get("rank") or 0))
        found = [kind for one in ranked for kind in one.get("machineTypes", ())]
        return found or [self._template(group)["properties"]["machineType"]]

    def _template(self, group: Resource) -> Resource:
        return self._shelf.get(path_of(group["instanceTemplate"]))

    def _member(self, name: str, one: Mapping[str, Any]) -> Member:
        failed = tuple((zone, kind) for zone, kind in one["failed"])
        status = self.status(one, name)
        return Member(name, one["zone"], one["action"], status, one["since"], failed, one["tried"])

    # Doing

    @property
    def _user(self) -> str:
        return f"{self._world.around.identity.number}@cloudservices.gserviceaccount.com"

    def _do(self, path: str, group: Resource, step: Step) -> None:
        members, name = group["_members"], step.name
        if step.act is Act.ADD:
            self._add(group, step)
        elif step.act is Act.TRY:
            self._try(path, group, step)
        elif step.act is Act.SETTLE:
            members[name] |= {"action": "NONE", "errors": [], "failed": []}
        elif step.act is Act.MISS:
            members[name] |= {"action": "RECREATING", "since": time.time()}
        elif step.act is Act.CLEAR:
            self._instances.remove(path_of_vm(members[name], name), self._user)
        elif step.act is Act.DROP:
            members[name]["action"] = "DELETING"
            self._world.stirred.set()
        else:
            del members[name]
        self._world.around.changed()

    def _add(self, group: Resource, step: Step) -> None:
        zone, kind = step.place
        name = ""
        while not name or name in group["_members"] or self._shelf.find(f"zones/{zone}/instances/{name}"):
            name = f"{group['baseInstanceName']}-{''.join(self._random.choices(_LETTERS, k=4))}"
        group["_members"][name] = {
            "zone": zone,
            "type": kind,
            "action": "CREATING",
            "since": time.time(),
            "errors": [],
            "failed": [],
            "tried": 0.0,
            "template": group["instanceTemplate"],
        }
        self._world.stirred.set()

    def _try(self, path: str, group: Resource, step: Step) -> None:
        """Make the VM of a member."""
        name, (zone, kind) = step.name, step.place
        member = group["_members"][name]
        if list(step.place) in member["failed"]:  # all were tried: from the beginning
            member["failed"] = []
        member |= {"zone": zone, "type": kind, "tried": time.time(), "template": group["instanceTemplate"]}

        def failed(problem: Problem) -> None:
            self._failed(path, name, problem)

        if member["action"] == "RECREATING":
            self._tell(name, zone)
        try:
            body = self._body(path, group, name, kind)
            self._instances.create(body, zone, Caller(), self._user, failed)
        except ApiError as error:
            failed((error.reason.upper(), error.code, error.message, []))

    def _tell(self, name: str, zone: str) -> None:
        target = f"zones/{zone}/instances/{name}"
        kind = "compute.instances.repair.recreateInstance"
        operation = self._world.operations.begin(f"zones/{zone}", kind, target, SYSTEM)
        operation["statusMessage"] = f"Instance Group Manager recreates the instance '{name}'."
        self._world.operations.finish(operation)

    def _body(self, path: str, group: Resource, name: str, kind: str) -> Resource:
        properties = self._template(group)["properties"]
        number = self._world.around.identity.number
        items = [
            *(properties["metadata"].get("items", ())),
            {"key": "instance-template", "value": f"projects/{number}/{path_of(group['instanceTemplate'])}"},
            {"key": "created-by", "value": f"projects/{number}/{path}"},
        ]
        return {**properties, "name": name, "machineType": kind, "metadata": {"items": items}}

    def _failed(self, path: str, name: str, problem: Problem) -> None:
        """A VM could not be made: remember why, and where not to try next."""
        group = self._shelf.find(path)
        member = group["_members"].get(name) if group is not None else None
        if group is None or member is None:
            return
        code, _, message, details = problem
        told: Resource = {"code": code, "message": message}
        member["failed"].append([member["zone"], member["type"]])
        member["errors"] = [told | ({"errorDetails": details} if details else {})]
        error = {
            "error": told,
            "timestamp": timestamp(time.time()),
            "instanceActionDetails": {
                "action": member["action"],
                "instance": self._shelf.link(path_of_vm(member, name)),
                "version": {"instanceTemplate": member["template"]},
            },
        }
        group["_errors"] = [error, *group["_errors"][: _ERRORS - 1]]
