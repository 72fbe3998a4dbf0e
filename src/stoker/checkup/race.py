"""Two processes and one directory: what one does, and what the other sees of it.

One half is this process. It starts the other on this host, on another by ssh, or on a node by srun. They
create the same names at the same moments, and look out for what the other one writes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import and_
from pathlib import Path

from stoker.agent.host import host
from stoker.checkup import VERSION
from stoker.checkup.directory import workplace
from stoker.checkup.finding import ODD, Check, bad, judge_clock, ok, warning
from stoker.checkup.half import NEWS, Half
from stoker.checkup.other import Other, SilentError, Way, started
from stoker.store.interface import StoreError

ROUNDS = 3
"""So often each half waits for news of the other; less often where that takes long."""
BUDGET = 20.0
"""Seconds after which no further round is begun."""
_NOT_HERE = "use a file system that all machines share and that has this right, or a bucket"


@dataclass(frozen=True)
class Clock:
    """How far the clock of the other half is ahead of ours, in seconds, and how sure that is."""

    ahead: float
    unsure: float


@dataclass(frozen=True)
class Contest:
    """What both halves heard of the same names, and whose they read them to be."""

    way: str
    ours: Sequence[bool]
    theirs: Sequence[bool]
    we_read: Sequence[str]
    they_read: Sequence[str]


def look(directory: Path, way: Way) -> Iterator[Check]:
    """Two halves in a directory that can be written to. Leaves nothing behind."""
    try:
        with workplace(directory) as place, started(way, place) as other:
            yield from _compare(Half(place, "here"), other, way, directory)
    except SilentError as error:
        yield bad(way.where, f"does not answer: {error}", way.remedy)
    except (OSError, StoreError) as error:
        yield bad("writing", str(error), _NOT_HERE)


def _compare(half: Half, other: Other, way: Way, directory: Path) -> Iterator[Check]:
    about = other.greet()
    if not about["sees"]:
        remedy = "name a directory on a file system that both have mounted at the same place"
        yield bad("directory", f"{way.where} does not see {directory}", remedy)
        return
    clock = _read_clock(other)
    if way.words:
        yield judge_host(str(about["host"]), str(about["version"]), host())
        yield judge_clock("clocks", f"that of {way.where}", clock.ahead, clock.unsure)
    for kind in ("link", "exclusive"):
        yield judge_contest(_contend(half, other, kind, clock))
    delays = _exchange(half, other, way.latest)
    for kind in NEWS:
        yield judge_delay(kind, [found.get(kind) for found in delays], way.latest)


def _read_clock(other: Other) -> Clock:
    """The best of some readings: that with the shortest way there and back."""
    readings = []
    for _ in range(5):
        sent = time.time()
        theirs = other.ask("time")
        back = time.time()
        readings.append(Clock(theirs - (sent + back) / 2, (back - sent) / 2))
    return min(readings, key=lambda reading: reading.unsure)


def _contend(half: Half, other: Other, kind: str, clock: Clock) -> Contest:
    begin = time.time() + 0.05 + 2 * clock.unsure
    other.tell("create", kind, begin + clock.ahead)
    ours = half.create(kind, begin)
    theirs = other.finish()
    return Contest(kind, ours, theirs, half.read(kind), other.ask("read", kind))


def _exchange(half: Half, other: Other, latest: float) -> list[dict[str, float]]:
    """How long each kind of news took, in turns: they watch, then we do."""
    delays: list[dict[str, float]] = []
    began = time.monotonic()
    for turn in range(1, 2 * ROUNDS, 2):
        if time.monotonic() - began > BUDGET:
            break
        other.ask("expect", turn)
        other.tell("watch", turn, latest)
        half.publish(turn)
        written = time.monotonic()
        delays.append({kind: max(0.0, when - written) for kind, when in other.seen().items()})
        half.expect(turn + 1)
        other.ask("publish", turn + 1)
        delays.append(_watch(half, turn + 1, latest))
    return delays


def _watch(half: Half, turn: int, latest: float) -> dict[str, float]:
    """How long we see nothing of what the other half has written."""
    written = time.monotonic()
    delays: dict[str, float] = {}

    def note(kind: str) -> None:
        delays[kind] = time.monotonic() - written

    half.watch(turn, latest, note)
    return delays


def judge_host(name: str, version: str, ours: str) -> Check:
    """Whose the other half is, by its host and boot."""
    told = "this host itself" if name == ours else name.rpartition("-")[0]
    if version == VERSION:
        return ok("host", told)
    remedy = "install the same on all machines: agents of one study should understand each other"
    return warning("host", f"{told}, with Stoker {version} (here: {VERSION})", remedy)


def judge_contest(contest: Contest) -> Check:
    """Every name must have one winner, and both must agree on who it is."""
    name = {"link": "race by link", "exclusive": "race by O_EXCL"}[contest.way]
    total = len(contest.ours)
    if twice := sum(map(and_, contest.ours, contest.theirs)):
        return bad(name, f"{twice} of {total} names were won by both", _NOT_HERE)
    owners = list(map(_owner, contest.ours, contest.theirs, contest.we_read, contest.they_read))
    here, there = owners.count("here"), owners.count("there")
    if here + there < total:
        odd = f"{total - here - there} of {total} names are not read by both as the winner's"
        return bad(name, odd, _NOT_HERE)
    return ok(name, f"{total} names, each with one winner ({here} here, {there} there)")


def _owner(ours: bool, theirs: bool, we_read: str, they_read: str) -> str:
    """Whose a name is, if all agree. Who was not told of having won may have won all the same."""
    contradicted = (ours and we_read != "here") or (theirs and we_read != "there")
    return "" if we_read != they_read or contradicted else we_read


_LATE = {
    "name": ("new names", "by name", "mount it with lookupcache=positive on all machines"),
    "listing": ("listings", "in listings", "mount it with actimeo=3 on all machines, or less"),
    "contents": ("new contents", "in replaced files", "mount it without nocto on all machines"),
}


def judge_delay(kind: str, delays: Sequence[float | None], latest: float) -> Check:
    """How late news came at most; None is news that never came."""
    name, where, remedy = _LATE[kind]
    known = [delay for delay in delays if delay is not None]
    if len(known) < len(delays):
        return bad(name, f"not seen {where} within {latest:.0f} s", _NOT_HERE)
    longest = max(known, default=0.0)
    told = f"seen {where} within {longest:.{2 if longest < 1 else 0}f} s"
    return ok(name, told) if longest <= ODD else warning(name, told, f"on NFS: {remedy}")
