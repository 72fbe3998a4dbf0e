"""The calls that tell what there is: the project, places, types of machines, GPUs and disks, networks."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

from stoker.emulator.compute import quotas
from stoker.emulator.compute.catalog import (
    ATTACHED,
    DISK_TYPES,
    GPU_NAMES,
    REGIONS,
    ZONES,
    MachineType,
    gpus_at,
    machine_type,
    types_at,
)
from stoker.emulator.compute.listing import aggregated, listed
from stoker.emulator.compute.resources import Resource, check_fingerprint, fingerprint, region_of, shown
from stoker.emulator.compute.routes import Call, Route
from stoker.emulator.compute.shape import check_metadata
from stoker.emulator.compute.world import World
from stoker.emulator.errors import not_found

_SINCE = "1969-12-31T16:00:00.000-08:00"


class Places:
    """All of these calls."""

    def __init__(self, world: World) -> None:
        self._world, self._shelf = world, world.shelf

    def routes(self) -> list[Route]:
        """All calls."""
        return [
            ("GET", "", "compute.projects.get", self.project),
            (
                "POST",
                "setCommonInstanceMetadata",
                "compute.projects.setCommonInstanceMetadata",
                self.set_metadata,
            ),
            *self._two("regions", "regionList", lambda scope: [self._region(one) for one in REGIONS]),
            *self._two("zones", "zoneList", lambda scope: [self._zone(one) for one in ZONES]),
            *self._two("global/networks", "networkList", lambda scope: [self._network()]),
            *self._two(
                "regions/{region}/subnetworks", "subnetworkList", lambda scope: [self._subnetwork(scope)]
            ),
            ("GET", "zones/{zone}/machineTypes/{name}", "compute.machineTypes.get", self.machine_type),
            *self._of_zones("machineTypes", "machineType", self._types),
            *self._of_zones("acceleratorTypes", "acceleratorType", self._gpus),
            *self._of_zones("diskTypes", "diskType", self._disk_types),
        ]

    def _two(self, all_: str, kind: str, items: Callable[[str], list[Resource]]) -> list[Route]:
        """`get` and `list`."""
        what = f"compute.{all_.rpartition('/')[2]}"

        def list_(call: Call) -> Resource:
            path = f"projects/{self._world.project}/{call.path}"
            return listed(items(call.scope), call.query, kind, path)

        def get(call: Call) -> Resource:
            for one in items(call.scope):
                if one["name"] == call.names["name"]:
                    return one
            raise not_found(self._shelf.full(call.path))

        return [("GET", f"{all_}/{{name}}", f"{what}.get", get), ("GET", all_, f"{what}.list", list_)]

    def _of_zones(self, what: str, kind: str, items: Callable[[str], list[Resource]]) -> list[Route]:
        """`get`, `list` and `aggregatedList`."""

        def everywhere(call: Call) -> Resource:
            scopes = {f"zones/{zone}": items(f"zones/{zone}") for zone in ZONES}
            path = f"projects/{self._world.project}/aggregated/{what}"
            return aggregated(scopes, call.query, f"{kind}AggregatedList", path)

        return [
            *self._two(f"zones/{{zone}}/{what}", f"{kind}List", items),
            ("GET", f"aggregated/{what}", f"compute.{what}.list", everywhere),
        ]

    # The project

    def project(self, call: Call) -> Resource:
        """With its metadata and quotas."""
        identity, world = self._world.around.identity, self._world
        usage = quotas.used(world.instances()) | {
            "IMAGES": len(self._shelf.all("global/images")),
            "SNAPSHOTS": len(self._shelf.all("global/snapshots")),
            "INSTANCE_TEMPLATES": len(self._shelf.all("global/instanceTemplates")),
            "NETWORKS": 1,
        }
        return {
            "kind": "compute#project",
            "id": identity.number,
            "creationTimestamp": _SINCE,
            "name": world.project,
            "commonInstanceMetadata": {
                "kind": "compute#metadata",
                "fingerprint": fingerprint(world.common),
                **({"items": world.common} if world.common else {}),
            },
            "quotas": quotas.shown(quotas.PROJECT, usage),
            "selfLink": self._shelf.link("").rstrip("/"),
            "defaultServiceAccount": identity.default_account,
            "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
            "defaultNetworkTier": "PREMIUM",
            "vmDnsSetting": "ZONAL_ONLY",
        }

    def set_metadata(self, call: Call) -> Resource:
        """All metadata of the project anew, if nobody else changed it meanwhile."""
        items = list(call.body.get("items", ()))
        check_metadata(items)
        check_fingerprint(call.body.get("fingerprint"), self._world.common, bool(self._world.common))
        self._world.common = items
        for vm in self._world.vms.values():
            vm.touch()
        self._world.changed()
        kind = "setMetadata"
        return shown(
            self._world.operations.done("global", kind, "", call.user, self._world.around.identity.number)
        )

    # Places

    def _region(self, name: str) -> Resource:
        path = f"regions/{name}"
        groups = len(self._shelf.all(f"{path}/instanceGroupManagers"))
        usage = quotas.used(self._world.instances(), name) | {"REGIONAL_INSTANCE_GROUP_MANAGERS": groups}
        return self._named("region", path) | {
            "status": "UP",
            "zones": [self._shelf.link(f"zones/{name}-{letter}") for letter in REGIONS[name]],
            "quotas": quotas.shown(quotas.REGIONAL, usage),
            "supportsPzs": False,
        }

    def _zone(self, name: str) -> Resource:
        return self._named("zone", f"zones/{name}") | {
            "status": "UP",
            "region": self._shelf.link(f"regions/{region_of(name)}"),
            "availableCpuPlatforms": ["Intel Skylake", "Intel Cascade Lake", "Intel Ice Lake", "AMD Milan"],
            "supportsPzs": False,
        }

    def _named(self, kind: str, path: str) -> Resource:
        name = path.rpartition("/")[2]
        return {
            "kind": f"compute#{kind}",
            "id": str(1000 + zlib.crc32(path.encode())),
            "creationTimestamp": _SINCE,
            "name": name,
            "description": name,
            "selfLink": self._shelf.link(path),
        }

    def _network(self) -> Resource:
        subnetworks = [self._shelf.link(f"regions/{region}/subnetworks/default") for region in REGIONS]
        return self._named("network", "global/networks/default") | {
            "autoCreateSubnetworks": True,
            "subnetworks": subnetworks,
            "routingConfig": {"routingMode": "REGIONAL"},
        }

    def _subnetwork(self, scope: str) -> Resource:
        region = scope.rpartition("/")[2]
        number = 128 + 4 * sorted(REGIONS).index(self._world.check_region(region))
        return self._named("subnetwork", f"{scope}/subnetworks/default") | {
            "region": self._shelf.link(scope),
            "network": self._shelf.link("global/networks/default"),
            "ipCidrRange": f"10.{number}.0.0/16",
            "gatewayAddress": f"10.{number}.0.1",
            "fingerprint": fingerprint(region),
            "privateIpGoogleAccess": True,
            "purpose": "PRIVATE",
            "stackType": "IPV4_ONLY",
        }

    # Kinds of machines

    def machine_type(self, call: Call) -> Resource:
        """One of them; custom ones have no end, so they are in no list."""
        found = machine_type(self._world.check_zone(call.names["zone"]), call.names["name"])
        if found is None:
            raise not_found(self._shelf.full(call.path))
        return self._type(call.scope, found)

    def _types(self, scope: str) -> list[Resource]:
        return [self._type(scope, one) for one in types_at(self._zone_of(scope))]

    def _type(self, scope: str, kind: MachineType) -> Resource:
        made: dict[str, Any] = self._named("machineType", f"{scope}/machineTypes/{kind.name}") | {
            "description": kind.description,
            "guestCpus": kind.cpus,
            "memoryMb": kind.memory,
            "imageSpaceGb": 0,
            "maximumPersistentDisks": 128,
            "maximumPersistentDisksSizeGb": "263168",
            "zone": scope.rpartition("/")[2],
            "isSharedCpu": kind.is_shared,
            "architecture": "X86_64",
        }
        if kind.gpu:
            made["accelerators"] = [{"guestAcceleratorType": kind.gpu, "guestAcceleratorCount": kind.gpus}]
        return made

    def _gpus(self, scope: str) -> list[Resource]:
        return [
            self._named("acceleratorType", f"{scope}/acceleratorTypes/{gpu}")
            | {
                "description": GPU_NAMES[gpu],
                "maximumCardsPerInstance": ATTACHED.get(gpu, 8),
                "zone": self._shelf.link(scope),
            }
            for gpu in gpus_at(self._zone_of(scope))
        ]

    def _disk_types(self, scope: str) -> list[Resource]:
        self._zone_of(scope)
        return [
            self._named("diskType", f"{scope}/diskTypes/{name}")
            | {
                "defaultDiskSizeGb": str(default),
                "validDiskSize": f"10GB-{most}GB",
                "zone": self._shelf.link(scope),
            }
            for name, (most, default) in DISK_TYPES.items()
        ]

    def _zone_of(self, scope: str) -> str:
        return self._world.check_zone(scope.rpartition("/")[2])
