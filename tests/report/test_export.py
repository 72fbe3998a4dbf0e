"""A study for other tools, read back by their own readers."""

from __future__ import annotations

import csv
import struct
import sys
from collections.abc import Iterator
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest

from stoker.cli import main
from stoker.core.errors import StokerError
from stoker.report import export
from stoker.report.recorded import Recorded
from tests.report.test_rows import Fact, Try, Written, study
from tests.store.needs import need

FACTS = [
    Fact(
        "finished",
        (Try(1.0, {"loss": [4.0, 3.0]}), Try(0.5, {"loss": [2.0, 1.0], "a <b>": [nan]})),
        {"bleu": 7.0},
        {"seconds": 2.0, "began": 1_800_000_000.0, "slot": "gpu 0"},
    ),
    Fact("failed", (Try(1.0, {"loss": [5.0]}),), {}, {"seconds": 1.0}),
    Fact("running", (Try(1.0, {"loss": [6.0]}),)),
    Fact("waiting", (Try(1.0, {}),)),
]


@pytest.fixture
def written(workplace: Path) -> Iterator[Written]:
    with study([{"lr": [0.1, 0.2], "größe": ["a\tb\n", 3]}], FACTS, ("loss", "min")) as found:
        yield found


def test_csv(written: Written) -> None:
    assert export.to_csv(Recorded(written.opened), "out") == "4 trials and 6 values in out"
    with Path("out/trials.csv").open(encoding="utf-8", newline="") as file:
        trials = list(csv.DictReader(file))
    assert [(row["trial"], row["status"], row["loss"]) for row in trials] == [
        ("1", "finished", "1.0"), ("2", "failed", "5.0"), ("3", "running", "6.0"), ("4", "waiting", ""),
    ]  # fmt: skip
    assert trials[0]["größe"] == "a\tb\n"
    with Path("out/progress.csv").open(encoding="utf-8", newline="") as file:
        points = list(csv.DictReader(file, quoting=csv.QUOTE_NONNUMERIC))
    assert [(p["step"], p["value"]) for p in points if (p["trial"], p["series"]) == ("1", "loss")] == [
        (0.0, 4.0), (1.0, 2.0), (2.0, 1.0),
    ]  # fmt: skip


def test_parquet(written: Written) -> None:
    need("pyarrow")
    import pandas

    assert export.to_parquet(Recorded(written.opened), "out") == "4 trials and 6 values in out"
    trials = pandas.read_parquet("out/trials.parquet")
    assert trials["größe"].tolist() == ["a\tb\n", "3", "a\tb\n", "3"]  # mixed, so all are texts
    assert trials["lr"].tolist() == [0.1, 0.1, 0.2, 0.2]
    points = pandas.read_parquet("out/progress.parquet")
    assert points[points["series"] == "loss"]["value"].tolist() == [4.0, 2.0, 1.0, 5.0, 6.0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own
def test_mlflow(written: Written, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("mlflow", "alembic")
    import mlflow

    monkeypatch.chdir(tmp_path)  # it cannot work where there are quotes in the name of the directory
    assert (
        export.to_mlflow(Recorded(written.opened), "runs.db")
        == "3 runs written to runs.db, 0 were there before"
    )
    again = export.to_mlflow(Recorded(written.opened), "runs.db")
    assert again == "1 run written to runs.db, 3 were there before"  # that which runs
    client = mlflow.MlflowClient(tracking_uri="sqlite:///runs.db")
    experiment = client.get_experiment_by_name(written.opened.name)
    assert experiment is not None
    runs = {run.data.tags["stoker.trial"]: run for run in client.search_runs([experiment.experiment_id])}
    assert {trial: run.info.status for trial, run in runs.items()} == {
        "1.1": "FINISHED", "1.2": "FAILED", "1.3": "RUNNING",
    }  # fmt: skip
    assert runs["1.1"].data.params == {"lr": "0.1", "größe": "a\tb\n"}
    assert runs["1.1"].data.metrics["bleu"] == 7.0
    assert isnan(runs["1.1"].data.metrics["a _b_"])
    history = client.get_metric_history(runs["1.1"].info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(0, 4.0), (1, 2.0), (2, 1.0)]
    assert runs["1.1"].info.end_time - runs["1.1"].info.start_time == 2000


def test_wandb(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    need("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert export.to_wandb(Recorded(written.opened), "project") == "3 runs written to the project project"
    assert len(list(Path("wandb").glob("offline-run-*/run-*.wandb"))) == 3


def test_tensorboard(written: Written) -> None:
    need("tensorboardX")
    assert export.to_tensorboard(Recorded(written.opened), "events") == 3
    assert export.to_tensorboard(Recorded(written.opened), "events") == 3
    names = [written.opened.trial(trial).name for trial in written.opened.find(["1", "2", "3"])]
    assert sorted(path.name for path in Path("events").iterdir()) == sorted(names)
    scalars, hparams = read_events(Path("events", names[0]))
    assert scalars["loss"] == [(0, 4.0), (1, 2.0), (2, 1.0)]
    assert scalars["trial/loss"] == [(0, 1.0)]
    assert {"lr", "größe", "status"} == hparams


def read_events(directory: Path) -> tuple[dict[str, list[tuple[int, float]]], set[str]]:
    """Records as TensorBoard frames them: length, checksum, an event, checksum."""
    from tensorboardX.proto.event_pb2 import Event  # type: ignore[import-untyped]  # generated
    from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData  # type: ignore[import-untyped]  # generated

    (path,) = directory.iterdir()
    data, scalars, hparams = path.read_bytes(), dict[str, Any](), set[str]()
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        data = data[16 + length :]
        for value in event.summary.value:
            if value.tag == "_hparams_/session_start_info":
                told = HParamsPluginData.FromString(value.metadata.plugin_data.content)
                hparams |= set(told.session_start_info.hparams)
            elif not value.tag.startswith("_"):
                scalars.setdefault(value.tag, []).append((event.step, value.simple_value))
    return scalars, hparams


# The commands


def test_the_commands(written: Written, capsys: pytest.CaptureFixture[str]) -> None:
    output = str(written.opened.place.output)
    assert main(["export", "csv", "out", "-o", output]) == 0
    assert capsys.readouterr().out == "4 trials and 6 values in out\n"
    assert main(["export", "excel", "out", "-o", output]) == 2
    assert "invalid choice: 'excel'" in capsys.readouterr().err
    Path("file").touch()
    assert main(["export", "csv", "file", "-o", output]) == 1
    assert "cannot write into file: File exists" in capsys.readouterr().err
    need("tensorboardX")
    assert main(["tensorboard", output, "--write"]) == 0
    assert capsys.readouterr().out == f"3 trials in {output}/.tensorboard\n"
    assert main(["table", output, "--format", "tsv", "--columns", "trial"]) == 0  # which is no trial


@pytest.mark.parametrize("kind", ["mlflow", "wandb"])
def test_what_is_not_installed_is_said(written: Written, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, kind, None)  # Python's own way to say that there is none
    with pytest.raises(StokerError, match=f"needs {kind}: pip install {kind}"):
        export.KINDS[kind](Recorded(written.opened), "x")


def test_series_of_two_stages_with_the_same_name_are_told_apart() -> None:
    from stoker.manager.progress import Series
    from stoker.report.origin import Part
    from stoker.report.rows import Row
    from stoker.store.records import TrialId

    row = Row(TrialId(1, 1), "x", "", {}, "finished", {})
    parts = [
        Part("1", "x", stage, name, Series()) for stage, name in (("a", "loss"), ("b", "loss"), ("b", "acc"))
    ]
    assert [title for title, _ in export.Exported(row, parts).titled()] == ["a/loss", "b/loss", "acc"]
