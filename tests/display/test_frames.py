"""Frames as a person sees them, and what holds for all of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.text import Text

from stoker.cli.board import Board, Counts, Peer
from stoker.cli.live import Detail, View, fit, frame, last_frame
from tests.display.actor import MadeUp, end, result, slots, start

NOON = 1_763_208_000.0  # 2025-11-15 12:00 UTC
FRAMES = Path(__file__).parent / "frames"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def plain(lines: list[Text]) -> str:
    return "".join(f"{line.plain.rstrip()}\n" for line in lines)


def busy_board() -> Board:
    """Four slots, one of them somebody else's; two trials done, one of them badly; another agent helps."""
    board = Board("norms", "output", 40, NOON - 600)
    gpus = "gpu 0", "gpu 1", "gpus 2,3", "gpu 4"
    board.feed(slots(*gpus, held={"gpu 4": "otto, process 4711"}))
    first = start(1, NOON - 600, slot=0)
    second = start(2, NOON - 500, slot=1, name="Norm_ünïcode-日本語-Moment_0.25")
    for event in (first, second, end(first, NOON - 100), end(second, NOON - 90, "failed", code=137)):
        board.feed(event)
    board.feed(result(first, NOON - 100, val_accuracy=0.93125))
    board.feed(result(second, NOON - 90, "failed"))
    long = "Norm_batch-Momentum_0.9-Schedule_cosine-Warmup_1000-Seed_1"
    board.feed(start(3, NOON - 90, slot=0, step=1, steps=3))
    board.feed(start(4, NOON - 4000, slot=1, name=long, stage="average", step=2, steps=3))
    board.feed(start(5, NOON - 7, slot=None, stage="test", step=3, steps=3))
    state = MadeUp(40)
    state.counts = Counts(40, finished=12, failed=1, running=7, waiting=20)
    state.others = [Peer("a1", "quiet", 3, 45.0), Peer("a2", "lively", 1, 2.0)]
    state.metrics = {"1.3": "step 1200  val_accuracy 0.931"}
    board.see(state, NOON)
    return board


@pytest.mark.parametrize("width", [60, 80, 120])
def test_frames_look_as_they_did(width: int) -> None:
    expected = (FRAMES / f"{width}.txt").read_text(encoding="utf-8")
    assert plain(frame(busy_board(), View(width, 30))) == expected


def test_a_thousand_slots_show_what_fits() -> None:
    board = Board("norms", "output", 5000, NOON)
    board.feed(slots(*(f"gpu {number}" for number in range(1000))))
    for number in range(900):
        board.feed(start(number + 1, NOON, slot=number))
    shown = plain(frame(board, View(80, 24))).splitlines()
    assert len(shown) <= 23
    rows = sum(line.startswith("gpu ") for line in shown)
    assert rows > 10
    assert f"and {1000 - rows} more, {900 - rows} of them running" in shown


def test_many_slots_leave_room_for_what_was_asked_for() -> None:
    board = busy_board()
    board.feed(slots(*(f"gpu {number}" for number in range(1000))))
    view = View(80, 24, Detail.LOG, board.tasks["1.3"], [f"step {number}" for number in range(50)])
    shown = plain(frame(board, view))
    assert "log of Norm_new-Moment_0.3" in shown
    assert "│ step 4" in shown


@pytest.mark.parametrize("detail", list(Detail))
def test_every_frame_is_smaller_than_its_terminal(detail: Detail) -> None:
    board = busy_board()
    for width in (1, 2, 10, 25, 40, 59, 61, 79, 95, 96, 97, 200):
        for height in (1, 2, 3, 6, 10, 15, 24, 60):
            view = View(width, height, detail, board.tasks["1.3"], ["x" * 300, "日" * 200])
            for lines in (frame(board, view), last_frame(board, view)):
                assert len(lines) <= max(1, height - 1)
                assert max(line.cell_len for line in lines) <= max(1, width - 1)


def test_columns_do_not_move_with_what_stands_in_them() -> None:
    board = busy_board()
    board.feed(start(3, NOON, slot=0, name="short", stage="a", step=1, steps=3))
    shown = plain(frame(board, View(100, 30))).splitlines()
    rows = [line for line in shown if ("gpu" in line or "no slot" in line) and ":" in line]
    assert len({cell_len(row[: row.index("/3")]) for row in rows}) == 1


def test_markup_and_escapes_in_names_are_only_text() -> None:
    board = Board("[bold]norms", "output", 4, NOON)
    board.feed(slots("[red]gpu"))
    board.feed(start(1, NOON, name="[/][link=x]\x1b[31m"))
    line = frame(board, View(80, 24))[2]
    assert line.plain.startswith("[red]gpu  [/][link=x]·[31m ")


def test_the_person_is_told_what_goes_on() -> None:
    board = busy_board()
    board.paused = True
    assert "paused: running trials go on" in plain(frame(board, View(80, 30)))
    board.finishing = True
    shown = plain(frame(board, View(80, 30)))
    assert "finishing 3 trials, then leaving · q again stops them now" in shown
    assert "p resume   q stop now" in shown
    board.quitting, board.away = True, "no route to host"
    shown = plain(frame(board, View(80, 30)))
    assert "the store does not answer: no route to host" in shown
    assert "stopping; Ctrl-C again kills" in shown
    assert "ends ≈" not in shown
    assert "q finish" not in plain(frame(board, replace(View(80, 30), keys=False)))


def test_the_smallest_failure_shows_in_the_bar() -> None:
    board = Board("norms", "output", 100_000, NOON)
    state = MadeUp(100_000)
    state.counts = Counts(100_000, finished=99_999, failed=1)
    board.see(state, NOON)
    bar = last_frame(board, View(41, 24))[1]
    assert [(span.end - span.start, span.style) for span in bar.spans] == [(39, "green"), (1, "red")]


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("name", 6, "name  "),
        ("Norm_new-Moment_0.1", 10, "Norm_n…0.1"),
        ("日本語日本語", 7, "日本…語"),
        ("日本語", 2, "… "),
        ("long", 1, "…"),
        ("", 3, "   "),
    ],
)
def test_text_fits_exactly(text: str, width: int, shown: str) -> None:
    assert fit(text, width) == shown
    assert cell_len(fit(text, width)) == width
