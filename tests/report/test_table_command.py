"""`stoker table` as a person meets it: forms, refusals, and a terminal that is too narrow."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.cli import main
from tests.report.test_examine import _read
from tests.report.test_rows import Fact, Try, study
from tests.stories.command import STOKER

FACTS = [
    Fact("finished", (Try(1.0, {"loss": [4.0, 1.0]}),), {"speed": 7.0}, {"seconds": 2.0}),
    Fact("finished", (Try(1.0, {"loss": [5.0, 3.0]}),), {"speed": 8.0}, {"seconds": 1.0}),
    Fact("failed", (Try(1.0, {"loss": [9.0]}),), {}, {"seconds": 1.0}),
]


@pytest.fixture
def output(workplace: Path) -> Iterator[str]:
    with study([{"lr": [0.1, 0.2, 0.3]}], FACTS, ("loss", "min")) as found:
        yield str(found.opened.place.output)


def test_the_best_come_first(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", output]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "trial  name     lr  loss  speed  status    seconds",
        "1      Lr_0.1  0.1     1      7  finished        2",
        "2      Lr_0.2  0.2     3      8  finished        1",
        "3      Lr_0.3  0.3     9      –  failed          1",
    ]
    assert main(["table", "-o", output, "--sort", "loss.max", "--reverse", "--columns", "lr,loss.max"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "0.3         9"


def test_forms(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["table", output, "--where", "status=finished", "--columns", "lr,loss"]
    expected = {
        "csv": "lr,loss\n0.1,1.0\n0.2,3.0\n",
        "tsv": "lr\tloss\n0.1\t1.0\n0.2\t3.0\n",
        "markdown": "| lr | loss |\n| ---: | ---: |\n| 0.1 | 1 |\n| 0.2 | 3 |\n",
    }
    for form, told in expected.items():
        assert main([*words, "--format", form]) == 0
        assert capsys.readouterr().out == told
        assert main([*words, "--format", form, "--to", "out"]) == 0
        assert Path("out").read_text(encoding="utf-8") == told
    assert main([*words, "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"lr": 0.1, "loss": 1.0}, {"lr": 0.2, "loss": 3.0}]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--columns", "los"], "there is no column 'los'; did you mean 'loss'?"),
        (["--sort", "nothing-like-it"], "there is no column 'nothing-like-it'; see --columns all"),
        (["--group", "x"], "there is no column 'x'"),
        (["--where", "lr"], "'lr' is no condition"),
        (["--group", "lr", "--sort", "lr"], "leave out --sort and --columns"),
        (["--reverse"], "--reverse needs --sort"),
        (["--format", "parquet"], "say where: --to results.parquet"),
        (["--format", "excel"], "invalid choice: 'excel'"),
    ],
)
def test_what_cannot_be_meant(
    output: str, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["table", output, *words]) == 2
    shown = capsys.readouterr()
    assert (shown.out, told in shown.err) == ("", True)


def test_a_place_that_cannot_be_written(output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", output, "--to", "nowhere/out"]) == 1
    assert "cannot write nowhere/out: No such file or directory" in capsys.readouterr().err


def test_a_narrow_terminal(output: str) -> None:
    main_end, other = pty.openpty()
    environment = {**os.environ, "COLUMNS": "40", "TERM": "xterm"}
    subprocess.run([STOKER, "table", output], stdout=other, stderr=other, check=True, env=environment)
    os.close(other)
    shown = b""
    while piece := _read(main_end):
        shown += piece
    os.close(main_end)
    lines = shown.decode().splitlines()
    assert lines[0] == "trial  name     lr  loss  status"
    assert lines[-1] == "2 more columns, for which there is no room: speed, seconds"
