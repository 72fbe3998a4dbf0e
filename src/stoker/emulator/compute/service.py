"""Compute Engine v1 behind one `handle`."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stoker.emulator.compute import batch
from stoker.emulator.compute.catalog import REGIONS, ZONES
from stoker.emulator.compute.disks import Disks
from stoker.emulator.compute.images import Images
from stoker.emulator.compute.instances import Instances
from stoker.emulator.compute.keeper import Keeper
from stoker.emulator.compute.managers import Managers
from stoker.emulator.compute.places import Places
from stoker.emulator.compute.quotas import is_spot
from stoker.emulator.compute.resources import Resource, last
from stoker.emulator.compute.routes import LATER, Call, Handler, Route, Routes
from stoker.emulator.compute.templates import Templates
from stoker.emulator.compute.vm import Vm
from stoker.emulator.compute.world import Make, World
from stoker.emulator.errors import ApiError, bug
from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.machines.choose import best_mode, make_machine
from stoker.emulator.machines.interface import Mode
from stoker.emulator.meter import Meter
from stoker.emulator.service import Kept, Surroundings

_GLANCE = 0.2  # seconds between two questions for preemptions


class Compute:
    """All of Compute Engine. Its VMs run until `close`."""

    def __init__(
        self, around: Surroundings, kept: Kept, mode: Mode | None = None, make: Make = make_machine
    ) -> None:
        self.mode = mode or best_mode()
        self._world = world = World(around, kept, make, self.mode)
        instances = Instances(world)
        self._keeper = Keeper(world, instances)
        parts = (Places(world), instances, Templates(world), Managers(world, self._keeper), Disks(world))
        routes = [route for part in parts for route in part.routes()]
        self._routes = Routes([*routes, *Images(world).routes(), *self._operations()])
        with world.lock:
            instances.wake()
        self._keeper.start()
        self._closing = threading.Event()
        self._taker = threading.Thread(target=self._take_away, name="emulator preemptions", daemon=True)
        self._taker.start()

    @property
    def meter(self) -> Meter:
        """Every second of every VM."""
        return self._world.meter

    def instances(self) -> list[Resource]:
        """All of them, as they are now."""
        with self._world.lock:
            return [dict(one) for one in self._world.instances()]

    def operations(self) -> list[Resource]:
        """All that are remembered, oldest first."""
        with self._world.lock:
            return [dict(one) for one in self._world.operations.dump()]

    def running(self) -> dict[str, str]:
        """Spot VMs that run: name → zone."""
        with self._world.lock:
            return {last(path): zone for path, zone in self._spot().items()}

    def preempt(self, name: str) -> bool:
        """Take one away; False if it does not run, or is no spot VM."""
        with self._world.lock:
            path = next((path for path in self._spot() if last(path) == name), "")
            if path:
                self._world.vms[path].preempt()
            return bool(path)

    def _spot(self) -> dict[str, str]:
        """Where spot VMs run: path → zone."""
        return {
            path: last(vm.resource["zone"])
            for path, vm in self._world.vms.items()
            if vm.resource["status"] == "RUNNING" and is_spot(vm.resource)
        }

    def ssh_port(self, name: str) -> int | None:
        """Where its sshd answers on loopback; None if it has none."""
        with self._world.lock:
            found = [vm for path, vm in self._world.vms.items() if last(path) == name]
            return found[0].machine.ssh_port if found else None

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        if request.path.startswith("/batch/"):
            return batch.answer(request, self._guarded)
        call, permission, handler = self._routes.find(request)
        with self._world.lock:
            self._check(call, permission)
            reply = self._once(call, handler)
        return json_reply(reply[LATER]() if LATER in reply else reply)

    def _guarded(self, request: Request) -> Reply:
        try:
            return self.handle(request)
        except ApiError as error:
            return json_reply(error.body(), error.code)
        except Exception as error:
            problem = bug(error)
            return json_reply(problem.body(), problem.code)

    def _check(self, call: Call, permission: str) -> None:
        if not call.path.startswith("global/images"):  # others have images that everybody may use
            self._world.check_project(call.project)
        if "zone" in call.names:
            self._world.check_zone(call.names["zone"])
        if "region" in call.names:
            self._world.check_region(call.names["region"])
        what = self._world.shelf.full(call.path)
        self._world.around.identity.require(call.caller, permission, f"'{what}'")

    def _once(self, call: Call, handler: Handler) -> Resource:
        """A request that is sent again with the same id has no effect again."""
        given = call.query.get("requestId", "")
        operations = self._world.operations
        before = operations.before(given, f"{call.request.method} {call.path}")
        if before is not None:
            return before
        reply = handler(call)
        operations.remember(given, f"{call.request.method} {call.path}", reply)
        return reply

    # Operations

    def _operations(self) -> list[Route]:
        operations = self._world.operations
        scopes = ["global", *(f"regions/{one}" for one in REGIONS), *(f"zones/{one}" for one in ZONES)]

        def remove(call: Call) -> Resource:
            operations.remove(call.target)
            return {}

        found: list[Route] = [
            (
                "GET",
                "aggregated/operations",
                "compute.globalOperations.list",
                lambda call: operations.everywhere(scopes, call.query),
            )
        ]
        for scope, name in (
            ("global", "globalOperations"),
            ("regions/{region}", "regionOperations"),
            ("zones/{zone}", "zoneOperations"),
        ):
            one = f"{scope}/operations/{{name}}"
            found += [
                ("GET", one, f"compute.{name}.get", lambda call: operations.get(call.target)),
                ("POST", f"{one}/wait", f"compute.{name}.get", lambda call: operations.wait(call.target)),
                ("DELETE", one, f"compute.{name}.delete", remove),
                (
                    "GET",
                    f"{scope}/operations",
                    f"compute.{name}.list",
                    lambda call: operations.list_(call.scope, call.query),
                ),
            ]
        return found

    # Preemptions

    def _take_away(self) -> None:
        """Ask again and again which VMs are taken away."""
        before = self._world.around.now()
        while not self._closing.wait(_GLANCE):
            now = self._world.around.now()
            with self._world.lock:
                for name in self._taken(self._spot(), now - before, now):
                    self._world.vms[name].preempt()
            before = now

    def _taken(self, running: dict[str, str], passed: float, now: float) -> list[str]:
        """By name, since faults speak of names. Of two VMs of one name in two zones, one is meant."""
        paths = {last(path): path for path in running}
        named = {name: running[path] for name, path in paths.items()}
        return [paths[name] for name in self._world.around.faults.preemptions(named, passed, now)]

    # The end

    def dump(self) -> dict[str, Any]:
        """All that has to survive a restart."""
        with self._world.lock:
            return self._world.dump()

    def close(self) -> None:
        """Take the power of all VMs away. May be repeated."""
        with self._world.lock:
            if not self._world.is_open:
                return
            self._world.is_open = False
            self._world.operations.close()
            vms = list(self._world.vms.values())
        self._closing.set()
        self._taker.join()
        self._keeper.close()
        self._world.agenda.close()
        with ThreadPoolExecutor(8) as workers:
            list(workers.map(Vm.close, vms))
        for use in self._world.meter.all():
            if use.stop is None:
                self._world.meter.end(use.id)
        self._world.around.changed()
