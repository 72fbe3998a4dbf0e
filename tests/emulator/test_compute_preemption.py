"""VMs that are taken away, zones that are full, machines that do not boot."""

from __future__ import annotations

from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from stoker.emulator.cloud import PROJECT, Emulator
from stoker.emulator.faults import Fault
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch
from tests.emulator.gce import ZONE, Gce, follow, metadata, spot, until, vm

PREEMPTED = "compute.instances.preempted"
HEARS = "trap '' TERM  # and so for curl: the notice and the signal come at once\n" + follow(
    "instance/preempted?"
)


def test_a_preempted_vm_is_told_and_ended_and_can_start_again(cloud: Emulator) -> None:
    gce = Gce(cloud.url)
    shutdown = "#!/bin/bash\necho last words\n"
    gce.make(vm("prey", metadata=metadata(HEARS, shutdown_script=shutdown), scheduling=spot()))
    until(lambda: "script: FALSE" in gce.console("prey"))
    assert cloud.compute.preempt("prey")
    until(lambda: gce.get("prey").status == "TERMINATED")
    said = gce.console("prey")
    assert "script: TRUE" in said
    assert "last words" in said
    told = gce.operations_of(PREEMPTED)
    assert [(one.user, one.target_link.rpartition("/")[2]) for one in told] == [("system", "prey")]
    assert not cloud.compute.preempt("prey")
    gce.done(gce.instances.start_unary(project=PROJECT, zone=ZONE, instance="prey"))
    until(lambda: gce.console("prey").count("script: FALSE") == 2)


def test_a_vm_that_ignores_its_notice_loses_its_power(cloud: Emulator) -> None:
    gce = Gce(cloud.url)
    deaf = "trap '' TERM; echo deaf; while :; do sleep 0.1; done"
    gce.make(vm("deaf", deaf, scheduling=spot("DELETE")))
    until(lambda: "script: deaf" in gce.console("deaf"))
    gce.instances.simulate_maintenance_event_unary(project=PROJECT, zone=ZONE, instance="deaf")
    assert gce.get("deaf").status == "STOPPING"
    until(lambda: not gce.there())
    use = cloud.compute.meter.all()[0]
    assert use.stop is not None


def test_maintenance_moves_a_standard_vm_without_harm(cloud: Emulator) -> None:
    gce = Gce(cloud.url)
    gce.make(vm("steady", "echo boot; while :; do sleep 0.1; done"))
    until(lambda: "script: boot" in gce.console("steady"))
    gce.done(gce.instances.simulate_maintenance_event_unary(project=PROJECT, zone=ZONE, instance="steady"))
    assert gce.get("steady").status == "RUNNING"
    assert gce.console("steady").count("script: boot") == 1
    assert gce.operations_of(PREEMPTED) == []


def test_preemptions_by_fault(watch: Watch) -> None:
    with Emulator(pace=FAST, observe=watch, faults=[Fault("preempt", moments=(1.0,))], seed=1) as cloud:
        gce = Gce(cloud.url)
        for name, scheduling in (("one", spot()), ("two", spot()), ("safe", None)):
            gce.make(vm(name, scheduling=scheduling))
        until(lambda: [one.status for one in gce.there().values()].count("TERMINATED") == 1)
        assert gce.get("safe").status == "RUNNING"


@pytest.mark.parametrize(
    ("kind", "code", "status"),
    [("exhausted", "ZONE_RESOURCE_POOL_EXHAUSTED", 503), ("quota", "QUOTA_EXCEEDED", 403)],
)
def test_a_zone_without_room(watch: Watch, kind: str, code: str, status: int) -> None:
    with Emulator(pace=FAST, observe=watch, faults=[Fault(kind, zone=ZONE)]) as cloud:
        gce = Gce(cloud.url)
        begun = gce.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=vm("unlucky"))
        over = gce.done(begun)
        assert [error.code for error in over.error.errors] == [code]
        assert over.http_error_status_code == status
        assert gce.there() == {}
        assert not gce.make(vm("lucky", zone="us-central1-b"), "us-central1-b").error.errors
        assert list(compute_v1.DisksClient(**gce.options).list(project=PROJECT, zone=ZONE)) == []
        assert [use.name for use in cloud.compute.meter.all()] == ["lucky"]


def test_quotas_hold(watch: Watch) -> None:
    with Emulator(pace=FAST, observe=watch) as cloud:
        gce = Gce(cloud.url)
        gpus = compute_v1.AcceleratorConfig(
            accelerator_count=16, accelerator_type=f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-a100"
        )
        big: dict[str, Any] = {
            "machine_type": f"zones/{ZONE}/machineTypes/a2-megagpu-16g",
            "guest_accelerators": [gpus],
            "scheduling": compute_v1.Scheduling(on_host_maintenance="TERMINATE"),
        }
        problems: list[Any] = []
        for number in range(17):
            problems += gce.make(vm(f"big-{number}", **big)).error.errors
        assert [problem.code for problem in problems] == ["QUOTA_EXCEEDED"]
        assert "NVIDIA_A100_GPUS" in problems[0].message


def test_a_machine_that_does_not_boot_runs_and_does_nothing(watch: Watch) -> None:
    faults = [Fault("boot-failure", name="^broken")]
    with Emulator(pace=FAST, observe=watch, faults=faults) as cloud:
        gce = Gce(cloud.url)
        for name in ("broken", "sound"):
            gce.make(vm(name, "echo here I am"))
        until(lambda: "here I am" in gce.console("sound"))
        assert gce.get("broken").status == "RUNNING"
        assert "Kernel panic" in gce.console("broken")
        assert "here I am" not in gce.console("broken")


def test_errors_after_the_effect_do_not_make_two(watch: Watch) -> None:
    faults = [Fault("error-after", api="compute", method="POST", path="instances$", times=1)]
    with Emulator(pace=FAST, observe=watch, faults=faults) as cloud:
        gce = Gce(cloud.url)
        with pytest.raises(exceptions.ServiceUnavailable):
            gce.instances.insert_unary(project=PROJECT, zone=ZONE, instance_resource=vm("made"), retry=None)
        until(lambda: gce.get("made").status == "RUNNING")
        with pytest.raises(exceptions.Conflict):
            gce.make(vm("made"))
