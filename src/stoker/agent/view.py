"""What an agent knows of a study, and what follows from it. Data in, decisions out: no waiting, no store.

A fleet may have a thousand agents and a study millions of trials, and every agent looks at them every few
seconds. So nothing here goes through all trials, nor through all that are under way, more than once a look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Protocol

from stoker.store import records
from stoker.store.records import End, Mark, TrialId, range_of
from stoker.study.ranges import is_lost_too_often


@dataclass(slots=True)
class Round:
    """What is known of one round of a trial."""

    attempts: dict[int, End | None] = field(default_factory=dict)  # None: no end is known
    stages: set[str] = field(default_factory=set)  # finished
    has_result: bool = False

    @property
    def last(self) -> int:
        """The last attempt; 0 if there is none."""
        return max(self.attempts, default=0)


class Verdict(Enum):
    """What can be done about a trial that nobody holds."""

    READY = "it can be claimed"
    HOPELESS = "it failed or was lost too often: its result can be committed"


@dataclass(frozen=True)
class Decision:
    """A verdict, and the round and attempt that it is about."""

    verdict: Verdict
    round: int
    attempt: int  # the next one, for READY; the last one otherwise
    why: str = ""


@dataclass(slots=True)
class TrialState:
    """All that is known of one trial. Trials that nobody touched have no state."""

    rounds: dict[int, Round] = field(default_factory=dict)
    current: int = 1  # the round that counts: the last that anybody opened
    claim: str = ""  # the key of the last attempt's claim, while it has no end

    def add(self, mark: Mark) -> None:
        """Take note of a record. The same one may come again, in any order."""
        known = self.rounds.get(mark.round)
        if known is None:
            known = self.rounds[mark.round] = Round()
            self.current = max(self.current, mark.round)
        if mark.kind == "claim":
            known.attempts.setdefault(mark.attempt, None)
        elif mark.kind == "result":
            known.has_result = True
        elif mark.kind == "stage":
            known.stages.add(mark.stage)
        elif mark.kind != "round":
            known.attempts[mark.attempt] = End(mark.kind)
        self.claim = self._open_claim(mark.trial)

    def _open_claim(self, trial: TrialId) -> str:
        known = self.rounds[self.current]
        is_open = None in known.attempts.values() and known.attempts[known.last] is None
        return records.claim_key(trial, self.current, known.last) if is_open else ""


def judge(state: TrialState, retries: int) -> Decision:
    """What can be done about a trial that nobody holds, and whose round has no result."""
    number = state.current
    known = state.rounds.get(number, Round())
    failures = sum(end is End.FAILED for end in known.attempts.values())
    if failures > retries:
        return Decision(Verdict.HOPELESS, number, known.last, "failed")
    if is_lost_too_often(known.attempts, bool(known.stages)):
        return Decision(Verdict.HOPELESS, number, known.last, "lost")
    return Decision(Verdict.READY, number, known.last + 1)


class _Range:
    """The trials of one range: done, touched, skipped, or fresh."""

    def __init__(self, first: int, size: int, skipped: Callable[[int], bool]) -> None:
        self.first = first
        self.done = bytearray(size)  # the last round that has a result, by place
        self.touched: set[int] = set()  # numbers of trials that are not done and of which there are records
        self._fresh = bytearray(b"\1" * size)  # nobody came yet, or it is skipped
        self._skipped = skipped
        self._asked = 0  # which of the trials before this place are skipped is known

    def touch(self, number: int) -> None:
        self.touched.add(number)
        self._fresh[number - self.first] = 0

    def finish(self, number: int, round_: int) -> None:
        self.touched.discard(number)
        self._fresh[number - self.first] = 0
        self.done[number - self.first] = min(round_, 255)

    def finish_all(self) -> None:
        """All are done, in the first round at least, but for those that are touched."""
        self.done[:] = bytes(round_ or 1 for round_ in self.done)
        self._fresh = bytearray(len(self.done))

    def fresh(self) -> Iterator[int]:
        """Trials to which nobody came yet, in order."""
        place = self._fresh.find(1)
        while place >= 0:
            if place >= self._asked:  # a plan takes its time to tell, so it is asked once
                self._asked = place + 1
                self._fresh[place] = not self._skipped(self.first + place)
            if self._fresh[place]:
                yield self.first + place
            place = self._fresh.find(1, place + 1)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to do."""
        return not self.touched and next(self.fresh(), None) is None

    @property
    def is_begun(self) -> bool:
        """Whether anybody came here."""
        return bool(self.touched) or any(self.done)


class Focus(Protocol):
    """The part of a study that an agent is for."""

    @property
    def size(self) -> int: ...  # noqa: D102
    def owners(self, number: int) -> tuple[TrialId, ...]: ...  # noqa: D102
    def covers(self, trial: TrialId) -> bool: ...  # noqa: D102


class View:
    """The trials of all iterations, as far as this agent has seen them.

    Done trials take two bytes each, ranges that nobody came to nothing: the state of a million stays small.
    """

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._skipped: dict[int, Callable[[int], bool]] = {}
        self._ranges: dict[tuple[int, int], _Range] = {}  # (iteration, range)
        self._low: dict[int, int] = {}  # all ranges below are over, but for reopened ones
        self._touched: set[tuple[int, int]] = set()  # ranges with trials that are touched
        self._states: dict[TrialId, TrialState] = {}
        self._early: list[Mark] = []  # an order may be ahead of its plan
        self._complete: set[tuple[int, int]] = set()  # ranges that are over
        self.claims: dict[str, TrialId] = {}  # last attempts without an end, by the keys of their claims
        self.loose: set[TrialId] = set()  # touched trials without such an attempt
        self.summarised: set[tuple[int, int]] = set()
        self.focus: Focus | None = None
        self._focus_low = 1  # all that the focus asks for below is done

    # Taking note

    def add_iteration(self, iteration: int, size: int, skipped: Callable[[int], bool]) -> None:
        """Trials 1 to `size` of an iteration are to be run, but for those that `skipped` tells."""
        if iteration in self._sizes:
            return
        self._sizes[iteration], self._skipped[iteration], self._low[iteration] = size, skipped, 0
        early, self._early = self._early, []
        for mark in early:
            self.add(mark)

    def add(self, mark: Mark) -> None:
        """Take note of a record. What is about no trial of a plan is passed over."""
        trial = mark.trial
        size = self._sizes.get(trial.iteration)
        if size is None:
            self._early.append(mark)
        elif 1 <= trial.number <= size and mark.round > self.done_round(trial):
            state = self._states.get(trial) or self._touch(trial)
            before = state.claim
            state.add(mark)
            if state.claim != before:
                self._replace(before, state.claim, trial)
            if state.rounds[state.current].has_result:
                self._finish(trial, state.current)

    def _touch(self, trial: TrialId) -> TrialState:
        key = trial.iteration, range_of(trial.number)
        self._range(*key).touch(trial.number)
        self._touched.add(key)
        self._complete.discard(key)
        self.loose.add(trial)
        state = self._states[trial] = TrialState()
        return state

    def _replace(self, before: str, claim: str, trial: TrialId) -> None:
        self.claims.pop(before, None)
        if claim:
            self.claims[claim] = trial
            self.loose.discard(trial)
        else:
            self.loose.add(trial)

    def _finish(self, trial: TrialId, round_: int) -> None:
        self.claims.pop(self._states.pop(trial).claim, None)
        self.loose.discard(trial)
        key = trial.iteration, range_of(trial.number)
        range_ = self._range(*key)
        range_.finish(trial.number, round_)
        if not range_.touched:
            self._touched.discard(key)
        if range_.is_over:
            self._complete.add(key)

    def add_summary(self, iteration: int, place: int) -> None:
        """All trials of a range have a result, in the first round at least."""
        key = iteration, place
        if key in self.summarised or place > range_of(self._sizes.get(iteration, 0)):
            return  # known, or of no plan
        self.summarised.add(key)
        range_ = self._range(*key)
        for trial in [TrialId(iteration, number) for number in range_.touched]:
            if self._states[trial].current == 1:
                self._finish(trial, 1)
        range_.finish_all()

    # Telling

    def _range(self, iteration: int, place: int) -> _Range:
        found = self._ranges.get((iteration, place))
        if found is None:
            first, size = place * records.RANGE + 1, self.size_of_range(iteration, place)
            found = self._ranges[iteration, place] = _Range(first, size, self._skipped[iteration])
        return found

    def size_of_range(self, iteration: int, place: int) -> int:
        """How many trials a range has; the last one may have fewer than the others."""
        return min(records.RANGE, self._sizes[iteration] - place * records.RANGE)

    def complete_ranges(self) -> list[tuple[int, int]]:
        """Ranges without a summary in which every trial is done."""
        return sorted(self._complete - self.summarised)

    def done_in(self, iteration: int, place: int) -> list[TrialId]:
        """Trials of a range that have a result."""
        range_ = self._range(iteration, place)
        return [
            TrialId(iteration, number) for number, round_ in enumerate(range_.done, range_.first) if round_
        ]

    def state(self, trial: TrialId) -> TrialState:
        """What is known of a trial that is not done."""
        return self._states.get(trial) or TrialState()

    def done_round(self, trial: TrialId) -> int:
        """The last round of a trial that has a result; 0 if none has."""
        found = self._ranges.get((trial.iteration, range_of(trial.number)))
        return found.done[trial.number - found.first] if found else 0

    def is_done(self, trial: TrialId) -> bool:
        """Whether the current round has a result, or there is nothing to do."""
        if trial in self._states:
            return False
        return self.done_round(trial) > 0 or self._skipped[trial.iteration](trial.number)

    def focus_on(self, focus: Focus | None) -> None:
        """Nothing else is wanted from now on."""
        self.focus, self._focus_low = focus, 1

    def is_wanted(self, trial: TrialId) -> bool:
        """Whether the trial is one that this agent is for."""
        return self.focus is None or self.focus.covers(trial)

    def is_left(self) -> bool:
        """Whether there is a trial that is not done, running ones included."""
        return any(map(self.is_wanted, self._states)) or any(True for _ in self.fresh())

    def fresh(self) -> Iterator[TrialId]:
        """Trials to which nobody came yet, in order."""
        if self.focus is not None:
            yield from self._fresh_of(self.focus)
            return
        for iteration, size in self._sizes.items():
            for place in range(self._advance(iteration), range_of(size) + 1):
                for number in self._range(iteration, place).fresh():
                    yield TrialId(iteration, number)

    def _fresh_of(self, focus: Focus) -> Iterator[TrialId]:
        while self._focus_low <= focus.size and all(map(self.is_done, focus.owners(self._focus_low))):
            self._focus_low += 1
        for number in range(self._focus_low, focus.size + 1):
            for trial in focus.owners(number):
                if trial not in self._states and not self.is_done(trial):
                    yield trial

    def first_open(self, iteration: int, place: int) -> int:
        """The first trial of a range that is not done; what is before it need not be looked at."""
        range_ = self._range(iteration, place)
        return min([*range_.touched, *islice(range_.fresh(), 1)], default=range_.first)

    def is_over(self, iteration: int, place: int) -> bool:
        """Whether every trial of a range is done."""
        return self._range(iteration, place).is_over

    def is_begun(self, iteration: int, place: int) -> bool:
        """Whether anybody came to a range, as far as is known."""
        return self._range(iteration, place).is_begun

    @property
    def iterations(self) -> list[int]:
        """The iterations that are known."""
        return list(self._sizes)

    def open_ranges(self, iteration: int) -> Iterator[int]:
        """Ranges with trials that are not done, from the first on."""
        low = self._advance(iteration)
        yield from sorted(place for touched, place in self._touched if touched == iteration and place < low)
        for place in range(low, range_of(self._sizes[iteration]) + 1):
            if not self._range(iteration, place).is_over:
                yield place

    def _advance(self, iteration: int) -> int:
        """Move the watermark over ranges that are over. One that is reopened later stays below it."""
        low, last = self._low[iteration], range_of(self._sizes[iteration])
        while low <= last and self._range(iteration, low).is_over:
            low += 1
        self._low[iteration] = low
        return low


class Watch:
    """Who lives, by one's own clock alone: an agent is dead when its beat was seen unchanged for a lease.

    Only time spent looking counts. Whoever was cut off or asleep, or finds the store back after an outage,
    has not seen the others silent meanwhile, and must not bury them.
    """

    def __init__(self, lease: float, longest_look: float) -> None:
        self._lease = lease
        self._longest = longest_look  # of the time between two looks, so much counts
        self._looked = 0.0  # when the beats were last looked at
        self._clock = 0.0  # how long they were looked at, in all
        self._versions: dict[str, str] = {}
        self._changed: dict[str, float] = {}  # agent → when its beat was seen to change, by that clock
        self._gone: set[str] = set()
        self._followed: dict[str, str] = {}  # claim → agent
        self._silent: dict[str, dict[str, int]] = {}  # agent → claim → beats in a row that do not mention it
        self.dead: set[str] = set()
        self.disowned: set[str] = set()  # claims that two new beats in a row did not mention

    def observe(self, shown: Mapping[str, str], now: float) -> None:
        """A listing shows these versions of the agents' beats; an empty one where it shows none."""
        self._clock += min(now - self._looked, self._longest)
        self._looked = now
        for agent, version in shown.items():
            if self._versions.get(agent) != version:
                self._versions[agent], self._changed[agent] = version, self._clock
        latest = self._clock - self._lease
        self.dead = {agent for agent, changed in self._changed.items() if changed <= latest} | self._gone

    def follow(self, holders: Mapping[str, str]) -> None:
        """From the next beat on, see whether agents stand by these claims; by no others."""
        for claim in self._followed.keys() - holders.keys():
            del self._silent[self._followed.pop(claim)][claim]
            self.disowned.discard(claim)
        for claim in holders.keys() - self._followed.keys():
            self._followed[claim] = holders[claim]
            self._silent.setdefault(holders[claim], {})[claim] = 0

    def hear(self, agent: str, mentions: frozenset[str], left: bool) -> None:
        """A new beat says which claims it stands by, and whether the agent left."""
        silent = self._silent.get(agent, {})
        for claim in silent:
            silent[claim] = 0 if claim in mentions else silent[claim] + 1
            (self.disowned.add if silent[claim] >= 2 else self.disowned.discard)(claim)
        if left:
            self.bury(agent)

    def bury(self, agent: str) -> None:
        """The agent is known to be dead."""
        self._gone.add(agent)
        self.dead.add(agent)

    def revive(self, agent: str) -> None:
        """A new beat of the agent was read, whatever listings show."""
        self._changed[agent] = self._clock
        self._gone.discard(agent)
        self.dead.discard(agent)

    def alive(self) -> int:
        """How many agents live."""
        return len(self._changed.keys() - self.dead)
