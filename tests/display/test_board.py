"""Events in, a board out."""

from __future__ import annotations

from typing import Any

import pytest

from stoker.cli.board import Board, Counts, Outcome, Peer, around, clock, duration, words_for
from tests.display.actor import MadeUp, end, result, slots, start

T = 1_000_000.0


def made(*events: dict[str, Any], total: int = 4) -> Board:
    board = Board("norms", "output", total, T)
    for event in events:
        board.feed(event)
    return board


def test_a_stage_runs_in_its_slot_until_it_ends() -> None:
    begun = start(1, T + 1, slot=1)
    board = made(slots("gpu 0", "gpu 1"), begun)
    assert [task and task.name for task in board.in_slots()] == [None, "Norm_new-Moment_0.1"]
    board.feed(end(begun, T + 3))
    assert board.in_slots() == [None, None]
    assert board.now == T + 3


def test_a_trial_is_begun_until_its_last_stage_is_over() -> None:
    """Between two stages nothing of it runs, and it is not to be given up for that."""
    train, test = start(1, T, step=1, steps=2), start(1, T + 3, stage="test", step=2, steps=2)
    board = made(train, end(train, T + 2))
    assert (board.tasks, board.begun) == ({}, {"1.1"})
    board.feed(test)
    board.feed(end(test, T + 4))
    assert board.begun == set()
    board = made(train, end(train, T + 2, "failed", code=1))
    assert board.begun == set()
    board = made(train, end(train, T + 2), result(train, T + 3))  # its other stage was finished before
    assert board.begun == set()


def test_a_trial_without_a_directory_of_its_own_goes_by_its_name() -> None:
    flat = "output/log.train.20260131.235959.Norm_new-Moment_0.1"
    board = made(start(1, T, log=flat), start(2, T), start(3, T, log=""))
    places = [task.place for task in board.tasks.values()]
    assert places == ["Norm_new-Moment_0.1", "output/Norm_new-Moment_0.2", "Norm_new-Moment_0.3"]


def test_a_trial_that_fails_once_and_then_finishes_is_no_failure() -> None:
    first, again = start(1, T), start(1, T + 5, attempt=2)
    board = made(first, end(first, T + 2, "failed", code=3), again, end(again, T + 9), result(again, T + 9))
    assert board.failures == {}
    assert [(ended.outcome, ended.seconds) for ended in board.recent] == [(Outcome.FINISHED, 6.0)]


def test_a_failure_keeps_the_stage_that_failed() -> None:
    train = start(1, T)
    test = start(1, T + 2, stage="test", slot=None)
    events = (
        train,
        end(train, T + 2),
        test,
        end(test, T + 3, "failed", code=127),
        result(test, T + 3, "failed"),
    )
    board = made(*events)
    assert board.failures["1.1"].task.stage == "test"
    assert board.recent[-1].told == "test: exit code 127: command not found"


def test_a_failure_that_was_not_seen_here_is_shown_too() -> None:
    board = made(result(start(2, T), T, "failed"))
    assert board.failures["1.2"].told == "it failed elsewhere"


def test_utilisation_is_the_busy_share_of_slots_that_are_ours() -> None:
    board = made(slots("gpu 0", "gpu 1", "gpu 2", held={"gpu 2": "someone"}))
    assert board.utilisation() is None
    begun = start(1, T)
    board.feed(begun)
    board.feed(end(begun, T + 10))
    board.see(MadeUp(4), T + 20)
    assert board.utilisation() == pytest.approx(0.25)  # 10 of 2 × 20 seconds
    board.feed(start(2, T + 20, slot=None))
    board.see(MadeUp(4), T + 30)
    assert board.utilisation() == pytest.approx(10 / 60)  # what needs no slot keeps none busy


def test_there_is_no_estimate_before_a_trial_has_finished() -> None:
    begun = start(1, T)
    board = made(slots("gpu 0"), begun)
    assert board.expected_end() is None
    board.feed(end(begun, T + 1, "failed", code=1))
    board.feed(result(begun, T + 1, "failed"))
    assert board.expected_end() is None


def after_one_of(total: int, counts: Counts, others: tuple[Peer, ...] = (), places: int = 2) -> Board:
    """Slots of which the first has just finished a trial of 100 seconds, and begun the next."""
    first, second = start(1, T), start(2, T + 100)
    board = made(slots(*(f"gpu {n}" for n in range(places))), first, end(first, T + 100), total=total)
    board.feed(result(first, T + 100))
    board.feed(second)
    state = MadeUp(total)
    state.counts, state.others = counts, others
    board.see(state, T + 100)
    return board


def test_the_estimate_shares_the_work_among_all_slots() -> None:
    board = after_one_of(101, Counts(101, finished=1))
    assert board.expected_end() == T + 100 + 100 * 100 / 2
    elsewhere = Peer("other", "host", running=2, silent=0)
    # two half-done trials elsewhere: 97 wait, one is fresh
    board = after_one_of(101, Counts(101, finished=1), (elsewhere,))
    assert board.expected_end() == T + 100 + (97 * 100 + 100 + 50 + 50) / 4


def test_the_estimate_never_ends_before_the_last_trial_can() -> None:
    board = after_one_of(2, Counts(2, finished=1), places=8)
    assert board.expected_end() == T + 200  # one trial cannot be shared
    board = after_one_of(3, Counts(3, finished=1), places=1)
    assert board.expected_end() == T + 300  # one after the other


@pytest.mark.parametrize("why", ["paused", "finishing", "quitting", "away"])
def test_nothing_is_promised_while_nothing_new_starts(why: str) -> None:
    board = after_one_of(10, Counts(10, finished=1))
    assert board.expected_end()
    setattr(board, why, True)
    assert board.expected_end() is None


def test_the_store_goes_away_and_comes_back() -> None:
    board = made({"event": "store", "away": True, "why": "timed\nout"})
    assert board.away == "timed·out"
    board.feed({"event": "store", "away": False, "why": ""})
    assert board.away == ""


def test_what_others_wrote_cannot_move_the_cursor() -> None:
    evil = "\x1b[2J\x1b]0;x\x07\r\n\u202e"
    begun = start(1, T, name=f"n{evil}", stage=f"s{evil}")
    board = made(slots(f"gpu{evil}", held={f"gpu{evil}": evil}, notes=[evil]), begun)
    board.feed({"event": "leave", "why": evil})
    task = board.tasks["1.1"]
    shown = [task.name, task.stage, task.place, board.label(task), *board.notes, board.leaving]
    board.feed(end(begun, T + 1, "failed", why=evil, code=None))
    board.feed(result(begun, T + 1, "failed"))
    shown += [board.slots[0].holder, board.recent[0].name, board.recent[0].told]
    assert len(shown) == 9
    assert all(set("\x1b\x07\r\n\u202e").isdisjoint(text) for text in shown)


def test_unknown_events_are_skipped() -> None:
    assert made({"event": "news", "time": T + 5}).now == T + 5


@pytest.mark.parametrize(("trial", "shown"), [("1.3", "3/4"), ("1.7", "7"), ("2.3", "2.3")])
def test_trials_are_numbered_as_the_command_line_calls_them(trial: str, shown: str) -> None:
    board = made({**start(1, T), "trial": trial})
    assert board.number(board.tasks[trial]) == shown


@pytest.mark.parametrize(
    ("code", "signal", "why", "told"),
    [
        (1, None, "exited", "exit code 1"),
        (127, None, "exited", "exit code 127: command not found"),
        (126, None, "exited", "exit code 126: the command cannot be executed"),
        (None, 9, "exited", "killed by signal 9: maybe out of memory"),
        (137, None, "exited", "exit code 137: killed by signal 9: maybe out of memory"),
        (None, 11, "exited", "killed by signal 11 (SIGSEGV)"),
        (None, 15, "timeout", "timeout after 20 min 00 s"),
        (255, None, "exited", "exit code 255"),
        (None, None, "lost three times", "lost three times"),
        (None, None, "", "no reason known"),
    ],
)
def test_exit_codes_in_words(code: int | None, signal: int | None, why: str, told: str) -> None:
    assert words_for(code, signal, why, 1200) == told


def test_times_in_words() -> None:
    assert [duration(s) for s in (0.04, 12.34, 59.99, 123, 3780, 2 * 86400 + 3 * 3600)] == [
        "0.0 s",
        "12.3 s",
        "1 min 00 s",
        "2 min 03 s",
        "1 h 03 min",
        "2 d 3 h",
    ]
    assert [clock(s) for s in (-3, 12, 723, 3723, 360000)] == [
        "0:00",
        "0:12",
        "12:03",
        "1:02:03",
        "100:00:00",
    ]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (20, "(in less than a minute)"),
        (1500, "(in 25 min)"),
        (3 * 3600 + 300, "(in 3 h 05 min)"),
        (20 * 3600, "(in 20 h)"),
        (4 * 86400, "(in 4 days)"),
    ],
)
def test_estimates_are_no_more_exact_than_they_can_be(seconds: float, told: str) -> None:
    assert around(T + seconds, T).endswith(told)
