"""A hundred failures are read as three."""

from __future__ import annotations

from pathlib import Path

import pytest

from stoker.cli.store_options import open_at
from stoker.report.errors import Others, clean, errors, failure_of, group, in_common, told, usual
from stoker.report.recorded import Recorded
from tests.report.made import failed, row
from tests.stories.command import stoker

TEXT = """\
template: 'python train.py [n] [lr]'
resource: [0, 1]
default: {lr: 0.1}
---
n: [1, 2, 3, 4, 5, 6, 7, 8]
---
n: [11, 12]
lr: 50
"""
SCRIPT = """\
import os, sys
n, lr = int(sys.argv[2]), float(sys.argv[4])

def check(n):
    raise ValueError(f"{n} at {hex(id(n))} is bad: /tmp/{n}/x")

print("\\x1b[31mbegin\\x1b[0m", n)
if n in (2, 3):
    check(n)
if n in (4, 5):
    os.kill(os.getpid(), 9)
if n == 6:
    sys.exit("RuntimeError: CUDA out of memory. Tried to allocate 3 GiB")
if lr > 10:
    sys.exit(f"loss {n}.5 is too high")
"""

TRACEBACK = """\
Traceback (most recent call last):
  File "/home/me/{run}/train.py", line {line}, in main
    step()
  File "/home/me/{run}/model.py", line 7, in step
    x = torch.mm(a, b)
  File "/venv/lib/python3.11/site-packages/torch/functional.py", line 3, in mm
    raise
{name}: {message}
"""


def test_a_person_sees_each_cause_once(workplace: Path) -> None:
    Path("params.yaml").write_text(TEXT, encoding="utf-8")
    Path("train.py").write_text(SCRIPT, encoding="utf-8")
    assert stoker("run").returncode == 1
    origin = Recorded(open_at("output"))
    found = errors(origin, list(origin.rows()))
    assert sorted((one.count, one.title.split(" ")[1]) for one in found) == [
        (1, "out"), (2, "ValueError:"), (2, "exit"), (2, "killed")
    ]  # fmt: skip
    by = {one.title.split(" ")[1]: one for one in found}
    assert by["ValueError:"].title.endswith("in train.py check")
    assert by["ValueError:"].example.lines[-1].startswith("ValueError: ")
    assert "begin 2" in by["ValueError:"].example.lines
    assert by["exit"].common == ("n ≥ 11", "lr = 50")
    assert by["out"].title == "train: out of GPU memory"

    shown = stoker("errors", "--limit", "2").stdout
    assert shown.count("2 × ") == 2
    assert "… and 2 other causes of 3 failures" in shown
    assert "\x1b" not in shown
    assert stoker("errors", "--limit", "0").returncode == 2


def test_nothing_failed(workplace: Path) -> None:
    assert told([]) == "No trial failed.\n"


def cause(said: str, number: int = 1, **figures: object) -> tuple[str, ...]:
    stages = {"train": {**failed()["train"], **figures}}
    return failure_of(row(number, {}, stages=stages), clean(said)).cause.key


def test_tracebacks_are_told_apart_by_type_and_place_in_the_users_code() -> None:
    def said(run: str = "a", line: int = 1, name: str = "ValueError", message: str = "5") -> tuple[str, ...]:
        return cause(TRACEBACK.format(run=run, line=line, name=name, message=message))

    assert said() == said(run="b", line=9, message="7 is 0xff")
    assert said() != said(name="KeyError")
    assert said() == said(name="pkg.errors.ValueError")
    assert said() != cause(
        TRACEBACK.replace("in step", "in other").format(run=1, line=1, name="ValueError", message=5)
    )
    assert said()[1:] == ("ValueError", "train.py:main", "model.py:step")


def test_the_last_of_chained_tracebacks_counts() -> None:
    first = TRACEBACK.format(run="a", line=1, name="KeyError", message="'x'")
    second = TRACEBACK.format(run="a", line=1, name="TypeError", message="no")
    middle = "\nDuring handling of the above exception, another exception occurred:\n\n"
    assert cause(f"{first}{middle}{second}")[1] == "TypeError"


@pytest.mark.parametrize(
    ("said", "figures", "title"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried", {}, "train: out of GPU memory"),
        ("numpy._core._exceptions._ArrayMemoryError\nMemoryError", {}, "train: out of memory"),
        ("", {"code": 137}, "train: killed by SIGKILL, perhaps for want of memory"),
        ("", {"code": None, "signal": 11}, "train: killed by SIGSEGV"),
        ("any", {"why": "timeout", "code": None, "signal": 15}, "train: timeout"),
        ("nope?", {"code": 127}, "train: exit code 127, there is no such command: nope?"),
        ("", {"code": 3}, "train: exit code 3"),
        ("", {"error": "no \x1b[2Jpython"}, "train: no ·[2Jpython"),
    ],
)  # fmt: skip
def test_causes_have_words(said: str, figures: dict[str, object], title: str) -> None:
    stages = {"train": {**failed()["train"], **figures}}
    assert failure_of(row(1, {}, stages=stages), clean(said)).cause.title == title


def test_a_trial_whose_machines_were_lost() -> None:
    found = failure_of(row(1, {}, stages={}, why="lost"), [])
    assert (found.stage, found.cause.title) == ("", "lost 3 times in a row, each time with its agent")
    assert failure_of(row(1, {}, stages={}), []).cause.title == "no reason known"


def test_lines_that_differ_in_numbers_addresses_and_folders_are_alike() -> None:
    assert usual("at 0x7f3a: /tmp/a/1/x.py 3.5e-7") == usual("at 0x11: /home/b/x.py -2")
    assert usual("no such key: a") != usual("no such key: b")


def test_logs_do_nothing_to_a_terminal() -> None:
    assert clean("\x1b[31mred\x1b[0m\x1b]0;title\x07 \x1b[2J\x00end\n50%\r100%\n\n") == ["red ·end", "100%"]
    assert clean(" \n") == []


def test_what_failures_have_in_common_and_others_have_not() -> None:
    fine = [row(n, {"lr": 0.1 * n, "norm": "batch", "seed": n}, 0.5) for n in range(1, 9)]
    bad = [row(20 + n, {"lr": 5.0 + n, "norm": "new", "seed": n}) for n in range(1, 4)]
    assert in_common(bad, Others(fine)) == ["lr ≥ 6", "norm = new"]
    assert in_common(bad[:1], Others(fine)) == ["lr = 6.0", "norm = new"]
    assert in_common([row(9, {"lr": 0.15, "norm": "batch", "seed": 1})], Others(fine)) == []
    assert in_common(bad, Others([])) == []


def test_the_most_frequent_cause_comes_first() -> None:
    rows = [row(n, {}, stages=failed(code)) for n, code in enumerate([3, 4, 4, 5, 4, 5], 1)]
    found = group([failure_of(one, []) for one in rows], rows)
    assert [(one.count, one.title) for one in found] == [
        (3, "train: exit code 4"), (2, "train: exit code 5"), (1, "train: exit code 3")
    ]  # fmt: skip
