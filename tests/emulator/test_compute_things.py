"""Images, disks, snapshots, templates; where machines are; and all of it after a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from stoker.emulator.cloud import PROJECT, Emulator
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch
from tests.emulator.gce import REGION, ZONE, Gce, disk, follow, metadata, spot, template, until, vm


@pytest.fixture
def gce(cloud: Emulator) -> Gce:
    return Gce(cloud.url)


def test_an_image_of_a_disk_and_its_family(gce: Gce) -> None:
    images = compute_v1.ImagesClient(**gce.options)
    gce.make(vm("builder", "poweroff"))
    until(lambda: gce.get("builder").status == "TERMINATED")
    for name in ("tools-1", "tools-2"):
        image = compute_v1.Image(name=name, family="tools", source_disk=f"zones/{ZONE}/disks/builder")
        gce.done(images.insert_unary(project=PROJECT, image_resource=image))
    assert images.get_from_family(project=PROJECT, family="tools").name == "tools-2"
    assert images.get(project=PROJECT, image="tools-1").status == "READY"
    old = compute_v1.DeprecationStatus(state="DEPRECATED")
    gce.done(images.deprecate_unary(project=PROJECT, image="tools-2", deprecation_status_resource=old))
    assert images.get_from_family(project=PROJECT, family="tools").name == "tools-1"
    gce.make(vm("user", disks=[disk("global/images/family/tools")]))
    disks = compute_v1.DisksClient(**gce.options)
    assert disks.get(project=PROJECT, zone=ZONE, disk="user").source_image.endswith("/tools-1")
    gce.done(images.delete_unary(project=PROJECT, image="tools-2"))
    assert [one.name for one in images.list(project=PROJECT)] == ["tools-1"]
    with pytest.raises(exceptions.NotFound):
        images.get_from_family(project=PROJECT, family="toys")
    assert images.get_from_family(project="debian-cloud", family="debian-12").name.startswith("debian-12")


def test_a_disk_grows_is_copied_and_stays_while_it_is_used(gce: Gce) -> None:
    disks, snapshots = compute_v1.DisksClient(**gce.options), compute_v1.SnapshotsClient(**gce.options)
    where: dict[str, Any] = {"project": PROJECT, "zone": ZONE}
    gce.done(disks.insert_unary(**where, disk_resource=compute_v1.Disk(name="data", size_gb=20)))
    grown = compute_v1.DisksResizeRequest(size_gb=30)
    gce.done(disks.resize_unary(**where, disk="data", disks_resize_request_resource=grown))
    with pytest.raises(exceptions.BadRequest, match="larger"):
        disks.resize_unary(**where, disk="data", disks_resize_request_resource=grown)
    gce.done(
        disks.create_snapshot_unary(**where, disk="data", snapshot_resource=compute_v1.Snapshot(name="then"))
    )
    assert snapshots.get(project=PROJECT, snapshot="then").disk_size_gb == 30
    data = compute_v1.AttachedDisk(source=f"zones/{ZONE}/disks/data")
    gce.make(vm("owner", disks=[disk(), data]))
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        disks.delete_unary(**where, disk="data")
    gce.done(gce.instances.delete_unary(**where, instance="owner"))
    assert [one.name for one in disks.list(**where)] == ["data"]
    gce.done(disks.delete_unary(**where, disk="data"))
    gce.done(snapshots.delete_unary(project=PROJECT, snapshot="then"))
    assert list(snapshots.list(project=PROJECT)) == []


def test_templates(gce: Gce) -> None:
    for name in ("a", "b"):
        gce.done(gce.templates.insert_unary(project=PROJECT, instance_template_resource=template(name)))
    with pytest.raises(exceptions.Conflict):
        gce.templates.insert_unary(project=PROJECT, instance_template_resource=template("a"))
    bad = template("bad", machine_type=f"zones/{ZONE}/machineTypes/e2-small")
    with pytest.raises(exceptions.BadRequest, match="machineType"):
        gce.templates.insert_unary(project=PROJECT, instance_template_resource=bad)
    gce.done(gce.templates.delete_unary(project=PROJECT, instance_template="b"))
    assert [one.name for one in gce.templates.list(project=PROJECT)] == ["a"]
    scopes = dict(gce.templates.aggregated_list(project=PROJECT))
    assert [one.name for one in scopes["global"].instance_templates] == ["a"]


def test_where_machines_are(gce: Gce) -> None:
    types = compute_v1.MachineTypesClient(**gce.options)
    gpus = compute_v1.AcceleratorTypesClient(**gce.options)
    zones = [one.name for one in compute_v1.ZonesClient(**gce.options).list(project=PROJECT)]
    assert {f"{REGION}-{letter}" for letter in "abcf"} <= set(zones)
    assert {one.name for one in compute_v1.RegionsClient(**gce.options).list(project=PROJECT)} >= {REGION}
    found = types.get(project=PROJECT, zone=ZONE, machine_type="n1-standard-4")
    assert (found.guest_cpus, found.memory_mb) == (4, 15360)
    built_in = types.get(project=PROJECT, zone=ZONE, machine_type="g2-standard-24").accelerators[0]
    assert (built_in.guest_accelerator_type, built_in.guest_accelerator_count) == ("nvidia-l4", 2)
    custom = types.get(project=PROJECT, zone=ZONE, machine_type="n2-custom-8-81920-ext")
    assert (custom.guest_cpus, custom.memory_mb) == (8, 81920)
    for bad in ("custom-3-3840", "custom-4-8000", "n2-custom-8-81920", "e2-custom-4-40960-ext", "n1-huge-1"):
        with pytest.raises((exceptions.BadRequest, exceptions.NotFound)):
            types.get(project=PROJECT, zone=ZONE, machine_type=bad)
    with_t4 = {
        scope.rpartition("/")[2]
        for scope, listed in gpus.aggregated_list(project=PROJECT)
        if any(one.name == "nvidia-tesla-t4" for one in listed.accelerator_types)
    }
    assert ZONE in with_t4
    assert "us-east1-b" not in with_t4
    assert (
        gpus.get(project=PROJECT, zone=ZONE, accelerator_type="nvidia-tesla-v100").maximum_cards_per_instance
        == 8
    )


def test_metadata_of_the_project_reach_its_vms(gce: Gce) -> None:
    projects = compute_v1.ProjectsClient(**gce.options)
    gce.make(vm("listener", follow("project/attributes/?recursive=true&")))
    until(lambda: "script: {}" in gce.console("listener"))
    found = projects.get(project=PROJECT)
    new = compute_v1.Metadata(
        fingerprint=found.common_instance_metadata.fingerprint, items=metadata(word="everybody").items
    )
    gce.done(projects.set_common_instance_metadata_unary(project=PROJECT, metadata_resource=new))
    until(lambda: "everybody" in gce.console("listener"))
    with pytest.raises(exceptions.PreconditionFailed):
        projects.set_common_instance_metadata_unary(project=PROJECT, metadata_resource=new)
    assert [one.value for one in projects.get(project=PROJECT).common_instance_metadata.items] == [
        "everybody"
    ]


def test_what_survives_a_restart(tmp_path: Path, watch: Watch) -> None:
    boots = "echo boot; while :; do sleep 0.1; done"
    with Emulator(tmp_path / "cloud", pace=FAST, observe=watch) as cloud:
        gce = Gce(cloud.url)
        gce.done(gce.templates.insert_unary(project=PROJECT, instance_template_resource=template("kept")))
        gce.make(vm("standard", boots))
        made = gce.make(vm("taken", boots, scheduling=spot()))
        until(lambda: all("script: boot" in gce.console(name) for name in ("standard", "taken")))
        ids = {name: one.id for name, one in gce.there().items()}
    with Emulator(tmp_path / "cloud", pace=FAST, observe=watch) as cloud:
        gce = Gce(cloud.url)
        assert {name: one.id for name, one in gce.there().items()} == ids
        assert gce.get("taken").status == "TERMINATED"
        until(lambda: gce.console("standard").count("script: boot") == 2)
        assert gce.templates.get(project=PROJECT, instance_template="kept").name == "kept"
        assert (
            gce.zone_operations.get(project=PROJECT, zone=ZONE, operation=made.name).target_id == ids["taken"]
        )
        uses = cloud.compute.meter.all()
        assert sorted(use.name for use in uses) == ["standard", "standard", "taken"]
        assert [use.name for use in uses if use.stop is None] == ["standard"]
