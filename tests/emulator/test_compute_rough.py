"""VMs for which things happen at a bad moment, or whose machine cannot be made or removed."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from stoker.emulator.cloud import PROJECT, Emulator
from stoker.emulator.compute import operations
from stoker.emulator.compute.agenda import Agenda
from stoker.emulator.compute.operations import Operations
from stoker.emulator.compute.resources import Shelf
from stoker.emulator.faults import Fault
from stoker.emulator.machines.interface import Guest, Mode
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch
from tests.emulator.gce import DEBIAN, ZONE, Gce, disk, until, vm

NOTICE = 0.5


class Frail:
    """A machine without processes, that breaks when it is told to."""

    breaks: frozenset[str] = frozenset()
    is_deaf = False
    slow = threading.Event()  # set: nothing is slow

    def __init__(self, guest: Guest, mode: Mode) -> None:
        self.mode, self.serial = mode, guest.directory / "serial.log"
        self.ssh_port: int | None = None
        self._ended: Callable[[], None] = lambda: None

    def _do(self, what: str) -> None:
        if what in self.breaks:
            self.slow.wait(20)
            raise OSError(f"{what} does not work")

    def prepare(self) -> dict[str, socket.socket]:
        self._do("prepare")
        return {}

    def boot(self, ended: Callable[[], None]) -> None:
        self._ended = ended

    def shut_down(self) -> None:
        if not self.is_deaf:
            self._ended()

    def cut(self) -> None:
        self._do("cut")

    def remove(self) -> None:
        self._do("remove")


@pytest.fixture
def frail(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    monkeypatch.setattr(Frail, "breaks", frozenset())
    monkeypatch.setattr(Frail, "is_deaf", False)
    Frail.slow.set()
    with Emulator(pace=replace(FAST, notice=NOTICE, boot=0.0), observe=watch) as cloud:
        cloud.compute._world.make = Frail
        yield cloud
        Frail.slow.set()
        Frail.breaks = frozenset()


def where(name: str) -> dict[str, Any]:
    return {"project": PROJECT, "zone": ZONE, "instance": name}


def is_done(gce: Gce, operation: Any) -> bool:
    found = gce.zone_operations.get(project=PROJECT, zone=ZONE, operation=operation.name)
    return found.status == compute_v1.Operation.Status.DONE


ENDS = compute_v1.Scheduling(on_host_maintenance="TERMINATE", automatic_restart=True)


def booted(cloud: Emulator, gce: Gce, name: str, **fields: Any) -> None:
    gce.make(vm(name, **fields))
    until(lambda: cloud.compute._world.vms[f"zones/{ZONE}/instances/{name}"]._is_booted)


def test_the_maintenance_of_a_vm_that_is_gone_does_not_touch_its_successor(frail: Emulator) -> None:
    gce = Gce(frail.url)
    gce.make(vm("heir", scheduling=ENDS))
    begun = gce.instances.simulate_maintenance_event_unary(**where("heir"))
    gce.done(gce.instances.delete_unary(**where("heir")))
    gce.make(vm("heir", scheduling=ENDS))
    until(lambda: is_done(gce, begun))
    time.sleep(0.1)
    assert gce.get("heir").status == "RUNNING"
    assert [use.stop is None for use in frail.compute.meter.all()] == [False, True]


def test_a_vm_that_is_deleted_while_maintenance_ends_it_is_gone(frail: Emulator) -> None:
    gce = Gce(frail.url)
    Frail.is_deaf = True
    booted(frail, gce, "brief", scheduling=ENDS)
    maintained = gce.instances.simulate_maintenance_event_unary(**where("brief"))
    until(lambda: gce.get("brief").status == "STOPPING")
    deleted = gce.instances.delete_unary(**where("brief"))
    until(lambda: is_done(gce, deleted) and is_done(gce, maintained))
    assert gce.there() == {}


def test_two_disks_of_one_name_are_refused_and_leave_nothing(cloud: Emulator) -> None:
    gce = Gce(cloud.url)
    params = compute_v1.AttachedDiskInitializeParams(source_image=DEBIAN, disk_name="same")
    same = [compute_v1.AttachedDisk(boot=at == 0, initialize_params=params) for at in range(2)]
    with pytest.raises(exceptions.Conflict):
        gce.make(vm("twins", disks=same))
    assert gce.there() == {}
    assert list(compute_v1.DisksClient(**gce.options).list(project=PROJECT, zone=ZONE)) == []


def test_a_vm_that_finds_no_room_lets_go_of_the_disks_it_was_given(watch: Watch) -> None:
    with Emulator(pace=FAST, observe=watch, faults=[Fault("exhausted", zone=ZONE)]) as cloud:
        gce = Gce(cloud.url)
        disks = compute_v1.DisksClient(**gce.options)
        data = compute_v1.Disk(name="data", size_gb=10)
        gce.done(disks.insert_unary(project=PROJECT, zone=ZONE, disk_resource=data))
        given = compute_v1.AttachedDisk(source=f"zones/{ZONE}/disks/data")
        assert gce.make(vm("unlucky", disks=[disk(), given])).error.errors
        assert list(disks.get(project=PROJECT, zone=ZONE, disk="data").users) == []


def test_a_machine_that_cannot_be_made_again_is_terminated(frail: Emulator) -> None:
    gce = Gce(frail.url)
    gce.make(vm("worn"))
    Frail.breaks = frozenset({"prepare"})
    over = gce.done(gce.instances.reset_unary(**where("worn")))
    assert "prepare does not work" in over.error.errors[0].message
    assert gce.get("worn").status == "TERMINATED"
    assert frail.compute.meter.all()[0].stop is not None


def test_a_vm_that_is_deleted_while_its_machine_fails_is_gone(frail: Emulator) -> None:
    gce = Gce(frail.url)
    Frail.breaks = frozenset({"prepare"})
    Frail.slow.clear()
    made = gce.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=vm("hasty"))
    until(lambda: gce.get("hasty").status == "STAGING")
    deleted = gce.instances.delete_unary(**where("hasty"))
    Frail.slow.set()
    until(lambda: is_done(gce, deleted) and is_done(gce, made))
    assert gce.there() == {}


@pytest.mark.parametrize("what", ["cut", "remove"])
def test_a_machine_that_cannot_be_removed_does_not_keep_its_vm(
    frail: Emulator, what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    gce = Gce(frail.url)
    gce.make(vm("stuck"))
    Frail.breaks = frozenset({what})
    deleted = gce.instances.delete_unary(**where("stuck"))
    until(lambda: is_done(gce, deleted))
    assert gce.there() == {}
    until(lambda: f"{what} does not work" in capfd.readouterr().err)


def test_a_vm_that_is_gone_is_not_remembered_until_its_limit(frail: Emulator) -> None:
    gce = Gce(frail.url)
    far = compute_v1.Scheduling(termination_time="2999-01-01T00:00:00Z", instance_termination_action="STOP")
    gce.make(vm("limited", scheduling=far))
    planned = frail.compute._world.agenda._due
    later = time.monotonic() + 3600
    assert [entry.call is None for moment, _, entry in list(planned) if moment > later] == [False]
    gce.done(gce.instances.delete_unary(**where("limited")))
    assert [entry.call is None for moment, _, entry in list(planned) if moment > later] == [True]


def test_what_is_cancelled_is_not_done() -> None:
    agenda, done = Agenda(), []
    agenda.after(0.05, lambda: done.append("cancelled")).cancel()
    agenda.after(0.1, lambda: done.append("kept"))
    until(lambda: done)
    agenda.close()
    assert done == ["kept"]


def test_only_operations_that_are_over_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "_MOST", 3)
    lock = threading.RLock()
    found = Operations(Shelf(PROJECT, {}), lock, ())
    runs = found.begin("global", "insert", "global/x", "me")
    with lock:
        over = [found.done("global", "insert", "global/x", "me") for _ in range(5)]
    assert found.one(runs["_path"]) is runs
    assert [one["_path"] for one in found.dump()] == [one["_path"] for one in (runs, *over[-2:])]


def test_a_long_console_is_read_from_its_end(frail: Emulator) -> None:
    gce = Gce(frail.url)
    gce.make(vm("chatty"))
    serial: Path = frail.compute._world.vms[f"zones/{ZONE}/instances/chatty"].machine.serial
    serial.parent.mkdir(parents=True, exist_ok=True)
    serial.write_bytes(b"a" * 100 + b"b" * (1 << 20))
    said = gce.instances.get_serial_port_output(**where("chatty"))
    assert (int(said.start), int(said.next)) == (100, 100 + (1 << 20))
    assert said.contents == "b" * (1 << 20)
    request = compute_v1.GetSerialPortOutputInstanceRequest(**where("chatty"), start=said.next)
    assert gce.instances.get_serial_port_output(request=request).contents == ""
