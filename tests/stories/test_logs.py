"""A person reads what trials say."""

from __future__ import annotations

import os
import pty
import subprocess
from pathlib import Path

from tests.stories.command import STOKER, stoker
from tests.stories.studies import Here, make, refusal, running


def test_the_last_log(study: Path, here: Here) -> None:
    shown = stoker("logs", "3")
    assert (shown.returncode, shown.stdout) == (0, "tested 3\n")
    assert shown.stderr.startswith("output/N_3/log.test.")
    assert here("logs", "N_3", "--stage", "train").stdout == "epoch 1 acc 0.3\n"
    assert here("logs", "2").stdout == "epoch 1 acc 0.2\n"


def test_so_many_lines(workplace: Path, here: Here) -> None:
    make("template: 'for i in $(seq 30000); do echo line $i; done; printf unfinished'\n")
    lines = [f"line {number}" for number in range(1, 30001)] + ["unfinished"]
    shown = here("logs", "1")
    assert shown.stdout == "\n".join(lines[-1000:])
    assert "the last 1,000 lines; --all shows everything" in shown.stderr
    assert here("logs", "1", "-n", "20000").stdout == "\n".join(lines[-20000:])
    assert here("logs", "1", "-n", "0").stdout == ""
    everything = here("logs", "1", "--all")
    assert everything.stdout == "\n".join(lines)
    assert "last" not in everything.stderr


def test_logs_of_attempts(workplace: Path, here: Here) -> None:
    command = "echo attempt {_attempt}; sleep 1.1; [ {_attempt} = 2 ]"  # names of logs have seconds
    make(f"template: '{command}'\nretry: 1\n")
    assert here("logs", "1").stdout == "attempt 2\n"
    assert here("logs", "1", "--attempt", "1").stdout == "attempt 1\n"
    assert here("logs", "1", "--attempt", "2").stdout == "attempt 2\n"
    refused = here("logs", "1", "--attempt", "3")
    assert (refused.returncode, refused.stderr) == (2, "stoker: --attempt 3: there were 2 attempts so far\n")


def test_logs_without_directories(workplace: Path, here: Here) -> None:
    make("template: echo {n}\n---\nn: [1, 11]\n", "--no-subdir")
    assert here("logs", "1").stdout == "1\n"
    assert here("logs", "N_11").stdout == "11\n"


def test_following_a_trial_to_its_end(workplace: Path) -> None:
    text = """\
template:
  train: 'echo begun {n}; touch {_output}/begun; while [ ! -e go ]; do sleep 0.05; done; echo over {n}'
  test: 'echo tested {n}; [ {n} = 1 ]'
resource: [0]
---
n: [1, 2]
"""
    with running(text):
        first, second = (
            subprocess.Popen(
                [STOKER, "logs", "-f", trial], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for trial in ("N_1", "N_2")
        )
        assert first.stdout is not None
        assert first.stdout.readline() == "begun 1\n"
        assert second.stderr is not None
        assert second.stderr.readline() == "waiting for it to start\n"
        Path("go").touch()
        told, said = first.communicate(timeout=30)
        assert (told, first.returncode) == ("over 1\ntested 1\n", 0)
        assert said.splitlines()[-1] == "N_1: finished"
        told, said = second.communicate(timeout=30)
        assert (told, second.returncode) == ("begun 2\nover 2\ntested 2\n", 1)
        assert said.splitlines()[-1] == "N_2: failed, test: exit code 1"


def test_a_terminal_is_safe_and_a_pipe_exact(workplace: Path, here: Here) -> None:
    make(r"template: printf '10%%\r20%%\rdone\n\033]0;title\a\033[31mred\033[0m \033[2J\bend\n'" + "\n")
    assert here("logs", "1").stdout.encode().endswith(b"\x1b[2J\x08end\n")
    ours, theirs = pty.openpty()
    subprocess.run([STOKER, "logs", "1"], stdout=theirs, stderr=subprocess.DEVNULL, check=True)
    os.close(theirs)
    assert os.read(ours, 4096) == "done\r\nred ·end\r\n".encode()
    os.close(ours)


def test_what_cannot_be_meant(study: Path, here: Here) -> None:
    for words, told in {
        (): "which trial? give its number or name",
        ("N_*",): "'N_*' means 3 trials, and a log is of one: N_1, N_2 or N_3",
        ("1", "--stage", "tset"): "the trial has no stage 'tset'; did you mean 'test'?",
        ("1", "-n", "5", "--all"): "-n and --all contradict each other",
        ("1", "-n", "-5"): "expected",
        ("1", "-f", "--attempt", "1"): "-f follows a trial through its attempts",
    }.items():
        assert told in refusal(here, "logs", *words)
    missing = here("logs", "2", "--stage", "test")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "N_2 has no such log yet: it is failed" in missing.stderr


def test_in_a_bucket(bucket: str, workplace: Path, here: Here) -> None:
    shown = here("logs", "-o", bucket, "3")
    assert (shown.returncode, shown.stdout) == (0, "tested 3\n")
    assert f"{bucket}: N_3/log.test." in shown.stderr
    assert here("logs", "-o", bucket, "1", "--attempt", "1", "-s", "train").stdout == "epoch 1 acc 0.1\n"
    followed = here("logs", "-o", bucket, "2", "-f")
    assert (followed.returncode, followed.stdout) == (1, "epoch 1 acc 0.2\n")
    assert "N_2: failed, train: exit code 1" in followed.stderr
