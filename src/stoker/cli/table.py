"""One table of all trials: the parameters that differ, status, metrics and time; the best first.

A metric stands for its last value, that of the study's objective for its best; `loss.min`, `loss.max`,
`loss.last` and `loss.best` name others. It only reads, while the study runs and after. In a terminal the
table is as wide as that: names are cut, and the last columns left out, unless you say which you want.

A directory whose records are gone still has `param`, `stat`, progress and logs; --file names the study file
that tells its metrics and objective.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from stoker.cli.store_options import add_place, open_at, say, store_of
from stoker.core.errors import StokerError, UsageError

if TYPE_CHECKING:
    from stoker.report.rows import Row
    from stoker.report.table import Table
    from stoker.study.opened import Objective

USAGE = "[STORE]"
EXAMPLES = """\
  stoker table                                   # the best first
  stoker table --where 'status=finished and lr>0.01' --sort acc --reverse
  stoker table --columns lr,acc.max,seconds
  stoker table --group lr                        # mean, spread and number over all the rest
  stoker table --format csv > results.csv
  stoker table --format parquet --to results.parquet
  stoker table old-output --file params.yaml     # a directory without records
"""
FORMATS = ("text", "tsv", "csv", "json", "markdown", "latex", "parquet")
_KEPT = ("trial", "name", "status")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker table`."""
    add_place(parser)
    parser.add_argument("--sort", metavar="COLUMN", default="", help="sort by it, the lowest first")
    parser.add_argument("--reverse", action="store_true", help="with --sort, the highest first")
    parser.add_argument("--columns", metavar="NAMES", default="", help="which, such as lr,loss.min; or all")
    parser.add_argument("--where", metavar="CONDITION", default="", help="only trials for which it holds")
    parser.add_argument(
        "--group", metavar="PARAMS", default="", help="mean, std and count for each value of these"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="the form of the table (text)")
    parser.add_argument("--to", metavar="FILE", help="write it there instead of printing it")
    parser.add_argument("--file", metavar="FILE", help="the study file of a directory without records")


def run(options: argparse.Namespace) -> int:
    """Compute it, and print it."""
    _check(options)
    rows, objective = _open(options)
    made = _make(options, rows, objective)
    if options.format == "parquet":
        _write_parquet(made, options.to)
    elif options.format == "text" and options.to is None and sys.stdout.isatty():
        _show(made, options, objective)
    else:
        from stoker.report.formats import FORMATS as WRITERS

        told = WRITERS[options.format](made)
        sys.stdout.write(told) if options.to is None else _write(options.to, told)
    return 0


def _check(options: argparse.Namespace) -> None:
    if options.group and (options.sort or options.columns):
        raise UsageError("--group has its own columns and order; leave out --sort and --columns")
    if options.reverse and not options.sort:
        raise UsageError("--reverse needs --sort, which says by what")
    if options.format == "parquet" and options.to is None:
        raise UsageError("a parquet file is not for a terminal; say where: --to results.parquet")


def _open(options: argparse.Namespace) -> tuple[Iterable[Row], Objective | None]:
    """The trials of a study, or of a directory that has no records."""
    from stoker.report import legacy
    from stoker.report.rows import rows

    store = store_of(options)
    if legacy.is_legacy(store):
        told = legacy.told_by(options.file)
        return legacy.rows(Path(store), told.patterns), told.objective
    if options.file is not None:
        raise UsageError(f"{store} is no directory of trials without records: leave out --file")
    opened = open_at(store)
    return rows(opened), opened.objective


def _make(options: argparse.Namespace, rows: Iterable[Row], objective: Objective | None) -> Table:
    from stoker.report import grouping, table

    if options.group:
        return grouping.group(rows, objective, _names(options.group), options.where)
    sort = f"-{options.sort}" if options.reverse else options.sort
    return table.make(rows, objective, _names(options.columns), sort, options.where)


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]


def _show(made: Table, options: argparse.Namespace, objective: Objective | None) -> None:
    """As much as the terminal has room for."""
    from stoker.report.formats import fitted

    asked = _names(options.columns or options.group)
    best = [objective.metric, f"{objective.metric}.mean"] if objective is not None else []
    told, dropped = fitted(
        made, get_terminal_size().columns, [*_KEPT, *best, *asked] if asked != ["all"] else _KEPT
    )
    sys.stdout.write(told)
    if dropped:
        sys.stdout.flush()
        count = f"{len(dropped)} more column{'s' * (len(dropped) > 1)}"
        say(f"{count}, for which there is no room: {', '.join(dropped[:8])}{', …' * (len(dropped) > 8)}")


def _write(path: str, told: str) -> None:
    try:
        Path(path).write_text(told, encoding="utf-8", errors="replace")
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from None


def _write_parquet(made: Table, path: str) -> None:
    from stoker.report.frames import one_kind

    try:
        one_kind(made).to_parquet(path)
    except ImportError:
        raise StokerError("writing parquet needs pyarrow: pip install pyarrow") from None
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from None
