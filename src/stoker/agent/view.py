"""What an agent knows of a study, and what follows from it. Data in, decisions out: no waiting, no store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Protocol

from stoker.store import records
from stoker.store.records import End, Mark, TrialId, range_of

LOST_IN_A_ROW = 3
"""A trial that takes its machine down so often, without finishing a stage meanwhile, has failed."""


@dataclass
class Round:
    """What is known of one round of a trial."""

    attempts: dict[int, End | None] = field(default_factory=dict)  # None: no end is known
    stages: set[str] = field(default_factory=set)  # finished
    has_result: bool = False


class Verdict(Enum):
    """What can be done about a trial."""

    DONE = "its round has a result"
    BUSY = "an agent that lives has it"
    READY = "it can be claimed"
    HOPELESS = "it failed or was lost too often: its result can be committed"


@dataclass(frozen=True)
class Decision:
    """A verdict, and the round and attempt that it is about."""

    verdict: Verdict
    round: int
    attempt: int  # the next one, for READY; the last one otherwise
    why: str = ""


Held = Callable[[TrialId, int, int], bool]
"""Whether the attempt without an end is still held: its agent lives and stands by it."""


@dataclass
class TrialState:
    """All that is known of one trial. Trials that nobody touched have no state."""

    rounds: dict[int, Round] = field(default_factory=dict)

    @property
    def current(self) -> int:
        """The round that counts: the last that anybody opened."""
        return max(self.rounds, default=1)

    def add(self, mark: Mark) -> None:
        """Take note of a record. The same one may come again, in any order."""
        known = self.rounds.setdefault(mark.round, Round())
        if mark.kind == "claim":
            known.attempts.setdefault(mark.attempt, None)
        elif mark.kind == "stage":
            known.stages.add(mark.stage)
        elif mark.kind == "result":
            known.has_result = True
        elif mark.kind != "round":
            known.attempts[mark.attempt] = End(mark.kind)


def judge(trial: TrialId, state: TrialState, retries: int, held: Held) -> Decision:
    """What can be done about a trial now."""
    number = state.current
    known = state.rounds.get(number, Round())
    last = max(known.attempts, default=0)
    if known.has_result:
        return Decision(Verdict.DONE, number, last)
    if last and known.attempts[last] is None and held(trial, number, last):
        return Decision(Verdict.BUSY, number, last)
    failures = sum(end is End.FAILED for end in known.attempts.values())
    if failures > retries:
        return Decision(Verdict.HOPELESS, number, last, "failed")
    if _lost_in_a_row(known) >= LOST_IN_A_ROW:
        return Decision(Verdict.HOPELESS, number, last, "lost")
    return Decision(Verdict.READY, number, last + 1)


def _lost_in_a_row(known: Round) -> int:
    """Attempts at the end of the round that were lost. A finished stage forgives those before it."""
    count = 0
    for attempt in sorted(known.attempts, reverse=True):
        if known.attempts[attempt] is not None:
            break
        count += 1
    return 0 if known.stages else count


class Focus(Protocol):
    """The part of a study that an agent is for."""

    @property
    def size(self) -> int: ...  # noqa: D102
    def owners(self, number: int) -> tuple[TrialId, ...]: ...  # noqa: D102
    def covers(self, trial: TrialId) -> bool: ...  # noqa: D102


class View:
    """The trials of all iterations, as far as this agent has seen them.

    Done trials take a byte each, untouched ones nothing: the state of a million trials stays small.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._skipped: dict[int, Callable[[int], bool]] = {}
        self._done: dict[tuple[int, int], bytearray] = {}  # (iteration, range) → the round done, by place
        self._states: dict[TrialId, TrialState] = {}
        self._low: dict[int, int] = {}  # all trials below are done
        self.focus: Focus | None = None
        self._focus_low = 1  # all that the focus asks for below is done
        self.summarised: set[tuple[int, int]] = set()  # (iteration, range)

    def add_iteration(self, iteration: int, size: int, skipped: Callable[[int], bool]) -> None:
        """Trials 1 to `size` of an iteration are to be run, but for those that `skipped` tells."""
        if iteration not in self._sizes:
            self._sizes[iteration] = size
            self._skipped[iteration] = skipped
            self._low[iteration] = 1

    def add(self, mark: Mark) -> None:
        """Take note of a record."""
        done = self.done_round(mark.trial)
        if mark.round <= done:
            return
        state = self._states.setdefault(mark.trial, TrialState())
        state.add(mark)
        known = state.rounds[state.current]
        if known.has_result:
            self._set_done(mark.trial, state.current)
            del self._states[mark.trial]

    def add_summary(self, iteration: int, place: int) -> None:
        """All trials of a range have a result, in the first round at least."""
        if (iteration, place) in self.summarised:
            return
        self.summarised.add((iteration, place))
        places = self._done.setdefault((iteration, place), bytearray(records.RANGE))
        places[:] = bytes(round_ or 1 for round_ in places)
        for trial, state in self.touched():
            if trial.iteration == iteration and range_of(trial.number) == place and state.current == 1:
                del self._states[trial]

    def complete_ranges(self) -> list[tuple[int, int]]:
        """Ranges without a summary in which every trial is done."""
        reopened = {(trial.iteration, range_of(trial.number)) for trial in self._states}
        candidates = self._done.keys() - self.summarised - reopened
        return sorted(key for key in candidates if self._is_complete(*key))

    def done_in(self, iteration: int, place: int) -> list[TrialId]:
        """Trials of a range that have a result."""
        first, places = place * records.RANGE + 1, self._done.get((iteration, place), b"")
        return [TrialId(iteration, first + index) for index, round_ in enumerate(places) if round_]

    def size_of_range(self, iteration: int, place: int) -> int:
        """How many trials a range has; the last one may have fewer than the others."""
        return min(records.RANGE, self._sizes.get(iteration, 0) - place * records.RANGE)

    def _is_complete(self, iteration: int, place: int) -> bool:
        first, places, skipped = (
            place * records.RANGE + 1,
            self._done[iteration, place],
            self._skipped.get(iteration),
        )
        numbers = range(self.size_of_range(iteration, place))
        return all(places[index] or (skipped and skipped(first + index)) for index in numbers)

    def state(self, trial: TrialId) -> TrialState:
        """What is known of a trial that is not done."""
        return self._states.get(trial) or TrialState()

    def touched(self) -> list[tuple[TrialId, TrialState]]:
        """Trials that are not done and of which there are records."""
        return list(self._states.items())

    def done_round(self, trial: TrialId) -> int:
        """The last round of a trial that has a result; 0 if none has."""
        places = self._done.get((trial.iteration, range_of(trial.number)))
        return places[(trial.number - 1) % records.RANGE] if places else 0

    def is_done(self, trial: TrialId) -> bool:
        """Whether the current round has a result, or there is nothing to do."""
        if trial in self._states:
            return False
        return self.done_round(trial) > 0 or self._skipped[trial.iteration](trial.number)

    def _set_done(self, trial: TrialId, round_: int) -> None:
        places = self._done.setdefault((trial.iteration, range_of(trial.number)), bytearray(records.RANGE))
        places[(trial.number - 1) % records.RANGE] = min(round_, 255)

    def unfinished(self) -> Iterator[TrialId]:
        """Trials that are not done: reopened ones first, then in order."""
        if self.focus is not None:
            yield from self._unfinished_of(self.focus)
            return
        for iteration, size in self._sizes.items():
            low = self._advance(iteration)
            yield from sorted(
                trial for trial in self._states if trial.iteration == iteration and trial.number < low
            )
            for number in range(low, size + 1):
                trial = TrialId(iteration, number)
                if not self.is_done(trial):
                    yield trial

    def _unfinished_of(self, focus: Focus) -> Iterator[TrialId]:
        yield from (
            trial for trial in sorted(self._states) if focus.covers(trial) and not self.is_done(trial)
        )
        while self._focus_low <= focus.size and all(map(self.is_done, focus.owners(self._focus_low))):
            self._focus_low += 1
        for number in range(self._focus_low, focus.size + 1):
            for trial in focus.owners(number):
                if trial not in self._states and not self.is_done(trial):
                    yield trial

    def _advance(self, iteration: int) -> int:
        """Move the watermark over trials that are done. One that is reopened later stays below it."""
        low, size = self._low[iteration], self._sizes[iteration]
        while low <= size and self.is_done(TrialId(iteration, low)):
            low += 1
        self._low[iteration] = low
        return low

    def first_open(self, iteration: int, place: int) -> int:
        """The first trial of a range that is not done; what is before it need not be looked at."""
        reopened = (
            trial.number
            for trial in self._states
            if trial.iteration == iteration and range_of(trial.number) == place
        )
        return min([max(self._low[iteration], place * records.RANGE + 1), *reopened])

    @property
    def iterations(self) -> list[int]:
        """The iterations that are known."""
        return list(self._sizes)

    def open_ranges(self, iteration: int) -> Iterator[int]:
        """Ranges with trials that are not done, from the first on."""
        size, low = self._sizes[iteration], self._advance(iteration)
        reopened = {range_of(trial.number) for trial in self._states if trial.iteration == iteration}
        yield from sorted(place for place in reopened if place < range_of(low))
        yield from range(range_of(low), range_of(size) + 1) if low <= size else ()


def candidates(
    view: View, retries: Callable[[TrialId], int], held: Held, most: int, passed: Callable[[TrialId], bool]
) -> list[tuple[TrialId, Decision]]:
    """The first trials about which something can be done, `most` at the most, but for those passed over."""
    found = []
    for trial in view.unfinished():
        if passed(trial):
            continue
        decision = judge(trial, view.state(trial), retries(trial), held)
        if decision.verdict in (Verdict.READY, Verdict.HOPELESS):
            found.append((trial, decision))
            if len(found) >= most:
                break
    return found


def pick(found: list[tuple[TrialId, Decision]], random: Random) -> tuple[TrialId, Decision] | None:
    """One of the candidates, at random, so that a fleet does not run after the same trial."""
    return found[random.randrange(len(found))] if found else None


@dataclass
class _Seen:
    version: str
    looked: float  # when the beat was last looked at
    silence: float = 0.0  # how long it was seen unchanged
    silent: dict[str, int] = field(default_factory=dict)  # claim → beats in a row that do not mention it


class Watch:
    """Who lives, by one's own clock alone: an agent is dead when its beat was seen unchanged for a lease.

    Only time spent looking counts. Whoever was cut off or asleep, or finds the store back after an outage,
    has not seen the others silent meanwhile, and must not bury them.
    """

    def __init__(self, lease: float, longest_look: float) -> None:
        self._lease = lease
        self._longest = longest_look  # of the time between two looks, so much counts
        self._seen: dict[str, _Seen] = {}
        self._gone: set[str] = set()

    def observe(self, agent: str, version: str, now: float) -> None:
        """A listing shows this version of an agent's beat; an empty one if it shows none."""
        known = self._seen.setdefault(agent, _Seen(version, now))
        passed = min(now - known.looked, self._longest)
        known.silence = known.silence + passed if known.version == version else 0.0
        known.version, known.looked = version, now

    def hear(self, agent: str, mentions: frozenset[str], left: bool) -> None:
        """A new beat says which claims it stands by, and whether the agent left."""
        known = self._seen[agent]
        for claim in known.silent:
            known.silent[claim] = 0 if claim in mentions else known.silent[claim] + 1
        if left:
            self._gone.add(agent)

    def bury(self, agent: str) -> None:
        """The agent is known to be dead."""
        self._gone.add(agent)

    def is_alive(self, agent: str) -> bool:
        """Whether the agent may still be at work. One that was never looked for may."""
        known = self._seen.get(agent)
        return agent not in self._gone and (known is None or known.silence < self._lease)

    def stands_by(self, agent: str, claim: str) -> bool:
        """False once two new beats in a row did not mention the claim."""
        known = self._seen.get(agent)
        return known is None or known.silent.setdefault(claim, 0) < 2

    def alive(self) -> int:
        """How many agents live."""
        return sum(map(self.is_alive, self._seen))
