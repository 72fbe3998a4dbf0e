"""A changed file does not ask for some trials any more: they are not left, and nobody begins them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store.records import End, Status, TrialId
from stoker.study.place import open_place
from stoker.study.ranges import DONE, State
from stoker.study.work import add_plan, plan_body
from tests.stories.command import stoker
from tests.study.written import Written


def file(*values: int) -> str:
    return f"template: 'echo {{x}} >> ran'\n---\nx: {list(values)}\n"


def test_what_the_file_does_not_ask_for_any_more_is_not_left() -> None:
    written = Written(file(1, 2, 3, 4))
    written.finish(TrialId(1, 1))
    written.finish(TrialId(1, 2), Status.FAILED)
    state = written.state()
    assert state.counts().waiting == 2
    written.plan(file(3, 5))
    state.refresh()
    counts = state.counts()
    assert (counts.total, counts.finished, counts.failed, counts.waiting) == (4, 1, 1, 2)
    assert [str(now.trial) for now in state.trials(State.WAITING)] == ["1.3", "2.2"]


def test_what_was_begun_and_given_back_is_not_left_either_but_what_runs_is() -> None:
    written = Written(file(1, 2, 3))
    written.claim(TrialId(1, 1))
    written.end(TrialId(1, 1), End.RELEASED)
    written.claim(TrialId(1, 2))
    written.beat("a")
    written.plan(file(9))
    counts = written.state().counts()
    assert (counts.total, counts.running, counts.waiting, counts.released) == (2, 1, 1, 0)


def test_it_is_asked_for_again() -> None:
    written = Written(file(1, 2), file(2))
    state = written.state()
    assert state.counts().waiting == 1
    written.plan(file(1, 2))
    state.refresh()
    assert state.counts().waiting == 2


def test_a_part_of_the_file_drops_nothing() -> None:
    written = Written(file(1, 2, 3))
    written.plan(file(7, 8), sample=1)
    assert written.state().counts().waiting == 4


@pytest.mark.parametrize("seed", range(60))
def test_counts_are_those_of_the_trials(seed: int) -> None:
    """Whatever was asked for and came of it."""
    dice = random.Random(seed)
    written = Written()
    for _ in range(dice.randint(1, 4)):
        values = sorted(dice.sample(range(8), dice.randint(1, 8)))
        written.plan(file(*values), **({"sample": 2} if dice.random() < 0.3 else {}))
        for number in range(1, len(values) + 1):
            if dice.random() < 0.3:
                trial = TrialId(written.plans, number)
                now = written.state().trial(trial)
                if now is not None and now.state is State.WAITING:
                    written.finish(trial, dice.choice([Status.FINISHED, Status.FAILED]))
    state = written.state()
    counts, listed = state.counts(), list(state.trials())
    assert counts.total == len(listed)
    assert counts.done == sum(now.state in DONE for now in listed)
    assert counts.waiting == sum(now.state is State.WAITING for now in listed)


def test_an_agent_does_what_is_asked_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("output").mkdir()
    store = open_place("output").store
    for values in ((1, 2, 3), (3, 4)):
        body = plan_body(load(Source("params.yaml", file(*values))), {"directory": str(tmp_path)}, "now")
        add_plan(store, body)
    assert stoker("agent", "output").returncode == 0
    assert sorted(Path("ran").read_text().split()) == ["3", "4"]
    assert "2 of 2 finished, 0 left" in stoker("status").stdout


def test_what_is_not_asked_for_any_more_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("template: 'test {x} = 2'\n---\nx: [1, 2]\n")
    assert stoker("run").returncode == 1
    Path("params.yaml").write_text("template: 'test {x} = 2'\n---\nx: [2]\n")
    assert stoker("run").returncode == 0
    said = stoker("retry", "1.1")
    assert said.returncode == 1
    assert "is not asked for by the study file any more" in said.stderr
