"""What a managed instance group has to do next. Pure: it looks at data and returns data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

Place = tuple[str, str]
"""A zone and a machine type."""


class Act(Enum):
    """What can be done with a member."""

    ADD = "add"  # a new member: a name is given to it
    TRY = "try"  # make its VM
    SETTLE = "settle"  # its VM runs: there is nothing more to do
    MISS = "miss"  # its VM is gone or stopped: it has to be made again
    CLEAR = "clear"  # remove what is left of its VM
    DROP = "drop"  # it is one too many: it has to go
    FORGET = "forget"  # it is gone


@dataclass(frozen=True)
class Step:
    """One thing to do."""

    act: Act
    name: str = ""
    place: Place = ("", "")


@dataclass(frozen=True)
class Member:
    """One of the group."""

    name: str
    zone: str
    action: str  # NONE, CREATING, RECREATING or DELETING
    status: str  # of its VM; empty if there is none
    since: float  # when its action began
    failed: tuple[Place, ...] = ()  # where it was tried in vain, since the last time that all were
    tried: float = 0.0  # when it was tried last


@dataclass(frozen=True)
class Group:
    """All that matters for the decision."""

    target: int
    zones: Sequence[str]
    types: Sequence[str]  # best first; those of one rank in any order
    shape: str  # EVEN, BALANCED, ANY, ANY_SINGLE_ZONE
    members: Sequence[Member]
    repairs: bool = True
    may_move: bool = False  # whether a VM may be made again in another zone
    recreate: float = 0.0  # seconds from the loss of a VM to its next try
    again: float = 0.0  # seconds between two tries that fail


def decide(group: Group, now: float) -> list[Step]:
    """All that is to be done now. Whoever does it asks again when something has changed."""
    steps = [step for member in group.members for step in _of_member(group, member, now)]
    return steps + _of_size(group)


def _of_member(group: Group, member: Member, now: float) -> list[Step]:
    if member.action == "DELETING":
        return _removal(member)
    if member.status == "RUNNING":
        return [] if member.action == "NONE" else [Step(Act.SETTLE, member.name)]
    if member.status not in ("", "TERMINATED"):
        return []
    if member.action == "NONE":
        return [Step(Act.MISS, member.name)] if group.repairs else []
    return _attempt(group, member, now)


def _removal(member: Member) -> list[Step]:
    if not member.status:
        return [Step(Act.FORGET, member.name)]
    return [] if member.status == "STOPPING" else [Step(Act.CLEAR, member.name)]


def _attempt(group: Group, member: Member, now: float) -> list[Step]:
    is_again = member.action == "RECREATING"
    if is_again and now < member.since + group.recreate:
        return []
    if member.status:
        return [Step(Act.CLEAR, member.name)]
    if member.failed and now < member.tried + group.again:
        return []
    return [Step(Act.TRY, member.name, _next_place(group, member, is_again))]


def _next_place(group: Group, member: Member, is_again: bool) -> Place:
    """The best place in which it was not tried yet; the best of all, if all were."""
    is_bound = (is_again and not group.may_move) or group.shape in ("EVEN", "ANY_SINGLE_ZONE")
    zones = [member.zone] if is_bound else by_need(group)
    places = [(zone, kind) for kind in group.types for zone in zones]
    return next((place for place in places if place not in member.failed), places[0])


def by_need(group: Group) -> list[str]:
    """Zones in the order in which they get the next VM."""
    if group.shape == "ANY":
        shunned = Counter(zone for member in group.members for zone, _ in member.failed)
        return sorted(group.zones, key=lambda zone: (shunned[zone], group.zones.index(zone)))
    if group.shape == "ANY_SINGLE_ZONE":
        used = [member.zone for member in group.members if member.zone]
        return sorted(group.zones, key=lambda zone: (-used.count(zone), group.zones.index(zone)))
    there = Counter(member.zone for member in group.members if member.action != "DELETING")
    return sorted(group.zones, key=lambda zone: (there[zone], group.zones.index(zone)))


def _of_size(group: Group) -> list[Step]:
    """New members, or those that are too many: first those whose VM does not run, then of a full zone."""
    there = [member for member in group.members if member.action != "DELETING"]
    target = max(0, group.target)
    if len(there) < target:
        return _additions(group, target - len(there))
    steps = []
    full = Counter(member.zone for member in there)
    for _ in range(len(there) - target):
        gone = min(there, key=lambda one: (one.status == "RUNNING", -full[one.zone], -one.since, one.name))
        there.remove(gone)
        full[gone.zone] -= 1
        steps.append(Step(Act.DROP, gone.name))
    return steps


def _additions(group: Group, count: int) -> list[Step]:
    if group.shape in ("ANY", "ANY_SINGLE_ZONE"):  # one more does not make another zone the better one
        return [Step(Act.ADD, place=(by_need(group)[0], group.types[0]))] * count
    there = Counter(member.zone for member in group.members if member.action != "DELETING")
    steps = []
    for _ in range(count):
        zone = min(group.zones, key=lambda one: there[one])
        there[zone] += 1
        steps.append(Step(Act.ADD, place=(zone, group.types[0])))
    return steps
