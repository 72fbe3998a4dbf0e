"""What the view keeps in step with every record is what follows from all of them at once."""

from __future__ import annotations

from random import Random

import pytest

from stoker.agent.view import View, Watch
from stoker.store import records
from stoker.store.records import End, Mark, TrialId, range_of

SIZE, RANGE = 25, 10


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGE", RANGE)


def is_skipped(number: int) -> bool:
    return number % 7 == 3 or number > 22


def some_mark(random: Random) -> Mark:
    trial = TrialId(random.randint(1, 2), random.randint(0, SIZE + 2))
    kind = random.choice(
        ["claim", "claim", "stage", "result", "result", "round", *(end.value for end in End)]
    )
    return Mark(trial, random.choice([1, 1, 1, 1, 2]), kind, random.randint(1, 3), "train")


class Reference:
    """The rules of docs/records.md, from all marks, each time anew."""

    def __init__(self, marks: list[Mark], summaries: set[tuple[int, int]]) -> None:
        self.marks, self.summaries = marks, summaries
        self.trials = [TrialId(iteration, number) for iteration in (1, 2) for number in range(1, SIZE + 1)]

    def done_round(self, trial: TrialId) -> int:
        results = [mark.round for mark in self.marks if mark.trial == trial and mark.kind == "result"]
        summed_up = (trial.iteration, range_of(trial.number)) in self.summaries
        return max([*results, int(summed_up)])

    def is_touched(self, trial: TrialId) -> bool:
        return any(mark.trial == trial and mark.round > self.done_round(trial) for mark in self.marks)

    def is_fresh(self, trial: TrialId) -> bool:
        return not (self.is_touched(trial) or self.done_round(trial) or is_skipped(trial.number))

    def claim(self, trial: TrialId) -> str:
        """The last attempt of the current round, if it has no end."""
        current = max(mark.round for mark in self.marks if mark.trial == trial)
        attempts = [
            mark for mark in self.marks if mark.trial == trial and mark.round == current and mark.attempt
        ]
        attempts = [mark for mark in attempts if mark.kind not in ("stage", "round", "result")]
        last = max((mark.attempt for mark in attempts), default=0)
        has_end = any(mark.attempt == last and mark.kind != "claim" for mark in attempts)
        return "" if not last or has_end else records.claim_key(trial, current, last)

    def open_in(self, iteration: int, place: int) -> list[int]:
        here = [t.number for t in self.trials if (t.iteration, range_of(t.number)) == (iteration, place)]
        trials = [TrialId(iteration, number) for number in here]
        return [trial.number for trial in trials if self.is_touched(trial) or self.is_fresh(trial)]


@pytest.mark.parametrize("seed", range(20))
def test_the_view_agrees_with_the_rules(seed: int) -> None:
    random, view = Random(seed), View()
    expected = Reference([], set())
    view.add_iteration(1, SIZE, is_skipped)
    for step in range(150):
        mark = some_mark(random)
        expected.marks.append(mark)
        view.add(mark)
        if step == 20:  # what came before is about an iteration that nobody knew of
            view.add_iteration(2, SIZE, is_skipped)
        if step > 20 and random.random() < 0.03:
            summary = random.randint(1, 2), random.randint(0, 3)  # of 3 there are no trials
            expected.summaries.add(summary)
            view.add_summary(*summary)
        if step > 20 and step % 10 == 0:
            compare(view, expected)


def compare(view: View, expected: Reference) -> None:
    touched = [trial for trial in expected.trials if expected.is_touched(trial)]
    fresh = [trial for trial in expected.trials if expected.is_fresh(trial)]
    claims = {claim: trial for trial in touched if (claim := expected.claim(trial))}
    assert list(view.fresh()) == fresh
    assert view.claims == claims
    assert view.loose == set(touched) - set(claims.values())
    assert view.is_left() == bool(touched or fresh)
    for trial in set(expected.trials) - set(touched):
        assert view.done_round(trial) == expected.done_round(trial)
    over = {
        (trial.iteration, range_of(trial.number)) for trial in expected.trials if expected.done_round(trial)
    }
    over -= {(trial.iteration, range_of(trial.number)) for trial in touched + fresh}
    assert view.complete_ranges() == sorted(over - expected.summaries)
    for iteration in (1, 2):
        still_open = {place: expected.open_in(iteration, place) for place in range(3)}
        assert list(view.open_ranges(iteration)) == [place for place in still_open if still_open[place]]
        for place in view.open_ranges(iteration):
            assert view.first_open(iteration, place) == still_open[place][0]


def test_a_claim_is_disowned_after_two_beats_without_it() -> None:
    watch = Watch(lease=60.0, longest_look=15.0)
    watch.observe({"a": "1"}, 0.0)
    watch.hear("a", frozenset(), left=False)  # it may have been sent before the claim
    watch.follow({"claim": "a"})
    watch.hear("a", frozenset(), left=False)
    assert watch.disowned == set()
    watch.hear("a", frozenset(), left=False)
    assert watch.disowned == {"claim"}
    watch.follow({})
    assert watch.disowned == set()


def test_time_without_looking_is_no_silence() -> None:
    watch = Watch(lease=60.0, longest_look=15.0)
    for now in (0.0, 1000.0, 2000.0, 3000.0):
        watch.observe({"a": "1"}, now)
    assert (watch.dead, watch.alive()) == (set(), 1)
    watch.observe({"a": "1"}, 4000.0)
    assert (watch.dead, watch.alive()) == ({"a"}, 0)
    watch.observe({"a": "2"}, 4001.0)
    assert watch.alive() == 1
