"""Managed instance groups by the official client: they keep their size, whatever happens to their VMs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import compute_v1

from stoker.emulator.cloud import PROJECT, Emulator
from stoker.emulator.faults import Fault
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch
from tests.emulator.gce import REGION, ZONE, Gce, template, until

WAITS = "while :; do sleep 0.1; done"
WHERE: dict[str, Any] = {"project": PROJECT, "region": REGION, "instance_group_manager": "fleet"}


def group(
    size: int, shape: str = "ANY", zones: Sequence[str] = "abc", **fields: Any
) -> compute_v1.InstanceGroupManager:
    return compute_v1.InstanceGroupManager(
        name="fleet",
        base_instance_name="vm",
        instance_template="global/instanceTemplates/mould",
        target_size=size,
        distribution_policy=compute_v1.DistributionPolicy(
            target_shape=shape,
            zones=[
                compute_v1.DistributionPolicyZoneConfiguration(zone=f"zones/{REGION}-{one}") for one in zones
            ],
        ),
        update_policy=compute_v1.InstanceGroupManagerUpdatePolicy(instance_redistribution_type="NONE"),
        **fields,
    )


def begin(cloud: Emulator, asked: compute_v1.InstanceGroupManager, script: str = WAITS, **fields: Any) -> Gce:
    gce = Gce(cloud.url)
    mould = template("mould", script, **fields)
    gce.done(gce.templates.insert_unary(project=PROJECT, instance_template_resource=mould))
    inserted = gce.groups.insert_unary(project=PROJECT, region=REGION, instance_group_manager_resource=asked)
    assert gce.done(inserted).operation_type == "compute.instanceGroupManagers.insert"
    return gce


def stable(gce: Gce) -> compute_v1.InstanceGroupManager | None:
    found = gce.groups.get(**WHERE)
    return found if found.status.is_stable else None


def members(gce: Gce) -> dict[str, compute_v1.ManagedInstance]:
    return {one.name: one for one in gce.groups.list_managed_instances(**WHERE)}


def test_a_group_grows_shrinks_and_goes(cloud: Emulator) -> None:
    gce = begin(cloud, group(3, "EVEN"))
    until(lambda: stable(gce))
    assert sorted(one.zone.rpartition("-")[2] for one in gce.there().values()) == ["a", "b", "c"]
    found = gce.groups.get(**WHERE)
    assert (found.current_actions.none, found.status.current_instance_statuses.running) == (3, 3)
    keys = {item.key: item.value for vm in gce.there().values() for item in vm.metadata.items}
    assert keys["created-by"].endswith(f"regions/{REGION}/instanceGroupManagers/fleet")
    gce.done(gce.groups.resize_unary(**WHERE, size=1))
    until(lambda: stable(gce) and len(gce.there()) == 1)
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        gce.templates.delete_unary(project=PROJECT, instance_template="mould")
    gce.done(gce.groups.delete_unary(**WHERE))
    assert gce.there() == {}
    with pytest.raises(exceptions.NotFound):
        gce.groups.get(**WHERE)
    gce.done(gce.templates.delete_unary(project=PROJECT, instance_template="mould"))


def test_preempted_members_come_back_with_their_names(cloud: Emulator) -> None:
    gce = begin(cloud, group(2))
    until(lambda: stable(gce))
    before = {name: vm.id for name, vm in gce.there().items()}
    prey = sorted(before)[0]
    assert cloud.compute.preempt(prey)
    until(lambda: members(gce)[prey].current_action == "RECREATING")
    until(lambda: stable(gce))
    after = {name: vm.id for name, vm in gce.there().items()}
    assert after.keys() == before.keys()
    assert {name for name in before if before[name] != after[name]} == {prey}
    zone = gce.there()[prey].zone.rpartition("/")[2]
    assert len(gce.operations_of("compute.instances.repair.recreateInstance", zone)) == 1


def test_a_member_that_powers_itself_off_comes_back_unless_told_otherwise(cloud: Emulator) -> None:
    gce = begin(cloud, group(1), "poweroff")
    until(lambda: len({use.id for use in cloud.compute.meter.all()}) > 1)
    nothing = compute_v1.InstanceGroupManagerInstanceLifecyclePolicy(default_action_on_failure="DO_NOTHING")
    patch = compute_v1.InstanceGroupManager(instance_lifecycle_policy=nothing)
    gce.done(gce.groups.patch_unary(**WHERE, instance_group_manager_resource=patch))
    until(lambda: [one.status for one in gce.there().values()] == ["TERMINATED"] and stable(gce))


def test_a_group_goes_around_an_exhausted_zone(watch: Watch) -> None:
    faults = [Fault("exhausted", zone=ZONE)]
    with Emulator(pace=FAST, observe=watch, faults=faults) as cloud:
        gce = begin(cloud, group(2))
        until(lambda: stable(gce))
        assert all(not vm.zone.endswith(ZONE) for vm in gce.there().values())
        errors = list(gce.groups.list_errors(**WHERE))
        assert {one.error.code for one in errors} == {"ZONE_RESOURCE_POOL_EXHAUSTED"}


def test_an_exhausted_region_is_told_and_tried_again(watch: Watch) -> None:
    with Emulator(pace=FAST, observe=watch, faults=[Fault("exhausted", zone=REGION, id="stockout")]) as cloud:
        gce = begin(cloud, group(1, "EVEN", "b"))

        def problem() -> str:
            told = [error.code for one in members(gce).values() for error in one.last_attempt.errors.errors]
            return told[0] if told else ""

        assert until(problem) == "ZONE_RESOURCE_POOL_EXHAUSTED"
        assert gce.groups.get(**WHERE).current_actions.creating == 1
        cloud.faults.remove("stockout")
        until(lambda: stable(gce))
        assert problem() == ""


def test_machine_types_by_rank(watch: Watch) -> None:
    chosen = compute_v1.InstanceGroupManagerInstanceFlexibilityPolicyInstanceSelection
    policy = compute_v1.InstanceGroupManagerInstanceFlexibilityPolicy(
        instance_selections={
            "second": chosen(rank=2, machine_types=["n2-standard-4"]),
            "first": chosen(rank=1, machine_types=["a2-ultragpu-1g"]),
        }
    )
    with Emulator(pace=FAST, observe=watch) as cloud:
        gce = begin(cloud, group(1, zones="b", instance_flexibility_policy=policy))
        until(lambda: stable(gce))
        (found,) = members(gce).values()
        assert found.properties_from_flexibility_policy.machine_type == "n2-standard-4"
        assert next(iter(gce.there().values())).machine_type.endswith("n2-standard-4")


def test_members_are_deleted_abandoned_and_made_anew(cloud: Emulator) -> None:
    gce = begin(cloud, group(3))
    until(lambda: stable(gce))
    before = gce.there()
    gone, free, anew = sorted(before)

    def named(name: str) -> list[str]:
        return [before[name].self_link]

    request = compute_v1.RegionInstanceGroupManagersDeleteInstancesRequest(instances=named(gone))
    resource: dict[str, Any] = {"region_instance_group_managers_delete_instances_request_resource": request}
    gce.done(gce.groups.delete_instances_unary(**WHERE, **resource))
    until(lambda: gone not in gce.there())
    assert gce.groups.get(**WHERE).target_size == 2
    with pytest.raises(exceptions.BadRequest, match="not a member"):
        gce.groups.delete_instances_unary(**WHERE, **resource)
    leave = compute_v1.RegionInstanceGroupManagersAbandonInstancesRequest(instances=named(free))
    gce.done(
        gce.groups.abandon_instances_unary(
            **WHERE, region_instance_group_managers_abandon_instances_request_resource=leave
        )
    )
    again = compute_v1.RegionInstanceGroupManagersRecreateRequest(instances=named(anew))
    gce.done(
        gce.groups.recreate_instances_unary(
            **WHERE, region_instance_group_managers_recreate_request_resource=again
        )
    )
    until(lambda: stable(gce) and gce.there().get(anew, before[anew]).id != before[anew].id)
    assert list(members(gce)) == [anew]
    assert gce.there()[free].status == "RUNNING"
    groups = compute_v1.RegionInstanceGroupsClient(**gce.options)
    assert groups.get(project=PROJECT, region=REGION, instance_group="fleet").size == 1
    asked = compute_v1.RegionInstanceGroupsListInstancesRequest(instance_state="ALL")
    listed = groups.list_instances(
        project=PROJECT,
        region=REGION,
        instance_group="fleet",
        region_instance_groups_list_instances_request_resource=asked,
    )
    assert [one.instance.rpartition("/")[2] for one in listed] == [anew]


def test_a_deleted_vm_of_a_group_comes_back(cloud: Emulator) -> None:
    gce = begin(cloud, group(1))
    until(lambda: stable(gce))
    (before,) = gce.there().values()
    zone = before.zone.rpartition("/")[2]
    gce.done(gce.instances.delete_unary(project=PROJECT, zone=zone, instance=before.name))
    after = until(lambda: stable(gce) and gce.there().get(before.name))
    assert after.id != before.id


def test_members_whose_time_is_over_are_not_made_again(cloud: Emulator) -> None:
    limited = compute_v1.Scheduling(
        provisioning_model="SPOT",
        instance_termination_action="DELETE",
        max_run_duration=compute_v1.Duration(seconds=1),
    )
    gce = begin(cloud, group(2), scheduling=limited)
    until(lambda: gce.groups.get(**WHERE).target_size == 0 and not gce.there())
    assert len(cloud.compute.meter.all()) == 2


def test_bad_groups_are_refused(cloud: Emulator) -> None:
    gce = begin(cloud, group(0))
    where: dict[str, Any] = {"project": PROJECT, "region": REGION}

    def refused(asked: compute_v1.InstanceGroupManager, problem: type[Exception], **fields: str) -> None:
        for name, value in fields.items():
            setattr(asked, name, value)
        with pytest.raises(problem):
            gce.groups.insert_unary(**where, instance_group_manager_resource=asked)

    refused(group(1), exceptions.Conflict)
    refused(group(1), exceptions.NotFound, name="x", instance_template="global/instanceTemplates/no")
    refused(group(1), exceptions.BadRequest, name="No_Name")
    refused(group(1, zones="z"), exceptions.BadRequest, name="x")
    moves = group(1)
    moves.update_policy.instance_redistribution_type = "PROACTIVE"
    refused(moves, exceptions.BadRequest, name="x")
    assert [one.name for one in gce.groups.list(**where)] == ["fleet"]


def test_a_group_of_one_zone(cloud: Emulator) -> None:
    gce = Gce(cloud.url)
    gce.done(gce.templates.insert_unary(project=PROJECT, instance_template_resource=template("mould", WAITS)))
    asked = compute_v1.InstanceGroupManager(
        name="local", instance_template="global/instanceTemplates/mould", target_size=2
    )
    where: dict[str, Any] = {"project": PROJECT, "zone": ZONE}
    gce.done(gce.zonal_groups.insert_unary(**where, instance_group_manager_resource=asked))
    until(lambda: gce.zonal_groups.get(**where, instance_group_manager="local").status.is_stable)
    found = list(gce.zonal_groups.list_managed_instances(**where, instance_group_manager="local"))
    assert [one.instance_status for one in found] == ["RUNNING", "RUNNING"]
    scopes = dict(gce.zonal_groups.aggregated_list(project=PROJECT))
    assert [one.name for one in scopes[f"zones/{ZONE}"].instance_group_managers] == ["local"]
    gce.done(gce.zonal_groups.delete_unary(**where, instance_group_manager="local"))
    assert gce.there() == {}


DEAF = f"trap '' TERM; echo deaf; {WAITS}"


def is_deaf(gce: Gce, vm: compute_v1.Instance) -> bool:
    return "script: deaf" in gce.console(vm.name, vm.zone.rpartition("/")[2])


def test_a_member_that_goes_is_not_counted_twice(cloud: Emulator) -> None:
    gce = begin(cloud, group(2), DEAF)
    until(lambda: stable(gce) and all(is_deaf(gce, one) for one in gce.there().values()))
    links = [one.self_link for _, one in sorted(gce.there().items())]

    def leave(*instances: str) -> None:
        asked = compute_v1.RegionInstanceGroupManagersAbandonInstancesRequest(instances=instances)
        gce.done(
            gce.groups.abandon_instances_unary(
                **WHERE, region_instance_group_managers_abandon_instances_request_resource=asked
            )
        )

    leave(links[0], links[0])
    assert gce.groups.get(**WHERE).target_size == 1
    request = compute_v1.RegionInstanceGroupManagersDeleteInstancesRequest(instances=links[1:])
    gone: dict[str, Any] = {"region_instance_group_managers_delete_instances_request_resource": request}
    gce.done(gce.groups.delete_instances_unary(**WHERE, **gone))
    leave(links[1])
    assert gce.groups.get(**WHERE).target_size == 0
    gce.done(gce.groups.delete_unary(**WHERE))
    with pytest.raises(exceptions.NotFound):
        gce.groups.get(**WHERE)


def test_a_group_that_goes_is_not_changed(watch: Watch) -> None:
    with Emulator(pace=replace(FAST, notice=0.5), observe=watch) as cloud:
        check_that_it_is_not_changed(begin(cloud, group(1), DEAF))


def check_that_it_is_not_changed(gce: Gce) -> None:
    until(lambda: stable(gce))
    (one,) = gce.there().values()
    until(lambda: is_deaf(gce, one))
    deleted = gce.groups.delete_unary(**WHERE)
    with pytest.raises(exceptions.BadRequest, match="not ready"):
        gce.groups.resize_unary(**WHERE, size=3)
    patch = compute_v1.InstanceGroupManager(target_size=3)
    with pytest.raises(exceptions.BadRequest, match="not ready"):
        gce.groups.patch_unary(**WHERE, instance_group_manager_resource=patch)
    again = compute_v1.RegionInstanceGroupManagersRecreateRequest(instances=[one.self_link])
    with pytest.raises(exceptions.BadRequest, match="not ready"):
        gce.groups.recreate_instances_unary(
            **WHERE, region_instance_group_managers_recreate_request_resource=again
        )
    gce.done(deleted)
    assert gce.there() == {}


def test_sizes_that_no_group_can_have(cloud: Emulator) -> None:
    gce = begin(cloud, group(0))
    for size in (-1, 2001):
        patch = compute_v1.InstanceGroupManager(target_size=size)
        with pytest.raises(exceptions.BadRequest, match="between 0 and 2000"):
            gce.groups.patch_unary(**WHERE, instance_group_manager_resource=patch)
        with pytest.raises(exceptions.BadRequest, match="between 0 and 2000"):
            gce.groups.resize_unary(**WHERE, size=size)
    local = compute_v1.InstanceGroupManager(
        name="local", instance_template="global/instanceTemplates/mould", target_size=1001
    )
    with pytest.raises(exceptions.BadRequest, match="between 0 and 1000"):
        gce.zonal_groups.insert_unary(project=PROJECT, zone=ZONE, instance_group_manager_resource=local)
    assert gce.groups.get(**WHERE).target_size == 0
