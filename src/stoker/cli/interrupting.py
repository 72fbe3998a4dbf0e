"""Runs of one trial for `stoker verify`: straight, or interrupted at a moment."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random
from typing import Protocol

from stoker.agent.gpus import read
from stoker.agent.processes import Ended, Spec, Stage
from stoker.agent.slots import child_environment, plan_slots, usable_cores, with_manager
from stoker.cli.board import duration, words_for
from stoker.cli.study_options import Chosen
from stoker.cli.told import many
from stoker.core.values import Value
from stoker.manager import tree
from stoker.manager import trial as managed
from stoker.manager.trial import files
from stoker.plan.trials import Trial
from stoker.spec.problems import printable

TICK = 0.005
"""Seconds between two looks at a run."""
_LIVE = 0.2  # seconds between two lines in a terminal
_TAIL = 15  # lines of a log that are shown


# When


@dataclass(frozen=True)
class Mark:
    """A checkpoint that appeared: when, since the start of its process, and how many values it counts on."""

    seconds: float
    values: int


@dataclass(frozen=True)
class Moment:
    """When to interrupt: so long after the first new checkpoint with so many values.

    Told in seconds since the start, it would be lost in the seconds that libraries take to be imported. And
    where nothing new was saved, the next attempt would only begin at the same place.
    """

    values: int
    delay: float
    is_polite: bool

    def due(self, marks: Sequence[Mark]) -> float:
        """Seconds after the start of an attempt that has saved these."""
        return next((mark.seconds for mark in marks if mark.values >= self.values), inf) + self.delay


def moments(marks: Sequence[Mark], seconds: float, kills: int, random: Random) -> list[Moment]:
    """Random moments between the checkpoints of a straight run that took so long, in order."""
    ends = [mark.seconds for mark in marks[1:]] or [seconds]
    gaps = [(mark.values, max(0.0, end - mark.seconds)) for mark, end in zip(marks, ends, strict=False)]
    chosen = random.sample(gaps, min(kills, len(gaps)))
    chosen += random.choices(gaps, k=kills - len(chosen))
    drawn = sorted((values, random.uniform(0, gap)) for values, gap in chosen)
    return [Moment(*one, is_polite=number % 2 == 1) for number, one in enumerate(drawn)]


# What


@dataclass(frozen=True)
class Attempt:
    """What became of a process."""

    ended: Ended
    log: Path
    marks: list[Mark]  # checkpoints that are ahead of all before
    is_asked: bool  # to end

    @property
    def is_finished(self) -> bool:
        """Whether it did all that it had to."""
        return self.ended.code == 0

    @property
    def took(self) -> str:
        """How long it ran."""
        return duration(self.ended.wall)

    @property
    def why(self) -> str:
        """How it ended."""
        return words_for(self.ended.code, self.ended.signal, self.ended.why.value, self.ended.wall)

    def last_lines(self) -> list[str]:
        """What it said last."""
        return self.log.read_text(encoding="utf-8", errors="replace").rstrip().splitlines()[-_TAIL:]


class Launcher(Protocol):
    """What starts processes and ends them: `stoker.agent.processes.Processes`."""

    def start(self, spec: Spec) -> Stage: ...  # noqa: D102
    def poll(self, timeout: float | None) -> list[Ended]: ...  # noqa: D102
    def terminate(self, stage: Stage) -> None: ...  # noqa: D102
    def kill(self, stage: Stage) -> None: ...  # noqa: D102


class Runs:
    """Runs of a trial, each in a directory of its own below `place`, as agents would run it."""

    def __init__(self, chosen: Chosen, trial: Trial, processes: Launcher, place: Path) -> None:
        self.trial, self.show = trial, Shown()
        self._study, self._processes, self._place = chosen.study, processes, place.absolute()
        self._count = 0
        self._slot, self._environment = _slot(chosen)

    def fresh(self, source: Path | None = None, is_moved: bool = False) -> Path:
        """A new directory for the trial: empty, a copy of another one, or in place of it."""
        self._count += 1
        made = self._place / str(self._count) / self.trial.name
        made.parent.mkdir()
        if source is None:
            made.mkdir()
        elif is_moved:  # the old one is gone, as with its machine
            source.rename(made)
        else:
            shutil.copytree(source, made, symlinks=True)
        return made

    def command(self, stage: str, directory: Path, number: int = 1) -> str:
        """What an attempt at a stage runs."""
        reserved: dict[str, Value] = {
            "_output": str(directory),
            "_name": self.trial.name,
            "_time": time.strftime("%Y%m%d.%H%M%S"),
            "_trial": self.trial.number,
            "_attempt": number,
            "_slot": self._slot,
            "_study": self._study.name,
        }
        return self._study.commands(self.trial, reserved)[stage]

    def attempt(self, stage: str, directory: Path, number: int = 1, moment: Moment | None = None) -> Attempt:
        """Run a stage to its end, or to a moment."""
        command, log = self.command(stage, directory, number), directory / f"log.{stage}.{number}"
        watch, is_asked = Watch(directory, stage), False
        began = time.monotonic()
        process = self._processes.start(
            Spec(command, log, self._environment, self._about(stage, directory, number))
        )
        while True:
            for ended in self._processes.poll(TICK):
                watch.look(ended.wall)
                return Attempt(ended, log, watch.marks, is_asked)
            now = time.monotonic() - began
            watch.look(now)
            self.show.now(f"{duration(now)}, {many(len(watch.marks), 'checkpoint')}")
            if moment is not None and not is_asked and now >= moment.due(watch.marks):
                is_asked = True
                (self._processes.terminate if moment.is_polite else self._processes.kill)(process)

    def _about(self, stage: str, directory: Path, number: int) -> dict[str, str]:
        """What an agent tells a script's manager; and that it shall save whenever it can."""
        told = managed.Trial(self.trial.params, str(directory), stage, (1, number), self._study.objective)
        return {**managed.to_environment(told, f"1.{self.trial.number}"), "STOKER_SAVE_EVERY": "1"}


def _slot(chosen: Chosen) -> tuple[str, Mapping[str, str]]:
    """The GPUs of the first slot, and the environment of its processes."""
    inherited = os.environ.get("CUDA_VISIBLE_DEVICES")
    slots = plan_slots(chosen.slots, read().gpus, inherited, usable_cores()).slots
    asked = chosen.study.settings.get("env")
    words = {str(name): str(value) for name, value in asked.items()} if isinstance(asked, dict) else {}
    whole = child_environment(slots[0], os.environ, words) if slots else {**os.environ, **words}
    whole = with_manager(whole)
    return slots[0].devices if slots else "", whole


class Watch:
    """Sees the checkpoints of a stage appear."""

    def __init__(self, directory: Path, stage: str) -> None:
        self._directory, self._stage, self._newest = str(directory / "checkpoints"), stage, ""
        self.values = -1  # that the newest one counts on; -1 without any
        self.is_last = False  # the newest one is that of a trial that is done
        self.marks: list[Mark] = []
        self.look(0.0)
        self.marks.clear()  # what was there before is not new

    def look(self, now: float) -> None:
        """Take note of a checkpoint that is new, if it counts on more than those before."""
        newest = max(files(self._directory, self._stage, "state"), key=lambda file: file.order, default=None)
        if newest is None or newest.path == self._newest:
            return
        with suppress(tree.Damaged):  # removed by now: the next look finds a newer one
            head = tree.read_head(newest.path)
            self._newest, self.is_last = newest.path, bool(head.get("finished"))
            values = sum(head["counts"].values())
            if values > self.values:
                self.values = values
                self.marks.append(Mark(now, values))


class Shown:
    """What a person sees meanwhile: a line for what is over, and in a terminal for what is under way."""

    def __init__(self) -> None:
        self._what, self._last = "", 0.0
        self._is_live = sys.stderr.isatty()

    def begin(self, what: str) -> None:
        """Something is under way."""
        self._what = f"{what}: "

    def now(self, text: str) -> None:
        """How far it is."""
        if self._is_live and time.monotonic() > self._last + _LIVE:
            self._last = time.monotonic()
            self._write(f"\r\x1b[K{printable(self._what + text)}")

    def line(self, text: str) -> None:
        """What came of it."""
        clear = "\r\x1b[K" if self._is_live else ""
        self._write(f"{clear}{printable(self._what + text)}\n")
        self._what = ""

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
