"""A study for other tools: files that all of them read, MLflow, Weights & Biases, TensorBoard.

Each tool is imported when it is asked for. What cannot be told there is left out, and names that it refuses
are changed as little as possible.
"""

from __future__ import annotations

import csv
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import chain, islice, pairwise
from math import isfinite
from pathlib import Path
from typing import Any

from stoker.core.errors import StokerError, UsageError
from stoker.core.values import Value, digest, text
from stoker.report import table
from stoker.report.charts import many
from stoker.report.formats import as_csv
from stoker.report.origin import PARTS, Origin, Part, parts
from stoker.report.rows import Row, main_number
from stoker.spec.problems import printable
from stoker.study.place import RECORDS


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


def steps(part: Part) -> Sequence[int] | None:
    """The steps of a series, if they are whole numbers in order, as other tools want them."""
    found = part.values.steps
    is_whole = all(step.is_integer() and abs(step) < _FIRST_INEXACT for step in found)
    return [int(step) for step in found] if is_whole and all(a < b for a, b in pairwise(found)) else None


_FIRST_INEXACT = 2**53  # of the whole numbers that a float can have


def distinct(names: Iterable[str], change: Callable[[str], str], most: int = 250) -> dict[str, str]:
    """What each name becomes by a change; `_2` and so on are added where two become the same."""
    names = list(dict.fromkeys(names))
    found = {name: name for name in names if change(name)[:most] == name}
    taken = set(found)
    for name in names:
        if name not in found:
            made, count = change(name)[:most] or "_", 1
            while (new := made if count == 1 else f"{made[: most - 8]}_{count}") in taken:
                count += 1
            found[name] = new
            taken.add(new)
    return found


def utf8(word: str) -> str:
    """Bytes of a name that are no text become their codes."""
    return word.encode(errors="backslashreplace").decode()


def _place(origin: Origin) -> str:
    """Where the study is: two with the same name are told apart by it."""
    where = origin.about.where
    return utf8(where if "://" in where else os.path.realpath(where))


def _tell_counted(count: int) -> None:
    if count:
        sys.stderr.write(
            f"stoker: steps that are no whole numbers in order, in {count:,} series: "
            "their values are counted instead\n"
        )


_BUGS = (StokerError, TypeError, AttributeError, LookupError, AssertionError, NameError)


@contextmanager
def _asked(tool: str) -> Iterator[None]:
    """What a tool complains about, in one line."""
    try:
        yield
    except _BUGS:
        raise
    except Exception as error:
        said = " ".join(str(error).partition("\n[SQL:")[0].split())
        raise StokerError(printable(f"{tool}: {said[:500] or type(error).__name__}")) from error


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
    made = frames.one_kind(_in_utf8(table.make(origin.rows(), origin.about.objective, ["all"])))
    made.to_parquet(directory / "trials.parquet")
    found = chain.from_iterable(parts(origin, list(origin.rows(with_waiting=False))))
    with table.uncollected():
        progress = frames.long([_part_in_utf8(part) for part in found])
    progress.to_parquet(directory / "progress.parquet")
    return f"{many(len(made), 'trial')} and {many(len(progress), 'value')} in {dest}"


def _in_utf8(found: table.Table) -> table.Table:
    columns = distinct(found.columns, utf8, sys.maxsize)
    rows = [tuple(utf8(cell) if isinstance(cell, str) else cell for cell in row) for row in found.rows]
    return table.Table(tuple(columns[name] for name in found.columns), rows)


def _part_in_utf8(part: Part) -> Part:
    return part._replace(name=utf8(part.name), stage=utf8(part.stage), series=utf8(part.series))


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
    mlflow = _need("mlflow", "exporting to MLflow")
    if "://" not in dest or dest.startswith("sqlite:///"):
        _check_database(dest.removeprefix("sqlite:///").partition("?")[0])
    with _asked("MLflow"):
        client = mlflow.MlflowClient(
            tracking_uri=dest if "://" in dest else f"sqlite:///{Path(dest).absolute()}"
        )
        name, place = utf8(origin.about.name), _place(origin)
        found = client.get_experiment_by_name(name)
        experiment = found.experiment_id if found is not None else client.create_experiment(name)
        there = {
            run.data.tags.get("stoker.name"): run
            for run in _runs(client, experiment)
            if run.data.tags.get("stoker.place") == place
        }
        count = counted = 0
        for trial in trials(origin):
            known = there.get(utf8(trial.row.name))
            if known is not None:
                if known.data.tags.get("stoker.state") == _version(trial.row) != _CHANGING:
                    continue
                client.delete_run(known.info.run_id)
            counted += _write_run(client, experiment, place, trial)
            count += 1
    _tell_counted(counted)
    return f"{many(count, 'run')} written to {dest}, {len(there):,} were there before"


def _check_database(dest: str) -> None:
    """MLflow itself would try for minutes, and then say less."""
    path = Path(dest)
    try:
        with path.open("rb") as file:
            begin = file.read(16)
    except FileNotFoundError:
        begin = b""
    except OSError as error:
        raise StokerError(f"cannot write into {dest}: {error.strerror}") from None
    if begin and begin != b"SQLite format 3\0":
        raise StokerError(f"{dest} is no SQLite database: name another file, or a tracking URL")
    if not path.absolute().parent.is_dir():
        raise StokerError(f"there is no directory {path.parent}")


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


def _write_run(client: Any, experiment: str, place: str, trial: Exported) -> int:
    """The state is written last, so that a run that is not complete is known as such.

    Returns how many series have their values counted.
    """
    entities = import_module("mlflow.entities")
    row = trial.row
    began = int((trial.began or time.time()) * 1000)
    tags = {
        "mlflow.runName": row.name,
        "stoker.name": row.name,  # whatever the run is called there later
        "stoker.place": place,
        "stoker.trial": str(row.trial),
        "stoker.status": row.status,
        "stoker.sweep": row.title,
        "stoker.agent": row.agent,
    }
    plain = {name: utf8(value) for name, value in tags.items()}
    run = client.create_run(experiment, start_time=began, tags=plain, run_name=utf8(row.name))
    keys = distinct(row.params, _key)
    params = [entities.Param(keys[n], utf8(text(v))[:_LONGEST]) for n, v in row.params.items()]
    for some in _batches(params, _BATCH // 10):
        client.log_batch(run.info.run_id, params=some)
    names = distinct([*(title for title, _ in trial.titled()), *trial.numbers], _key)
    points = (entities.Metric(names[name], *point) for name, *point in _points(trial, began))
    for some in _batches(points, _BATCH):
        client.log_batch(run.info.run_id, metrics=some)
    if row.status in _STATUS:
        end = began + int((row.seconds or 0.0) * 1000)
        client.set_terminated(run.info.run_id, _STATUS[row.status], end)
    client.set_tag(run.info.run_id, "stoker.state", _version(row))
    return sum(steps(part) is None for part in trial.parts)


def _points(trial: Exported, began: int) -> Iterator[tuple[str, float, int, int]]:
    """Name, value, milliseconds and step: of series, and of metrics that are none."""
    series = set()
    for title, part in trial.titled():
        series.add(part.series)
        values, seconds = part.values.values, part.values.seconds
        at = steps(part) or range(len(values))
        for value, second, step in zip(values, seconds, at, strict=True):
            yield title, value, int(second * 1000), step
    for name, value in trial.numbers.items():
        if name not in series and (number := _number(value)) is not None:
            yield name, number, began, 0


def _number(value: float) -> float | None:
    """A whole number may be beyond the largest float."""
    try:
        return float(value)
    except OverflowError:
        return None


def _batches(found: Any, size: int) -> Iterator[list[Any]]:
    all_ = iter(found)
    while some := list(islice(all_, size)):
        yield some


def _key(name: str) -> str:
    """Of letters, digits and a few signs, as MLflow wants it."""
    return re.sub(r"[^\w\-. :/]", "_", name)


# Weights & Biases


def to_wandb(origin: Origin, dest: str) -> str:
    """A run for each trial, in a project. Where to, and whether offline, is wandb's own setting."""
    wandb = _need("wandb", "exporting to Weights & Biases")
    count, study = 0, {"study": utf8(origin.about.name), "place": _place(origin)}
    with _asked("Weights & Biases"):
        for trial in trials(origin):
            row, name = trial.row, utf8(trial.row.name)
            run = wandb.init(
                project=dest,
                name=name,
                id=f"{digest({**study, 'trial': name})}-{row.attempts}",
                config=_plain(row.params),
                group=utf8(row.title) or None,
                tags=[row.status],
                resume="allow",
                reinit="finish_previous",
                settings=wandb.Settings(silent=True, console="off"),
            )
            _log(run, trial)
            run.finish(exit_code=int(row.status == "failed"))
            count += 1
    return f"{many(count, 'run')} written to the project {dest}"


def _log(run: Any, trial: Exported) -> None:
    """Steps that are no whole numbers in order are told as values, and rows are counted."""
    names = distinct([*(title for title, _ in trial.titled()), *trial.numbers], utf8, sys.maxsize)
    found = list(trial.titled())
    if all((at := steps(part)) is not None and at[0] >= 0 for _, part in found):
        for whole, told in sorted(_by_step(found, names).items()):
            run.log(told, step=whole)
    else:
        step_name = "step"
        while step_name in names.values():
            step_name += "_"
        for title, _ in found:
            run.define_metric(names[title], step_metric=step_name)
        for step, told in _in_order(found, names):
            run.log({**told, step_name: step})
    run.summary.update({names[name]: value for name, value in trial.numbers.items()})


def _by_step(found: Sequence[tuple[str, Part]], names: Mapping[str, str]) -> dict[int, dict[str, float]]:
    made: dict[int, dict[str, float]] = {}
    for title, part in found:
        for step, value in zip(part.values.steps, part.values.values, strict=True):
            made.setdefault(int(step), {})[names[title]] = value
    return made


def _in_order(
    found: Sequence[tuple[str, Part]], names: Mapping[str, str]
) -> Iterator[tuple[float, dict[str, float]]]:
    """Values by the time when they were recorded; those of one step that come together are one row."""
    points = [
        (second, step, names[title], value)
        for title, part in found
        for second, step, value in zip(
            part.values.seconds, part.values.steps, part.values.values, strict=True
        )
    ]
    last, told = 0.0, dict[str, float]()
    for _, step, name, value in sorted(points, key=lambda point: point[0]):
        if told and (step != last or name in told):
            yield last, told
            told = {}
        last = step
        told[name] = value
    if told:
        yield last, told


def _plain(params: Mapping[str, Value]) -> dict[str, Value]:
    """Numbers that remember their spelling become plain ones, and all texts such as others can read."""
    names = distinct(params, utf8, sys.maxsize)
    return {names[name]: _plain_value(value) for name, value in params.items()}


def _plain_value(value: Value) -> Value:
    if isinstance(value, str):
        return utf8(value)
    if isinstance(value, int) and abs(value) >= 2**63:
        return str(value)
    return float(value) if isinstance(value, float) else value


# TensorBoard


def to_tensorboard(origin: Origin, dest: str) -> int:
    """Event files, a directory for each trial with its name; returns how many. Event files that were there
    are replaced.

    Parameters and the metrics that they led to are on the page HPARAMS.
    """
    writer, hparams = _tensorboard()
    _check_apart(origin, dest)
    directory, count, counted = _directory(dest), 0, 0
    for trial in trials(origin):
        place = directory / trial.row.name
        for old in place.glob("events.out.tfevents.*"):
            old.unlink()
        numbers = {
            name: value
            for name, told in trial.row.metrics.items()
            if (value := _number(main_number(told, name, origin.about.objective))) is not None
        }
        tags = distinct([*(title for title, _ in trial.titled()), *(f"trial/{n}" for n in numbers)], _tag)
        values = {tags[f"trial/{name}"]: value for name, value in numbers.items()}
        with writer(str(place)) as out:
            for title, part in trial.titled():
                at = steps(part) or range(len(part.values.values))
                for step, value, second in zip(at, part.values.values, part.values.seconds, strict=True):
                    out.add_scalar(tags[title], value, step, walltime=second)
            for summary in hparams(_hparams(trial.row), values):
                out.file_writer.add_summary(summary)
            for tag, value in values.items():
                out.add_scalar(tag, value)
        counted += sum(steps(part) is None for part in trial.parts)
        count += 1
    _tell_counted(counted)
    return count


EVENTS = ".tensorboard"
"""Where event files go, in the output of a study."""


def _check_apart(origin: Origin, dest: str) -> None:
    """Event files are not written among trials."""
    path, where = Path(dest).resolve(), origin.about.where
    if "://" not in where:
        output = Path(where).resolve()
        is_own = path.is_relative_to(output / EVENTS)
        if not is_own and (path.is_relative_to(output) or output.is_relative_to(path)):
            raise UsageError(f"{dest} is in the study's output, or has it: name another directory")
    if not path.is_dir():
        return
    if path.joinpath(RECORDS).is_dir() or any(path.glob("*/param")):
        raise UsageError(f"{dest} has trials of a study: name another directory")


def _tag(name: str) -> str:
    """Of letters, digits and a few signs, as writers of event files make it."""
    return re.sub(r"[^-/\w.]", "_", name).lstrip("/")


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
