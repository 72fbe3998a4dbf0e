"""The life of one VM: it gets power, boots, is asked to end, loses its power, starts again or is gone."""

from __future__ import annotations

import socket
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from urllib.parse import urlsplit

from stoker.emulator.compute.agenda import Entry
from stoker.emulator.compute.capacity import shortage
from stoker.emulator.compute.catalog import machine_type
from stoker.emulator.compute.inside import authorized_keys, tree
from stoker.emulator.compute.operations import Problem
from stoker.emulator.compute.quotas import gpus_of, is_spot
from stoker.emulator.compute.resources import Resource, last, path_of, timestamp
from stoker.emulator.compute.shape import ends_at
from stoker.emulator.compute.world import SYSTEM, World
from stoker.emulator.errors import ApiError, not_found
from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.identity import Caller
from stoker.emulator.machines.interface import Guest, Machine
from stoker.emulator.metadata import MetadataServer
from stoker.emulator.meter import Use
from stoker.emulator.service import variables

Done = Callable[[Problem | None], None]
"""Called with the lock held, when something is over."""

_STOP = 3.0  # an ordinary stop waits three times as long as a preemption: 90 seconds


class Vm:
    """Public methods are called with the world's lock held, and return at once.

    `_epoch` counts starts and ends: whatever was planned in an earlier one is void.
    """

    def __init__(self, world: World, path: str) -> None:
        self._world, self._path = world, path
        self._id = str(world.shelf.get(path)["id"])
        self._hands = threading.Lock()  # the machine is called by one thread at a time
        self._sockets: list[socket.socket] = []
        self._epoch = 0
        self._is_booted = False
        self._ends: list[Done] = []
        self._limit_entry: Entry | None = None
        self._machine = world.make(self._guest(), world.mode)
        self._metadata = MetadataServer(self._look, self._token, self._set_guest_attribute)

    @property
    def resource(self) -> Resource:
        """As it lies on the shelf. Raises ApiError if it does not, or another one of its name does."""
        found = self._found()
        if found is None:
            raise not_found(self._world.shelf.full(self._path))
        return found

    def _found(self) -> Resource | None:
        found = self._world.shelf.find(self._path)
        return found if found is not None and found["id"] == self._id else None

    @property
    def machine(self) -> Machine:
        """What it runs on."""
        return self._machine

    def _guest(self) -> Guest:
        found, around = self.resource, self._world.around
        keys = authorized_keys(found["metadata"].get("items", ()), self._world.common)
        url = around.url()
        environment = variables(url, self._world.project)
        directory = around.directory / "compute" / str(found["id"])
        port = urlsplit(url).port or 0
        return Guest(found["name"], directory, environment, port, bool(keys), keys, (around.directory,))

    # Power

    def power_on(self, done: Done) -> None:
        """Start it; `done` when it has its power, or cannot have it."""
        self._epoch += 1
        epoch = self._epoch
        self.resource["status"] = "PROVISIONING"
        self._later(self._world.pace("operation"), lambda: self._power(epoch, done))

    def _power(self, epoch: int, done: Done) -> None:
        with self._hands:
            with self._world.lock:
                if self._is_void(epoch):
                    done(None)
                    return
                problem = shortage(self._world, self.resource)
                if problem is not None:
                    self._fail(epoch, done, problem)
                    return
                self.resource["status"] = "STAGING"
            try:
                sockets = self._machine.prepare()
            except Exception as error:  # whatever keeps a machine from being made: the caller learns it
                with self._world.lock:
                    self._fail(epoch, done, _unmade(error))
                return
            with self._world.lock:
                self._answer(sockets)
                if not self._is_void(epoch):
                    self._run(epoch)
                done(None)

    def _fail(self, epoch: int, done: Done, problem: Problem) -> None:
        if self._is_void(epoch):  # its end is under way, and tidies up
            done(None)
            return
        self.resource["status"] = "TERMINATED"
        done(problem)
        self._world.changed()

    def _answer(self, sockets: dict[str, socket.socket]) -> None:
        apps = {"metadata": self._inside, "api": self._api}
        for name, one in sockets.items():
            self._sockets.append(one)
            self._world.around.server.listen(one, apps[name])

    def _run(self, epoch: int) -> None:
        found, now = self.resource, time.time()
        found |= {"status": "RUNNING", "lastStartTimestamp": timestamp(now), "_preempted": False}
        found.pop("_maintenance", None)
        found.pop("lastStopTimestamp", None)
        self._world.meter.begin(use_of(found, now))
        self._limit(epoch, now)
        delay, is_failing = self._boot_fault()
        if not is_failing:
            self._later(self._world.pace("boot") + delay, lambda: self._boot(epoch))
        self._world.changed()

    def _boot_fault(self) -> tuple[float, bool]:
        """How much longer it takes to boot, and whether it never does."""
        around, found = self._world.around, self.resource
        kinds = ("boot-failure", "slow-boot")
        fault = around.faults.of_vm(kinds, last(found["zone"]), found["name"], around.now())
        if fault is None:
            return 0.0, False
        if fault.kind == "boot-failure":
            with suppress(OSError):
                self._machine.serial.parent.mkdir(parents=True, exist_ok=True)
                with self._machine.serial.open("a", encoding="utf-8") as console:
                    console.write("Kernel panic - not syncing: VFS: Unable to mount root fs\n")
        return fault.seconds, fault.kind == "boot-failure"

    def _boot(self, epoch: int) -> None:
        with self._hands:
            with self._world.lock:
                if self._is_void(epoch) or self.resource["status"] != "RUNNING":
                    return
                self._is_booted = True
            self._machine.boot(lambda: self._ended(epoch))

    def _ended(self, epoch: int) -> None:
        """The machine says so, from a thread of its own."""
        with self._world.lock:
            if self._is_void(epoch):
                return
            found = self.resource
            if found["status"] == "RUNNING":  # it powered itself off
                found["status"] = "STOPPING"
                self._tell("compute.instances.guestTerminate")
            self._later(0, lambda: self._end(epoch))

    def _limit(self, epoch: int, started: float) -> None:
        """Plan its end, if it has one."""
        found = self.resource
        self._unlimit()
        moment = ends_at(found["scheduling"], started)
        if moment is None:
            found.pop("resourceStatus", None)
            return
        found["resourceStatus"] = {"scheduling": {"terminationTimestamp": timestamp(moment)}}
        wait = max(0.0, moment - time.time())
        self._limit_entry = self._later(wait, lambda: self._expire(epoch))

    def _unlimit(self) -> None:
        if self._limit_entry is not None:
            self._limit_entry.cancel()
            self._limit_entry = None

    def _expire(self, epoch: int) -> None:
        with self._world.lock:
            if self._is_void(epoch) or self.resource["status"] != "RUNNING":
                return
            self._world.expired(self._path)
            is_deleted = self.resource["scheduling"].get("instanceTerminationAction") == "DELETE"
            operation = self._begin("delete" if is_deleted else "stop")
            self.stop(lambda problem: self._over(operation, problem), is_deleted)

    # The end

    def stop(self, done: Done, is_deleted: bool = False, grace: float = 0.0) -> None:
        """Ask it to end, and after a while make it; `done` when it has no power, or is gone."""
        found = self.resource
        self._ends.append(done)
        found["_doomed"] = bool(found.get("_doomed") or is_deleted)
        if found["status"] in ("STOPPING", "DEPROVISIONING"):
            return
        was_running = found["status"] == "RUNNING" and self._is_booted
        found["status"] = "STOPPING"
        if not was_running:
            self._epoch += 1  # a start that is under way is void
        epoch = self._epoch
        if was_running:
            self._later(0, lambda: self._press(epoch))
        wait = (grace or self._world.pace("notice") * _STOP) if was_running else 0
        self._later(wait, lambda: self._end(epoch))
        self._world.changed()

    def _press(self, epoch: int) -> None:
        with self._hands:
            with self._world.lock:
                is_void = self._is_void(epoch)
            if not is_void:
                self._machine.shut_down()

    def _end(self, epoch: int) -> None:
        with self._hands:
            with self._world.lock:
                if self._is_void(epoch):
                    return
                self._epoch += 1
                self._unlimit()
            try:
                self._cut()
            finally:  # whatever goes wrong with a machine: its VM does not stay as it is for ever
                self._leave()

    def _leave(self) -> None:
        """It has no power any more: it is stopped, or gone."""
        with self._world.lock:
            if not self.resource.get("_doomed"):
                self._stopped()
                return
            self._world.meter.end(self._id)
        try:
            self._machine.remove()
        finally:
            with self._world.lock:
                self._gone()

    def _cut(self) -> None:
        try:
            self._machine.cut()
        finally:
            self._disconnect()

    def _disconnect(self) -> None:
        self._metadata.disconnect()
        for one in self._sockets:
            self._world.around.server.leave(one)
        self._sockets, self._is_booted = [], False

    def _stopped(self) -> None:
        found = self.resource
        self._world.meter.end(found["id"])
        found |= {"status": "TERMINATED", "lastStopTimestamp": timestamp(time.time())}
        found.pop("resourceStatus", None)
        self._call_ends()

    def _gone(self) -> None:
        found, shelf = self.resource, self._world.shelf
        shelf.remove(self._path)
        self._world.vms.pop(self._path, None)
        for attached in found["disks"]:
            disk = shelf.find(path_of(attached.get("source", "")))
            if disk is not None and attached["autoDelete"]:
                shelf.remove(path_of(attached["source"]))
            elif disk is not None:
                disk.pop("users", None)
        self._call_ends()

    def _call_ends(self) -> None:
        ends, self._ends = self._ends, []
        for done in ends:
            try:
                done(None)
            except Exception:  # one that goes wrong must not be the end of the others
                traceback.print_exc()
        self._world.changed()

    def close(self) -> None:
        """Take its power away, without the lock: the cloud ends. It keeps its state, to be started again."""
        with self._world.lock:
            self._epoch += 1
        with self._hands:
            self._cut()

    # What happens to it

    def reset(self, done: Done) -> None:
        """Take its power and give it again, at once."""
        self._epoch += 1
        self.resource.pop("_maintenance", None)
        epoch = self._epoch
        self._later(0, lambda: self._again(epoch, done))

    def _again(self, epoch: int, done: Done) -> None:
        with self._hands:
            with self._world.lock:
                if self._is_void(epoch):
                    done(None)
                    return
            try:
                self._cut()
                sockets = self._machine.prepare()
            except Exception as error:  # whatever keeps a machine from being made: the caller learns it
                with self._world.lock:
                    self._lose(epoch)
                    done(_unmade(error))
                return
            with self._world.lock:
                self._answer(sockets)
                if not self._is_void(epoch):
                    self._limit(epoch, time.time())
                    self._later(self._world.pace("boot"), lambda: self._boot(epoch))
                done(None)

    def _lose(self, epoch: int) -> None:
        """It cannot have its power again. If its end is under way already, that does the rest."""
        if not self._is_void(epoch) and self.resource["status"] == "RUNNING":
            self._epoch += 1
            self._unlimit()
            self._stopped()

    def preempt(self) -> None:
        """Take it away: a notice, a while to say goodbye, the end."""
        found = self.resource
        if found["status"] != "RUNNING":
            return
        found["_preempted"] = True
        operation = self._begin("compute.instances.preempted")
        operation["statusMessage"] = "Instance was preempted."
        is_deleted = found["scheduling"].get("instanceTerminationAction") == "DELETE"
        self._metadata.changed()
        self.stop(lambda problem: None, is_deleted, self._world.pace("notice"))
        self._over(operation, None)

    def maintain(self, done: Done) -> None:
        """Maintenance of its host: it is moved, or ended and started again. A spot VM is preempted."""
        found = self.resource
        if is_spot(found):
            self.preempt()
            done(None)
            return
        migrates = found["scheduling"]["onHostMaintenance"] == "MIGRATE"
        found["_maintenance"] = "MIGRATE_ON_HOST_MAINTENANCE" if migrates else "TERMINATE_ON_HOST_MAINTENANCE"
        self._metadata.changed()
        epoch = self._epoch
        self._later(self._world.pace("notice"), lambda: self._maintained(epoch, migrates, done))

    def _maintained(self, epoch: int, migrates: bool, done: Done) -> None:
        with self._world.lock:
            found = self._found()
            if self._is_void(epoch) or found is None or found["status"] != "RUNNING":
                done(None)
                return
            found.pop("_maintenance", None)
            self._metadata.changed()
            if migrates:
                done(None)
            elif found["scheduling"]["automaticRestart"]:
                self.stop(lambda problem: self._restart(done))
            else:
                self.stop(done)

    def _restart(self, done: Done) -> None:
        """Start it again, unless somebody has removed it meanwhile."""
        if self._found() is None:
            done(None)
        else:
            self.power_on(done)

    def touch(self) -> None:
        """Its metadata changed: whoever waits for that inside is told."""
        self._metadata.changed()

    # What it reads and says

    def _look(self) -> Resource:
        with self._world.lock:
            identity = self._world.around.identity
            return tree(self.resource, self._world.common, self._world.project, identity.number)

    def _token(self, account: str, scopes: Sequence[str]) -> Resource:
        return self._world.around.identity.token(Caller(account, tuple(scopes)))

    def _set_guest_attribute(self, name: str, value: str | None) -> None:
        namespace, _, key = name.partition("/")
        with self._world.lock:
            attributes = self.resource.setdefault("_guest", {})
            if value is None:
                attributes.get(namespace, {}).pop(key, None)
            else:
                attributes.setdefault(namespace, {})[key] = value
            self._world.around.changed()

    def _api(self, request: Request) -> Reply:
        """The cloud, as it answers inside: who brings no token is the VM itself, and not the user at home."""
        if request.path == "/emulator" or request.path.startswith("/emulator/"):
            error = ApiError(403, "forbidden", "A VM does not control the cloud in which it runs.")
            return json_reply(error.body(), error.code)
        return self._world.around.root(replace(request, extra={"caller": self._caller()}))

    def _caller(self) -> Caller:
        with self._world.lock:
            accounts = (self._found() or {}).get("serviceAccounts", ())
            if not accounts:
                return Caller(f"nobody@{self._world.project}.iam.gserviceaccount.com", ())
            return Caller(accounts[0]["email"], tuple(accounts[0]["scopes"]))

    def _inside(self, request: Request) -> Reply:
        """The metadata server, with the faults that were asked for."""
        around = self._world.around
        fault = around.faults.of_request("metadata", request.method, request.path, around.now())
        if fault is None:
            return self._metadata.app(request)
        if fault.kind == "slow":
            time.sleep(fault.seconds)
            return self._metadata.app(request)
        if fault.kind.endswith("-after"):
            self._metadata.app(request)
        if fault.kind.startswith("drop"):
            return Reply(0)
        return json_reply(ApiError(fault.status, fault.reason, "unavailable").body(), fault.status)

    # Small things

    def _is_void(self, epoch: int) -> bool:
        return epoch != self._epoch or not self._world.is_open

    def _later(self, seconds: float, call: Callable[[], None]) -> Entry:
        return self._world.agenda.after(seconds, call)

    def _begin(self, kind: str) -> Resource:
        found = self.resource
        scope = f"zones/{last(found['zone'])}"
        return self._world.operations.begin(scope, kind, self._path, SYSTEM, found["id"])

    def _over(self, operation: Resource, problem: Problem | None) -> None:
        self._world.operations.finish(operation, problem)

    def _tell(self, kind: str) -> None:
        self._over(self._begin(kind), None)


def _unmade(error: Exception) -> Problem:
    return "INTERNAL_ERROR", 500, f"the machine cannot be made: {error}", []


def use_of(instance: Resource, now: float) -> Use:
    """What the meter has to know of it."""
    zone, kind = last(instance["zone"]), last(instance["machineType"])
    return Use(
        instance["id"],
        instance["name"],
        zone,
        kind,
        "SPOT" if is_spot(instance) else "STANDARD",
        tuple(gpus_of(instance, machine_type(zone, kind))),
        now,
    )
