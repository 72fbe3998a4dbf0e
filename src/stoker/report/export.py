"""A study for other tools: files that all of them read, MLflow, Weights & Biases, TensorBoard.

Each tool is imported when it is asked for. What cannot be told there is left out, and names that it refuses
are changed as little as possible.
"""

from __future__ import annotations

import csv
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice
from math import isfinite
from pathlib import Path
from typing import Any

from stoker.core.errors import StokerError
from stoker.core.values import Value, digest, text
from stoker.report import table
from stoker.report.charts import many
from stoker.report.formats import as_csv
from stoker.report.origin import PARTS, Origin, Part, parts
from stoker.report.rows import Row, main_number


@dataclass(frozen=True)
class Exported:
    """A trial with all that is known of it."""

    row: Row
    parts: Sequence[Part]

    @property
    def numbers(self) -> dict[str, float]:
        """The last value of each metric."""
        return {name: numbers.last for name, numbers in self.row.metrics.items()}

    @property
    def began(self) -> float | None:
        """When it began, or recorded its first value, if either is known."""
        first = min((part.values.seconds[0] for part in self.parts), default=0.0)
        return self.row.began if self.row.began is not None else first or None

    def titled(self) -> Iterator[tuple[str, Part]]:
        """Series with names of their own: where two stages have the same, the stage is part of it."""
        counts = Counter(part.series for part in self.parts)
        for part in self.parts:
            yield (part.series if counts[part.series] == 1 else f"{part.stage}/{part.series}"), part


def trials(origin: Origin) -> Iterator[Exported]:
    """All trials that have begun, one after the other; their series are read as they come."""
    begun = list(origin.rows(with_waiting=False))
    return map(Exported, begun, parts(origin, begun))


# Files


def to_csv(origin: Origin, dest: str) -> str:
    """`trials.csv` and `progress.csv`, in a directory."""
    directory, count = _directory(dest), 0
    found = list(origin.rows())
    made = table.make(found, origin.about.objective, ["all"])
    (directory / "trials.csv").write_text(as_csv(made), encoding="utf-8", errors="replace")
    with (directory / "progress.csv").open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(PARTS)
        for part in chain.from_iterable(parts(origin, [row for row in found if row.status != "waiting"])):
            points = zip(part.values.steps, part.values.values, part.values.seconds, strict=True)
            writer.writerows((*part[:4], *point) for point in points)
            count += len(part.values.values)
    return f"{many(len(made.rows), 'trial')} and {many(count, 'value')} in {dest}"


def to_parquet(origin: Origin, dest: str) -> str:
    """`trials.parquet` and `progress.parquet`, in a directory."""
    from stoker.report import frames

    _need("pyarrow", "writing parquet")
    directory = _directory(dest)
    made = frames.one_kind(table.make(origin.rows(), origin.about.objective, ["all"]))
    made.to_parquet(directory / "trials.parquet")
    progress = frames.progress(origin)
    progress.to_parquet(directory / "progress.parquet")
    return f"{many(len(made), 'trial')} and {many(len(progress), 'value')} in {dest}"


def _directory(dest: str) -> Path:
    path = Path(dest)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StokerError(f"cannot write into {dest}: {error.strerror}") from None
    return path


# MLflow

_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
_CHANGING = "not done"
_BATCH = 1000  # metrics that MLflow takes at a time; of parameters and tags, a tenth
_LONGEST = 6000  # characters of a parameter


def to_mlflow(origin: Origin, dest: str) -> str:
    """A run for each trial, in an experiment with the study's name: at a tracking URL, or in a SQLite file.

    Done trials that are there stay as they are; others are written anew.
    """
    client = _need("mlflow", "exporting to MLflow").MlflowClient(
        tracking_uri=dest if "://" in dest else f"sqlite:///{Path(dest).absolute()}"
    )
    found = client.get_experiment_by_name(origin.about.name)
    experiment = found.experiment_id if found is not None else client.create_experiment(origin.about.name)
    there = {run.data.tags.get("stoker.name"): run for run in _runs(client, experiment)}
    count = 0
    for trial in trials(origin):
        known = there.get(trial.row.name)
        if known is not None:
            if known.data.tags.get("stoker.state") == _version(trial.row) != _CHANGING:
                continue
            client.delete_run(known.info.run_id)
        _write_run(client, experiment, trial)
        count += 1
    return f"{many(count, 'run')} written to {dest}, {len(there):,} were there before"


def _runs(client: Any, experiment: str) -> Iterator[Any]:
    token = None
    while True:
        page = client.search_runs([experiment], max_results=_BATCH, page_token=token)
        yield from page
        if not (token := page.token):
            return


def _version(row: Row) -> str:
    """What a trial was when it was exported."""
    return f"{row.status} {row.attempts} {row.began}" if row.status in _STATUS else _CHANGING


def _write_run(client: Any, experiment: str, trial: Exported) -> None:
    entities = import_module("mlflow.entities")
    row = trial.row
    began = int((trial.began or time.time()) * 1000)
    tags = {
        "mlflow.runName": row.name,
        "stoker.name": row.name,  # whatever the run is called there later
        "stoker.trial": str(row.trial),
        "stoker.state": _version(row),
        "stoker.status": row.status,
        "stoker.sweep": row.title,
        "stoker.agent": row.agent,
    }
    run = client.create_run(experiment, start_time=began, tags=tags, run_name=row.name)
    params = [entities.Param(_key(n), text(v)[:_LONGEST]) for n, v in row.params.items()]
    for some in _batches(params, _BATCH // 10):
        client.log_batch(run.info.run_id, params=some)
    points = (entities.Metric(_key(name), *point) for name, *point in _points(trial, began))
    for some in _batches(points, _BATCH):
        client.log_batch(run.info.run_id, metrics=some)
    if row.status in _STATUS:
        end = began + int((row.seconds or 0.0) * 1000)
        client.set_terminated(run.info.run_id, _STATUS[row.status], end)


def _points(trial: Exported, began: int) -> Iterator[tuple[str, float, int, int]]:
    """Name, value, milliseconds and step: of series, and of metrics that are none."""
    titles = set()
    for title, part in trial.titled():
        titles.add(part.series)
        for value, second, step in zip(
            part.values.values, part.values.seconds, part.values.steps, strict=True
        ):
            yield title, value, int(second * 1000), int(step)
    for name, value in trial.numbers.items():
        if name not in titles:
            yield name, value, began, 0


def _batches(found: Any, size: int) -> Iterator[list[Any]]:
    all_ = iter(found)
    while some := list(islice(all_, size)):
        yield some


def _key(name: str) -> str:
    """Of letters, digits and a few signs, as MLflow wants it."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250] or "_"


# Weights & Biases


def to_wandb(origin: Origin, dest: str) -> str:
    """A run for each trial, in a project. Where to, and whether offline, is wandb's own setting."""
    wandb = _need("wandb", "exporting to Weights & Biases")
    count = 0
    for trial in trials(origin):
        row = trial.row
        run = wandb.init(
            project=dest,
            name=row.name,
            id=f"{digest({'study': origin.about.name, 'trial': row.name})}-{row.attempts}",
            config=_plain(row.params),
            group=row.title or None,
            tags=[row.status],
            resume="allow",
            reinit="finish_previous",
            settings=wandb.Settings(silent=True, console="off"),
        )
        for step, told in sorted(_by_step(trial).items()):
            run.log(told, step=step)
        run.summary.update(trial.numbers)
        run.finish(exit_code=int(row.status == "failed"))
        count += 1
    return f"{many(count, 'run')} written to the project {dest}"


def _by_step(trial: Exported) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for title, part in trial.titled():
        for step, value in zip(part.values.steps, part.values.values, strict=True):
            found.setdefault(int(step), {})[title] = value
    return found


def _plain(params: Mapping[str, Value]) -> dict[str, Value]:
    return {name: float(value) if isinstance(value, float) else value for name, value in params.items()}


# TensorBoard


def to_tensorboard(origin: Origin, dest: str) -> int:
    """Event files, a directory for each trial with its name; returns how many. What was there is replaced.

    Parameters and the metrics that they led to are on the page HPARAMS.
    """
    writer, hparams = _tensorboard()
    directory, count = _directory(dest), 0
    for trial in trials(origin):
        place = directory / trial.row.name
        shutil.rmtree(place, ignore_errors=True)
        with writer(str(place)) as out:
            for title, part in trial.titled():
                for step, value, second in zip(
                    part.values.steps, part.values.values, part.values.seconds, strict=True
                ):
                    out.add_scalar(title, value, int(step), walltime=second)
            values = {
                name: main_number(numbers, name, origin.about.objective)
                for name, numbers in trial.row.metrics.items()
            }
            for summary in hparams(_hparams(trial.row), {f"trial/{n}": v for n, v in values.items()}):
                out.file_writer.add_summary(summary)
            for name, value in values.items():
                out.add_scalar(f"trial/{name}", value)
        count += 1
    return count


def _hparams(row: Row) -> dict[str, Any]:
    """TensorBoard shows infinite numbers only as texts."""
    plain = {**_plain(row.params), "status": row.status}
    return {n: v if not isinstance(v, float) or isfinite(v) else text(v) for n, v in plain.items()}


def _tensorboard() -> tuple[Callable[[str], Any], Callable[..., Any]]:
    """What writes event files, of whichever package is installed."""
    for module in ("tensorboardX", "torch.utils.tensorboard"):
        try:
            return import_module(module).SummaryWriter, import_module(f"{module}.summary").hparams
        except ImportError:
            continue
    raise StokerError("writing event files needs tensorboardX: pip install tensorboardX tensorboard")


def _need(module: str, what: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise StokerError(f"{what} needs {module}: pip install {module}") from None


KINDS: dict[str, Callable[[Origin, str], str]] = {
    "csv": to_csv,
    "parquet": to_parquet,
    "mlflow": to_mlflow,
    "wandb": to_wandb,
}
