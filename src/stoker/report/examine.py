"""Your own parsers over the directories of all trials, and one table of what they find.

    from stoker import Examiner, latest_log

    def add_bleu(path, experiment, caches):
        log = latest_log("test", path)
        if log is not None:
            experiment.metric["bleu"] = float(log.read_text().split()[-1])

    examiner = Examiner()
    examiner.add(add_bleu)
    examiner.exam("output")
    examiner.table()

Parsers run in threads, not processes: they may be closures and cells of a notebook, `caches` is the same for
all of them, and what takes long is mostly a disk or a program that they wait for.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from stoker.core.errors import StokerError
from stoker.core.values import key
from stoker.report import legacy
from stoker.report.formats import as_tsv
from stoker.report.table import Table, free
from stoker.spec.problems import printable

if TYPE_CHECKING:
    from pandas import DataFrame

MANY = 20
"""So many trials deserve a bar that shows how far it is."""
SHOWN = 10
"""So many errors are told at once; all are in `errors`."""


class Experiment(NamedTuple):
    """A trial, and what parsers found. They may change all three."""

    cache: dict[Any, Any]  # for other parsers
    metric: dict[str, Any]  # for the table
    param: dict[str, Any]  # as `param` has them


class Failure(NamedTuple):
    """A parser that raised."""

    trial: str
    parser: str
    error: BaseException

    def __str__(self) -> str:
        place = traceback.extract_tb(self.error.__traceback__)[-1:]
        where = "".join(f" ({Path(at.filename).name}:{at.lineno})" for at in place)
        told = traceback.format_exception_only(type(self.error), self.error)[-1].strip()
        return f"{self.trial}: {self.parser}: {told}{where}"


Parser = Callable[[Path, Experiment, dict[Any, Any]], object]
_Parser = TypeVar("_Parser", bound=Parser)


class Examiner:
    """Applies parsers to trials, and keeps what they find."""

    def __init__(self) -> None:
        self.exams: list[Parser] = []
        self.caches: dict[Any, Any] = {}  # given to all parsers
        self.experiments: dict[str, Experiment] = {}  # by the name of the trial
        self.errors: list[Failure] = []  # of the last `exam`

    def add(self, func: _Parser) -> _Parser:
        """Register a parser: `func(path, experiment, caches)`. They are applied in this order."""
        if func not in self.exams:
            self.exams.append(func)
        return func

    def exam(
        self, output: str | os.PathLike[str] = "output", regex: str = ".*", workers: int | None = None
    ) -> None:
        """Apply all parsers to trials whose name has a match of `regex`, some trials at a time.

        One that raises is told, with its trial, and stops nothing. What was found before is kept.
        """
        if "://" in os.fspath(output):
            raise StokerError(f"parsers read files: get those of {output} by `stoker pull` first")
        if not Path(output).is_dir():
            raise StokerError(f"there is no directory {output}")
        paths = [path for path in legacy.trials(Path(output)) if re.search(regex, path.name)]
        if not paths:
            sys.stderr.write(f"stoker: no trial in {output} is named like '{regex}'\n")
        for path in paths:
            self.experiments.setdefault(path.name, Experiment({}, {}, {}))
        self.errors = self._examine_all(
            paths, min(32, (os.cpu_count() or 1) + 4) if workers is None else workers
        )
        for failure in self.errors[:SHOWN]:
            sys.stderr.write(f"stoker: {printable(str(failure))}\n")
        if (more := len(self.errors) - SHOWN) > 0:
            sys.stderr.write(f"stoker: and {more:,} more: see `errors`\n")

    def _examine_all(self, paths: Sequence[Path], workers: int) -> list[Failure]:
        found: list[Failure] = []
        with _progress(len(paths)) as tick, ThreadPoolExecutor(max(1, workers)) as pool:
            try:
                for failures in pool.map(self._examine, paths):
                    found += failures
                    tick()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return found

    def _examine(self, path: Path) -> list[Failure]:
        experiment, failures = self.experiments[path.name], []
        experiment.param.update(_plain(legacy.read_yaml(path / "param") or {}))
        for parser in self.exams:
            try:
                parser(path, experiment, self.caches)
            except (Exception, SystemExit) as error:  # somebody else's code
                failures.append(Failure(path.name, getattr(parser, "__name__", repr(parser)), error))
        return failures

    def table(self, concise: bool = True, print_tsv: bool = False) -> DataFrame:
        """A data frame with a row for each trial: parameters, and metrics that parsers found.

        If it is to be concise, parameters that are the same in all trials are left out.
        """
        try:
            from pandas import DataFrame
        except ImportError:
            raise StokerError("data frames need pandas: pip install 'stoker[report]'") from None
        found, taken = list(self.experiments.values()), set[str]()
        params = dict.fromkeys(name for one in found for name in one.param if not str(name).startswith("_"))
        metrics = dict.fromkeys(name for one in found for name in one.metric)
        cells = {free(name, taken, "param"): [one.param.get(name) for one in found] for name in params}
        if concise:
            cells = {name: column for name, column in cells.items() if len({*map(_identity, column)}) > 1}
        cells |= {free(name, taken, "metric"): [one.metric.get(name) for one in found] for name in metrics}
        if print_tsv:
            rows = [tuple(map(_cell, row)) for row in zip(*cells.values(), strict=True)]
            sys.stdout.write(as_tsv(Table(tuple(map(str, cells)), rows)))
        made: DataFrame = DataFrame(cells)
        return made


def latest_log(stage: str, path: str | os.PathLike[str], index: int = -1) -> Path | None:
    """The last log of a stage in the directory of a trial; another by its index, oldest first; None if there
    is no such one."""
    found = (
        entry
        for entry in Path(path).iterdir()
        if (match := legacy.LOG.fullmatch(entry.name)) and match[1] == stage
    )
    logs = sorted(found)
    return logs[index] if -len(logs) <= index < len(logs) else None


def _plain(value: Any) -> Any:
    """Numbers that remember their spelling become plain ones."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return float(value) if isinstance(value, float) else value


def _identity(value: Any) -> str:
    return key(value) if isinstance(value, (str, bool, int, float)) else repr(value)


def _cell(value: Any) -> Any:
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[], object]]:
    """A bar in a terminal if there are many, nothing elsewhere."""
    if total < MANY or not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(bar_width=None), MofNCompleteColumn(), TextColumn("trials"))
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
