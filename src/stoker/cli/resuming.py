"""Whether an interrupted trial is the same as one that is not: what `stoker verify` does and says."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from stoker.cli.board import duration
from stoker.cli.interrupting import Attempt, Moment, Runs, Watch, moments
from stoker.cli.parting import (
    Evidence,
    Parting,
    calls_of,
    kept,
    partings,
    proven,
    resumes,
    suspected,
    untracked,
    where,
)
from stoker.cli.told import many
from stoker.core.errors import StokerError, UsageError
from stoker.manager.progress import Series, read
from stoker.manager.stopping import STOPPED
from stoker.spec.problems import listing, printable

TRIES = 3
"""So often a run is begun again that was over before it could be interrupted."""


class ResumeError(StokerError):
    """A script that runs well does not when it is resumed."""


@dataclass(frozen=True)
class Asked:
    """What is to be verified."""

    stage: str | None = None  # None: the first that uses the manager
    kills: int = 5
    seed: int | None = None
    ignored: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Straight:
    """The run that nothing interrupts."""

    stage: str
    start: Path  # the trial's directory as it was before the stage
    attempt: Attempt
    series: Mapping[str, Series]


@dataclass(frozen=True)
class Interrupted:
    """The run that is interrupted."""

    directory: Path
    count: int  # of interruptions after a checkpoint
    series: Mapping[str, Series]
    is_whole: bool = True  # it was let run to its end


def verify(runs: Runs, asked: Asked) -> int:
    """Run straight, run with interruptions, and tell what came of it; the exit code."""
    runs.show.line(f"trial {runs.trial.number} {runs.trial.name}")
    straight = _run_straight(runs, asked.stage)
    interrupted = _run_interrupted(runs, straight, asked)
    evidence = _evidence(runs, straight, interrupted)
    found = partings(straight.series, interrupted.series, interrupted.is_whole, asked.ignored)
    if found:
        for line in _explain(runs, straight, evidence, found, asked.ignored):
            sys.stdout.write(f"{printable(line)}\n")
        return 1
    for cause in untracked(evidence):
        runs.show.line(f"hint: it made no difference here, but {cause}")
    told = _size({name: one for name, one in straight.series.items() if name not in asked.ignored})
    times = many(interrupted.count, "interruption")
    sys.stdout.write(f"verified: {told}, the same bit for bit after {times}\n")
    return 0


def _size(series: Mapping[str, Series]) -> str:
    return f"{len(series)} series, {many(sum(len(one.values) for one in series.values()), 'value')}"


# Straight


def _run_straight(runs: Runs, wanted: str | None) -> Straight:
    """Run stages up to the one that is wanted, or to the first that uses the manager."""
    directory = runs.fresh()
    for stage in runs.trial.stages:
        start = runs.fresh(directory)
        attempt = _run_to_the_end(runs, stage, directory, "straight")
        series = read(str(directory), stage)
        if stage == wanted or (wanted is None and series):
            _check(stage, attempt, series)
            return Straight(stage, start, attempt, series)
        shutil.rmtree(start.parent)
    raise _nothing_to_compare(listing(runs.trial.stages, last="and"))


def _run_to_the_end(runs: Runs, stage: str, directory: Path, way: str) -> Attempt:
    runs.show.begin(f"{stage}, {way}")
    attempt = runs.attempt(stage, directory)
    series = read(str(directory), stage)
    if not attempt.is_finished:
        _show_failure(runs, attempt)
        raise UsageError(f"{stage} fails without any interruption: {attempt.why}")
    runs.show.line(f"{attempt.took}, {_size(series) if series else 'no progress'}")
    return attempt


def _check(stage: str, attempt: Attempt, series: Mapping[str, Series]) -> None:
    """Refuse what cannot be verified."""
    if not series:
        raise _nothing_to_compare(stage)
    if not attempt.marks:
        raise UsageError(
            f"{stage}: no checkpoint is saved, so a resumed trial begins anew; "
            "let the script use manager.epochs(), or save_progress() after each epoch"
        )


def _nothing_to_compare(stages: str) -> UsageError:
    use = "let the script use Manager.create_manager() and add_progress()"
    return UsageError(f"{stages}: no progress is recorded, so there is nothing to compare; {use}")


def _show_failure(runs: Runs, attempt: Attempt) -> None:
    runs.show.line(f"{attempt.why} after {attempt.took}")
    for line in attempt.last_lines():
        runs.show.line(f"  | {line}")


# Interrupted


def _run_interrupted(runs: Runs, straight: Straight, asked: Asked) -> Interrupted:
    """Try until at least one interruption comes after a checkpoint and before the end."""
    random = Random(asked.seed)  # noqa: S311  (nothing secret)
    marks, seconds = straight.attempt.marks, straight.attempt.ended.wall
    for _ in range(TRIES):
        made = _interrupt(runs, straight, moments(marks, seconds, asked.kills, random), asked.ignored)
        if made.count:
            return made
    left = duration(seconds - marks[0].seconds)
    raise UsageError(
        f"{straight.stage} is too quick to be interrupted: it ends {left} after its first checkpoint; "
        "let it save after each epoch, or train longer with more epochs or data"
    )


def _interrupt(
    runs: Runs, straight: Straight, chosen: Sequence[Moment], ignored: frozenset[str]
) -> Interrupted:
    """Run, interrupted at these moments for as long as nothing differs, and then to the end."""
    stage, directory = straight.stage, runs.fresh(straight.start)
    left, number, count = list(chosen), 0, 0
    while True:
        moment, number = left.pop(0) if left else None, number + 1
        runs.show.begin(f"interruption {number} of {len(chosen)}" if moment else f"{stage}, resumed")
        attempt = runs.attempt(stage, directory, number, moment)
        series = read(str(directory), stage)
        if attempt.is_finished:
            runs.show.line(f"{attempt.took}{', finished before it came' * (moment is not None)}")
            return Interrupted(directory, count, series)
        if moment is None or not attempt.is_asked:
            _show_failure(runs, attempt)
            raise ResumeError(
                f"{stage} fails when it is resumed after interruption {number - 1}: {attempt.why}"
            )
        saved = Watch(directory, stage)
        count += saved.values >= 0 and not saved.is_last
        way = _way(attempt) if moment.is_polite else "killed"
        runs.show.line(f"{way} after {attempt.took}, with {many(max(0, saved.values), 'value')} saved")
        if partings(straight.series, series, False, ignored):
            if not resumes(directory, stage):
                return Interrupted(directory, count, series, is_whole=False)
            left = []  # once to its end, to see how it goes on
        directory = runs.fresh(directory, is_moved=True)


def _way(attempt: Attempt) -> str:
    """How it took the request to stop: one that its helpers did not survive may end it otherwise."""
    return "stopped politely" if attempt.ended.code == STOPPED else f"asked to stop ({attempt.why})"


# Explaining


def _evidence(runs: Runs, straight: Straight, interrupted: Interrupted) -> Evidence:
    stage, directory = straight.stage, interrupted.directory
    calls = calls_of(runs.command(stage, directory), Path.cwd())
    resumed = resumes(directory, stage)
    return Evidence(straight.series, interrupted.series, resumed, kept(directory, stage), calls)


def _explain(
    runs: Runs, straight: Straight, evidence: Evidence, found: list[Parting], ignored: frozenset[str]
) -> Iterator[str]:
    """Where they part, and why."""
    resumed = evidence.resumed
    yield where(found[0], resumed)
    if found[1:]:
        yield f"there or later {listing([parting.name for parting in found[1:]], last='and')} part, too"
    if not resumed or any(parting.place < resumed[0].get(parting.name, 0) for parting in found):
        yield _NEVER_THE_SAME
        return
    causes = proven(found, evidence)
    if not causes:
        again = runs.fresh(straight.start)
        _run_to_the_end(runs, straight.stage, again, "straight once more")
        others = partings(straight.series, read(str(again), straight.stage), ignored=ignored)
        causes = [_NEVER_THE_SAME] if others else suspected(evidence)
    yield from (f"likely cause: {cause}" for cause in causes or [_unknown(evidence)])


_NEVER_THE_SAME = (
    "two straight runs differ already: seed it, before the model is made (torch.manual_seed), and see "
    "torch.use_deterministic_algorithms; a series that measures time can be left out: --ignore SERIES"
)


def _unknown(evidence: Evidence) -> str:
    tracked = listing(list(evidence.kept.kinds), last="and") or "nothing"
    return f"the script goes on from something that is not tracked; what is tracked: {tracked}"
