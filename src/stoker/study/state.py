"""The state of a whole study, read from its store and kept up to date.

A look costs little: plans and orders are read by their next key, finished ranges by their summaries, the
others are listed from their first trial that is not done, and bodies are read only where keys do not tell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple

from stoker.plan.trials import Trial
from stoker.store import REMOTE, records
from stoker.store.interface import Store
from stoker.store.records import End, Mark, TrialId, range_of
from stoker.study.count import Total, count
from stoker.study.fleet import Agent, Fleet
from stoker.study.ranges import DONE, Range, Round, State
from stoker.study.summaries import Result, decode_head, decode_results, status_of
from stoker.study.work import Focus, StudyWork

READERS = 16
"""So many objects are read from a bucket at a time."""

_ASKED = frozenset(State) - {State.SKIPPED}
_UNTOUCHED = frozenset({State.WAITING, State.SKIPPED})
_BEGUN = DONE | {State.RUNNING}
_ENDINGS = {end.value for end in End}


class TrialNow(NamedTuple):
    """A trial, and what has become of it."""

    trial: TrialId
    state: State
    round: int = 1
    attempt: int = 0  # the last one of a trial that is not done
    agent: str = ""  # who has it, or lost it
    since: str = ""  # when it was claimed, as far as the claim tells


@dataclass(frozen=True)
class Counts:
    """How many trials there are, by state."""

    total: int
    is_exact: bool  # False: there may be fewer to run
    finished: int = 0
    failed: int = 0
    stopped: int = 0
    running: int = 0
    released: int = 0  # these three wait, too
    lost: int = 0
    retrying: int = 0

    @property
    def done(self) -> int:
        """Nothing happens to these any more."""
        return self.finished + self.failed + self.stopped

    @property
    def waiting(self) -> int:
        """All that are left for agents to claim."""
        return max(0, self.total - self.done - self.running)


@dataclass(frozen=True)
class Attempt:
    """One agent's try at a round."""

    round: int
    number: int
    agent: str
    end: End | None
    claim: Mapping[str, Any]  # the bodies of the records; empty if there is none
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class History:
    """All that is recorded of one trial."""

    attempts: tuple[Attempt, ...]
    stages: tuple[tuple[int, str], ...]  # round, and the stage that was finished in it
    results: Mapping[int, Mapping[str, Any]]  # round → body


class StudyState:
    """What is known of a study. `refresh` looks again; everything else answers from what was seen.

    Where the store does not answer, `refresh` raises StoreError, and what is known goes on being so.
    """

    def __init__(self, store: Store, work: StudyWork, fleet: Fleet | None = None) -> None:
        self.store = store
        self.work = work
        self.orders: list[Mapping[str, Any]] = []
        self.is_stopped = False  # the whole study, by an order
        self._fleet = fleet or Fleet()
        self._bodies: list[Mapping[str, Any]] = []  # of the plans
        self._sizes: list[int] = []
        self._skipped: list[Callable[[int], bool]] = []
        self._totals: list[Total] = []
        self._in_force: Focus | None = None  # what is asked for now; None for all of it
        self._dropped: dict[int, Total] = {}  # iteration → how many of its trials are not asked for any more
        self._ranges: dict[tuple[int, int], Range] = {}  # those of which anything is known
        self._summaries: set[tuple[int, int]] = set()
        self._stopped: set[tuple[TrialId, int]] = set()
        self._claims: dict[str, Mapping[str, Any]] = {}  # key → body, of claims without an end

    # Looking

    def refresh(self) -> None:
        """Look at what may have changed."""
        self._see_plans()
        self.see_orders()
        self._see_summaries()
        for iteration in self.iterations:
            self._see_trials(iteration)
        self.see_orders()  # no result says that a trial was stopped before its order is there
        self._settle()
        self._see_claims()
        self._see_beats()

    def _see_plans(self) -> None:
        while (body := self._read(records.plan_key(len(self._bodies) + 1))) is not None:
            size, is_skipped = self.work.size(body), self.work.skipped(body)
            planned = [self.work.planned(known) for known in range(1, len(self._bodies) + 2)]
            total = count([*self._bodies, body], planned, is_skipped)
            self._bodies.append(body)
            self._sizes.append(size)
            self._skipped.append(_never if total == Total(size) else is_skipped)
            self._totals.append(total)
            self._in_force = self.work.in_force()
            self._dropped.clear()

    def see_orders(self) -> None:
        """Read the orders after the last known one, and nothing else."""
        while (body := self._read(records.order_key(len(self.orders) + 1))) is not None:
            about = (*_rounds(body, "rounds"), *_rounds(body, "stop"))
            if any(trial.iteration not in self.iterations for trial, _ in about):
                self._see_plans()  # one has come since we looked
            self.orders.append(body)
            self._obey(body)

    def _obey(self, order: Mapping[str, Any]) -> None:
        opened, stopped = list(_rounds(order, "rounds")), set(_rounds(order, "stop"))
        self._stopped |= stopped
        for trial, round_ in opened:
            if (known := self._range_of(trial)) is not None:
                known.open_round(trial.number, round_)
        for trial, round_ in stopped | self._stopped.intersection(opened):
            if (known := self._range_of(trial)) is not None:
                known.stop(trial.number, round_)
        if "study" in order:  # the last order about the whole study counts
            self.is_stopped = order["study"] == "stop"

    def _see_summaries(self) -> None:
        """Read those that are new, unless we have seen everything that they can tell."""
        shown = filter(None, (records.parse_summary_key(entry.key) for entry in self.store.list("done/")))
        new = [found for found in shown if found not in self._summaries and found[0] in self.iterations]
        wanted = [found for found in new if not self._is_complete(*found)]
        bodies = self._read_all(records.summary_key(*found) for found in wanted)
        for found, data in zip(wanted, bodies, strict=True):
            head, known = decode_head(data), self._range(*found)
            if head is not None and known is not None and (head.iteration, head.place) == found:
                known.add_summary(head)
        self._summaries.update(new)

    def _see_trials(self, iteration: int) -> None:
        place = self._next_open(iteration, 0)
        while place is not None:
            place = self._list_from(iteration, place)

    def _list_from(self, iteration: int, place: int) -> int | None:
        """List records until they come to a range that is complete; returns where to go on, if anywhere."""
        known = self._range(iteration, place)
        for entry in self.store.list(f"trials/{iteration:04d}/", known.start if known else ""):
            found = _place(entry.key)
            if found != place:
                if self._is_complete(iteration, found):
                    return self._next_open(iteration, found + 1)
                place, known = found, self._range(iteration, found)
            if known is not None:
                known.take_note(entry.key)
        return None

    def _settle(self) -> None:
        """Learn what results say: from the ends of attempts if they tell, else by reading them."""
        doubtful: list[tuple[Range, int]] = []
        for known in self._ranges.values():
            for number in list(known.results()):
                is_stopped = (known.trial(number), known.round(number)) in self._stopped
                status = None if is_stopped else known.open[number].status()
                if status is None:
                    doubtful.append((known, number))
                else:
                    known.settle(number, status)
        keys = (records.result_key(known.trial(n), known.round(n)) for known, n in doubtful)
        for (known, number), data in zip(doubtful, self._read_all(keys), strict=True):
            if data is not None:
                known.settle(number, status_of(records.decode(data)))

    def _see_claims(self) -> None:
        """Read whose the claims without an end are, and forget those that are over."""
        held = [
            records.claim_key(known.trial(number), known.round(number), round_.held)
            for known in self._ranges.values()
            for number, round_ in known.open.items()
            if round_.held
        ]
        new = [key for key in held if key not in self._claims]
        bodies = (records.decode(data) or {} for data in self._read_all(new))
        read = dict(zip(new, bodies, strict=True))
        self._claims = {key: read[key] if key in read else self._claims[key] for key in held}

    def _see_beats(self) -> None:
        shown = {entry.key.partition("/")[2]: entry.version for entry in self.store.list("beats/")}
        changed = self._fleet.observe(shown)
        for name, data in zip(changed, self._read_all(map(records.beat_key, changed)), strict=True):
            body = records.decode(data)
            if body is not None:
                self._fleet.hear(name, shown[name], body)
        self._fleet.expect({key: str(body.get("agent", "")) for key, body in self._claims.items()})

    def _read(self, key: str) -> dict[str, Any] | None:
        return records.decode(self.store.read(key))

    def _read_all(self, keys: Iterable[str]) -> Sequence[bytes | None]:
        keys = list(keys)
        if len(keys) < 2 or self.store.url.partition("://")[0] not in REMOTE:
            return [self.store.read(key) for key in keys]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(READERS) as pool:
            return list(pool.map(self.store.read, keys))

    # Ranges

    def _range(self, iteration: int, place: int) -> Range | None:
        """A range of a plan, of which something is known from now on."""
        known = self._ranges.get((iteration, place))
        if known is not None or not 1 <= iteration <= len(self._sizes):
            return known
        size = min(records.RANGE, self._sizes[iteration - 1] - place * records.RANGE)
        if place < 0 or size <= 0:
            return None
        return self._ranges.setdefault((iteration, place), Range(iteration, place, size))

    def _range_of(self, trial: TrialId) -> Range | None:
        """The range of a trial; None if there is no such trial."""
        known = self._range(trial.iteration, range_of(trial.number)) if trial.number > 0 else None
        return known if known is not None and trial.number in known.numbers() else None

    def _is_complete(self, iteration: int, place: int) -> bool:
        known = self._ranges.get((iteration, place))
        return known is not None and known.is_complete(self._skipped[iteration - 1])

    def _next_open(self, iteration: int, place: int) -> int | None:
        """The first range from `place` on in which something may happen."""
        while place * records.RANGE < self._sizes[iteration - 1]:
            if not self._is_complete(iteration, place):
                return place
            place += 1
        return None

    # Answers

    @property
    def iterations(self) -> range:
        """The numbers of the iterations."""
        return range(1, len(self._bodies) + 1)

    def plan(self, iteration: int) -> Mapping[str, Any]:
        """An iteration as it stands in the store."""
        return self._bodies[iteration - 1]

    def size(self, iteration: int) -> int:
        """How far the numbers of an iteration go."""
        return self._sizes[iteration - 1]

    def counts(self, iteration: int | None = None) -> Counts:
        """How many trials there are in each state, of one iteration or of all."""
        totals = self._totals if iteration is None else [self._totals[iteration - 1]]
        ranges = [r for r in self._ranges.values() if iteration is None or r.iteration == iteration]
        numbers = dict.fromkeys(State, 0)
        for known in ranges:
            for state in DONE:
                numbers[state] += known.count(state)
            for number in known.open:
                numbers[self._now(known, number).state] += 1
        total = sum(totals, Total())
        dropped = sum(map(self._not_begun, self.iterations if iteration is None else [iteration]))
        found = {state.value: n for state, n in numbers.items() if state not in _UNTOUCHED}
        return Counts(total.count - dropped, total.is_exact, **found)

    def _not_begun(self, iteration: int) -> int:
        """How many trials of an iteration nobody asks for any more, but for those that ran or run."""
        force = self._in_force
        if force is None or iteration >= force.iterations[0]:
            return 0
        if iteration not in self._dropped:
            others = [*force.iterations, *range(1, iteration), iteration]
            is_skipped = self._skipped[iteration - 1]
            self._dropped[iteration] = count(
                [self.plan(other) for other in others],
                [self.work.planned(other) for other in others],
                lambda number: is_skipped(number) or not self._is_dropped(TrialId(iteration, number)),
            )
        dropped = self._dropped[iteration].count
        ranges = [known for known in self._ranges.values() if known.iteration == iteration]
        begun = (now.trial for known in ranges for now in self._of_range(known, _BEGUN)) if dropped else ()
        return max(0, dropped - sum(map(self._is_dropped, begun)))

    def is_asked_for(self, trial: TrialId) -> bool:
        """Whether the file that was run last asks for a trial, or somebody has asked for it since."""
        return not self._is_dropped(trial)

    def _is_dropped(self, trial: TrialId) -> bool:
        force = self._in_force
        return force is not None and trial.iteration < force.iterations[0] and not force.covers(trial)

    def trials(self, *states: State) -> Iterator[TrialNow]:
        """All trials in these states, in order; if none is given, all that are to be run.

        Names and parameters are not computed: ask `describe` for those that are shown.
        """
        wanted = frozenset(states) or _ASKED
        untouched = not wanted.isdisjoint(_UNTOUCHED)
        for iteration in self.iterations:
            for place in range(-(-self.size(iteration) // records.RANGE)):
                known = self._ranges.get((iteration, place))
                if known is not None or untouched:
                    yield from self._of_range(known or self._empty(iteration, place), wanted)

    def _of_range(self, known: Range, wanted: frozenset[State]) -> Iterator[TrialNow]:
        for number in known.numbers():
            state = known.settled(number)
            if state is None:
                if number not in known.open and wanted.isdisjoint(_UNTOUCHED):
                    continue
                now = self._now(known, number)
                if now.state in wanted:
                    yield now
            elif state in wanted:
                yield TrialNow(known.trial(number), state, known.round(number))

    def _empty(self, iteration: int, place: int) -> Range:
        return Range(iteration, place, min(records.RANGE, self.size(iteration) - place * records.RANGE))

    def trial(self, trial: TrialId) -> TrialNow | None:
        """What has become of a trial; None if there is no such trial."""
        if trial.iteration not in self.iterations or not 0 < trial.number <= self.size(trial.iteration):
            return None
        place = range_of(trial.number)
        known = self._ranges.get((trial.iteration, place)) or self._empty(trial.iteration, place)
        return self._now(known, trial.number)

    def _now(self, known: Range, number: int) -> TrialNow:
        trial, round_, state = known.trial(number), known.round(number), known.settled(number)
        if state is not None:
            return TrialNow(trial, state, round_)
        found = known.open.get(number)
        if found is not None:
            now = self._of_round(trial, round_, found)
            is_over = now.state in _BEGUN or not self._is_dropped(trial)
            return now if is_over else now._replace(state=State.SKIPPED)
        is_skipped = self._skipped[known.iteration - 1](number) or self._is_dropped(trial)
        return TrialNow(trial, State.SKIPPED if is_skipped else State.WAITING, round_)

    def _of_round(self, trial: TrialId, round_: int, found: Round) -> TrialNow:
        claim = records.claim_key(trial, round_, found.held)
        body = self._claims.get(claim, {}) if found.held else {}
        agent = str(body.get("agent", ""))
        is_stopped = (trial, round_) in self._stopped
        is_running = bool(found.held) and self._fleet.holds(agent, claim)
        state = found.state(self._retries(trial.iteration), is_stopped, is_running)
        return TrialNow(trial, state, round_, found.last, agent, str(body.get("time", "")))

    def _retries(self, iteration: int) -> int:
        retries = self.work.planned(iteration).study.settings.get("retry", 0)
        return retries if isinstance(retries, int) else 0

    def describe(self, trial: TrialId) -> Trial | None:
        """A trial with its name, parameters and stages; None if it is not to be run."""
        return self.work.trial(trial)

    def agents(self) -> list[Agent]:
        """All agents that ever were."""
        return self._fleet.agents()

    # Reading more

    def history(self, trial: TrialId) -> History:
        """All that is recorded of a trial, read now."""
        start = f"{trial.prefix}{trial.number:09d}."
        entries = takewhile(lambda e: e.key.startswith(start), self.store.list(trial.prefix, start))
        keys = [entry.key for entry in entries]
        bodies = [records.decode(data) or {} for data in self._read_all(keys)]
        marks = [
            (mark, body) for key, body in zip(keys, bodies, strict=True) if (mark := records.parse_key(key))
        ]
        return _history(marks)

    def result(self, now: TrialNow) -> Mapping[str, Any]:
        """What the trial's round came to, read now; empty if nobody has recorded it."""
        return self._read(records.result_key(now.trial, now.round)) or {}

    def results(self) -> Iterator[Result]:
        """The results of all trials that have one in their current round, in order, read now."""
        for (iteration, place), known in sorted(self._ranges.items()):
            wanted = {n: known.round(n) for n in known.numbers() if known.settled(n) in DONE}
            found: dict[int, Result] = {}
            if (iteration, place) in self._summaries:
                summary = decode_results(self.store.read(records.summary_key(iteration, place))) or ()
                found = {r.trial.number: r for r in summary if wanted.get(r.trial.number) == r.round}
            others = [number for number in wanted if number not in found]
            keys = [records.result_key(known.trial(number), wanted[number]) for number in others]
            for number, data in zip(others, self._read_all(keys), strict=True):
                found[number] = Result(known.trial(number), wanted[number], records.decode(data) or {})
            yield from (found[number] for number in sorted(found))


def _never(number: int) -> bool:
    return False


def _place(key: str) -> int:
    """The range that a record stands in; -1 if it is none of ours."""
    word = key.split("/")[2]
    return int(word) if word.isdecimal() else -1


def _rounds(order: Mapping[str, Any], what: str) -> Iterator[tuple[TrialId, int]]:
    """`1.5.2`: iteration, trial, round. What reads otherwise is passed over."""
    words = order.get(what)
    for word in words if isinstance(words, list) else ():
        parts = str(word).split(".")
        if len(parts) == 3 and all(map(str.isdecimal, parts)):
            yield TrialId(int(parts[0]), int(parts[1])), int(parts[2])


def _history(marks: Sequence[tuple[Mark, Mapping[str, Any]]]) -> History:
    claims = {(mark.round, mark.attempt): body for mark, body in marks if mark.kind == "claim"}
    ends = {
        (mark.round, mark.attempt): (End(mark.kind), body) for mark, body in marks if mark.kind in _ENDINGS
    }
    attempts = []
    for round_, number in sorted(claims.keys() | ends.keys()):
        claim = claims.get((round_, number), {})
        end, figures = ends.get((round_, number), (None, {}))
        agent = str(claim.get("agent") or figures.get("agent", ""))
        attempts.append(Attempt(round_, number, agent, end, claim, figures))
    stages = tuple((mark.round, mark.stage) for mark, _ in marks if mark.kind == "stage")
    return History(
        tuple(attempts), stages, {mark.round: body for mark, body in marks if mark.kind == "result"}
    )
