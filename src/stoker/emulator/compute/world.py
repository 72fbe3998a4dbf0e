"""What the parts of Compute Engine share: one lock, one shelf, one agenda."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stoker.emulator.compute.agenda import Agenda
from stoker.emulator.compute.catalog import REGIONS, ZONES
from stoker.emulator.compute.operations import Operations
from stoker.emulator.compute.resources import Resource, Shelf
from stoker.emulator.errors import ApiError, not_found
from stoker.emulator.machines.interface import Guest, Machine, Mode
from stoker.emulator.meter import Meter
from stoker.emulator.service import Surroundings

if TYPE_CHECKING:
    from stoker.emulator.compute.vm import Vm

Make = Callable[[Guest, Mode], Machine]
SYSTEM = "system"
"""Who does what nobody asked for."""


class World:
    """All is read and changed with the lock held. Machines are never called with it: they take long."""

    def __init__(self, around: Surroundings, kept: Mapping[str, Any], make: Make, mode: Mode) -> None:
        self.around, self.make, self.mode = around, make, mode
        self.lock = threading.RLock()
        self.shelf = Shelf(around.project, kept.get("resources", {}))
        self.operations = Operations(self.shelf, self.lock, kept.get("operations", ()))
        self.meter = Meter(kept.get("meter", ()), kept.get("saved", 0.0))
        self.agenda = Agenda()
        self.common: list[Resource] = list(kept.get("common", ()))  # metadata of the project
        self.vms: dict[str, Vm] = {}
        self.is_open = True
        self.expired: Callable[[str], None] = lambda path: None  # told when the time of a VM is over
        self.stirred = threading.Event()  # groups have something to look at

    @property
    def project(self) -> str:
        """The only project."""
        return self.around.project

    def pace(self, name: str) -> float:
        """How many seconds something takes."""
        return self.around.pace.of(getattr(self.around.pace, name))

    def changed(self) -> None:
        """Something is different: to be kept, and perhaps of interest to a group."""
        self.stirred.set()
        self.around.changed()

    def check_project(self, project: str) -> None:
        """Raise ApiError unless it is ours."""
        if project not in (self.project, self.around.identity.number):
            message = f"The resource 'projects/{project}' was not found"
            raise ApiError(404, "notFound", message)

    def check_zone(self, zone: str) -> str:
        """Raise ApiError if there is no such zone."""
        if zone not in ZONES:
            raise not_found(self.shelf.full(f"zones/{zone}"))
        return zone

    def check_region(self, region: str) -> str:
        """Raise ApiError if there is no such region."""
        if region not in REGIONS:
            raise not_found(self.shelf.full(f"regions/{region}"))
        return region

    def instances(self) -> list[Resource]:
        """All of them."""
        return [one for _, one in self.shelf.everywhere("instances")]

    def dump(self) -> dict[str, Any]:
        """A copy of all that has to survive a restart."""
        found = {
            "resources": self.shelf.dump(),
            "operations": self.operations.dump(),
            "meter": self.meter.dump(),
            "common": self.common,
            "saved": time.time(),
        }
        return dict(json.loads(json.dumps(found)))
