"""One table of all trials: the parameters that differ, status, metrics and time; the best first.

A metric stands for its last value, that of the study's objective for its best; `loss.min`, `loss.max` and
`loss.last` name others, and of the objective `best`. It only reads, while the study runs and after. In a
terminal the table is as wide as that: names are cut, and the last columns left out, unless you say which you
want.

A directory whose records are gone still has `param`, `stat`, progress and logs; --file names the study file
that tells its metrics and objective.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING

from stoker.cli.store_options import add_place, add_study_file, origin_of, say
from stoker.core.errors import StokerError, UsageError

if TYPE_CHECKING:
    from stoker.report.origin import Origin
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
    add_study_file(parser)


def run(options: argparse.Namespace) -> int:
    """Compute it, and print it."""
    _check(options)
    origin = origin_of(options)
    made = _make(options, origin)
    if options.format == "parquet":
        _write_parquet(made, options.to)
    elif options.format == "text" and options.to is None and sys.stdout.isatty():
        _show(made, options, origin.about.objective)
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


def _make(options: argparse.Namespace, origin: Origin) -> Table:
    from stoker.report import grouping, table
    from stoker.report.curves import InLogs

    objective, in_logs = origin.about.objective, InLogs(origin)
    if options.group:
        return grouping.group(origin.rows(), objective, _names(options.group), options.where, in_logs)
    sort = f"-{options.sort}" if options.reverse else options.sort
    return table.make(origin.rows(), objective, _names(options.columns), sort, options.where, in_logs)


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
