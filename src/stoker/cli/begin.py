"""What `stoker run` does before anything runs: it plans, and looks at what is there already."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stoker.agent.host import is_gone
from stoker.cli.study_options import Chosen, asked_oddly, check_slots
from stoker.core.errors import UsageError
from stoker.spec.changes import since_last_run
from stoker.store.records import PLANS, TrialId
from stoker.study import orders
from stoker.study.fleet import Life
from stoker.study.logs import read_again
from stoker.study.opened import Opened
from stoker.study.place import RECORDS, Place, open_place
from stoker.study.ranges import DONE, State
from stoker.study.work import Focus, add_plan, plan_body

MOST = 20_000
"""So many trials are looked at one by one; of more, only the study's counts are shown."""


@dataclass
class Begun:
    """A study that is ready to run."""

    chosen: Chosen
    opened: Opened
    iteration: int
    wanted: list[TrialId] | None  # what this run asks for; None: everything, or too much to list
    agent_words: list[str]
    told: list[str] = field(default_factory=list)
    is_left: bool = True


def begin(chosen: Chosen, options: argparse.Namespace) -> Begun:
    """Make the study, or go on with the one that is there."""
    if "local" in getattr(options, "on", "local").split(","):
        check_slots(chosen)  # what is odd about them, the agent tells
    place = _open(chosen.output)
    body = plan_body(chosen.study, _asked(options, chosen), time.strftime("%Y%m%d.%H%M%S"))
    before = sum(1 for _ in place.store.list(PLANS))
    iteration = add_plan(place.store, body)
    _keep_copy(place, chosen)
    opened = Opened(place, is_gone, read_again)
    opened.refresh()
    words = [f"./{chosen.output}" if chosen.output.startswith("-") else chosen.output]
    if chosen.slots or options.resource:
        words += ["-r", *(chosen.slots or ["auto"])]
    begun = Begun(chosen, opened, iteration, wanted_by(opened, iteration), words)
    words += ["--only", str(iteration)]
    begun.told += [f"hint: {hint}" for hint in _hints(chosen)]
    begun.told += _changes(begun) if iteration > max(1, before) else []
    if chosen.study.waiting:
        begun.told.append(f"not acted on in this version: {', '.join(chosen.study.waiting)}")
    _reopen(begun, options.force)
    _look_around(begun)
    return begun


def _hints(chosen: Chosen) -> list[str]:
    """What may surprise, a line each; `stoker check` shows the places in the file."""
    file, hints = chosen.study.source.name, chosen.study.hints
    return [*(f"{file}:{hint.line}: {hint.message}; {hint.remedy}" for hint in hints), *asked_oddly(chosen)]


def _changes(begun: Begun) -> list[str]:
    """What is different from the last iteration, when this run has just added one."""
    state, iteration = begun.opened.state, begun.iteration
    added = state.counts(iteration)
    before = begun.opened.work.planned(iteration - 1).study.source
    return since_last_run(before, begun.chosen.study.source, added.total if added.is_exact else None)


def _asked(options: argparse.Namespace, chosen: Chosen) -> dict[str, Any]:
    """What a plan keeps of how it was asked for."""
    asked: dict[str, Any] = {"directory": os.getcwd(), "output": chosen.output}  # noqa: PTH109
    if options.title:
        asked["titles"] = sorted(set(options.title))
    if options.command:
        asked["stages"] = sorted(set(options.command))
    if options.sample is not None:
        asked["sample"] = options.sample
    if chosen.is_flat:
        asked["flat"] = True
    if chosen.study.existing:
        asked["exists"] = sorted(chosen.study.existing)
    return asked


def _open(output: str) -> Place:
    place = open_place(output)
    if place.output is not None:
        try:
            place.output.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot make the output directory {output}: {error.strerror}") from None
    return place


def _keep_copy(place: Place, chosen: Chosen) -> None:
    """The study file as it was run, for people."""
    if place.output is not None:
        name = Path(chosen.study.source.name).name
        try:
            copy = place.output / name
            copy.write_text(chosen.study.source.text, encoding="utf-8")
            mode = Path(chosen.study.source.name).stat().st_mode & 0o777
            if not mode & 0o077:  # for its owner alone: so are what is made of it
                copy.chmod(mode)
                (place.output / RECORDS).chmod(0o700)
        except OSError as error:
            raise UsageError(f"cannot write into {place.output}: {error.strerror}") from None


def wanted_by(opened: Opened, iteration: int) -> list[TrialId] | None:
    """The trials that an iteration asks for; None if that is everything, or too much to list."""
    focus = Focus(opened.work, [iteration])
    if len(opened.state.iterations) == 1 or focus.size > MOST:
        return None
    return [trial for number in range(1, focus.size + 1) for trial in focus.owners(number)]


def _reopen(begun: Begun, force: bool) -> None:
    """A study that was stopped goes on; what failed is tried again, and with --force all of it."""
    state = begun.opened.state
    if state.is_stopped:
        orders.resume_study(state)
        begun.told.append("the study was stopped; it goes on")
    again = DONE if force else {State.FAILED, State.STOPPED}
    wanted = None if begun.wanted is None else set(begun.wanted)
    trials = [now.trial for now in state.trials(*again) if wanted is None or now.trial in wanted]
    if not force and ask_for_missing_stages(begun):
        begun.told.append("stages that were not asked for before run for trials that are finished")
    if trials:
        orders.open_rounds(state, trials, fresh=force)
        count = f"{len(trials):,} trial{'s' * (len(trials) > 1)}"
        begun.told.append(f"{count} run again" if force else f"{count} failed or stopped: tried again")
        begun.opened.refresh()


def ask_for_missing_stages(begun: Begun) -> int:
    """Open a round for finished trials that lack a stage that is asked for now; how many there are."""
    state, work = begun.opened.state, begun.opened.work
    if len(state.iterations) == 1:
        return 0
    wanted = None if begun.wanted is None else set(begun.wanted)
    lacking = []
    for result in state.results():
        done = result.body.get("stages")
        is_wanted = wanted is None or result.trial in wanted
        if is_wanted and isinstance(done, list) and not set(work.stages(result.trial)).issubset(done):
            lacking.append(result.trial)
    if lacking:
        orders.open_rounds(state, lacking, fresh=False)
        begun.opened.refresh()
    return len(lacking)


def _look_around(begun: Begun) -> None:
    """Say what is there already."""
    state = begun.opened.state
    counts = counts_of(begun)
    if counts[State.FINISHED]:
        begun.told.append(f"{counts[State.FINISHED]:,} of {counts['total']:,} trials are finished already")
    others = [agent for agent in state.agents() if agent.life is Life.ALIVE]
    if others:
        running = sum(len(agent.claims) for agent in others)
        many = f"{len(others)} other agents are" if len(others) > 1 else "another agent is"
        begun.told.append(f"{many} at work on this study, with {running} trials running")
    left = counts[State.LOST] + counts[State.RELEASED]
    if left:
        were = "1 trial was" if left == 1 else f"{left:,} trials were"
        begun.told.append(f"{were} interrupted: run again, from the last checkpoint where there is one")
    if counts["left"] == 0:
        begun.is_left = False
        begun.told.append("nothing is left to do (-f runs finished trials again)")


def counts_of(begun: Begun) -> dict[State | str, int]:
    """How many of the wanted trials are where; `total` and `left` besides."""
    counts: dict[State | str, int] = dict.fromkeys(State, 0)
    if begun.wanted is None:
        known = begun.opened.state.counts()
        counts.update(
            {
                State.FINISHED: known.finished,
                State.FAILED: known.failed,
                State.STOPPED: known.stopped,
                State.RUNNING: known.running,
                State.LOST: known.lost,
                State.RELEASED: known.released,
                "total": known.total,
            }
        )
    else:
        for state in _states(begun):
            counts[state] += 1
        counts["total"] = len(begun.wanted)
    counts["left"] = max(0, counts["total"] - sum(counts[state] for state in DONE))
    return counts


def _states(begun: Begun) -> Iterator[State]:
    for trial in begun.wanted or ():
        now = begun.opened.state.trial(trial)
        yield now.state if now is not None else State.WAITING
