"""What a group decides: one look after the other at a world in which VMs come and go."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from stoker.emulator.compute.groups import Act, Group, Member, Step, decide

ZONES = ("a", "b", "c")
GROUP = Group(0, ZONES, ("small",), "EVEN", ())
RUNS = Member("m", "a", "NONE", "RUNNING", 0.0)


def one(member: Member, **fields: Any) -> list[Step]:
    return decide(replace(GROUP, target=1, members=(member,), **fields), now=100.0)


def test_new_members_are_spread_evenly() -> None:
    steps = decide(replace(GROUP, target=7), 0.0)
    assert {step.act for step in steps} == {Act.ADD}
    assert sorted(Counter(step.place[0] for step in steps).values()) == [2, 2, 3]


def test_a_group_of_any_shape_fills_a_zone_that_has_room() -> None:
    full = Member("m", "a", "CREATING", "", 0.0, failed=(("a", "small"),))
    group = replace(GROUP, target=3, shape="ANY", members=(full,))
    steps = decide(group, 100.0)
    assert Step(Act.TRY, "m", ("b", "small")) in steps
    assert [step.place[0] for step in steps if step.act is Act.ADD] == ["b", "b"]


def test_an_even_group_stays_where_it_is() -> None:
    full = Member("m", "a", "CREATING", "", 0.0, failed=(("a", "small"),))
    assert one(full) == [Step(Act.TRY, "m", ("a", "small"))]


def test_types_are_tried_by_their_rank_in_all_zones() -> None:
    tried: list[tuple[str, str]] = []
    for _ in range(6):
        member = Member("m", "a", "CREATING", "", 0.0, tuple(tried))
        (step,) = one(member, shape="ANY", types=("best", "next"))
        tried.append(step.place)
    assert [kind for _, kind in tried] == ["best"] * 3 + ["next"] * 3
    assert len(set(tried)) == 6


def test_a_vm_that_is_lost_is_made_again_after_a_while_in_its_zone() -> None:
    lost = replace(RUNS, zone="b", status="TERMINATED")
    assert one(lost) == [Step(Act.MISS, "m")]
    missed = replace(lost, action="RECREATING", since=90.0)
    assert one(missed, recreate=30.0, shape="ANY") == []
    assert one(missed, recreate=5.0, shape="ANY") == [Step(Act.CLEAR, "m")]
    cleared = replace(missed, status="")
    assert one(cleared, recreate=5.0, shape="ANY") == [Step(Act.TRY, "m", ("b", "small"))]
    failed = replace(cleared, failed=(("b", "small"),), tried=0.0)
    assert one(failed, recreate=5.0, shape="ANY") == [Step(Act.TRY, "m", ("b", "small"))]
    assert one(failed, recreate=5.0, shape="ANY", may_move=True)[0].place[0] != "b"


def test_a_group_that_repairs_nothing_leaves_it() -> None:
    assert one(replace(RUNS, status="TERMINATED"), repairs=False) == []


def test_a_size_below_nothing_is_nothing() -> None:
    assert decide(replace(GROUP, target=-1), 0.0) == []


def test_the_ones_that_do_not_run_go_first() -> None:
    members = (RUNS, replace(RUNS, name="n", action="CREATING", status=""), replace(RUNS, name="o"))
    steps = decide(replace(GROUP, target=2, members=members), 100.0)
    assert Step(Act.DROP, "n") in steps
    assert sum(step.act is Act.DROP for step in steps) == 1


STATUSES = ("", "PROVISIONING", "RUNNING", "STOPPING", "TERMINATED")
MEMBERS = st.lists(
    st.builds(
        Member,
        name=st.text("xyz", min_size=3, max_size=5),
        zone=st.sampled_from(ZONES),
        action=st.sampled_from(("NONE", "CREATING", "RECREATING", "DELETING")),
        status=st.sampled_from(STATUSES),
        since=st.just(0.0),
    ),
    unique_by=lambda member: member.name,
    max_size=8,
)


@given(st.integers(0, 9), MEMBERS, st.sampled_from(("EVEN", "BALANCED", "ANY", "ANY_SINGLE_ZONE")))
def test_any_group_comes_to_its_size_and_rests(target: int, found: list[Member], shape: str) -> None:
    """Whatever it begins with, if all that it asks for happens, it has as many VMs as it shall, and rests."""
    group = replace(GROUP, target=target, members=tuple(found), shape=shape)
    for turn in range(30):
        steps = decide(group, float(turn))
        group = replace(group, members=tuple(happen(list(group.members), steps, turn)))
    assert decide(group, 1000.0) == []
    assert [member.status for member in group.members] == ["RUNNING"] * target
    if shape == "EVEN" and not found and target:
        sizes = Counter(member.zone for member in group.members)
        assert max(sizes.values()) - min(sizes[zone] for zone in ZONES) <= 1


def happen(members: list[Member], steps: list[Step], turn: int) -> list[Member]:
    """What the world makes of it: what is under way is over one turn later."""
    after = {"PROVISIONING": "RUNNING", "STOPPING": ""}
    known = {one.name: replace(one, status=after.get(one.status, one.status)) for one in members}
    for number, step in enumerate(steps):
        if step.act is Act.ADD:
            name = f"new-{turn}-{number}"
            known[name] = Member(name, step.place[0], "CREATING", "", float(turn))
        elif step.act is Act.FORGET:
            del known[step.name]
        else:
            known[step.name] = replace(known[step.name], **CHANGES[step.act])
    return list(known.values())


CHANGES: dict[Act, dict[str, Any]] = {
    Act.TRY: {"status": "PROVISIONING"},
    Act.SETTLE: {"action": "NONE"},
    Act.MISS: {"action": "RECREATING"},
    Act.CLEAR: {"status": "STOPPING"},
    Act.DROP: {"action": "DELETING"},
}
