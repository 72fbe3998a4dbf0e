"""People's own parsers: as they know them, in parallel, and none of them stops the others."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import stoker
from stoker import Examiner, latest_log
from stoker.report.examine import MANY, SHOWN, Experiment

NORMS = ("new", "batch", "power")


@pytest.fixture
def output(workplace: Path) -> Path:
    for number, norm in enumerate(NORMS, 1):
        directory = Path("output", f"Norm_{norm}")
        directory.mkdir(parents=True)
        param = f"norm: {norm}\nlr: 1e-3\nearly-stop: false\n_name: Norm_{norm}\n_scripts: {{test: a}}\n"
        (directory / "param").write_text(param, encoding="utf-8")
        for time, bleu in (("20220316.030151", 1.0), ("20220317.000000", 10.0 + number)):
            (directory / f"log.test.{time}").write_text(f"BLEU {bleu}\n", encoding="utf-8")
        (directory / "log.test.long.20230101.000000").write_text("another stage", encoding="utf-8")
    Path("output/plots").mkdir()
    return Path("output")


def add_bleu(path: Path, experiment: Experiment, caches: dict[Any, Any]) -> None:
    log = latest_log("test", path)
    if log is not None:
        experiment.metric["bleu"] = float(log.read_text(encoding="utf-8").split()[1])


def test_a_parser_as_people_write_it(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    examiner = Examiner()
    examiner.add(add_bleu)
    examiner.exam(output="output", regex=".*")
    table = examiner.table(print_tsv=True)
    assert table.to_dict("list") == {"norm": ["batch", "new", "power"], "bleu": [12.0, 11.0, 13.0]}
    assert capsys.readouterr().out == "norm\tbleu\nbatch\t12.0\nnew\t11.0\npower\t13.0\n"
    assert list(examiner.table(concise=False).columns) == ["norm", "lr", "early-stop", "bleu"]
    assert examiner.experiments["Norm_new"].param["lr"] == 0.001
    assert type(examiner.experiments["Norm_new"].param["lr"]) is float
    assert examiner.experiments["Norm_new"].param["_scripts"] == {"test": "a"}


def test_the_names_are_where_people_look_for_them() -> None:
    assert stoker.examine.Examiner is Examiner
    assert stoker.examine.latest_log is latest_log


def test_logs_by_their_index(output: Path) -> None:
    path = output / "Norm_new"
    assert latest_log("test", path) == path / "log.test.20220317.000000"
    assert latest_log("test", str(path), index=0) == path / "log.test.20220316.030151"
    assert latest_log("test", path, -2) == path / "log.test.20220316.030151"
    assert latest_log("test", path, 2) is latest_log("test", path, -3) is latest_log("train", path) is None


def test_what_is_examined(output: Path) -> None:
    seen = []
    examiner = Examiner()
    examiner.add(lambda path, experiment, caches: seen.append(path.name))
    examiner.exam(output, "new|power")
    assert sorted(seen) == ["Norm_new", "Norm_power"]
    examiner.exam(output, "batch", workers=0)
    assert seen[2:] == ["Norm_batch"]
    assert list(examiner.experiments) == ["Norm_new", "Norm_power", "Norm_batch"]


def test_parsers_run_at_the_same_time(output: Path) -> None:
    meeting = Barrier(len(NORMS), timeout=20)
    examiner = Examiner()
    examiner.add(lambda path, experiment, caches: meeting.wait())
    examiner.exam(workers=len(NORMS))
    assert examiner.errors == []


def test_parsers_share_what_they_keep(output: Path) -> None:
    examiner = Examiner()

    @examiner.add
    def first(path: Path, experiment: Experiment, caches: dict[Any, Any]) -> None:
        experiment.cache["length"] = len(path.name)
        caches.setdefault("names", []).append(path.name)

    @examiner.add
    def second(path: Path, experiment: Experiment, caches: dict[Any, Any]) -> None:
        experiment.metric["length"] = experiment.cache["length"]

    examiner.add(first)
    examiner.exam()
    assert examiner.table()["length"].tolist() == [10, 8, 10]
    assert sorted(examiner.caches["names"]) == sorted(examiner.experiments)


def test_one_that_raises_is_told_with_its_trial_and_stops_nothing(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(path: Path, experiment: Experiment, caches: dict[Any, Any]) -> None:
        if path.name == "Norm_new":
            raise ValueError("no \x1b[31mBLEU")
        if path.name == "Norm_power":
            sys.exit(3)

    examiner = Examiner()
    examiner.add(breaks)
    examiner.add(add_bleu)
    examiner.exam()
    assert examiner.table()["bleu"].tolist() == [12.0, 11.0, 13.0]
    assert [(failure.trial, failure.parser) for failure in examiner.errors] == [
        ("Norm_new", "breaks"),
        ("Norm_power", "breaks"),
    ]
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("stoker: Norm_new: breaks: ValueError: no ·[31mBLEU (test_examine.py:")
    assert told[1].startswith("stoker: Norm_power: breaks: SystemExit: 3")
    examiner.exam(regex="batch")
    assert examiner.errors == []


def test_many_errors_are_not_all_told(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(SHOWN + 2):
        Path("output", str(number)).mkdir(parents=True)
        Path("output", str(number), "param").write_text("a: 1\n", encoding="utf-8")
    examiner = Examiner()
    examiner.add(lambda path, experiment, caches: experiment.metric["x"])
    examiner.exam()
    told = capsys.readouterr().err.splitlines()
    assert len(examiner.errors) == SHOWN + 2
    assert [line.split(": ")[1] for line in told[:-1]] == [str(number) for number in range(SHOWN)]
    assert told[-1] == "stoker: and 2 more: see `errors`"


def test_odd_values_and_names_that_clash(output: Path) -> None:
    examiner = Examiner()

    @examiner.add
    def odd(path: Path, experiment: Experiment, caches: dict[Any, Any]) -> None:
        experiment.metric["norm"] = {"a": 1}
        if path.name == "Norm_new":
            experiment.param["only"] = 1

    examiner.exam()
    table = examiner.table(print_tsv=True)
    assert list(table.columns) == ["norm", "only", "metric.norm"]
    assert table["metric.norm"].tolist() == [{"a": 1}] * 3


def test_what_cannot_be_examined(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(stoker.StokerError, match="there is no directory output"):
        Examiner().exam()
    with pytest.raises(stoker.StokerError, match="stoker pull"):
        Examiner().exam("gs://bucket/study")
    Path("output").mkdir()
    Examiner().exam(regex="x")
    assert capsys.readouterr().err == "stoker: no trial in output is named like 'x'\n"
    assert Examiner().table().empty


def test_many_are_shown_as_a_bar_in_a_terminal(workplace: Path) -> None:
    for number in range(MANY):
        Path("output", str(number)).mkdir(parents=True)
        Path("output", str(number), "param").write_text("a: 1\n", encoding="utf-8")
    main, other = pty.openpty()
    told = "import stoker; e = stoker.Examiner(); e.add(lambda *a: None); e.exam()"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "60"}
    subprocess.run([sys.executable, "-c", told], check=True, stderr=other, env=environment)
    os.close(other)
    shown = b""
    while piece := _read(main):
        shown += piece
    os.close(main)
    assert f"{MANY}/{MANY} trials" in re.sub(r"\x1b\[[\d;?]*\w", "", shown.decode())


def _read(file: int) -> bytes:
    try:
        return os.read(file, 1 << 16)
    except OSError:  # the other end is closed
        return b""
