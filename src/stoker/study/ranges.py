"""What is known of the trials of one range, and what follows from it. Data in, decisions out: no store.

The rules are those of docs/records.md, by which agents decide as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from stoker.store import records
from stoker.store.records import End, Mark, Status, TrialId
from stoker.study.summaries import LETTERS, NOTHING, Head

LOST_IN_A_ROW = 3
"""A trial that takes its machine down so often, without finishing a stage meanwhile, has failed."""


class State(Enum):
    """What has become of a trial, in its current round."""

    WAITING = "waiting"  # nobody has tried yet
    RUNNING = "running"
    RELEASED = "released"  # given back; waits for another agent
    LOST = "lost"  # with its agent; waits for another one
    RETRYING = "retrying"  # failed, but may be tried again
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    SKIPPED = "skipped"  # nothing to do: not asked for, or run before


DONE = frozenset({State.FINISHED, State.FAILED, State.STOPPED})
OPEN = frozenset(State) - DONE - {State.SKIPPED}

_UNKNOWN = "."
_STATES = {
    **{ord(letter): State(status.value) for status, letter in LETTERS.items()},
    ord(NOTHING): State.SKIPPED,
}
_AFTER = {None: State.LOST, End.FAILED: State.RETRYING, End.RELEASED: State.RELEASED}


def is_lost_too_often(attempts: Mapping[int, End | None], has_stage: bool) -> bool:
    """Whether a round failed because its last attempts were all lost. A finished stage forgives them."""
    last = [attempts[number] for number in sorted(attempts)[-LOST_IN_A_ROW:]]
    return not has_stage and last == [None] * LOST_IN_A_ROW


@dataclass
class Round:
    """The records of a trial's current round."""

    attempts: dict[int, End | None] = field(default_factory=dict)  # None: no end is known
    has_stage: bool = False  # a stage is finished
    has_result: bool = False

    def add(self, mark: Mark) -> None:
        """Take note of a record."""
        if mark.kind == "claim":
            self.attempts.setdefault(mark.attempt, None)
        elif mark.kind == "stage":
            self.has_stage = True
        elif mark.kind == "result":
            self.has_result = True
        else:
            self.attempts[mark.attempt] = End(mark.kind)

    @property
    def last(self) -> int:
        """The last attempt; 0 if there was none."""
        return max(self.attempts, default=0)

    @property
    def held(self) -> int:
        """The attempt that runs, if its agent lives; 0 if there is none."""
        last = self.last
        return last if last and self.attempts[last] is None else 0

    def status(self) -> Status | None:
        """What the result says, if the ends of all attempts leave no doubt and nobody stopped the trial.

        An agent that was thought dead may commit before the one that took over, or end otherwise than the
        round did: wherever that is possible, the result itself must tell.
        """
        ends = set(self.attempts.values())
        if ends == {End.FAILED}:
            return Status.FAILED
        is_plain = End.FINISHED in ends and ends <= {End.FINISHED, End.RELEASED}
        return Status.FINISHED if is_plain and len(self.attempts) < LOST_IN_A_ROW else None

    def state(self, retries: int, is_stopped: bool, is_running: bool) -> State:
        """What becomes of a round without a result. It may be decided although nobody has recorded it yet."""
        if is_running:
            return State.RUNNING
        if is_stopped:
            return State.STOPPED
        failures = sum(end is End.FAILED for end in self.attempts.values())
        if failures > retries or is_lost_too_often(self.attempts, self.has_stage):
            return State.FAILED
        return _AFTER.get(self.attempts[self.last], State.WAITING) if self.attempts else State.WAITING


class Range:
    """The trials of a range. Each takes a byte; only those at which something goes on take more."""

    def __init__(self, iteration: int, place: int, size: int) -> None:
        self.iteration, self.place, self.size = iteration, place, size
        self.first = place * records.RANGE + 1
        self.open: dict[int, Round] = {}  # number → records, of trials whose current round is not settled
        self._seen: set[str] = set()  # keys that were taken note of
        self._letters = bytearray(_UNKNOWN.encode() * size)  # of the current rounds
        self._rounds: dict[int, int] = {}  # number → its current round, where it is not the first
        self._low = 0  # all trials below are done

    def trial(self, number: int) -> TrialId:
        """The trial with a number."""
        return TrialId(self.iteration, number)

    def round(self, number: int) -> int:
        """The round that counts: the last that was opened."""
        return self._rounds.get(number, 1)

    def settled(self, number: int) -> State | None:
        """What the trial came to; None if that is not known."""
        return _STATES.get(self._letters[number - self.first])

    def numbers(self) -> range:
        """All trials of the range."""
        return range(self.first, self.first + self.size)

    def count(self, state: State) -> int:
        """How many trials came to this."""
        letter = next((letter for letter, known in _STATES.items() if known is state), None)
        return 0 if letter is None else self._letters.count(letter)

    def take_note(self, key: str) -> None:
        """A listing shows this record. It may come again, and in any order; foreign ones say nothing."""
        if key not in self._seen:
            self._seen.add(key)
            mark = records.parse_key(key)
            if mark is not None and mark.trial == self.trial(mark.trial.number):
                self._add(mark)

    def _add(self, mark: Mark) -> None:
        """A record of an earlier round says nothing any more."""
        number = mark.trial.number
        if number not in self.numbers():
            return
        self.open_round(number, mark.round)
        if mark.round == self.round(number) and self.settled(number) is None:
            self.open.setdefault(number, Round()).add(mark)

    def open_round(self, number: int, round_: int) -> None:
        """A round was opened: what the trial came to before does not count any more."""
        if round_ > self.round(number):
            self._rounds[number] = round_
            self.open.pop(number, None)
            self._letters[number - self.first] = ord(_UNKNOWN)
            self._low = min(self._low, number - self.first)

    def stop(self, number: int, round_: int) -> None:
        """Somebody stopped a round: if nothing is known of it yet, that much is."""
        if round_ == self.round(number) and self.settled(number) is None:
            self.open.setdefault(number, Round())

    def settle(self, number: int, status: Status) -> None:
        """The result of the current round is known."""
        self._letters[number - self.first] = ord(LETTERS[status])
        self.open.pop(number, None)

    def add_summary(self, head: Head) -> None:
        """Take note of a summary; rounds opened since then are not in it."""
        for number, letter in zip(self.numbers(), head.letters, strict=False):
            round_ = head.rounds.get(number, 1)
            self.open_round(number, round_)
            if round_ == self.round(number):
                self._letters[number - self.first] = ord(letter)
                self.open.pop(number, None)

    def is_complete(self, is_skipped: Callable[[int], bool]) -> bool:
        """Whether nothing can happen here any more, unless somebody opens a round."""
        while self._low < self.size:
            number = self.first + self._low
            if self.settled(number) is None:
                if number in self.open or not is_skipped(number):
                    return False
                self._letters[self._low] = ord(NOTHING)
            self._low += 1
        self._seen.clear()
        return True

    @property
    def start(self) -> str:
        """All records that can matter come behind this key."""
        return f"{records.range_prefix(self.iteration, self.place)}{self.first + self._low:09d}"

    def results(self) -> Iterator[int]:
        """Trials whose current round has a result that is not settled."""
        return (number for number, known in self.open.items() if known.has_result)
