"""One table of all trials: the parameters that differ, status, metrics and time; the best first.

A metric stands for its last value, that of the study's objective for its best; `loss.min`, `loss.max`,
`loss.last` and `loss.best` name others. It only reads, while the study runs and after.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.store_options import add_place, open_at, store_of
from stoker.core.errors import StokerError, UsageError

if TYPE_CHECKING:
    from stoker.report.table import Table

USAGE = "[STORE]"
EXAMPLES = """\
  stoker table                                   # the best first
  stoker table --where 'status=finished and lr>0.01' --sort -acc
  stoker table --columns lr,acc.max,seconds
  stoker table --group lr                        # mean, spread and number over all the rest
  stoker table --format csv > results.csv
  stoker table --format parquet --to results.parquet
"""
FORMATS = ("text", "tsv", "csv", "json", "markdown", "latex", "parquet")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    add_place(parser)
    parser.add_argument(
        "--sort", metavar="COLUMN", default="", help="sort by it; -COLUMN for the highest first"
    )
    parser.add_argument("--columns", metavar="NAMES", default="", help="which, such as lr,loss.min; or all")
    parser.add_argument("--where", metavar="CONDITION", default="", help="only trials for which it holds")
    parser.add_argument(
        "--group", metavar="PARAMS", default="", help="mean, std and count for each value of these"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="the form of the table (text)")
    parser.add_argument("--to", metavar="FILE", help="write it there instead of printing it")


def run(options: argparse.Namespace) -> int:
    """Compute it, and print it."""
    from stoker.report import grouping, table
    from stoker.report.rows import rows

    opened = open_at(store_of(options))
    columns = [name.strip() for name in options.columns.split(",") if name.strip()]
    if options.group:
        names = [name.strip() for name in options.group.split(",") if name.strip()]
        made = grouping.group(rows(opened), opened.objective, names, options.where)
    else:
        made = table.make(rows(opened), opened.objective, columns, options.sort, options.where)
    if options.format == "parquet":
        return _write_parquet(made, options.to)
    from stoker.report.formats import FORMATS as WRITERS

    told = WRITERS[options.format](made)
    if options.to is None:
        sys.stdout.write(told)
    else:
        _write(options.to, told)
    return 0


def _write(path: str, told: str) -> None:
    try:
        Path(path).write_text(told, encoding="utf-8")
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from None


def _write_parquet(made: Table, path: str | None) -> int:
    from stoker.report.frames import frame

    if path is None:
        raise UsageError("a parquet file is not for a terminal; say where: --to results.parquet")
    try:
        frame(made).to_parquet(path)
    except ImportError as error:
        raise StokerError("writing parquet needs pyarrow: pip install pyarrow") from error
    except OSError as error:
        raise StokerError(f"cannot write {path}: {error.strerror}") from None
    return 0
