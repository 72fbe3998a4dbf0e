"""Who lives, as far as somebody can tell who only looks on. It is for display: agents judge for themselves.

As agents do, we trust our own clock: whoever is seen unchanged for a lease is silent. But we may have come
just now, so at the first look a beat's own time is taken as a hint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from stoker.core.times import seconds

LEASE = 60.0
"""Seconds without a beat after which others take over, if nothing else is said."""


class Life(Enum):
    """What is known of an agent."""

    ALIVE = "alive"
    SILENT = "silent"  # for longer than a lease: others take over what it runs
    GONE = "gone"  # its process is no more
    LEFT = "left"


@dataclass(frozen=True)
class Agent:
    """An agent, as its last beat tells."""

    name: str
    life: Life
    silence: float  # seconds since its last beat: a hint at the first look, as clocks differ
    host: str
    pid: int
    claims: tuple[str, ...]  # keys of the claims that it stands by
    slots: int = 0
    placed: str = ""  # `slurm:123_4`, if an engine placed it


@dataclass
class _Seen:
    version: str
    looked: float
    silence: float = 0.0
    body: Mapping[str, Any] = field(default_factory=dict)
    is_gone: bool = False
    misses: dict[str, int] = field(default_factory=dict)  # claim → beats in a row that do not mention it


class Fleet:
    """All agents that ever were, by their beats."""

    def __init__(
        self,
        lease: float = LEASE,
        is_gone: Callable[[Mapping[str, Any]], bool] = lambda beat: False,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._lease, self._is_gone, self._clock, self._wall = lease, is_gone, clock, wall
        self._seen: dict[str, _Seen] = {}

    def observe(self, shown: Mapping[str, str]) -> list[str]:
        """A listing shows these versions of beats; returns whose are to be read."""
        now = self._clock()
        for name in self._seen.keys() - shown.keys():
            del self._seen[name]
        changed = []
        for name, version in shown.items():
            known = self._seen.get(name)
            if known is None or known.version != version:
                changed.append(name)
            else:  # of a long time between two looks only a part was spent looking
                known.silence += min(now - known.looked, self._lease / 4)
                known.looked = now
                known.is_gone = known.is_gone or self._is_gone(known.body)
        return changed

    def hear(self, name: str, version: str, body: Mapping[str, Any]) -> None:
        """A new beat was read."""
        known = self._seen.get(name)
        if known is None:
            known = self._seen[name] = _Seen(version, self._clock(), self._age(body))
        else:
            known.version, known.looked, known.silence = version, self._clock(), 0.0
        mentioned = frozenset(_running(body))
        known.misses = {c: 0 if c in mentioned else n + 1 for c, n in known.misses.items()}
        known.body, known.is_gone = body, self._is_gone(body)

    def expect(self, claims: Mapping[str, str]) -> None:
        """These claims (claim → agent) have no end: from now on beats are to mention them."""
        before = {name: known.misses for name, known in self._seen.items()}
        for known in self._seen.values():
            known.misses = {}
        for claim, name in claims.items():
            if name in before:
                self._seen[name].misses[claim] = before[name].get(claim, 0)

    def holds(self, name: str, claim: str) -> bool:
        """Whether an agent lives and stands by a claim: one that two beats do not mention is free."""
        known = self._seen.get(name)
        return known is not None and self._life(known) is Life.ALIVE and known.misses.get(claim, 0) < 2

    def agents(self) -> list[Agent]:
        """All agents, by name."""
        return [
            Agent(
                name=name,
                life=self._life(known),
                silence=known.silence,
                host=str(known.body.get("host", "")),
                pid=_whole(known.body.get("pid")),
                claims=_running(known.body),
                slots=_whole(known.body.get("slots")),
                placed=str(known.body.get("placed", "")),
            )
            for name, known in sorted(self._seen.items())
        ]

    def _life(self, known: _Seen) -> Life:
        if known.body.get("left"):
            return Life.LEFT
        if known.is_gone:
            return Life.GONE
        return Life.SILENT if known.silence >= self._lease else Life.ALIVE

    def _age(self, body: Mapping[str, Any]) -> float:
        """How old a beat says it is; 0 if it does not, or seems to come from the future."""
        told = seconds(body.get("time"))
        return 0.0 if told is None else max(0.0, self._wall() - told)


def _running(body: Mapping[str, Any]) -> tuple[str, ...]:
    found = body.get("running")
    return tuple(map(str, found)) if isinstance(found, list) else ()


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
