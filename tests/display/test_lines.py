"""Lines through a real pipe, and the words at the end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from stoker.cli.board import Board, Counts, Wish
from stoker.cli.lines import MINUTE, QUIET, Lines, final_words, log_tail
from tests.display.actor import MadeUp, end, result, slots, start

T = 1_000_000.0


class Told:
    """Lines written to a real pipe, and what they ask for."""

    def __init__(self) -> None:
        self._read, write = os.pipe()
        self.out = open(write, "w", encoding="utf-8")  # noqa: PTH123, SIM115
        self.asked: list[Wish] = []
        self.screen = Lines(Board("norms", "output", 4, T), self.asked.append, self.out)

    def feed(self, *events: dict[str, Any]) -> list[str]:
        for event in events:
            self.screen.feed(event)
        return self.lines()

    def lines(self) -> list[str]:
        os.set_blocking(self._read, False)
        try:
            return os.read(self._read, 100_000).decode().splitlines()
        except BlockingIOError:
            return []

    def nobody_reads(self) -> None:
        os.close(self._read)
        self._read = -1

    def close(self) -> None:
        self.screen.close()
        if self._read < 0:  # what could not be written goes nowhere
            with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), self.out.fileno())
        else:
            os.close(self._read)
        self.out.close()


@pytest.fixture
def told() -> Any:
    made = Told()
    yield made
    made.close()


def test_one_line_for_whatever_happens(told: Told) -> None:
    first, second = start(1, T), start(2, T, slot=None, stage="test")
    events = [
        slots("gpu 0", "gpu 1", held={"gpu 1": "otto"}, notes=["CUDA_VISIBLE_DEVICES is set"]),
        first,
        end(first, T + 12.34),
        result(first, T + 12.34, val_accuracy=0.93),
        second,
        end(second, T + 1, "failed", code=1),
        result(second, T + 1, "failed"),
        start(3, T),
        end(start(3, T), T + 2, "released", signal=15, code=None, why="killed"),
        slots("gpu 0", "gpu 1"),
        {"event": "store", "away": True, "why": "timed out"},
        {"event": "store", "away": True, "why": "timed out again"},
        {"event": "store", "away": False, "why": ""},
        {"event": "leave", "why": "nothing left"},
    ]
    assert told.feed(*events) == [
        "SLOT  gpu 1 is held by otto",
        "NOTE  CUDA_VISIBLE_DEVICES is set",
        "START gpu 0 train 1/4 output/Norm_new-Moment_0.1",
        "DONE  gpu 0 train 1/4 output/Norm_new-Moment_0.1 12.3 s",
        "TRIAL finished 1/4 Norm_new-Moment_0.1 val_accuracy 0.93",
        "START no slot test 2/4 output/Norm_new-Moment_0.2",
        "FAIL  no slot test 2/4 output/Norm_new-Moment_0.2 exit code 1: "
        "see output/Norm_new-Moment_0.2/log.test.20260131.235959",
        "START gpu 0 train 3/4 output/Norm_new-Moment_0.3",
        "BACK  gpu 0 train 3/4 output/Norm_new-Moment_0.3 2.0 s",
        "SLOT  gpu 1 is free",
        "STORE does not answer: timed out; running stages go on",
        "STORE answers again",
        "LEAVE nothing left",
    ]


def test_hostile_names_stay_in_their_line(told: Told) -> None:
    assert told.feed(start(1, T, name="a\nDONE \x1b[2J")) == ["START slot 0 train 1/4 output/a·DONE ·[2J"]


def test_a_summary_every_minute_but_not_the_same_again(told: Told) -> None:
    state = MadeUp(4)
    state.counts = Counts(4, finished=1, running=2, waiting=1)
    said = []
    for second in range(0, 3 * int(QUIET), 10):
        if second == 2 * QUIET:
            state.counts = Counts(4, finished=2, running=2)
        told.screen.tick(state, T + second)
        said += [(second, line) for line in told.lines()]
    assert [second for second, _ in said] == [MINUTE, MINUTE + QUIET, 2 * QUIET]
    assert said[0][1] == "STUDY 1 of 4 finished, 2 running, 3 left"
    assert said[2][1] == "STUDY 2 of 4 finished, 2 running, 2 left"


def test_when_nobody_reads_the_study_is_asked_to_end(told: Told) -> None:
    told.screen.tick(MadeUp(4), T)
    assert told.asked == []
    told.nobody_reads()
    told.screen.tick(MadeUp(4), T + 1)  # known before anything is written
    assert told.asked == [Wish.QUIT]
    told.screen.feed(start(1, T))
    told.screen.feed(start(2, T))
    assert told.asked == [Wish.QUIT]


def test_a_write_finds_out_too_that_nobody_reads(told: Told) -> None:
    told.nobody_reads()
    told.screen.feed(start(1, T))
    assert told.asked == [Wish.QUIT]


def test_ctrl_c_asks_and_then_insists_and_sigterm_only_asks(told: Told) -> None:
    def send(number: signal.Signals) -> Wish:
        os.kill(os.getpid(), number)
        told.screen.ready()
        return told.asked[-1]

    sent = [signal.SIGTERM, signal.SIGTERM, signal.SIGINT]
    assert [send(number) for number in sent] == [Wish.QUIT, Wish.QUIT, Wish.KILL]
    assert told.lines()[0] == "STUDY stopping: Ctrl-C again ends everything at once"


def test_ctrl_c_works_even_if_nobody_listens(told: Told) -> None:
    os.kill(os.getpid(), signal.SIGINT)
    os.kill(os.getpid(), signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_signals_are_given_back(told: Told) -> None:
    told.screen.close()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)
    told.screen.close()


def test_what_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    told = Told()
    os.kill(os.getpid(), signal.SIGHUP)
    told.screen.ready()
    assert told.asked == []
    told.close()
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN


def test_a_reader_that_leaves_ends_the_run(tmp_path: Path) -> None:
    """`stoker run | head -2`: the process ends by itself, and has asked for it."""
    wishes = tmp_path / "wishes"
    actor = [sys.executable, "-m", "tests.display.actor", "--speed", "20"]
    env = {**os.environ, "WISHES": str(wishes)}
    with subprocess.Popen(
        actor, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True
    ) as run:
        assert run.stdout
        lines = [run.stdout.readline(), run.stdout.readline()]
        run.stdout.close()
        run.wait(timeout=20)
    assert all(re.match(r"START gpu \d train \d/40 output/", line) for line in lines)
    assert wishes.read_text(encoding="utf-8") == "quit\n"


# The end


def failed_board(*ends: dict[str, Any], failed: int | None = None) -> Board:
    board = Board("norms", "output", 40, T)
    board.feed(slots("gpu 0"))
    for number, how in enumerate(ends, 1):
        begun = start(number, T, log=f"log {number}")
        board.feed(begun)
        board.feed(end(begun, T + 30, "failed", **how))
        board.feed(result(begun, T + 30, "failed"))
    state = MadeUp(40)
    state.counts = Counts(40, finished=20, failed=len(ends) if failed is None else failed)
    board.see(state, T + 60)
    return board


def words(board: Board, width: int = 80, **more: Any) -> list[str]:
    return [line.plain for line in final_words(board, width, tail=lambda path: [f"end of {path}"], **more)]


def test_the_end_says_what_failed_and_where_to_look() -> None:
    board = failed_board({"code": None, "signal": 9}, {"code": 127})
    assert words(board, best=["0.93  Norm_new-Moment_0.7"]) == [
        "trials     20 of 40 finished, 2 failed, 18 left",
        "time       1 min 00 s",
        "slots      1, 50% busy",
        "",
        "failed     1 Norm_new-Moment_0.1",
        "           train: killed by signal 9: maybe out of memory",
        "  │ end of log 1",
        "",
        "failed     2 Norm_new-Moment_0.2",
        "           train: exit code 127: command not found",
        "  │ end of log 2",
        "",
        "best",
        "  0.93  Norm_new-Moment_0.7",
        "",
        "files      output",
        "next       stoker status · stoker logs 1 · stoker retry --failed · the same command again goes on",
    ]


def test_the_end_shows_five_failures_and_counts_the_others() -> None:
    shown = words(failed_board(*[{"code": 1}] * 7, failed=17))
    assert sum(line.startswith("failed ") for line in shown) == 5
    assert "and 12 more: stoker status --failed" in shown


def test_the_end_of_a_good_study_is_short() -> None:
    board = Board("norms", "output", 2, T)
    state = MadeUp(2)
    state.counts = Counts(2, finished=2)
    board.see(state, T + 1)
    assert words(board) == [
        "trials     2 of 2 finished, 0 left",
        "time       1.0 s",
        "",
        "files      output",
        "next       stoker status",
    ]


def test_the_end_fits_the_terminal() -> None:
    board = failed_board({"code": 1})
    lines = final_words(board, 60, ["日" * 100], tail=lambda _: ["x" * 500])
    assert max(cell_len(line.plain) for line in list(lines)[:-1]) < 60


def test_the_tail_of_a_log_is_what_a_terminal_would_show(tmp_path: Path) -> None:
    log = tmp_path / "log"
    ending = b"10%\r50%\r100%\r\n\x1b[31mError\x1b[0m: \xff\tbad\x08\n\x1b]0;title\x07x\n\n"
    log.write_bytes(b"first\n" * 9999 + ending)
    assert log_tail(str(log), 4) == ["first", "100%", "Error: �        bad·", "x"]
    assert len(log_tail(str(log))) == 8
    assert log_tail(str(tmp_path / "none")) == []
    log.write_bytes(b"\n\n")
    assert log_tail(str(log)) == []
