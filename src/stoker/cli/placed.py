"""What engines have placed for a study, in words: jobs that run, that wait, and that came to nothing."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stoker.cli.told import many
from stoker.engines.interface import Placed, State
from stoker.engines.sites import list_placed
from stoker.spec.problems import printable
from stoker.study.opened import Opened

EVERY = 15.0
"""Seconds between two questions to a scheduler, which has others to serve."""
MOST = 3
"""Of so many causes, jobs that came to nothing are told."""
LINES = 3
"""So many lines of a log."""
_TAIL = 2000


class Places:
    """What engines tell, asked now and then."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._asked = -EVERY
        self._found: list[tuple[str, Sequence[Placed] | str]] = []

    def look(self) -> list[tuple[str, Sequence[Placed] | str]]:
        """What each engine has placed, or why it cannot tell; not older than some seconds."""
        if time.monotonic() - self._asked >= EVERY:
            self._found = list(list_placed(self._opened))
            self._asked = time.monotonic()
        return self._found

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Lines for people, and whether something is wrong."""
        seen = {agent.placed for agent in self._opened.state.agents()}
        for name, found in self.look():
            if isinstance(found, str):
                yield f"{name}: {printable(found)}", True
                continue
            yield f"{name}: {printable(summary(found))}", False
            if self._opened.state.counts().waiting:  # else it does not matter any more
                lost = came_to_nothing(name, found, seen)
                yield from ((printable(line), True) for line in _told(lost, self._opened.place.url))
                yield from ((printable(line), False) for line in _last_words(found))

    def as_json(self) -> list[dict[str, Any]]:
        """The same as plain data."""
        told: list[dict[str, Any]] = []
        for name, found in self.look():
            if isinstance(found, str):
                told.append({"engine": name, "problem": found})
            else:
                told += [{"engine": name, **vars(placed), "state": placed.state.value} for placed in found]
        return told


def summary(found: Iterable[Placed]) -> str:
    """`3 running, 5 waiting (Priority), the next expected at 2026-01-31T12:00:00`."""
    by_state: dict[State, list[Placed]] = {state: [] for state in State}
    for placed in found:
        by_state[placed.state].append(placed)
    running, waiting = by_state[State.RUNNING], by_state[State.WAITING]
    parts = [f"{len(running):,} running"] if running else []
    if waiting:
        reasons = Counter(placed.why for placed in waiting if placed.why)
        why = f" ({', '.join(reason for reason, _ in reasons.most_common(3))})" if reasons else ""
        parts.append(f"{len(waiting):,} waiting{why}")
        if starts := min((placed.starts for placed in waiting if placed.starts), default=""):
            parts.append(f"the next expected at {starts.replace('T', ' ')}")
    return ", ".join(parts) or "no jobs run or wait"


def came_to_nothing(engine: str, found: Iterable[Placed], seen: Iterable[str]) -> Iterator[Placed]:
    """What ended without its agent ever having been seen, whatever the engine says of how it ended.

    What somebody cancelled is as it should be. Of what the engine has forgotten, and does not say how it
    ended, only that counts which was placed after the last agent that was seen, or with it.
    """
    known = set(seen)
    mine = [_numbers(agent) for agent in known if agent.startswith(f"{engine}:")]
    last = max(mine, default=[])[:1]
    for placed in found:
        is_meant = placed.why.startswith("CANCELLED")
        is_old = not placed.why and _numbers(placed.id)[:1] < last
        is_over = placed.state is State.ENDED and f"{engine}:{placed.id}" not in known
        if is_over and not is_meant and not is_old:
            yield placed


def _told(lost: Iterable[Placed], store: str) -> Iterator[str]:
    """The newest of each cause, and how many others it has."""
    causes: dict[tuple[str, tuple[str, ...] | None], list[Placed]] = {}
    for placed in sorted(lost, key=lambda placed: _numbers(placed.id), reverse=True):
        causes.setdefault((placed.why, _last_lines(placed.log)), []).append(placed)
    for (why, said), same in list(causes.items())[:MOST]:
        placed, others = same[0], f", as did {len(same) - 1:,} more" if len(same) > 1 else ""
        where = f" on {placed.where}" if placed.where else ""
        how = f" ({why})" if why else ""
        yield f"job {placed.id} ended{where}{how}, and its agent was never seen{others}"
        if said is None:
            yield f"  it has no log: does {placed.where or 'the node'} see {store}?"
        elif said:
            yield from (f"  │ {line}" for line in said)
            yield f"  log: {placed.log}"


def _last_words(found: Sequence[Placed]) -> Iterator[str]:
    """Why the last agent left, where none is to come and it said so."""
    if any(placed.state is not State.ENDED for placed in found):
        return
    for placed in sorted(found, key=lambda placed: _numbers(placed.id))[-1:]:
        said = (_last_lines(placed.log) or ("",))[-1].partition(" NOTE  ")[2]
        if said:
            yield f"job {placed.id} has left: {said}"


def _numbers(job: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", job)]


def _last_lines(path: str) -> tuple[str, ...] | None:
    """The last lines of a log; None if there is no such file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (the end of a file)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            lines = file.read().decode(errors="replace").split("\n")
    except OSError:
        return None
    return tuple([line for line in lines if line.strip()][-LINES:])


def run_again(opened: Opened) -> str:
    """The command that goes on with a study, where it ran before."""
    from stoker.engines.sites import used_engines

    names = ",".join(used_engines(opened))
    return f"`stoker run --on {names}`" if names else "`stoker run`"


def remove_all(opened: Opened, waiting_only: bool = False) -> Iterator[tuple[bool, str]]:
    """Take back what engines placed; whether that was possible, and what is told about it."""
    from stoker.core.errors import StokerError
    from stoker.engines.sites import engine_of, used_engines

    for name in used_engines(opened):
        try:
            engine = engine_of(opened, name)
            mine = [placed for placed in engine.list() if placed.state is State.WAITING or not waiting_only]
            alive = [placed for placed in mine if placed.state is not State.ENDED]
            if alive:
                engine.remove(waiting_only)
                yield True, f"{name}: {many(len(alive), 'job')} cancelled"
        except StokerError as error:
            yield False, f"{name}: {error}"
