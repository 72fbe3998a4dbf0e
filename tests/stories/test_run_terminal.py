"""`stoker run` in a real terminal: what is shown, keys, Ctrl-C, a narrow and a resized window."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.display.test_terminal import Terminal, frames, lines_of, plain
from tests.stories.command import STOKER
from tests.stories.test_run import kinds, until, write

STUDY = """\
template:
  train: "echo größe {x}; touch begun-{n}; while [ ! -e go ]; do sleep 0.05; done"
  test: "echo acc=0.9{n}"
resource: ["", ""]
metrics: {acc: 'acc=([0-9.]+)'}
objective: {metric: acc, goal: max}
---
x: ["日本 ünïcode [bold]name[/bold]"]
n: [1, 2, 3, 4]
"""

Start = Callable[..., Terminal]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.chdir(tmp_path)
    write(STUDY)
    opened: list[Terminal] = []

    def start(*words: str, columns: int = 80, **environment: str) -> Terminal:
        command = f'cd "{tmp_path}" && exec {STOKER} run "$@"'
        opened.append(
            Terminal(
                "bash", "-c", command, "bash", *words, columns=columns, wishes=tmp_path / "w", **environment
            )
        )
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def begun() -> bool:
    return len(list(Path().glob("begun-*"))) >= 2


def test_slots_and_progress_are_shown_until_the_end(run: Start) -> None:
    screen = run(columns=100)
    screen.until(begun, "two trials")
    shown = plain(screen.expect("2 running"))
    assert "ünïcode [bold]" in plain(screen.seen)
    assert "cpu 0" in shown
    assert "train" in shown
    Path("go").touch()
    assert screen.wait() == 0
    end = plain(screen.seen)
    assert "4 of 4 finished" in end
    assert "acc 0.94" in end[end.rindex("best") :]
    assert screen.is_as_it_was()


def test_q_finishes_what_runs_and_leaves(run: Start) -> None:
    screen = run()
    screen.until(begun, "two trials")
    screen.send("q")
    screen.expect("finishing 2 trials, then leaving")
    Path("go").touch()
    assert screen.wait() == 130
    assert kinds() == {"claim": 2, "stage": 2, "result": 2, "finished": 2}, "both stages of both"
    assert "2 of 4 finished, 2 left" in plain(screen.seen)
    assert screen.is_as_it_was()


def test_q_at_the_last_trials_is_no_interruption(run: Start) -> None:
    write(STUDY.replace("3, 4]", "]"))
    screen = run()
    screen.until(begun, "two trials")
    screen.send("q")
    screen.expect("finishing 2 trials, then leaving")
    Path("go").touch()
    assert screen.wait() == 0


def test_q_again_stops_at_once(run: Start) -> None:
    screen = run()
    screen.until(begun, "two trials")
    screen.send("q")
    screen.expect("q again stops them now")
    screen.send("q")
    assert screen.wait() == 130
    assert kinds() == {"claim": 2, "released": 2}
    assert screen.is_as_it_was()


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_stops(run: Start, presses: int) -> None:
    write(STUDY.replace("echo größe {x};", "trap '' TERM;") if presses == 2 else STUDY)
    screen = run()
    screen.until(begun, "two trials")
    for _ in range(presses):
        screen.send("\x03")
        screen.expect("\x1b")
    assert screen.wait() == 130
    assert screen.is_as_it_was()
    assert kinds()["released"] == 2


def test_a_pause_claims_nothing_more(run: Start) -> None:
    screen = run()
    screen.until(begun, "two trials")
    screen.send("p")
    screen.expect("paused")
    Path("go").touch()
    until(lambda: kinds()["result"] == 2)
    screen.expect("2 of 4 finished")
    assert kinds()["claim"] == 2
    screen.send("p")
    assert screen.wait() == 0
    assert kinds()["result"] == 4


@pytest.mark.parametrize("columns", [60, 40])
def test_nothing_is_wider_than_the_window(run: Start, columns: int) -> None:
    from rich.cells import cell_len

    screen = run(columns=columns)
    screen.until(begun, "two trials")
    screen.resize(columns - 5)
    os.kill(screen.process.pid, 0)
    Path("go").touch()
    assert screen.wait() == 0
    lines = plain(screen.seen).splitlines()
    assert max(cell_len(line) for line in lines[:8]) <= columns


def test_a_second_run_says_what_is_at_work_already(run: Start) -> None:
    first = run()
    first.until(begun, "two trials")
    assert "already at work" not in first.seen
    second = run("--plain")
    second.expect("2 slots of this machine are already at work here")
    Path("go").touch()
    assert (first.wait(), second.wait()) == (0, 0)
    assert kinds()["result"] == kinds()["claim"] == 4


def test_lines_name_trials_that_share_a_directory(run: Start) -> None:
    write("template: echo {n}\n---\nn: [1, 2]\n")
    screen = run("--plain", "--no-subdir", "-r", "0")
    assert screen.wait() == 0
    told = plain(screen.seen)
    assert [f"{word} gpu 0 train {n}/2 N_{n}" in told for word in ("START", "DONE ") for n in (1, 2)] == [
        True
    ] * 4


def test_hundreds_of_slots_stay_within_the_window(run: Start) -> None:
    """A real agent; what runs takes no CPU, as only the display is looked at."""
    slots = 200
    write(f"template: 'touch begun-{{n}}; exec sleep 600'\n---\nn: {list(range(slots))}\n")
    screen = run("-r", *[""] * slots)
    screen.until(lambda: f"{slots} running" in plain(screen.seen[-4000:]), "all of them")
    screen.send("qq")
    assert screen.wait() == 130
    assert kinds() == {"claim": slots, "released": slots}
    assert screen.is_as_it_was()
    shown = [lines_of(frame) for frame in frames(screen)]
    assert max(map(len, shown)) <= 24
    last = next(lines for lines in reversed(shown) if any("of them running" in line for line in lines))
    rows = sum(line.startswith("cpu ") for line in last)
    assert f"and {slots - rows} more, " in "\n".join(last)


def test_without_colour_there_is_none(run: Start) -> None:
    Path("go").touch()
    screen = run(NO_COLOR="1")
    assert screen.wait() == 0
    assert "\x1b[3" not in screen.seen
    assert "\x1b[1;3" not in screen.seen
