"""Many VMs that are taken away and come back, and what is left of them in the end: nothing.

STOKER_TEST_VMS=200 makes it the long one: as many VMs, preempted for two minutes.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from google.api_core.client_options import ClientOptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

VMS = int(os.environ.get("STOKER_TEST_VMS", "8"))
SECONDS = 120 if VMS > 100 else 6
PREEMPTIONS = 60 if VMS > 100 else 900  # an hour, for each VM
PROJECT, REGION = "home-project", "us-central1"
STARTUP = (
    "#!/bin/bash\nsetsid sleep 100000 &\n(sleep 100000 &) &\necho here I am\nwhile :; do sleep 1; done\n"
)
MARK = "sleep 100000"
GROWTH = 1.3
"""How much more memory the emulator may have after all those VMs than after the first boots of all."""


class Home:
    """An emulator in a process of its own, whose memory can be looked at."""

    def __init__(self, place: Path) -> None:
        words = [sys.executable, "-m", "stoker", "emulate", "--speed", "20"]
        words += ["--preempt", str(PREEMPTIONS), "--directory", str(place / "cloud")]
        self.log = place / "emulator.log"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, cwd=place)
        wait_until(lambda: "STORAGE_EMULATOR_HOST=" in self.log.read_text(), 30)
        found = re.search(r"STORAGE_EMULATOR_HOST=(\S+)", self.log.read_text())
        assert found
        self.url = found[1].strip("'\"")

    @property
    def memory(self) -> int:
        """Kilobytes that are its own."""
        told = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(told.partition("VmRSS:")[2].split()[0])

    @property
    def files(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))  # noqa: PTH208

    @property
    def threads(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/task"))  # noqa: PTH208

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(60)


def left_over(place: Path) -> set[str]:
    """What VMs leave behind: processes of theirs, and mounts below the emulator's directory."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            if MARK in (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.add(process.name)
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    return found | {line.split()[4] for line in mounts if str(place) in line}


def wait_until(is_so: Callable[[], bool], most: float) -> None:
    until = time.monotonic() + most
    while not is_so():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.2)


def test_a_fleet_that_is_preempted_leaves_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    anonymous: Any = AnonymousCredentials
    options: dict[str, Any] = {
        "credentials": anonymous(),
        "client_options": ClientOptions(api_endpoint=home.url),
    }
    templates = compute_v1.InstanceTemplatesClient(**options)
    groups = compute_v1.RegionInstanceGroupManagersClient(**options)
    instances = compute_v1.InstancesClient(**options)
    operations = compute_v1.RegionOperationsClient(**options)
    try:
        files, threads = home.files, home.threads
        templates.insert_unary(project=PROJECT, instance_template_resource=template())
        groups.insert_unary(project=PROJECT, region=REGION, instance_group_manager_resource=group())

        def running() -> list[str]:
            zones = instances.aggregated_list(project=PROJECT)
            return [vm.name for _, zone in zones for vm in zone.instances if vm.status == "RUNNING"]

        wait_until(lambda: len(running()) > VMS * 0.7, 120)
        memory, until = home.memory, time.monotonic() + SECONDS
        while time.monotonic() < until:
            time.sleep(1)
        assert len(running()) > 0
        assert home.memory < memory * GROWTH
        zones = compute_v1.ZoneOperationsClient(**options)
        taken = sum(
            1
            for zone in ("a", "b", "c", "f")
            for operation in zones.list(project=PROJECT, zone=f"{REGION}-{zone}")
            if operation.operation_type == "compute.instances.preempted"
        )
        assert taken > VMS * SECONDS * PREEMPTIONS / 3600 / 4
        ended = groups.delete_unary(project=PROJECT, region=REGION, instance_group_manager="fleet")
        wait_until(
            lambda: (
                operations.get(project=PROJECT, region=REGION, operation=ended.name).status
                == compute_v1.Operation.Status.DONE
            ),
            120,
        )
        templates.delete_unary(project=PROJECT, instance_template="fleet")
        wait_until(
            lambda: not any(zone.instances for _, zone in instances.aggregated_list(project=PROJECT)), 60
        )
        wait_until(lambda: not left_over(tmp_path), 30)
        wait_until(lambda: home.files <= files + 8 and home.threads <= threads + 40, 30)
    finally:
        home.stop()
    assert not left_over(tmp_path)
    assert home.process.returncode in (0, 130)


def template() -> compute_v1.InstanceTemplate:
    disk = compute_v1.AttachedDisk(
        boot=True,
        auto_delete=True,
        initialize_params=compute_v1.AttachedDiskInitializeParams(
            source_image="projects/debian-cloud/global/images/family/debian-12"
        ),
    )
    scheduling = compute_v1.Scheduling(
        provisioning_model="SPOT", automatic_restart=False, instance_termination_action="STOP"
    )
    return compute_v1.InstanceTemplate(
        name="fleet",
        properties=compute_v1.InstanceProperties(
            machine_type="e2-small",
            disks=[disk],
            network_interfaces=[compute_v1.NetworkInterface(network="global/networks/default")],
            scheduling=scheduling,
            metadata=compute_v1.Metadata(items=[compute_v1.Items(key="startup-script", value=STARTUP)]),
        ),
    )


def group() -> compute_v1.InstanceGroupManager:
    return compute_v1.InstanceGroupManager(
        name="fleet",
        base_instance_name="vm",
        instance_template=f"projects/{PROJECT}/global/instanceTemplates/fleet",
        target_size=VMS,
        distribution_policy=compute_v1.DistributionPolicy(target_shape="ANY"),
        update_policy=compute_v1.InstanceGroupManagerUpdatePolicy(instance_redistribution_type="NONE"),
    )
