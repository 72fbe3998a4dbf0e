"""Exports do not harm what is there, lose nothing, and tell what other tools complain about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stoker.cli import main
from stoker.core.errors import StokerError
from stoker.manager.progress import Series
from stoker.report import export
from stoker.report.origin import About, Stages
from stoker.report.rows import Row, numbers_of
from tests.report import made
from tests.report.test_export import read_events
from tests.report.test_rows import Fact, Try, Written, study
from tests.store.needs import need

Thing = TypeVar("Thing")
Found = TypeVar("Found")
Points = Sequence[tuple[float, float]]  # step and value
BAD = "a\udcffb"
own_warnings = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Plain:
    """Trials that never ran, each with the same series."""

    is_slow = False

    def __init__(
        self,
        series: Mapping[str, Points],
        where: str = "/a/output",
        names: Sequence[str] = ("A",),
        **params: Any,
    ) -> None:
        self.about = About("digits", where)
        self.found: dict[str, Series] = {}
        for title, points in series.items():
            self.found[title] = one = Series()
            steps, values = [step for step, _ in points], [value for _, value in points]
            one.extend({"values": values, "steps": steps, "times": [1e9 + n for n in range(len(values))]})
        metrics = {title: numbers_of(one.values) for title, one in self.found.items()}
        self.all = [made.row(n, params, 1.0, name=name, metrics=metrics) for n, name in enumerate(names, 1)]

    def rows(self, with_waiting: bool = True) -> Iterator[Row]:
        return iter(self.all)

    def sweep(self, row: Row) -> str:
        return ""

    def series(self, row: Row) -> Stages:
        return {"train": self.found}

    def logs(self, row: Row) -> Mapping[str, Callable[[int], str]]:
        return {}

    def each(self, read: Callable[[Thing], Found], things: Iterable[Thing]) -> Iterator[Found]:
        return map(read, things)


# TensorBoard


@pytest.fixture
def written(workplace: Path) -> Iterator[Written]:
    with study([{"lr": [0.1, 0.2]}], [Fact("finished", (Try(1.0, {"loss": [4.0]}),))]) as found:
        yield found


def test_event_files_are_not_written_among_trials(
    written: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    need("tensorboardX")
    output = written.opened.place.output
    assert output is not None
    name = written.opened.trial(written.opened.find(["1"])[0]).name
    before = sorted(output.rglob("*"))
    Path("link").symlink_to(output)
    Path("other/Trial").mkdir(parents=True)
    Path("other/Trial/param").touch()
    Path("study/.stoker").mkdir(parents=True)
    there = [".", "..", name, ".stoker", f"{name}/new"]
    for dest in [*(str(output / one) for one in there), "link", "other", "study"]:
        assert main(["tensorboard", str(output), "--to", dest, "--write"]) == 2
        assert "name another directory" in capsys.readouterr().err
    assert sorted(output.rglob("*")) == before


def test_only_event_files_are_replaced(written: Written) -> None:
    need("tensorboardX")
    output = str(written.opened.place.output)
    name = written.opened.trial(written.opened.find(["1"])[0]).name
    kept = Path("events", name, "mine.txt")
    kept.parent.mkdir(parents=True)
    kept.touch()
    for _ in range(2):
        assert main(["tensorboard", output, "--to", "events", "--write"]) == 0
        assert kept.exists()
        assert len(list(kept.parent.glob("events.out.tfevents.*"))) == 1
    for dest in (f"{output}/.tensorboard", f"{output}/.tensorboard/deep"):
        assert main(["tensorboard", output, "--to", dest, "--write"]) == 0


def test_tensorboard_gets_what_it_can_hold(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    need("tensorboardX")
    series: dict[str, Points] = {
        "acc@1": [(0, 1)],
        "acc#1": [(0, 2)],
        "huge": [(1e20, 3), (2e20, 4)],
        BAD: [(0.5, 5)],
    }
    assert export.to_tensorboard(Plain(series, large=10**30, text=BAD), "events") == 1
    told = capsys.readouterr().err
    assert (told.count("\n"), "in 2 series" in told) == (1, True)
    scalars, hparams = read_events(Path("events/A"))
    assert scalars["acc_1"] == [(0, 1.0)]
    assert scalars["acc_1_2"] == [(0, 2.0)]
    assert scalars["huge"] == [(0, 3.0), (1, 4.0)]
    assert scalars["trial/acc_1_2"] == [(0, 2.0)]
    assert hparams == {"large", "text", "status"}


def test_distinct() -> None:
    names = ["a@1", "a#1", "a_1", "a_1_2"]
    assert export.distinct(names, export._key) == {
        "a_1": "a_1", "a_1_2": "a_1_2", "a@1": "a_1_3", "a#1": "a_1_4",
    }  # fmt: skip
    long = export.distinct(["x" * 300, "x" * 301, ""], export._key)
    assert len({*long.values()}) == 3
    assert max(map(len, long.values())) == 250


# MLflow


def runs(place: str = "runs.db") -> list[Any]:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{Path(place).absolute()}")
    experiment = client.get_experiment_by_name("digits")
    assert experiment is not None
    return list(client.search_runs([experiment.experiment_id]))


@own_warnings
def test_two_outputs_of_one_study_stay_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("mlflow", "alembic")
    monkeypatch.chdir(tmp_path)
    series = {"loss": [(0, 1.0)]}
    for where in ("/a/output", "/b/output", "gs://b/output", "/a/output"):
        export.to_mlflow(Plain(series, where, ["A", "B"]), "runs.db")
    found = [(run.data.tags["stoker.place"], run.data.tags["stoker.name"]) for run in runs()]
    places = ("/a/output", "/b/output", "gs://b/output")
    assert sorted(found) == [(place, name) for place in places for name in ("A", "B")]


@own_warnings
def test_mlflow_gets_what_it_can_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("mlflow", "alembic")
    monkeypatch.chdir(tmp_path)
    series: dict[str, Points] = {
        "acc@1": [(0, 1)],
        "acc#1": [(0, 2)],
        "part": [(0.25, 1), (0.5, 2), (0.75, 0)],
        "fall": [(5, 9), (6, 8), (1, 7)],
        "huge": [(1e20, 3), (2e20, 4)],
        BAD: [(3, 5)],
    }
    origin = Plain(series, f"/{BAD}", [BAD], **{"p@": 1, "p#": 2, "text": BAD, "large": 10**30})
    for told in ("1 run written to runs.db, 0 were", "0 runs written to runs.db, 1 were"):
        assert export.to_mlflow(origin, "runs.db").startswith(told)
    assert "in 3 series" in capsys.readouterr().err
    (run,) = runs()
    assert run.data.metrics == {
        "acc_1": 1, "acc_1_2": 2, "part": 0, "fall": 7, "huge": 4, "a_b": 5,
    }  # fmt: skip
    assert run.data.params == {"p_": "1", "p__2": "2", "text": r"a\udcffb", "large": str(10**30)}


@own_warnings
def test_an_interrupted_export_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("mlflow", "alembic")
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    origin = Plain({"loss": [(0, 1.0)]})

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "set_terminated", interrupt)
        with pytest.raises(KeyboardInterrupt):
            export.to_mlflow(origin, "runs.db")
    assert export.to_mlflow(origin, "runs.db") == "1 run written to runs.db, 1 were there before"
    (run,) = runs()
    assert (run.info.status, run.data.metrics) == ("FINISHED", {"loss": 1.0})
    assert export.to_mlflow(origin, "runs.db") == "0 runs written to runs.db, 1 were there before"


@own_warnings
def test_what_mlflow_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("mlflow", "alembic")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    Path("text").write_text("This is no database at all.\n", encoding="utf-8")
    Path("directory").mkdir()
    origin = Plain({"loss": [(0, 1.0)]})
    for dest, said in {
        "text": "text is no SQLite database",
        "directory": "Is a directory",
        f"sqlite:///{tmp_path}/directory": "Is a directory",
        "nowhere/runs.db": "there is no directory nowhere",
        "http://127.0.0.1:9": "MLflow: .*127.0.0.1",
        "what://x": "MLflow: ",
    }.items():
        with pytest.raises(StokerError, match=said) as found:
            export.to_mlflow(origin, dest)
        assert "\n" not in str(found.value)


# Weights & Biases


class Run:
    """What is told to wandb."""

    def __init__(self) -> None:
        self.rows: list[tuple[int | None, dict[str, float]]] = []
        self.defined: dict[str, str] = {}
        self.summary: dict[str, float] = {}

    def log(self, told: dict[str, float], step: int | None = None) -> None:
        self.rows.append((step, told))

    def define_metric(self, name: str, step_metric: str) -> None:
        self.defined[name] = step_metric


def told_wandb(series: Mapping[str, Points]) -> Run:
    run = Run()
    for trial in export.trials(Plain(series)):
        export._log(run, trial)
    return run


def test_whole_steps_are_those_of_wandb() -> None:
    run = told_wandb({"loss": [(0, 1.0), (10, 2.0)], "acc": [(10, 3.0)]})
    assert run.rows == [(0, {"loss": 1.0}), (10, {"loss": 2.0, "acc": 3.0})]
    assert (run.defined, run.summary) == ({}, {"loss": 2.0, "acc": 3.0})


@pytest.mark.parametrize("steps", [(0.25, 0.5), (5, 1), (1e20, 2e20), (-2, -1), (1, 1)])
def test_other_steps_are_values(steps: tuple[float, float]) -> None:
    run = told_wandb({"loss": [(steps[0], 1.0), (steps[1], 2.0)], "step": [(steps[0], 3.0)]})
    assert run.rows == [
        (None, {"loss": 1.0, "step": 3.0, "step_": steps[0]}),
        (None, {"loss": 2.0, "step_": steps[1]}),
    ]
    assert run.defined == {"loss": "step_", "step": "step_"}


def test_wandb_itself_takes_it(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("wandb")
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    ids, init = set(), wandb.init

    def asked(**options: Any) -> Any:
        ids.add(options["id"])
        return init(**options)

    monkeypatch.setattr(wandb, "init", asked)
    series: dict[str, Points] = {"loss": [(0.5, 1.0), (0.25, 2.0)], BAD: [(1e20, 3.0)]}
    for where in ("/a/output", "/b/output"):
        export.to_wandb(Plain(series, where, [BAD], large=10**30, text=BAD), "project")
    assert len(ids) == 2


def test_what_wandb_refuses_is_told(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    with pytest.raises(StokerError, match=r"^Weights & Biases: ") as found:
        export.to_wandb(Plain({"loss": [(0, 1.0)]}), "a/b:c")
    assert "\n" not in str(found.value)


# Parquet


def test_names_that_are_no_text_in_parquet(workplace: Path) -> None:
    need("pyarrow")
    import pandas

    export.to_parquet(Plain({BAD: [(0, 1.0)]}, names=[BAD], text=BAD), "out")
    trials = pandas.read_parquet("out/trials.parquet")
    assert (trials["name"][0], trials["text"][0]) == (r"a\udcffb", r"a\udcffb")
    assert pandas.read_parquet("out/progress.parquet")["series"].tolist() == [r"a\udcffb"]
