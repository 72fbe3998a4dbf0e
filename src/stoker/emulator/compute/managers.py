"""The calls on managed instance groups, of a zone or of a region."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from stoker.emulator.compute.catalog import REGIONS, ZONES
from stoker.emulator.compute.keeper import Keeper, path_of_vm
from stoker.emulator.compute.listing import aggregated, listed, page
from stoker.emulator.compute.resources import (
    Resource,
    check_name,
    fingerprint,
    last,
    new_id,
    path_of,
    region_of,
    shown,
    timestamp,
)
from stoker.emulator.compute.routes import Call, Handler, Route
from stoker.emulator.compute.world import World
from stoker.emulator.errors import ApiError, invalid, not_found

_SETTINGS = (
    "autoHealingPolicies",
    "description",
    "distributionPolicy",
    "instanceFlexibilityPolicy",
    "instanceLifecyclePolicy",
    "listManagedInstancesResults",
    "namedPorts",
    "statefulPolicy",
    "targetPools",
    "updatePolicy",
)
_ACTIONS = (
    "abandoning",
    "creating",
    "creatingWithoutRetries",
    "deleting",
    "none",
    "recreating",
    "refreshing",
)
_MOST_OF_ZONE, _MOST_OF_REGION = 1000, 2000  # members
_MORE_ACTIONS = ("restarting", "resuming", "starting", "stopping", "suspending", "verifying")


class Managers:
    """All groups; whoever calls holds the lock."""

    def __init__(self, world: World, keeper: Keeper) -> None:
        self._world, self._shelf, self._keeper = world, world.shelf, keeper

    def routes(self) -> list[Route]:
        """All calls."""
        found: list[Route] = [
            ("GET", "aggregated/instanceGroupManagers", _may("list"), self.list_everywhere),
            ("GET", "aggregated/instanceGroups", "compute.instanceGroups.list", self.list_groups_everywhere),
        ]
        posts: Mapping[str, tuple[str, Handler]] = {
            "resize": ("update", self.resize),
            "listManagedInstances": ("get", self.list_managed),
            "deleteInstances": ("update", self.delete_instances),
            "abandonInstances": ("update", self.abandon_instances),
            "recreateInstances": ("update", self.recreate_instances),
            "setInstanceTemplate": ("update", self.set_template),
        }
        for scope in ("zones/{zone}", "regions/{region}"):
            all_, one = f"{scope}/instanceGroupManagers", f"{scope}/instanceGroupManagers/{{name}}"
            groups = f"{scope}/instanceGroups"
            found += [
                ("GET", all_, _may("list"), self.list_),
                ("POST", all_, _may("create"), self.insert),
                ("GET", one, _may("get"), self.get),
                ("PATCH", one, _may("update"), self.patch),
                ("DELETE", one, _may("delete"), self.delete),
                ("GET", f"{one}/listErrors", _may("get"), self.list_errors),
                *(("POST", f"{one}/{verb}", _may(need), done) for verb, (need, done) in posts.items()),
                ("GET", groups, "compute.instanceGroups.list", self.list_groups),
                ("GET", f"{scope}/autoscalers", "compute.autoscalers.list", self.list_autoscalers),
                ("GET", f"{groups}/{{name}}", "compute.instanceGroups.get", self.get_group),
                (
                    "POST",
                    f"{groups}/{{name}}/listInstances",
                    "compute.instanceGroups.list",
                    self.list_instances,
                ),
            ]
        return found

    # Reading

    def get(self, call: Call) -> Resource:
        """One of them, with what it does now."""
        return shown(self._view(self._shelf.get(call.target)))

    def list_(self, call: Call) -> Resource:
        """Those of one place."""
        path = f"projects/{self._world.project}/{call.collection}"
        items = [self._view(one) for one in self._shelf.all(call.collection)]
        kind = "regionInstanceGroupManagerList" if "region" in call.names else "instanceGroupManagerList"
        return listed(items, call.query, kind, path)

    def list_everywhere(self, call: Call) -> Resource:
        """Those of all places."""
        scopes = {
            scope: [self._view(one) for one in self._shelf.all(f"{scope}/instanceGroupManagers")]
            for scope in _scopes()
        }
        path = f"projects/{self._world.project}/aggregated/instanceGroupManagers"
        return aggregated(scopes, call.query, "instanceGroupManagerAggregatedList", path)

    def _view(self, group: Resource) -> Resource:
        members = group["_members"]
        actions = Counter(_camel(one["action"]) for one in members.values())
        statuses = Counter(self._keeper.status(one, name) for name, one in members.items())
        is_stable = set(actions) <= {"none"} and len(members) == group["targetSize"]
        words = ("provisioning", "staging", "running", "stopping", "terminated")
        summary = {word: statuses[word.upper()] for word in words}
        return group | {
            "currentActions": {action: actions[action] for action in (*_ACTIONS, *_MORE_ACTIONS)},
            "status": {
                "isStable": is_stable,
                "versionTarget": {"isReached": True},
                "currentInstanceStatuses": summary | {"nonExistent": statuses[""]},
                "stateful": {"hasStatefulConfig": False, "perInstanceConfigs": {"allEffective": True}},
            },
        }

    def list_managed(self, call: Call) -> Resource:
        """Its members."""
        group = self._shelf.get(call.target)
        items = [self._member(group, name, one) for name, one in group["_members"].items()]
        found, following = page(items, call.query)
        reply: Resource = {"managedInstances": found} if found else {}
        return reply | ({"nextPageToken": following} if following else {})

    def _member(self, group: Resource, name: str, one: Mapping[str, Any]) -> Resource:
        vm = self._shelf.find(path_of_vm(one, name))
        told: Resource = {
            "name": name,
            "instance": self._shelf.link(path_of_vm(one, name)),
            "currentAction": one["action"],
            "lastAttempt": {"errors": {"errors": one["errors"]}} if one["errors"] else {},
            "version": {"instanceTemplate": one["template"]},
        }
        if vm is not None:
            told |= {"id": vm["id"], "instanceStatus": vm["status"]}
        if group.get("instanceFlexibilityPolicy"):
            told["propertiesFromFlexibilityPolicy"] = {"machineType": one["type"]}
        return told

    def list_errors(self, call: Call) -> Resource:
        """What went wrong with its members, newest first."""
        errors = self._shelf.get(call.target)["_errors"]
        first = 1000 - len(errors)  # counted from the end: new ones come before the others
        found, following = page(
            [{"name": f"{first + at:04}", **one} for at, one in enumerate(errors)], call.query
        )
        for one in found:
            one.pop("name")
        reply: Resource = {"items": found} if found else {}
        return reply | ({"nextPageToken": following} if following else {})

    # Changing

    def insert(self, call: Call) -> Resource:
        """Make one; its members follow."""
        name = check_name(call.body.get("name"))
        path = f"{call.collection}/{name}"
        size = _size(call.body.get("targetSize"), call.scope, "resource.targetSize")
        made: Resource = {
            "kind": "compute#instanceGroupManager",
            "id": new_id(),
            "creationTimestamp": timestamp(time.time()),
            "name": name,
            "baseInstanceName": check_name(call.body.get("baseInstanceName") or name[:58].rstrip("-")),
            "instanceGroup": self._shelf.link(f"{call.scope}/instanceGroups/{name}"),
            "targetSize": size,
            "selfLink": self._shelf.link(path),
            call.scope.partition("/")[0].rstrip("s"): self._shelf.link(call.scope),
            "_members": {},
            "_errors": [],
        }
        self._set(made, call.body, call.scope)
        self._shelf.put(path, made)
        return self._over(call, "insert", path, made["id"])

    def patch(self, call: Call) -> Resource:
        """What is named becomes different. Members that exist stay as they are."""
        found = self._lasting(call)
        if call.body.get("fingerprint") not in (None, found["fingerprint"]):
            message = "Supplied fingerprint does not match current fingerprint."
            raise ApiError(412, "conditionNotMet", message)
        changed = dict(found)
        if call.body.get("targetSize") is not None:
            changed["targetSize"] = _size(call.body["targetSize"], call.scope, "resource.targetSize")
        self._set(changed, call.body, call.scope)
        found |= changed
        return self._over(call, "patch", call.target, found["id"])

    def _set(self, group: Resource, body: Mapping[str, Any], scope: str) -> None:
        """Take over the settings that a request names. Raises ApiError if they are bad."""
        versions = list(body.get("versions", ()))
        link = body.get("instanceTemplate") or (versions[0].get("instanceTemplate") if versions else "")
        if link:
            template = self._template(link)
            group["instanceTemplate"] = template
            group["versions"] = [
                {"instanceTemplate": template, "targetSize": {"calculated": group["targetSize"]}}
            ]
        elif "instanceTemplate" not in group:
            raise invalid("Invalid value for field 'resource.instanceTemplate': ''. It is required.")
        group |= {key: body[key] for key in _SETTINGS if key in body}
        if scope.startswith("regions/"):
            self._set_distribution(group, last(scope))
        group["updatePolicy"] = {
            "type": "OPPORTUNISTIC",
            "minimalAction": "REPLACE",
            "maxSurge": {"fixed": 1, "calculated": 1},
            "maxUnavailable": {"fixed": 1, "calculated": 1},
            "replacementMethod": "SUBSTITUTE",
            **({"instanceRedistributionType": "PROACTIVE"} if scope.startswith("regions/") else {}),
            **group.get("updatePolicy", {}),
        }
        _check_shape(group)
        shown_ = {
            key: value for key, value in group.items() if not key.startswith("_") and key != "fingerprint"
        }
        group["fingerprint"] = fingerprint(shown_)

    def _template(self, link: str) -> str:
        found = self._shelf.find(path_of(link))
        if found is None:
            raise not_found(self._shelf.full(path_of(link)))
        return str(found["selfLink"])

    def _set_distribution(self, group: Resource, region: str) -> None:
        policy = dict(group.get("distributionPolicy", {}))
        zones = [last(one.get("zone")) for one in policy.get("zones", ())] or default_zones(region)
        for zone in zones:
            if zone not in ZONES or region_of(zone) != region:
                message = f"Zone '{zone}' is not in region '{region}'."
                raise invalid(f"Invalid value for field 'resource.distributionPolicy.zones': ''. {message}")
        group["distributionPolicy"] = {
            "targetShape": policy.get("targetShape") or "EVEN",
            "zones": [{"zone": self._shelf.link(f"zones/{zone}")} for zone in zones],
        }

    def set_template(self, call: Call) -> Resource:
        """New members are made from another template."""
        found = self._lasting(call)
        self._set(found, {"instanceTemplate": call.body.get("instanceTemplate")}, call.scope)
        return self._over(call, "setInstanceTemplate", call.target, found["id"])

    def resize(self, call: Call) -> Resource:
        """Another number of members."""
        found = self._lasting(call)
        found["targetSize"] = _size(call.query.get("size"), call.scope, "size")
        return self._over(call, "resize", call.target, found["id"])

    def delete(self, call: Call) -> Resource:
        """Its members go, and then it goes."""
        found = self._shelf.get(call.target)
        kind = "compute.instanceGroupManagers.delete"
        operation = self._world.operations.begin(call.scope, kind, call.target, call.user, found["id"])
        found["targetSize"] = 0
        found["_ends"] = [*found.get("_ends", ()), operation["_path"]]
        for member in found["_members"].values():
            member["action"] = "DELETING"
        self._world.changed()
        return shown(operation)

    def delete_instances(self, call: Call) -> Resource:
        """These members go, and the group is that much smaller."""
        found = self._lasting(call)
        for name in self._named(found, call.body):
            if found["_members"][name]["action"] != "DELETING":
                found["_members"][name]["action"] = "DELETING"
                found["targetSize"] = max(0, found["targetSize"] - 1)
        return self._over(call, "deleteInstances", call.target, found["id"])

    def abandon_instances(self, call: Call) -> Resource:
        """These VMs go on, but the group knows them no more, and is that much smaller."""
        found = self._lasting(call)
        for name in self._named(found, call.body):
            if found["_members"].pop(name)["action"] != "DELETING":
                found["targetSize"] = max(0, found["targetSize"] - 1)
        return self._over(call, "abandonInstances", call.target, found["id"])

    def recreate_instances(self, call: Call) -> Resource:
        """These VMs are made anew."""
        found = self._lasting(call)
        for name in self._named(found, call.body):
            self._keeper.recreate(found, name)
        return self._over(call, "recreateInstances", call.target, found["id"])

    def _lasting(self, call: Call) -> Resource:
        """The group. Raises ApiError if it is on its way out: nothing can be changed any more."""
        found = self._shelf.get(call.target)
        if found.get("_ends") is not None:
            message = f"The resource '{self._shelf.full(call.target)}' is not ready"
            raise ApiError(400, "resourceNotReady", message)
        return found

    def _named(self, group: Resource, body: Mapping[str, Any]) -> list[str]:
        """The members that a request names. Raises ApiError if one is none."""
        asked = list(dict.fromkeys(last(link) for link in body.get("instances", ())))
        unknown = [name for name in asked if name not in group["_members"]]
        if body.get("skipInstancesOnValidationError"):
            return [name for name in asked if name not in unknown]
        if unknown:
            message = f"Instance '{unknown[0]}' is not a member of '{group['name']}'."
            raise invalid(f"Invalid value for field 'instances': '{unknown[0]}'. {message}")
        return asked

    def _over(self, call: Call, verb: str, path: str, id_: str) -> Resource:
        kind = f"compute.instanceGroupManagers.{verb}"
        operation = self._world.operations.begin(call.scope, kind, path, call.user, id_)
        self._world.agenda.after(self._world.pace("operation"), lambda: self._late(operation))
        self._world.changed()
        return shown(operation)

    def _late(self, operation: Resource) -> None:
        with self._world.lock:
            self._world.operations.finish(operation)

    # Plain groups, which belong to these

    def _group(self, manager: Resource) -> Resource:
        place = "region" if "region" in manager else "zone"
        region = last(manager["region"]) if "region" in manager else region_of(last(manager["zone"]))
        return {
            "kind": "compute#instanceGroup",
            "id": manager["id"],
            "creationTimestamp": manager["creationTimestamp"],
            "name": manager["name"],
            "description": f"This instance group is controlled by '{manager['name']}'.",
            "fingerprint": fingerprint(manager["name"]),
            "network": self._shelf.link("global/networks/default"),
            "subnetwork": self._shelf.link(f"regions/{region}/subnetworks/default"),
            "size": sum(bool(self._keeper.status(one, name)) for name, one in manager["_members"].items()),
            "selfLink": manager["instanceGroup"],
            place: manager[place],
        }

    def _manager(self, call: Call) -> Resource:
        found = self._shelf.find(f"{call.scope}/instanceGroupManagers/{call.names['name']}")
        if found is None:
            raise not_found(self._shelf.full(call.target))
        return found

    def get_group(self, call: Call) -> Resource:
        """One of them."""
        return self._group(self._manager(call))

    def list_groups(self, call: Call) -> Resource:
        """Those of one place."""
        items = [self._group(one) for one in self._shelf.all(f"{call.scope}/instanceGroupManagers")]
        kind = "regionInstanceGroupList" if "region" in call.names else "instanceGroupList"
        return listed(items, call.query, kind, f"projects/{self._world.project}/{call.collection}")

    def list_groups_everywhere(self, call: Call) -> Resource:
        """Those of all places."""
        scopes = {
            scope: [self._group(one) for one in self._shelf.all(f"{scope}/instanceGroupManagers")]
            for scope in _scopes()
        }
        path = f"projects/{self._world.project}/aggregated/instanceGroups"
        return aggregated(scopes, call.query, "instanceGroupAggregatedList", path)

    def list_autoscalers(self, call: Call) -> Resource:
        """There are none; gcloud asks for them with every list of groups."""
        kind = "regionAutoscalerList" if "region" in call.names else "autoscalerList"
        return listed([], call.query, kind, f"projects/{self._world.project}/{call.collection}")

    def list_instances(self, call: Call) -> Resource:
        """The VMs of one."""
        manager = self._manager(call)
        items = [
            {"name": name, "instance": self._shelf.link(path_of_vm(one, name)), "status": status}
            for name, one in manager["_members"].items()
            if (status := self._keeper.status(one, name))
            and (call.body.get("instanceState") != "RUNNING" or status == "RUNNING")
        ]
        kind = (
            "regionInstanceGroupsListInstances" if "region" in call.names else "instanceGroupsListInstances"
        )
        reply = listed(items, call.query, kind, f"projects/{self._world.project}/{call.target}/listInstances")
        for one in reply.get("items", ()):
            one.pop("name")
        return reply


def default_zones(region: str) -> list[str]:
    """Where a regional group has its members if nothing is said: in three zones."""
    return [f"{region}-{letter}" for letter in REGIONS[region][:3]]


def _scopes() -> list[str]:
    return [*(f"regions/{region}" for region in REGIONS), *(f"zones/{zone}" for zone in ZONES)]


def _may(verb: str) -> str:
    return f"compute.instanceGroupManagers.{verb}"


def _size(asked: object, scope: str, field: str) -> int:
    """How many members are asked for. Raises ApiError if it is no number, or too many."""
    text, most = str(asked), _MOST_OF_ZONE if scope.startswith("zones/") else _MOST_OF_REGION
    if not (text.isascii() and text.isdigit() and int(text) <= most):
        message = f"Must be a number between 0 and {most}."
        raise invalid(f"Invalid value for field '{field}': '{'' if asked is None else asked}'. {message}")
    return int(text)


def _camel(action: str) -> str:
    first, *rest = action.lower().split("_")
    return first + "".join(word.capitalize() for word in rest)


def _check_shape(group: Resource) -> None:
    shape = group.get("distributionPolicy", {}).get("targetShape", "EVEN")
    if shape not in ("EVEN", "BALANCED", "ANY", "ANY_SINGLE_ZONE"):
        raise invalid(f"Invalid value for field 'resource.distributionPolicy.targetShape': '{shape}'.")
    if shape != "EVEN" and group["updatePolicy"]["instanceRedistributionType"] != "NONE":
        message = f"Target shape {shape} needs instance redistribution type NONE."
        raise invalid(
            f"Invalid value for field 'resource.updatePolicy.instanceRedistributionType': ''. {message}"
        )
