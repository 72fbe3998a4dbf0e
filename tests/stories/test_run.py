"""A person runs a study: in a pipe, again, in parts, interrupted, killed, and together with others."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.store.records import parse_key
from tests.stories.command import STOKER, stoker

pytestmark = pytest.mark.usefixtures("_here")

STUDY = """\
template:
  train: "echo {x} >> trace.train; test {x} != 3"
  test: "echo {x} >> trace.test; echo score={x}"
resource: ["", ""]
metrics: {score: 'score=(\\d+)'}
objective: {metric: score, goal: max}
---
_title: low
x: [1, 2]
---
_title: high
x: [3, 4]
"""
SLEEPY = """\
template: "echo {x} >> begun; sleep 0.2; echo {x} >> ended"
resource: ["", ""]
---
x: [1, 2, 3, 4, 5, 6, 7, 8]
"""


@pytest.fixture
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("STOKER_FILE", "STOKER_OUTPUT"):
        monkeypatch.delenv(name, raising=False)


def write(text: str) -> None:
    Path("params.yaml").write_text(text, encoding="utf-8")


def traced(name: str) -> list[str]:
    return sorted(Path(name).read_text().split()) if Path(name).exists() else []


def kinds() -> Counter[str]:
    keys = (str(path.relative_to("output/.stoker")) for path in Path("output/.stoker/trials").rglob("*.*"))
    marks = (parse_key(key) for key in keys)
    return Counter(mark.kind for mark in marks if mark is not None)


def until(holds: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def background(*words: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [STOKER, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, **more},
    )


# Running


def test_a_study_runs_and_is_told_in_lines() -> None:
    write(STUDY)
    done = stoker("run")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert "START cpu 0 train 1/4 output/X_1" in lines
    assert any(re.fullmatch(r"DONE  cpu \d test 2/4 output/X_2 0\.\d s", line) for line in lines)
    assert any(
        re.fullmatch(r"FAIL  cpu \d train 3/4 output/X_3 exit code 1: see output/X_3/log\.train\..*", line)
        for line in lines
    )
    assert "trials     3 of 4 finished, 1 failed, 0 left" in lines
    best = lines.index("best")
    assert [line.split() for line in lines[best + 1 : best + 4]] == [
        ["score", "4", "X_4"],
        ["score", "2", "X_2"],
        ["score", "1", "X_1"],
    ]
    assert Path("output/params.yaml").read_text() == STUDY
    assert (Path("output") / "X_1" / "stat").read_text() == "train: finished\ntest: finished\n"


def test_what_is_finished_is_skipped_and_what_failed_is_tried_again() -> None:
    write(STUDY)
    stoker("run")
    again = stoker("run")
    assert again.returncode == 1
    assert "1 trial failed or stopped: tried again" in again.stderr
    assert "3 of 4 trials are finished already" in again.stderr
    assert traced("trace.train") == ["1", "2", "3", "3", "4"]
    assert traced("trace.test") == ["1", "2", "4"]


def test_a_finished_study_has_nothing_left_and_force_runs_it_again() -> None:
    write(STUDY)
    assert stoker("run", "-t", "low").returncode == 0
    done = stoker("run", "-t", "low")
    assert (done.returncode, done.stdout) == (0, "")
    assert "nothing is left to do" in done.stderr
    assert stoker("run", "-t", "low", "-f").returncode == 0
    assert traced("trace.test") == ["1", "1", "2", "2"]


def test_a_part_of_a_study_runs_alone_whatever_else_is_left() -> None:
    write(STUDY.replace("test {x} != 3", "test ! -e stop-{x} || sleep 60"))
    Path("stop-1").touch()
    Path("stop-2").touch()
    whole = background("run")
    until(lambda: traced("trace.train") == ["1", "2"])
    whole.send_signal(signal.SIGINT)
    whole.communicate(timeout=30)
    assert whole.returncode == 130
    high = stoker("run", "-t", "high")
    assert high.returncode == 0, high.stdout
    assert traced("trace.test") == ["3", "4"]
    Path("stop-1").unlink()
    Path("stop-2").unlink()
    assert stoker("run").returncode == 0
    assert traced("trace.test") == ["1", "2", "3", "4"]


def test_stages_asked_for_later_run_in_the_same_directories() -> None:
    write(STUDY.replace("test {x} != 3", "true"))
    assert stoker("run", "-c", "train").returncode == 0
    assert traced("trace.test") == []
    assert stoker("run", "-c", "test").returncode == 0
    assert traced("trace.train") == traced("trace.test") == ["1", "2", "3", "4"]
    assert len([path for path in Path("output").iterdir() if path.name.startswith("X_")]) == 4
    assert stoker("run").stderr.endswith("nothing is left to do (-f runs finished trials again)\n")


def test_a_grown_list_runs_only_what_is_new() -> None:
    write("template: 'echo {x} >> trace'\n---\nx: [1, 2]\n")
    stoker("run")
    write("template: 'echo {x} >> trace'\n---\nx: [1, 2, 3]\n")
    done = stoker("run")
    assert done.returncode == 0
    assert "2 of 3 trials are finished already" in done.stderr
    assert traced("trace") == ["1", "2", "3"]


def test_a_mended_command_is_the_one_that_runs() -> None:
    write("template: 'echo old >> trace; exit 1'\n---\nx: [1, 2]\n")
    assert stoker("run").returncode == 1
    write("template: 'echo new >> trace'\n---\nx: [1, 2]\n")
    assert stoker("run").returncode == 0
    assert traced("trace") == ["new", "new", "old", "old"]


def test_a_dry_run_prints_what_bash_can_run() -> None:
    write("template: 'mkdir -p {_output} && echo {x} > {_output}/value'\n---\nx: [a b, \"it's\", $HOME]\n")
    done = stoker("run", "--dry-run")
    assert done.returncode == 0
    assert not Path("output").exists()
    subprocess.run(["bash", "-e", "-c", done.stdout], check=True)
    assert sorted(path.read_text() for path in Path("output").glob("*/value")) == [
        "$HOME\n",
        "a b\n",
        "it's\n",
    ]


def test_debug_runs_the_first_trial_here_and_records_nothing() -> None:
    write(STUDY)
    done = stoker("run", "--debug")
    assert done.returncode == 0
    assert done.stdout == "score=1\n"
    assert not Path("output/.stoker").exists()
    write("template: 'exit 7'\n")
    assert stoker("run", "--debug").returncode == 1


def test_without_subdirectories_logs_stand_side_by_side() -> None:
    write("template: 'echo {_output} {x}'\n---\nx: [1, 2]\n")
    assert stoker("run", "--no-subdir").returncode == 0
    logs = sorted(Path("output").glob("log.train.*"))
    assert [path.name.rpartition(".")[2] for path in logs] == ["X_1", "X_2"]
    assert logs[0].read_text() == "output 1\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["no.yaml"], "there is no file no.yaml"),
        (["--on", "mars"], "there is no such engine; there are: local, slurm"),
        (["-o", "params.yaml"], "is a file"),
        (["-t", "nothing"], "nothing"),
        (["--frobnicate"], "unrecognized arguments"),
    ],
)
def test_bad_input_is_told_and_nothing_is_made(words: list[str], told: str) -> None:
    write(STUDY)
    done = stoker("run", *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert not Path("output").exists()


def test_a_command_finds_the_directory_that_the_study_was_started_in(tmp_path: Path) -> None:
    write("template: 'pwd > {_output}/where'\n---\nx: [1, 2]\n")
    assert stoker("run", "--detach").returncode == 0
    until(lambda: kinds()["result"] == 2)
    assert Path("output/X_1/where").read_text().strip() == str(tmp_path.resolve())


def test_a_run_with_other_stages_does_not_disturb_one_that_works() -> None:
    text = "template: {train: 'echo {x} >> trace.train; sleep 0.5', test: 'echo {x} >> trace.test'}\n"
    write(text + "resource: ['']\n---\nx: [1, 2, 3, 4, 5, 6, 7, 8]\n")
    first = background("run")
    until(lambda: traced("trace.train"))
    assert stoker("run", "-c", "test").returncode == 0
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 0, out
    assert traced("trace.train") == traced("trace.test") == list("12345678")


def test_a_stage_that_one_sweep_gets_later_runs_for_its_finished_trials() -> None:
    text = "template: {train: 'true {x}', test: 'echo {x} >> trace'}\n"
    text += "---\n_cmd: [train]\nx: [1, 2]\n---\nx: [5]\n"
    write(text)
    assert stoker("run").returncode == 0
    write(text.replace("_cmd: [train]\n", ""))
    assert stoker("run").returncode == 0
    assert traced("trace") == ["1", "2", "5"]


def test_a_run_does_not_do_what_another_asks_for() -> None:
    write("template: 'sleep 1; echo {x} >> trace'\nresource: ['']\n---\nx: [1, 2]\n")
    first = background("run")
    until(lambda: kinds()["claim"])
    Path("other.yaml").write_text("template: 'echo {x} >> trace; exit 1'\nresource: ['']\n---\nx: [3]\n")
    assert stoker("run", "other.yaml").returncode == 1
    out, _ = first.communicate(timeout=60)
    assert first.returncode == 0, out
    assert "2 of 2 finished" in out
    assert traced("trace") == ["1", "2", "3"]


def test_a_plan_that_cannot_be_read_is_told() -> None:
    write(STUDY)
    stoker("run")
    Path("output/.stoker/plan/0001").write_text("garbage")
    done = stoker("run")
    assert done.returncode == 1
    assert "plan/0001 cannot be read" in done.stderr


def test_slots_are_checked_before_anything_is_undone() -> None:
    write("template: 'true'\n")
    assert stoker("run").returncode == 0
    assert stoker("run", "-f", "-r", *["0"] * 100).returncode == 2
    assert kinds() == {"claim": 1, "result": 1, "finished": 1}
    assert not Path("output/.stoker/orders").exists()


def test_what_only_its_owner_may_read_stays_so() -> None:
    write("template: 'true'\nenv: {TOKEN: secret}\n")
    Path("params.yaml").chmod(0o600)
    assert stoker("run").returncode == 0
    assert Path("output/params.yaml").stat().st_mode & 0o777 == 0o600
    assert Path("output/.stoker").stat().st_mode & 0o077 == 0


def test_an_output_that_is_moved_away_is_not_made_again() -> None:
    write("template: 'echo {x} >> trace; sleep 1'\nresource: ['']\n---\nx: [1, 2, 3]\n")
    running = background("run")
    until(lambda: traced("trace"))
    Path("output").rename("moved")
    time.sleep(2)
    assert not Path("output/.stoker").exists()
    Path("moved").rename("output")
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0, out
    assert traced("trace") == ["1", "2", "3"]


def test_what_a_killed_agent_of_this_host_held_is_taken_at_once() -> None:
    write(
        "template: 'echo {x}.{_attempt} >> trace; [ {x}.{_attempt} != 1.1 ] || sleep 600'\n"
        "resource: ['']\n---\nx: [1, 2]\n"
    )
    assert stoker("run", "--detach").returncode == 0
    until(lambda: traced("trace"))
    second = background("run")
    until(lambda: "2.1" in traced("trace"))
    time.sleep(6)  # it has heard the first one's beats
    beats = [json.loads(path.read_text()) for path in Path("output/.stoker/beats").iterdir()]
    os.kill(next(beat["pid"] for beat in beats if beat["running"]), signal.SIGKILL)
    began = time.monotonic()
    second.communicate(timeout=50)
    assert second.returncode == 0
    assert traced("trace") == ["1.1", "1.2", "2.1"]
    assert time.monotonic() - began < 30, "it waited for a lease"


# Interrupted


def test_an_interrupt_gives_back_what_runs_and_the_next_run_goes_on() -> None:
    write(SLEEPY.replace("0.2", "30"))
    running = background("run")
    until(lambda: len(traced("begun")) == 2)
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "STUDY stopping" in out
    assert kinds() == {"claim": 2, "released": 2}
    write(SLEEPY)
    assert stoker("run").returncode == 0
    assert traced("ended") == list("12345678")


def test_a_second_interrupt_ends_what_does_not_want_to() -> None:
    write("template: \"trap '' TERM; echo x >> begun; while :; do sleep 1; done\"\nresource: ['']\n")
    running = background("run")
    until(lambda: traced("begun"))
    for _ in range(2):
        running.send_signal(signal.SIGINT)
        time.sleep(0.5)
    began = time.monotonic()
    running.communicate(timeout=30)
    assert running.returncode == 130
    assert time.monotonic() - began < 8, "it waited for the grace of the stage"


def test_a_reader_that_leaves_ends_the_study_gracefully() -> None:
    write(SLEEPY.replace("0.2", "1"))
    told = f"{STOKER} run | head -1 > first; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", told], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "130\n"
    until(lambda: kinds()["claim"] == kinds()["released"] + kinds()["finished"])
    assert kinds()["finished"] < 8


def test_pulling_the_plug_twenty_times() -> None:
    """kill -9 of `stoker run` at random moments: in the end all is done, and nothing finished ran again."""
    write(SLEEPY.replace("[1, 2, 3, 4, 5, 6, 7, 8]", f"[{', '.join(map(str, range(1, 61)))}]"))
    chance = random.Random(4)
    for kill in range(20):
        running, before = background("run"), len(traced("begun"))
        if kill % 2:  # else it may not have come to anything yet
            _wait_for_progress(running, before)
        time.sleep(chance.uniform(0.05, 0.6))
        running.kill()
        running.communicate()
    found = kinds()["result"]
    last = stoker("run")
    assert last.returncode == 0, last.stdout
    assert f"{found} of 60 trials are finished already" in last.stderr
    ended = Counter(traced("ended"))
    assert set(ended) == set(map(str, range(1, 61)))
    _check_nothing_began_after_its_result()


def _wait_for_progress(running: subprocess.Popen[str], before: int) -> None:
    until(lambda: len(traced("begun")) > before or running.poll() is not None)


def _check_nothing_began_after_its_result() -> None:
    root = Path("output/.stoker")
    done: dict[int, int] = {}
    claims: list[tuple[int, int]] = []
    for path in (root / "trials").rglob("*.*"):
        mark = parse_key(str(path.relative_to(root)))
        if mark is not None and mark.kind == "result":
            done[mark.trial.number] = path.stat().st_mtime_ns
        elif mark is not None and mark.kind == "claim":
            claims.append((mark.trial.number, path.stat().st_mtime_ns))
    assert all(time <= done[number] for number, time in claims)


def test_two_people_run_it_at_once_and_both_see_all_of_it() -> None:
    write(SLEEPY)
    both = [background("run") for _ in range(2)]
    told = [running.communicate(timeout=60)[0] for running in both]
    assert [running.returncode for running in both] == [0, 0]
    assert traced("begun") == traced("ended") == list("12345678")
    for said in told:
        assert "8 of 8 finished" in said
    assert sum(said.count("START") for said in told) == 8


def test_detached_it_goes_on_alone() -> None:
    write(SLEEPY)
    done = stoker("run", "--detach")
    assert done.returncode == 0
    assert "stoker status" in done.stdout
    until(lambda: kinds()["result"] == 8)
    beats = [json.loads(path.read_text()) for path in Path("output/.stoker/beats").iterdir()]
    until(lambda: not any(Path(f"/proc/{beat['pid']}").exists() for beat in beats))
