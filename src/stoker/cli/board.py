"""What is known of a running study: its agent's events and the state of the store, made into one board.

Nothing here reads a clock, a file or a terminal: `Board.now` is the last moment it was told of. What others
wrote (names, labels, reasons) is made printable on its way in, so that whoever draws need not think of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import PurePath
from signal import Signals
from time import localtime, strftime
from typing import Any, Protocol

from stoker.spec.problems import printable

RECENT = 20
_DAY = 86_400
_SHELL_SAYS = {126: "the command cannot be executed", 127: "command not found"}


# What the caller gives, and gets


MOST_METRICS = 8
"""So many metrics of a trial are shown in a line."""


class Wish(Enum):
    """What the person at the terminal wants of the study."""

    PAUSE = "pause"
    RESUME = "resume"
    FINISH = "finish"  # begin nothing more, and end when what runs is over
    QUIT = "quit"  # end gracefully
    KILL = "kill"  # end at once


@dataclass(frozen=True)
class Counts:
    """How many trials of the whole study are where."""

    total: int
    finished: int = 0
    failed: int = 0
    stopped: int = 0
    running: int = 0
    waiting: int = 0

    @property
    def left(self) -> int:
        """Those without a result."""
        return max(0, self.total - self.finished - self.failed - self.stopped)


@dataclass(frozen=True)
class Peer:
    """Another agent of the study."""

    name: str
    host: str
    running: int
    silent: float  # seconds since its last beat


class State(Protocol):
    """What the store says of the study. Looked at often, so it must answer from memory."""

    @property
    def counts(self) -> Counts: ...  # noqa: D102
    @property
    def others(self) -> Sequence[Peer]: ...  # noqa: D102
    def last_metric(self, trial: str) -> str: ...  # noqa: D102


class Screen(Protocol):
    """Shows a study to a person, and hears what the person wants.

    Call `tick` a few times a second: it draws only if there is something new. Call `ready` when one of the
    `descriptors` is readable; wishes come through the callback from there, never from a signal handler.
    """

    board: Board

    def feed(self, event: Mapping[str, Any]) -> None: ...  # noqa: D102
    def tick(self, state: State, now: float) -> None: ...  # noqa: D102
    def descriptors(self) -> Sequence[int]: ...  # noqa: D102
    def ready(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


# What a board is made of


class Outcome(Enum):
    """How a stage or a trial ended."""

    FINISHED = "finished"
    FAILED = "failed"
    RELEASED = "released"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Slot:
    """A share of this machine; with a holder it is somebody else's for now."""

    label: str
    holder: str = ""


@dataclass(frozen=True)
class Task:
    """A stage that runs now."""

    slot: int | None
    trial: str
    name: str
    stage: str
    began: float
    log: str = ""  # a path to open, so not made printable
    step: str = ""  # "1/3", where the agent says so

    @property
    def place(self) -> str:
        """The trial's directory, if it has one of its own, as its log tells; else its name."""
        directory = PurePath(self.log).parent
        return printable(str(directory)) if printable(directory.name) == self.name else self.name


@dataclass(frozen=True)
class End:
    """A stage that ended; if it failed, why, in words."""

    task: Task
    outcome: Outcome
    seconds: float
    reason: str = ""

    @property
    def told(self) -> str:
        """`train: exit code 1`."""
        return f"{self.task.stage}: {self.reason}" if self.task.stage else self.reason


@dataclass(frozen=True)
class Ended:
    """A trial that ended; `told` is its metrics, or why it failed."""

    trial: str
    name: str
    outcome: Outcome
    seconds: float
    told: str


class Board:
    """Everything that can be shown of a study while it runs."""

    def __init__(self, study: str, where: str, total: int, now: float) -> None:
        self.study, self.where = printable(study), printable(where)
        self.began = self.now = now
        self.state: State | None = None
        self.slots: tuple[Slot, ...] = ()
        self.notes: tuple[str, ...] = ()
        self._of_slots: tuple[str, ...] = ()
        self._said: tuple[str, ...] = ()
        self.waits: dict[int, str] = {}  # slot → what it does before its trial starts
        self.tasks: dict[str, Task] = {}  # by trial: one stage of it runs at a time
        self.begun: set[str] = set()  # trials that run here, also between two of their stages
        self.recent: deque[Ended] = deque(maxlen=RECENT)
        self.failures: dict[str, End] = {}  # by trial: the stage that it failed in
        self.away = ""  # why the store does not answer
        self.leaving = ""  # why the agent leaves
        self.paused = self.finishing = self.quitting = False
        self.stage_width = 0  # the widest stage so far: columns only grow, so nothing jumps
        self._total = total
        self._busy_time = self._slot_time = 0.0
        self._counted_to = now
        self._spent: dict[str, float] = {}  # seconds so far of trials without a result
        self._last_failed: dict[str, End] = {}
        self._ended, self._ended_seconds, self._any_finished = 0, 0.0, False

    # What happens

    def see(self, state: State, now: float) -> None:
        """Take in what the store says."""
        self.state, self.now = state, now

    def feed(self, event: Mapping[str, Any]) -> End | Task | None:
        """Take in one event of the agent, and return the stage that started or ended; skip unknown events."""
        self.now = max(self.now, event.get("time", self.now))
        self._count_time(event.get("time", self.now))
        match event["event"]:
            case "slots":
                told = event["slots"]
                self.slots = tuple(Slot(printable(slot["label"]), printable(slot["holder"])) for slot in told)
                self._of_slots = tuple(printable(note) for note in event.get("notes", ()))
                self.notes = (*self._of_slots, *self._said)
            case "note":
                self._said = (*self._said, printable(event["text"]))
                self.notes = (*self._of_slots, *self._said)
            case "wait":
                self.waits[event["slot"]] = printable(event["text"])
            case "start":
                return self._start(event)
            case "end":
                return self._end(event)
            case "trial":
                self._trial_ended(event)
            case "store":
                self.away = printable(event.get("why") or "no answer") if event["away"] else ""
            case "leave":
                self.leaving = printable(event.get("why") or "")
        return None

    def _start(self, event: Mapping[str, Any]) -> Task:
        task = self.tasks[event["trial"]] = _task(event, event["time"])
        self.begun.add(event["trial"])
        self.waits.pop(event["slot"], None)
        self.stage_width = max(self.stage_width, len(f"{task.step} {task.stage}"))
        return task

    def _end(self, event: Mapping[str, Any]) -> End:
        trial, seconds, outcome = event["trial"], event["seconds"], Outcome(event["outcome"])
        task = self.tasks.pop(trial, None) or _task(event, event["time"] - seconds)
        reason = words_for(event.get("code"), event.get("signal"), event.get("why") or "", seconds)
        end = End(task, outcome, seconds, reason if outcome is Outcome.FAILED else "")
        self._spent[trial] = self._spent.get(trial, 0.0) + seconds
        if outcome is Outcome.FAILED:
            self._last_failed[trial] = end
        if outcome is not Outcome.FINISHED or event.get("step") == event.get("steps", 0):
            self.begun.discard(trial)
        return end

    def _trial_ended(self, event: Mapping[str, Any]) -> None:
        trial, name, outcome = event["trial"], printable(event["name"]), Outcome(event["status"])
        seconds, failed = self._spent.pop(trial, 0.0), self._last_failed.pop(trial, None)
        told = metrics_text(event.get("metrics") or {})
        self.begun.discard(trial)
        self.failures.pop(trial, None)
        if outcome is Outcome.FAILED:
            self.failures[trial] = failed or End(
                Task(None, trial, name, "", self.now), outcome, 0.0, "it failed elsewhere"
            )
            told = self.failures[trial].told
        self.recent.append(Ended(trial, name, outcome, seconds, told))
        if outcome is not Outcome.STOPPED and seconds:
            self._ended, self._ended_seconds = self._ended + 1, self._ended_seconds + seconds
        self._any_finished |= outcome is Outcome.FINISHED

    def _count_time(self, until: float) -> None:
        self._busy_time, self._slot_time = self._times(until)
        self._counted_to = max(self._counted_to, until)

    def _times(self, until: float) -> tuple[float, float]:
        passed = max(0.0, until - self._counted_to)
        return self._busy_time + passed * self.busy, self._slot_time + passed * len(self._usable)

    # What can be said of it

    @property
    def counts(self) -> Counts:
        """Of the whole study; until the store was asked, only how many there are."""
        return self.state.counts if self.state else Counts(self._total, waiting=self._total)

    @property
    def others(self) -> Sequence[Peer]:
        """The study's other agents."""
        return self.state.others if self.state else ()

    @property
    def busy(self) -> int:
        """How many slots of this machine are at work."""
        return sum(task.slot is not None for task in self.tasks.values())

    @property
    def _usable(self) -> list[Slot]:
        return [slot for slot in self.slots if not slot.holder]

    def in_slots(self) -> list[Task | None]:
        """What runs in each slot."""
        tasks: list[Task | None] = [None] * len(self.slots)
        for task in self.tasks.values():
            if task.slot is not None and task.slot < len(tasks):
                tasks[task.slot] = task
        return tasks

    def label(self, task: Task) -> str:
        """The label of a task's slot."""
        if task.slot is None:
            return "no slot"
        return self.slots[task.slot].label if task.slot < len(self.slots) else f"slot {task.slot}"

    def number(self, task: Task | Ended) -> str:
        """`5/40` for trial 5 of 40, as it is called on the command line; `2.5` in the second iteration."""
        number = printable(task.trial.removeprefix("1."))
        total = self.counts.total
        return f"{number}/{total}" if number.isdecimal() and int(number) <= total else number

    def metric(self, task: Task) -> str:
        """What a running trial last said."""
        return printable(self.state.last_metric(task.trial)) if self.state else ""

    def utilisation(self) -> float | None:
        """The share of this machine's slot time that was busy; slots that somebody else held do not count."""
        busy, slots = self._times(self.now)
        return min(1.0, busy / slots) if slots else None

    def expected_end(self) -> float | None:
        """When the study may end; None while there is nothing to go by.

        Trials that wait take as long as those that ended in this run did on average.
        """
        counts = self.counts
        foreign = sum(peer.running for peer in self.others)
        workers = min(len(self._usable) + foreign, counts.left)
        is_held_up = self.paused or self.finishing or self.quitting or self.away
        if not self._any_finished or not self._ended or not workers or is_held_up:
            return None
        mean = self._ended_seconds / self._ended
        remaining = [max(0.0, mean - self._age(task)) for task in self.tasks.values()] + [mean / 2] * foreign
        return self.now + time_left(mean, remaining, max(0, counts.left - len(remaining)), workers)

    def _age(self, task: Task) -> float:
        return self.now - task.began + self._spent.get(task.trial, 0.0)


def time_left(mean: float, remaining: Sequence[float], waiting: int, workers: int) -> float:
    """Seconds until all is done, if a trial takes `mean`, and those that run have `remaining` ahead of them.

    The slots of all agents share the work. The end cannot come before the slowest running trial's, nor before
    a slot gets free and a waiting trial has run on it.
    """
    next_free = min(remaining, default=0.0) if len(remaining) >= workers else 0.0
    at_least = next_free + mean if waiting else max(remaining, default=0.0)
    return max(at_least, (waiting * mean + sum(remaining)) / workers)


def _task(event: Mapping[str, Any], began: float) -> Task:
    name, stage, log = printable(event["name"]), printable(event["stage"]), event.get("log") or ""
    step = f"{event['step']}/{event['steps']}" if "steps" in event else ""
    return Task(event.get("slot"), event["trial"], name, stage, began, log, step)


# Words


def words_for(code: int | None, signal: int | None, why: str, seconds: float) -> str:
    """How a command ended, as a person would say it. A shell tells of a signal as 128 and its number."""
    if why == "timeout":
        return f"timeout after {duration(seconds)}"
    if signal:
        return _killed_by(signal)
    if code in _SHELL_SAYS:
        return f"exit code {code}: {_SHELL_SAYS[code]}"
    if code and code - 128 in set(Signals):
        return f"exit code {code}: {_killed_by(code - 128)}"
    if code is not None and why in ("", "exited"):
        return f"exit code {code}"
    return printable(why) or "no reason known"


def _killed_by(signal: int) -> str:
    if signal == Signals.SIGKILL:
        return "killed by signal 9: maybe out of memory"
    known = f" ({Signals(signal).name})" if signal in set(Signals) else ""
    return f"killed by signal {signal}{known}"


def metrics_text(metrics: Mapping[str, Any]) -> str:
    """`val_accuracy 0.93, loss 0.2`: the first ones, as there may be thousands."""
    told = [
        f"{printable(name)[:60]} {value:.4g}"
        if isinstance(value, float)
        else printable(f"{name} {value}")[:80]
        for name, value in islice(metrics.items(), MOST_METRICS)
    ]
    more = len(metrics) - len(told)
    return ", ".join([*told, *([f"and {more:,} more"] if more > 0 else [])])


def duration(seconds: float) -> str:
    """`12.3 s`, `2 min 03 s`, `1 h 03 min`, `2 d 3 h`."""
    if seconds < 59.95:
        return f"{max(0.0, seconds):.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    if whole < _DAY:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // _DAY} d {whole % _DAY // 3600} h"


def clock(seconds: float) -> str:
    """`0:12`, `12:03`, `1:02:03`: for a column that counts."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def around(moment: float, now: float) -> str:
    """`≈ 14:32 (in 25 min)`, no more exact than an estimate can be."""
    minutes = round((moment - now) / 60)
    moment = now + minutes * 60  # so that both agree
    if minutes < 60:
        distance = f"{minutes} min" if minutes > 0 else "less than a minute"
    else:
        hours = round(minutes / 60)
        distance = f"{minutes // 60} h {minutes % 60:02} min" if hours < 10 else f"{hours} h"
        distance = distance if hours < 48 else f"{round(hours / 24)} days"
    form = "%H:%M" if moment - now < _DAY / 2 else "%a %H:%M" if moment - now < 6 * _DAY else "%d %b"
    return f"≈ {strftime(form, localtime(moment))} (in {distance})"
