"""How a study, its trials and their ends are put into words. Everything returned is printable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stoker.cli.board import duration, words_for
from stoker.core.times import seconds
from stoker.spec.problems import printable
from stoker.store.records import TrialId
from stoker.study.fleet import Agent
from stoker.study.metrics import read_latest
from stoker.study.opened import Opened
from stoker.study.ranges import State
from stoker.study.state import Counts, TrialNow

LONGEST_HOST = 40
MOST_SLOTS = 100_000
"""What other tools wrote, or what is damaged, may say anything."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def number(trial: TrialId) -> str:
    """`5`, or `2.5` in the second iteration: as it is called on the command line."""
    return str(trial).removeprefix("1.")


def called(opened: Opened, trial: TrialId) -> str:
    """`5 Norm_new-Moment_0.1`."""
    return printable(f"{number(trial)} {opened.trial(trial).name}")


def summary(counts: Counts, between: str = ", ") -> str:
    """`12 of 40 finished, 1 failed, 4 running, 23 left`: what runs is among what is left."""
    total = f"{counts.total:,}" if counts.is_exact else f"at most {counts.total:,}"
    parts = [f"{counts.finished:,} of {total} finished"]
    parts += [f"{counts.failed:,} failed"] if counts.failed else []
    parts += [f"{counts.stopped:,} stopped"] if counts.stopped else []
    parts += [f"{counts.running:,} running"] if counts.running else []
    return between.join([*parts, f"{counts.running + counts.waiting:,} left"])


def many(count: int, thing: str) -> str:
    """`1 trial`, `2,000 trials`."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def size(count: int) -> str:
    """`17 B`, `1.2 MB`."""
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.3g} {_UNITS[unit]}"


def ago(passed: float) -> str:
    """`just now`, `12 s ago`, `3 min ago`."""
    if passed < 2:
        return "just now"
    if passed < 60:
        return f"{passed:.0f} s ago"
    return f"{passed // 60:.0f} min ago" if passed < 3600 else f"{duration(passed)} ago"


def failure(stages: Sequence[str], body: Mapping[str, Any]) -> tuple[str, str]:
    """The stage that a failed attempt or round ended in, if it is known, and how."""
    for stage in stages:
        figures = body.get(stage)
        if isinstance(figures, dict) and "error" in figures:
            return printable(stage), printable(str(figures["error"]))
        if isinstance(figures, dict) and "why" in figures:
            ended = words_for(
                figures.get("code"), figures.get("signal"), str(figures["why"]), figures.get("seconds", 0.0)
            )
            return printable(stage), ended
    why = body.get("why")
    return "", printable(str(why)) if why and why != "failed" else "no reason known"


def how_it_ended(opened: Opened, now: TrialNow) -> str:
    """`finished`, or `failed, train: exit code 1`."""
    if now.state is not State.FAILED:
        return str(now.state.value)
    stage, ended = failure(opened.trial(now.trial).stages, opened.state.result(now))
    return f"failed, {stage}: {ended}" if stage else f"failed: {ended}"


def age(since: str, now: float) -> float | None:
    """Seconds since a record's stamp."""
    then = seconds(since)
    return None if then is None else max(0.0, now - then)


def host_of(agent: Agent) -> str:
    """The machine's name: what a beat calls host has the machine's boot behind it."""
    return short(agent.host.rpartition("-")[0] or agent.host)


def short(host: str) -> str:
    """A machine's name in a length that machines' names have."""
    shown = printable(host[: LONGEST_HOST + 1])
    return shown if len(shown) <= LONGEST_HOST else f"{shown[: LONGEST_HOST - 1]}…"


def slots_of(agent: Agent) -> int:
    """How many slots an agent has; 0 if what its beat says cannot be."""
    return agent.slots if 0 < agent.slots <= MOST_SLOTS else 0


def last_metrics(log: str, settings: Mapping[str, object]) -> str:
    """`step 1200  loss 0.2`: what a running trial said last, in its log or to its manager."""
    found = read_latest(log, settings.get("metrics"), settings.get("objective"))
    return printable("  ".join(f"{name} {value:.5g}" for name, value in found.items()))
