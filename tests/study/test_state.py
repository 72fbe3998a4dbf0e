from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.core import times
from stoker.store import open_store, records
from stoker.store.directory import DirectoryStore
from stoker.store.interface import Entry
from stoker.store.memory import MemoryStore
from stoker.store.records import End, Status, TrialId
from stoker.study.fleet import Fleet, Life
from stoker.study.ranges import DONE, State
from stoker.study.state import StudyState
from stoker.study.summaries import encode
from tests.store.needs import need
from tests.store.server import BUCKET, s3_server
from tests.study.written import NOW, Counting, Written, grid, states

A = TrialId(1, 1)
CLAIM = records.claim_key(A, 1, 1)


def stamp(ago: float) -> str:
    return times.stamp(NOW - ago)


def state_of(written: Written, trial: TrialId = A) -> State:
    now = written.state().trial(trial)
    assert now is not None
    return now.state


def test_a_study_without_plan_has_no_trials() -> None:
    state = Written().state()
    assert state.counts().total == 0
    assert list(state.trials()) == []
    assert state.trial(A) is None


def test_the_life_of_a_trial() -> None:
    written = Written(grid(3, retry=1))
    state = written.state()
    seen = []

    def look() -> None:
        state.refresh()
        now = state.trial(A)
        assert now is not None
        seen.append(now[1:])

    look()
    written.beat("a")
    written.claim(A)
    look()
    written.end(A, End.RELEASED)
    look()
    written.claim(A, attempt=2, agent="b")
    look()
    written.beat("b", records.claim_key(A, 1, 2), time=stamp(1))
    look()
    written.end(A, End.FAILED, attempt=2)
    look()
    written.claim(A, attempt=3)
    look()
    written.end(A, End.FINISHED, attempt=3)
    written.result(A)
    look()
    written.order(rounds=["1.1.2"])
    look()
    claimed = "20270115.080000"
    assert seen == [
        (State.WAITING, 1, 0, "", ""),
        (State.RUNNING, 1, 1, "a", claimed),
        (State.RELEASED, 1, 1, "", ""),
        (State.LOST, 1, 2, "b", claimed),
        (State.RUNNING, 1, 2, "b", claimed),
        (State.RETRYING, 1, 2, "", ""),
        (State.RUNNING, 1, 3, "a", claimed),
        (State.FINISHED, 1, 0, "", ""),
        (State.WAITING, 2, 0, "", ""),
    ]


def test_a_trial_that_takes_its_machines_down_has_failed_unless_it_comes_further() -> None:
    written = Written(grid(1))
    for attempt in (1, 2, 3):
        assert state_of(written) is not State.FAILED
        written.claim(A, attempt=attempt)
    assert state_of(written) is State.FAILED
    written.stage(A, "train")
    assert state_of(written) is State.LOST


def test_a_stopped_trial_is_stopped_as_soon_as_nobody_runs_it() -> None:
    written = Written(grid(2))
    written.order(stop=["1.1.1", "1.2.1", "7.7.7", "1.0.1", "nonsense"])
    written.beat("a", CLAIM)
    written.claim(A)
    state = written.state()
    assert states(state) == {A: (State.RUNNING, 1), TrialId(1, 2): (State.STOPPED, 1)}
    assert (state.counts().running, state.counts().stopped) == (1, 1)
    written.beat("a", left=True)
    state.refresh()
    assert state.counts().stopped == 2


@pytest.mark.parametrize(
    ("ends", "status"),
    [
        ([End.FINISHED], Status.FINISHED),
        ([End.RELEASED, End.FINISHED], Status.FINISHED),
        ([End.FAILED, End.FAILED], Status.FAILED),
        ([None], None),
        ([None, End.FINISHED], None),
        ([End.FAILED, End.FINISHED], None),
        ([End.RELEASED, End.RELEASED, End.FINISHED], None),
        ([End.STOPPED], None),
        ([], None),
    ],
)
def test_results_are_read_only_where_ends_leave_a_doubt(
    ends: list[End | None], status: Status | None
) -> None:
    written = Written(grid(1))
    for attempt, end in enumerate(ends, 1):
        written.claim(A, attempt=attempt)
        if end is not None:
            written.end(A, end, attempt=attempt)
    written.result(A, status or Status.STOPPED)
    store = Counting(written.store)
    state = written.state(store=store)
    assert states(state) == {A: (State((status or Status.STOPPED).value), 1)}
    assert (f"read {records.result_key(A, 1)}" in store.asked) == (status is None)
    state.refresh()
    assert store.asked.count(f"read {records.result_key(A, 1)}") == (status is None)


def test_a_stop_that_comes_while_we_look() -> None:
    """A zombie may end as finished although its trial was stopped; the result is then to be read."""

    class Late(Counting):
        def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
            if prefix.startswith("trials/") and not written.orders:
                written.order(stop=["1.1.1"])
                written.claim(A)
                written.result(A, Status.STOPPED)
                written.end(A, End.FINISHED)
            return super().list(prefix, after)

    written = Written(grid(1))
    assert states(written.state(store=Late(written.store))) == {A: (State.STOPPED, 1)}


def test_an_unreadable_result_has_failed_and_one_that_is_gone_is_none() -> None:
    written = Written(grid(2))
    written.store.write(records.result_key(A, 1), b'{"v": 1, "sta')
    written.result(TrialId(1, 2))

    class Forgetful(Counting):
        def read(self, key: str) -> bytes | None:
            return None if "000000002" in key else super().read(key)

    assert states(written.state(store=Forgetful(written.store))) == {
        A: (State.FAILED, 1),
        TrialId(1, 2): (State.WAITING, 1),
    }


def test_foreign_objects_are_passed_over() -> None:
    written = Written(grid(2))
    for key in (
        "trials/0001/notes",
        "trials/0001/x/y",
        "trials/0001/000009/000009001.001.result",
        "trials/0001/000000/000000003.001.result",
        "trials/0001/000000/000000000.001.result",
        "trials/0002/000000/000000001.001.result",
        "done/0001/000007",
        "done/0004/000000",
        "done/readme",
        "beats/x",
    ):
        written.store.write(key, b"whatever")
    written.put(records.beat_key("y"), {"running": 5, "pid": "x", "time": 1})
    state = written.state()
    assert {now.state for now in state.trials()} == {State.WAITING}
    assert [(agent.name, agent.pid, agent.claims) for agent in state.agents()] == [("y", 0, ())]


# Agents


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_whose_beat_stands_still_for_a_lease_is_silent() -> None:
    written, clock = Written(grid(1)), Clock()
    written.beat("a", CLAIM, time=stamp(-4000))  # its clock is ahead
    written.claim(A)
    state = written.state(Fleet(clock=clock, wall=lambda: NOW))
    lives = []
    for step in range(8):
        (agent,) = state.agents()
        lives.append((agent.life, agent.silence, state.counts().running))
        clock.now += 1000 if step == 1 else 15  # a long sleep counts as a quarter of a lease
        if step == 5:
            written.beat("a", CLAIM, time=stamp(9999))
        state.refresh()
    alive = [(Life.ALIVE, 0, 1), (Life.ALIVE, 15, 1), (Life.ALIVE, 30, 1), (Life.ALIVE, 45, 1)]
    again = [(Life.ALIVE, 0, 1), (Life.ALIVE, 15, 1)]
    assert lives == [*alive, (Life.SILENT, 60, 0), (Life.SILENT, 75, 0), *again]


def test_at_the_first_look_a_beat_tells_its_age() -> None:
    written = Written(grid(1))
    written.beat("old", time=stamp(3600))
    written.beat("new", time=stamp(7))
    found = {agent.name: (agent.life, agent.silence) for agent in written.state().agents()}
    assert found == {"old": (Life.SILENT, 3600), "new": (Life.ALIVE, 7)}


def test_a_process_of_this_host_that_is_gone_is_dead_at_once() -> None:
    written = Written(grid(1))
    written.beat("a", CLAIM)
    written.claim(A)
    gone: set[int] = set()
    state = written.state(Fleet(is_gone=lambda beat: beat["pid"] in gone))
    assert state.counts().running == 1
    gone.add(7)
    state.refresh()
    assert state.counts().lost == 1
    assert [agent.life for agent in state.agents()] == [Life.GONE]


def test_a_claim_that_two_beats_do_not_mention_is_free() -> None:
    written = Written(grid(1))
    written.beat("a")
    written.claim(A)
    state = written.state()
    running = []
    for beat in range(3):
        running.append(state.counts().running)
        written.beat("a", beat=beat)
        state.refresh()
    assert running == [1, 1, 0]
    written.beat("a", CLAIM)
    state.refresh()
    assert state.counts().running == 1


# More of a trial


def test_the_history_of_a_trial() -> None:
    written = Written(grid(20))
    for number in (1, 2, 10):
        written.finish(TrialId(1, number))
    written.claim(A, 2, 1, "b")
    written.stage(A, "train", 2)
    written.end(A, End.RELEASED, 2, 1)
    written.claim(A, 2, 2, "c")
    found = written.state().history(A)
    assert [(a.round, a.number, a.agent, a.end) for a in found.attempts] == [
        (1, 1, "a", End.FINISHED),
        (2, 1, "b", End.RELEASED),
        (2, 2, "c", None),
    ]
    assert found.attempts[1].figures["train"] == {"seconds": 1.5}
    assert found.stages == ((2, "train"),)
    assert found.results == {1: {"v": 1, "status": "finished", "trial": 1}}


def test_results_come_from_summaries_but_for_rounds_opened_since(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGE", 4)
    written = Written(grid(6))
    for number in range(1, 6):
        written.finish(TrialId(1, number), Status.FAILED if number == 2 else Status.FINISHED)
    written.summary(1, 0, written.state())
    written.order(rounds=["1.2.2", "1.3.2"])
    written.finish(TrialId(1, 2), round_=2)
    store = Counting(written.store)
    state = written.state(store=store)
    store.asked.clear()
    assert [(r.trial.number, r.round, r.body["status"]) for r in state.results()] == [
        (1, 1, "finished"),
        (2, 2, "finished"),
        (4, 1, "finished"),
        (5, 1, "finished"),
    ]
    assert len(store.asked) == 3


# Counting without listing


def test_a_plan_of_a_million_trials_stays_cheap() -> None:
    numbers = list(range(1000))
    written = Written(
        f"template: 'echo {{x}} {{y}}'\n---\nx: {numbers}\ny: {numbers}\n---\nx: [1]\ny: [1, 2, -1]\n"
    )
    for number in (1, 5000, 999_999):
        written.finish(TrialId(1, number))
    store = Counting(written.store)
    state = written.state(store=store)
    counts = state.counts()
    assert (counts.total, counts.is_exact, counts.finished, counts.waiting) == (1_000_001, True, 3, 999_998)
    assert [now.trial.number for now in state.trials(*DONE)] == [1, 5000, 999_999]
    assert len(store.asked) < 20
    assert states_from(state, 1_000_001) == [State.SKIPPED, State.SKIPPED, State.WAITING]


def states_from(state: StudyState, number: int) -> list[State]:
    found = [state.trial(TrialId(1, n)) for n in range(number, state.size(1) + 1)]
    return [now.state for now in found if now is not None]


@pytest.mark.parametrize(
    ("later", "chosen", "before", "total"),
    [
        ("x: [2, 3, 4]", {}, 2, 1),
        ("x: [2, 3, 4]\n---\nx: [4, 5]", {}, 2, 2),
        ("x: [2, 3, 4]", {"stages": ["test"]}, 3, 1),
        ("x: [2, 3, 4]\n_title: t\n---\nx: [9]", {"titles": ["t"]}, 3, 1),
        ("x: [7, 8, 9, 10]", {"sample": 2}, 3, 2),
    ],
)
def test_trials_that_an_earlier_iteration_asked_for_do_not_count(
    later: str, chosen: dict[str, object], before: int, total: int
) -> None:
    head = "template: {train: 'echo {x}', test: 'true {x}'}\n---\n"
    written = Written(head + "x: [1, 2, 3]\n")
    written.plan(head + later + "\n", **chosen)
    state = written.state()
    assert state.counts(1).total == before
    assert state.counts(2).total == total
    assert state.counts().total == before + total == len(list(state.trials()))


def test_stages_that_are_new_belong_to_the_same_trials() -> None:
    head = "template: {train: 'echo {x}', test: 'true {x}'}\n---\nx: [1, 2, 3]\n"
    written = Written()
    written.plan(head, stages=["train"])
    written.plan(head)
    written.plan(head, stages=["test"])
    state = written.state()
    assert [state.counts(iteration).total for iteration in state.iterations] == [3, 0, 0]


def test_what_is_too_long_to_count_is_a_bound() -> None:
    numbers = list(range(200))
    head = "template: {train: 'echo {x} {y}', test: 'true'}\n---\n" + f"x: {numbers}\ny: {numbers}\n"
    written = Written()
    written.plan(head)
    written.plan(head.replace("y: [0", "y: [-1"), sample=30_000)
    counts = written.state().counts()
    assert (counts.total, counts.is_exact) == (70_000, False)


# Cost


def hundred_thousand(written: Written, ranges: int = 100) -> None:
    """All trials are finished, and every range has its summary."""
    figures = {"seconds": 3600.123, "cpu": 3599.5, "memory": 8_000_000_000}
    body = {
        "v": 1,
        "status": "finished",
        "agent": "host-1-2",
        "nonce": "0" * 16,
        "attempt": 1,
        "train": figures,
    }
    for place in range(ranges):
        first = place * records.RANGE + 1
        results = dict.fromkeys(range(first, first + records.RANGE), (1, body))
        written.store.write(records.summary_key(1, place), encode(1, place, records.RANGE, results))


BIG = f"template: 'echo {{x}} {{y}}'\n---\nx: {list(range(1000))}\ny: {list(range(100))}\n"


def test_a_hundred_thousand_finished_trials_take_few_requests() -> None:
    written = Written(BIG)
    hundred_thousand(written)
    written.order(rounds=["1.70001.2"])
    for number in range(70_000, 70_010):
        written.finish(TrialId(1, number))
    store = Counting(written.store)
    state = written.state(store=store)
    counts = state.counts()
    assert (counts.total, counts.finished, counts.waiting) == (100_000, 99_999, 1)
    assert len(store.asked) < 115
    assert sum(1 for _ in state.trials()) == 100_000
    store.asked.clear()
    state.refresh()
    assert len(store.asked) <= 7
    written.finish(TrialId(1, 70_001), round_=2)
    state.refresh()
    assert state.counts().finished == 100_000


def test_a_running_study_is_listed_from_where_it_stands() -> None:
    """Without summaries, too, what was seen done is not looked at again."""
    written = Written(grid(3000))
    for number in range(1, 2101):
        written.finish(TrialId(1, number))
    written.finish(TrialId(1, 2999))
    store = Counting(written.store)
    state = written.state(store=store)
    assert state.counts().finished == 2101
    assert len(store.asked) < 16
    store.asked.clear()
    state.refresh()
    assert len(store.asked) <= 6
    assert not any(key.endswith("result") for key in store.asked)


@pytest.mark.parametrize("kind", [MemoryStore, DirectoryStore])
def test_stores_of_all_kinds(kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGE", 3)
    _check_small_study(Written(grid(11), store=kind(tmp_path) if kind is DirectoryStore else kind()))


def test_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    need("obstore", "moto", "flask", "flask_cors")
    monkeypatch.setattr(records, "RANGE", 3)
    with s3_server() as address:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "somebody",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "AWS_ENDPOINT_URL": address,
        }.items():
            monkeypatch.setenv(name, value)
        _check_small_study(Written(grid(11), store=open_store(f"s3://{BUCKET}/state")))


def _check_small_study(written: Written) -> None:
    for number in range(1, 9):
        written.finish(TrialId(1, number), Status.FAILED if number % 3 == 0 else Status.FINISHED)
    looking = written.state()
    written.summary(1, 0, looking)
    written.summary(1, 1, looking)
    written.order(rounds=["1.2.2"])
    written.beat("a")
    written.claim(TrialId(1, 2), 2)
    for state in (looking, written.state()):
        state.refresh()
        counts = state.counts()
        assert (counts.finished, counts.failed, counts.running, counts.waiting) == (5, 2, 1, 3)
        assert [r.trial.number for r in state.results()] == [1, 3, 4, 5, 6, 7, 8]
        assert len(state.history(TrialId(1, 2)).attempts) == 2


def test_an_order_about_an_iteration_that_came_while_we_look() -> None:
    class Late(Counting):
        def read(self, key: str) -> bytes | None:
            found = super().read(key)
            if key == records.plan_key(2) and found is None:
                written.plan(grid(2).replace("0, 1", "8, 9"), sample=9)
                written.order(stop=["2.1.1"], rounds=["2.2.2"])
            return found

    written = Written(grid(1))
    state = written.state(store=Late(written.store))
    assert [now[1:3] for now in state.trials()] == [
        (State.WAITING, 1),
        (State.STOPPED, 1),
        (State.WAITING, 2),
    ]
