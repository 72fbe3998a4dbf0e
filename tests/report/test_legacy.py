"""Directories that have trials but no records: `param`, `stat`, progress and logs are enough for tables."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

import stoker
from stoker.cli import main
from stoker.report import legacy
from stoker.report.export import to_mlflow
from stoker.report.table import make
from tests.report.test_page import check
from tests.report.test_rows import Fact, Try, write_progress
from tests.store.needs import need

STUDY = """\
template: {train: 'true', test: 'true'}
metrics: {bleu: 'BLEU = (\\S+)'}
objective: {metric: bleu, goal: max}
---
norm: [new]
"""


def trial(name: str, param: str, stat: str, **logs: str) -> Path:
    directory = Path("output", name)
    directory.mkdir(parents=True)
    (directory / "param").write_text(param, encoding="utf-8")
    if stat:
        (directory / "stat").write_text(stat, encoding="utf-8")
    for log, said in logs.items():
        stage, time = log.split("_")
        (directory / f"log.{stage}.20220316.{time}").write_text(said, encoding="utf-8")
    return directory


@pytest.fixture
def output(workplace: Path) -> Path:
    """As other tools leave it, with a few things that are no trials."""
    trial(
        "Norm_new-Moment_10",
        "norm: new\nmoment: 10\nlr: 1e-3\n_name: x\n_scripts: {train: a, test: b}\n",
        "train: finished\ntest: finished\n",
        train_030151="loss 3\n",
        test_030151="BLEU = 11.0\n",
        test_040000="BLEU = 12.5\n",
    )
    trial(
        "Norm_new-Moment_9",
        "norm: new\nmoment: 9\nlayers: [1, 2]\nempty:\n",
        "train: finished\ntest: failed\n",
        test_030151="BLEU = 40\n",
    )
    trial("Norm_batch", "norm: batch\n", "train: running\n")
    trial("Torn", "norm: [\n", "")
    Path("output/notes.txt").write_text("hello", encoding="utf-8")
    Path("output/plots").mkdir()
    Path("params.yaml").write_text(STUDY, encoding="utf-8")
    return Path("output")


def test_rows(output: Path) -> None:
    made = {row.name: row for row in legacy.Unrecorded(str(output), "params.yaml").rows()}
    assert list(made) == ["Norm_batch", "Norm_new-Moment_9", "Norm_new-Moment_10", "Torn"]
    assert [row.status for row in made.values()] == ["running", "failed", "finished", "waiting"]
    assert made["Norm_new-Moment_10"].params == {"norm": "new", "moment": 10, "lr": 0.001}
    assert made["Norm_new-Moment_9"].params == {"norm": "new", "moment": 9, "layers": "[1, 2]"}
    assert {name: row.metrics["bleu"].last for name, row in made.items() if row.metrics} == {
        "Norm_new-Moment_9": 40.0,
        "Norm_new-Moment_10": 12.5,
    }
    assert made["Norm_new-Moment_10"].attempts == 2


@pytest.mark.parametrize(
    ("stat", "scripts", "status"),
    [
        ({}, None, "waiting"),
        ({"train": "finished"}, None, "finished"),
        ({"train": "finished"}, {"train": "", "test": ""}, "waiting"),
        ({"train": "finished", "test": "failed"}, None, "failed"),
        ({"train": "success"}, {"train": ""}, "finished"),
        ({"train": 0}, None, "finished"),
        ({"train": 1}, None, "failed"),
        ({"train": True}, None, "finished"),
        ({"train": "released"}, None, "released"),
        ({"train": {"odd": 1}}, None, "failed"),
    ],
)
def test_what_stat_says(stat: dict[str, object], scripts: object, status: str) -> None:
    assert legacy.status(stat, scripts) == status


def test_progress_of_managers_counts(output: Path) -> None:
    fact = Fact("finished", (Try(1.0, {"acc": [0.1, 0.2, 0.3]}), Try(0.4, {"acc": [0.9]})))
    write_progress(output / "Norm_batch", fact)
    made = make(legacy.Unrecorded(str(output)).rows(), None, ["name", "acc", "acc.max"], where="acc>0")
    assert made.rows == [("Norm_batch", 0.9, 0.9)]
    assert stoker.open(output).progress()["value"].tolist() == [0.1, 0.9]


def test_the_command(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "--file", "params.yaml", "--format", "json", "--columns", "name,bleu,moment"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["bleu"] for row in told] == [40.0, 12.5, None, None]
    assert main(["table", "output", "--group", "norm"]) == 0
    assert capsys.readouterr().out.splitlines() == ["norm  count", "new       1"]
    assert main(["table", "--file", "nowhere.yaml"]) == 2
    assert "there is no file nowhere.yaml" in capsys.readouterr().err


def test_from_python(output: Path) -> None:
    study = stoker.open("output", file="params.yaml")
    assert study.table("name", where="status=finished")["name"].tolist() == ["Norm_new-Moment_10"]
    assert study.group("norm")["bleu.mean"].tolist() == [12.5]
    assert (study.name, study.refresh()) == (Path.cwd().name, study)
    assert "without records" in repr(study)
    with pytest.raises(stoker.StokerError, match="output has no records of a study"):
        _ = study.counts


def test_a_study_with_records_is_not_taken_for_one_without(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("params.yaml").write_text("template: 'true'\nresource: ['']\n---\na: [1]\n", encoding="utf-8")
    stoker.run()
    assert not legacy.is_legacy("output")
    assert main(["table", "--file", "params.yaml"]) == 2
    assert "leave out --file" in capsys.readouterr().err
    shutil.rmtree("output/.stoker")
    assert legacy.is_legacy("output")
    assert stoker.open("output").table()["status"].tolist() == ["finished"]
    assert main(["table", "elsewhere"]) == 2
    assert "there is no study in elsewhere" in capsys.readouterr().err


# Everything else that looks at results


def test_failures_are_told_by_what_stat_and_logs_say(
    output: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial("Killed_1", "norm: odd\n", "train: -9\n", train_030151="step 1\n")
    trial("Killed_2", "norm: odd\n", "train: 137\n")
    trial("Code", "norm: odd\n", "train: 3\n", train_030151="no data in /tmp/7\n")
    trial("Late", "norm: odd\n", "train: timeout\n")
    assert main(["errors"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("2 × train: killed by SIGKILL, perhaps for want of memory\n  trials   2, 3\n")
    assert "  common   norm = odd\n" in told
    for line in ("train: exit code 3: no data in /tmp/7", "train: timeout", "test: failed: BLEU = 40"):
        assert f"1 × {line}\n" in told
    assert [cause.count for cause in stoker.open(output).errors()] == [2, 1, 1, 1]


def test_reports_and_figures(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trial("Norm_old", "norm: old\n", "train: finished\n", test_030151="BLEU = 1\nBLEU = 9\n")
    assert main(["analyze", "--file", "params.yaml"]) == 0
    told = capsys.readouterr().out
    assert "all trials       5         2       1       12.5      10.75\n" in told
    assert "3 Norm_new-Moment_10\n  bleu  12.5\n" in told
    body = Path("report.html").read_text(encoding="utf-8")
    check(body)
    assert "of 5 trials finished" in body
    assert 'id="parameters"' in body
    assert 'href="#slots"' not in body, "nothing tells of slots"
    assert "norm: [new]" in body
    assert main(["report", "-o", "plain.html"]) == 0
    body = Path("plain.html").read_text(encoding="utf-8")
    assert 'id="study"' not in body
    assert "<dt>commit</dt>" not in body, "nothing tells where commands ran"
    assert main(["plot", "parameters", "--file", "params.yaml"]) == 0
    assert main(["plot", "slots"]) == 1
    assert "nothing to draw. No trial has run in a slot." in capsys.readouterr().err
    study = stoker.open(output, file="params.yaml")
    assert study.figure("parameters").layout.title.text == "bleu against each parameter"
    assert "2 finished" in study._repr_html_()
    assert "3 Norm_new-Moment_10, bleu 12.5" in study._repr_html_()


def test_numbers_of_metrics_in_logs(output: Path) -> None:
    trial("Norm_old", "norm: old\n", "train: finished\n", test_030151="BLEU = 7\nBLEU = 2\nBLEU = 5\n")
    found = stoker.open(output, file="params.yaml").table(
        "bleu", "bleu.last", "bleu.min", "bleu.max", "bleu.best", where="norm=old"
    )
    assert found.iloc[0].tolist() == [5.0, 5.0, 2.0, 7.0, 7.0]


def test_exports(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fact = Fact("finished", (Try(1.0, {"acc": [0.1, 0.2]}),))
    write_progress(output / "Norm_batch", fact)
    assert main(["export", "csv", "out", "--file", "params.yaml"]) == 0
    assert capsys.readouterr().out == "4 trials and 2 values in out\n"
    trials = Path("out/trials.csv").read_text(encoding="utf-8").splitlines()
    assert trials[0].startswith("trial,name,norm,moment,")
    assert sorted(line.split(",")[1] for line in trials[1:])[0] == "Norm_batch"
    need("tensorboardX")
    assert main(["tensorboard", "--write"]) == 0
    assert capsys.readouterr().out == "3 trials in output/.tensorboard\n"  # one was not begun
    assert (output / ".tensorboard/Norm_new-Moment_10").is_dir()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own
def test_mlflow_knows_trials_by_their_names(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("mlflow", "alembic")
    origin = legacy.Unrecorded(str(output.absolute()), "params.yaml")
    monkeypatch.chdir(tmp_path)  # it cannot work where there are quotes in the name of the directory
    assert to_mlflow(origin, "runs.db") == "3 runs written to runs.db, 0 were there before"
    new = origin.about.where + "/A_first"
    Path(new).mkdir()
    Path(new, "param").write_text("a: 1\n", encoding="utf-8")
    Path(new, "stat").write_text("train: finished\n", encoding="utf-8")
    again = to_mlflow(origin, "runs.db")
    assert again == "2 runs written to runs.db, 3 were there before", "the new one, and that which runs"


@pytest.mark.parametrize(
    "words",
    [["report"], ["analyze"], ["errors"], ["tensorboard"], ["plot", "best"], ["export", "csv", "out"]],
)
def test_a_directory_without_trials_is_refused(
    workplace: Path, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    Path("output/plots").mkdir(parents=True)
    assert main(words) == 2
    assert capsys.readouterr().err == "stoker: there is no study in output; `stoker run` makes one\n"


def test_aliases_without_end_are_not_followed(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    many += "".join(
        f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    trial("Bomb", many, "")
    trial("Long", f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 1000)}]\n", "")
    trial("Round", "a: &a [*a]\n", "")
    trial("Key", "? &a [x]\n: 1\nb: *a\n", "")
    trial("Plain", "a: &a [1]\nb: *a\n", "")
    origin = legacy.Unrecorded("output")
    made = {row.name: row.params for row in origin.rows()}
    assert made == {
        "Bomb": {},
        "Long": {},
        "Round": {},
        "Key": {"b": '["x"]'},
        "Plain": {"a": "[1]", "b": "[1]"},
    }
    list(origin.rows())
    told = capsys.readouterr().err
    assert told == "stoker: what `param` says cannot be read, and is left out: Bomb, Long and Round\n"


def test_an_empty_param_is_nothing_to_complain_of(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trial("Empty", "", "")
    assert [row.params for row in legacy.Unrecorded("output").rows()] == [{}]
    assert capsys.readouterr().err == ""


def test_pipes_are_not_waited_for(output: Path) -> None:
    for name in ("log.test.20230316.030151", "log.other.20230316.030151", "progress.test.1-2.jsonl"):
        os.mkfifo(output / "Norm_new-Moment_10" / name)
    write_progress(output / "Norm_new-Moment_10", Fact("finished", (Try(1.0, {"loss": [1.0]}),)))
    (output / "Norm_new-Moment_10/progress.test.1-1.jsonl").touch()
    os.mkfifo(output / "Norm_batch" / "progress.train.1-1.jsonl")
    (output / "Norm_batch/stat").unlink()
    os.mkfifo(output / "Norm_batch" / "stat")
    origin = legacy.Unrecorded(str(output), "params.yaml")
    made = {row.name: row for row in origin.rows()}
    assert {name: one.last for name, one in made["Norm_new-Moment_10"].metrics.items()} == {
        "bleu": 12.5,
        "loss": 1.0,
    }
    assert made["Norm_batch"].status == "waiting"
    assert {*origin.logs(made["Norm_new-Moment_10"])} == {"train", "test"}
    assert [*origin.series(made["Norm_new-Moment_10"])] == ["train"]


def test_a_directory_that_nobody_may_read_is_skipped(output: Path) -> None:
    trial("Secret", "a: 1\n", "").chmod(0)
    Path().chmod(0o755)
    was = os.geteuid()
    if was == 0:
        os.seteuid(65534)
    try:
        names = [row.name for row in legacy.Unrecorded(str(output)).rows()]
    finally:
        os.seteuid(was)
        (output / "Secret").chmod(0o755)
    assert names == ["Norm_batch", "Norm_new-Moment_9", "Norm_new-Moment_10", "Torn"]


def test_names_that_are_no_text(output: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("pandas", "pyarrow")
    from pandas import read_parquet

    os.rename(os.fsencode(output / "Norm_batch"), os.fsencode(output) + b"/Norm_\xff")  # noqa: PTH104
    write_progress(output / os.fsdecode(b"Norm_\xff"), Fact("finished", (Try(1.0, {"loss": [1.0]}),)))
    assert main(["table", str(output), "--format", "parquet", "--to", "t.parquet"]) == 0
    assert "Norm_\ufffd" in list(read_parquet("t.parquet")["name"])
    study = stoker.open(str(output))
    assert "Norm_\ufffd" in list(study.table()["name"])
    assert "Norm_\ufffd" in list(study.progress()["name"])
    assert main(["report", str(output), "-o", "r.html"]) == 0
    capsys.readouterr()
