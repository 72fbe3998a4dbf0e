from __future__ import annotations

from threading import Thread

import pytest

from stoker.core.errors import StokerError
from stoker.store import records
from stoker.store.interface import StoreError
from stoker.store.records import Status, TrialId
from stoker.study.orders import open_rounds, resume_study, stop_study, stop_trials
from stoker.study.ranges import State
from tests.study.written import Counting, Written, grid, states

TRIALS = [TrialId(1, number) for number in (1, 2, 3, 4)]


@pytest.fixture
def written() -> Written:
    """One is finished, one has failed, one runs, one waits."""
    written = Written(grid(4))
    written.finish(TRIALS[0])
    written.finish(TRIALS[1], Status.FAILED)
    written.beat("a")
    written.claim(TRIALS[2])
    return written


def numbers(found: tuple[object, ...]) -> list[int]:
    return [now.trial.number for now in found]  # type: ignore[attr-defined]


def test_a_round_is_opened_only_for_trials_that_are_done(written: Written) -> None:
    state = written.state()
    given = open_rounds(state, [*TRIALS, TRIALS[0], TrialId(3, 1)], fresh=True)
    assert (given.number, numbers(given.trials), numbers(given.others)) == (1, [1, 2], [3, 4])
    order = records.decode(written.store.read("orders/000001"))
    assert order is not None
    assert (order["rounds"], order["fresh"]) == (["1.1.2", "1.2.2"], True)
    again = open_rounds(state, TRIALS, fresh=False)
    assert (again.number, numbers(again.others)) == (0, [1, 2, 3, 4])
    assert states(written.state())[TRIALS[0]] == (State.WAITING, 2)


def test_stopping_trials(written: Written) -> None:
    state = written.state()
    given = stop_trials(state, TRIALS)
    assert (given.number, numbers(given.trials), numbers(given.others)) == (1, [3, 4], [1, 2])
    assert state.trial(TRIALS[3]) == (TRIALS[3], State.STOPPED, 1, 0, "", "")
    assert open_rounds(state, TRIALS[3:], fresh=False).number == 2
    assert states(written.state())[TRIALS[3]] == (State.WAITING, 2)


def test_a_study_is_stopped_and_goes_on(written: Written) -> None:
    state = written.state()
    assert resume_study(state).number == 0
    assert stop_study(state).number == 1
    assert stop_study(state).number == 0
    assert written.state().is_stopped
    assert resume_study(state).number == 2
    assert not written.state().is_stopped


def test_who_comes_second_decides_again(written: Written) -> None:
    first, second = written.state(), written.state()
    assert open_rounds(first, TRIALS[:1], fresh=False).number == 1
    given = open_rounds(second, TRIALS[:2], fresh=False)
    assert (given.number, numbers(given.trials), numbers(given.others)) == (2, [2], [1])


def test_many_at_once_open_each_round_once() -> None:
    written = Written(grid(30))
    for number in range(1, 31):
        written.finish(TrialId(1, number))
    looking = [written.state() for _ in range(5)]
    threads = [
        Thread(target=lambda s=state: [open_rounds(s, [TrialId(1, n)], fresh=False) for n in range(1, 31)])
        for state in looking
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    orders = written.state().orders
    assert sorted(order["rounds"][0] for order in orders) == sorted(f"1.{n}.2" for n in range(1, 31))


def test_a_write_that_landed_but_was_answered_with_an_error(written: Written) -> None:
    class Rough(Counting):
        def create(self, key: str, data: bytes) -> bool:
            super().create(key, data)
            raise StoreError("503")

    assert stop_study(written.state(store=Rough(written.store))).number == 1
    assert len(written.state().orders) == 1


def test_a_write_that_is_told_to_exist_but_is_ours(written: Written) -> None:
    class Retrying(Counting):
        def create(self, key: str, data: bytes) -> bool:
            super().create(key, data)
            return super().create(key, data)

    assert stop_study(written.state(store=Retrying(written.store))).number == 1
    assert len(written.state().orders) == 1


def test_a_store_that_takes_nothing(written: Written) -> None:
    class Full(Counting):
        def create(self, key: str, data: bytes) -> bool:
            raise StoreError("full")

    with pytest.raises(StoreError, match="try again"):
        stop_study(written.state(store=Full(written.store)))


def test_an_order_that_nobody_can_read_is_told(written: Written) -> None:
    written.store.write("orders/000001", b"torn")
    with pytest.raises(StokerError, match="orders/000001 cannot be read"):
        stop_study(written.state())
