"""Random studies: however often one looks, the state is what a slow and obvious reader finds."""

from __future__ import annotations

import os
from random import Random

import pytest

from stoker.store import records
from stoker.store.interface import StoreError
from stoker.store.records import End, Status, TrialId
from stoker.study.fleet import Fleet
from stoker.study.ranges import DONE, State
from stoker.study.state import StudyState
from stoker.study.work import StudyWork
from tests.study.written import NOW, Counting, Written, grid, read_slowly, states

SEEDS = int(os.environ.get("STOKER_TEST_SEEDS", "25"))


class Life:
    """Agents and operators who do what the protocol allows, one step at a time, in any order."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.retry = self.random.randint(0, 2)
        sizes = [self.random.randint(1, 23), 4]
        overlapping = "x: [1, 2, 3, 40]"
        texts = [grid(size, self.retry) for size in sizes]
        texts.append(texts[0].partition("---")[0] + f"---\n{overlapping}\n---\nx: [3, 1]\n")
        self.written = Written(*texts[: self.random.randint(1, 3)])
        self.rounds: dict[TrialId, int] = {}
        self.ends: dict[tuple[TrialId, int, int], End] = {}  # whoever dies before it writes an end has one
        self.agents = dict.fromkeys("abc", True)
        self.beats = 0
        for name in self.agents:
            self.beat(name)

    def beat(self, name: str) -> None:
        """Mentions every claim that has no end, so that each agent stands by all that it has."""
        self.beats += 1
        claims = [e.key for e in self.written.store.list("trials/") if e.key.endswith("claim")]
        self.written.beat(name, *claims, beat=self.beats, left=not self.agents[name])

    def step(self) -> None:
        written, random = self.written, self.random
        work = written.state()
        iteration = random.randint(1, written.plans)
        trial = TrialId(iteration, random.randint(1, min(work.size(iteration), random.choice([3, 30]))))
        now = work.trial(trial)
        assert now is not None
        if now.state is State.SKIPPED:
            return
        random.choice([self._go_on] * 12 + [self._stop, self._reopen, self._leave, self._summarise])(trial)

    def _go_on(self, trial: TrialId) -> None:
        """The next record of an attempt, or the first of another one; zombies may end late."""
        written, random, round_ = self.written, self.random, self.rounds.get(trial, 1)
        state = read_slowly(written.store, frozenset())[trial]
        keys = [entry.key for entry in written.store.list(trial.prefix)]
        marks = [mark for key in keys if (mark := records.parse_key(key)) and mark.trial == trial]
        marks = [mark for mark in marks if mark.round == round_]
        claimed = {mark.attempt for mark in marks if mark.kind == "claim"}
        open_ = claimed - {mark.attempt for mark in marks if mark.attempt and mark.kind != "claim"}
        if open_ and random.random() < 0.7:
            self._end(trial, round_, random.choice(sorted(open_)), claimed)
        elif state[0] not in DONE:
            written.claim(trial, round_, len(claimed) + 1, random.choice(list(self.agents)))
        elif not any(mark.kind == "result" for mark in marks):
            written.result(trial, Status(state[0].value), round_)

    def _end(self, trial: TrialId, round_: int, attempt: int, claimed: set[int]) -> None:
        written = self.written
        end = self.ends.setdefault((trial, round_, attempt), self.random.choice(list(End)))
        store, key = written.store, records.result_key(trial, round_)
        ends = [records.end_key(trial, round_, number, End.FAILED) for number in claimed]
        failures = sum(store.read(known) is not None for known in ends)
        if self.random.random() < 0.2:
            written.stage(trial, "train", round_)
        if end is End.STOPPED:
            self._stop(trial)
        is_over = failures + 1 > self.retry if end is End.FAILED else end is not End.RELEASED
        if is_over and store.read(key) is None:
            written.result(trial, Status(end.value), round_)
        if self.random.random() < 0.9:
            written.end(trial, end, round_, attempt)

    def _stop(self, trial: TrialId) -> None:
        self.written.order(stop=[f"{trial}.{self.rounds.get(trial, 1)}"])

    def _reopen(self, trial: TrialId) -> None:
        self.rounds[trial] = self.rounds.get(trial, 1) + 1
        self.written.order(rounds=[f"{trial}.{self.rounds[trial]}"], fresh=False)

    def _leave(self, trial: TrialId) -> None:
        name = self.random.choice(list(self.agents))
        self.agents[name] = False
        self.beat(name)

    def _summarise(self, trial: TrialId) -> None:
        """Only ranges in which every trial has a result."""
        state = self.written.state()
        place = records.range_of(trial.number)
        if state._is_complete(trial.iteration, place):
            self.written.summary(trial.iteration, place, state)

    @property
    def alive(self) -> frozenset[str]:
        return frozenset(name for name, lives in self.agents.items() if lives)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_look_agrees_with_a_slow_reader(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGE", 4)
    life = Life(seed)
    watched = Counting(life.written.store)
    looking = StudyState(watched, StudyWork(None), Fleet(wall=lambda: NOW))
    for step in range(60):
        life.step()
        if life.random.random() < 0.3:
            watched.fails = lambda: life.random.random() < 0.1
            try:
                looking.refresh()
            except StoreError:
                continue
            assert states(looking) == read_slowly(life.written.store, life.alive), step
    watched.fails = lambda: False
    looking.refresh()
    expected = read_slowly(life.written.store, life.alive)
    assert states(looking) == expected
    _check(looking, life)
    _check(life.written.state(), life)


def _check(state: StudyState, life: Life) -> None:
    """All ways to ask agree."""
    found = list(state.trials())
    counts = state.counts()
    assert counts.is_exact
    assert counts.total == len(found)
    for wanted in DONE | {State.RUNNING, State.LOST, State.RELEASED, State.RETRYING}:
        matching = [now for now in found if now.state is wanted]
        assert getattr(counts, wanted.value) == len(matching)
        assert list(state.trials(wanted)) == matching
    assert counts.waiting == len(found) - counts.done - counts.running
    assert [state.trial(now.trial) for now in found] == found
    for result in state.results():
        data = life.written.store.read(records.result_key(result.trial, result.round))
        assert result.body == records.decode(data)
