"""All to look at in the evening, at once: failures, results of each sweep, the best trial, the report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from math import isfinite
from typing import TYPE_CHECKING

from stoker import __version__
from stoker.cli.report import save
from stoker.cli.store_options import add_place, add_study_file, origin_of
from stoker.spec.problems import printable

if TYPE_CHECKING:
    from stoker.report.results import Results

USAGE = "[STORE]"
EXAMPLES = """\
  stoker analyze                       # of the study in output, with report.html
  stoker analyze gs://bucket/study -o study.html
"""
CAUSES = 5
_BLOCKS = "▁▂▃▄▅▆▇█"
_WIDTH = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    add_place(parser, has_file=True)
    parser.add_argument(
        "-o", dest="file", metavar="FILE", default="report.html", help="the report (report.html)"
    )
    add_study_file(parser)


def run(options: argparse.Namespace) -> int:
    """Tell it, and write the report."""
    from stoker.report.errors import told
    from stoker.report.page import report
    from stoker.report.results import gather

    origin = origin_of(options)
    results = gather(origin)
    _say("Failures", told(results.groups, CAUSES).splitlines())
    _say("Results by sweep", by_sweep(results))
    _say("The best trial", best(results))
    _say("Report", ())
    sys.stdout.flush()
    save(report(origin, __version__, results=results), options.file)
    return 0


def _say(title: str, lines: Sequence[str]) -> None:
    sys.stdout.write("".join(f"{printable(line)}\n" for line in ("", title, *lines)))


def by_sweep(results: Results) -> list[str]:
    """Of each sweep how many trials finished, and the best and the mean of their results."""
    from stoker.report.formats import as_text
    from stoker.report.grouping import mean
    from stoker.report.table import Cell, Table

    known = {row.trial: value for value, row in results.ranked}
    best_of = max if results.objective is not None and results.objective.goal == "max" else min
    rows: list[tuple[Cell, ...]] = []
    for sweep in results.sweeps:
        values = [known[row.trial] for row in sweep.rows if row.trial in known]
        failed = sum(row.status == "failed" for row in sweep.rows)
        finished = sum(row.status == "finished" for row in sweep.rows)
        told = (best_of(values), mean(values)) if values else (None, None)
        rows.append((sweep.title, len(sweep.rows), finished, failed, *told))
    columns = ("sweep", "trials", "finished", "failed", f"best {results.metric}", f"mean {results.metric}")
    if results.objective is None:  # nothing says what is good
        return as_text(Table(columns, rows).only(columns[:4])).splitlines()
    return as_text(Table(columns, rows)).splitlines()


def best(results: Results) -> list[str]:
    """The best trial, and how its metrics went."""
    found = results.best
    if found is None:
        return ["None, as no trial has finished, or the study file has no `objective`."]
    lines = [f"{found.number} {found.name}"]
    width = max((len(name) for name in found.metrics), default=0)
    for name, numbers in found.metrics.items():
        curve = results.progress.get(name)
        went = f"  {spark(curve.y)}" if curve is not None and curve.count > 1 else ""
        lines.append(f"  {name:<{width}}  {numbers.last:<10.5g}{went}".rstrip())
    return lines


def spark(values: Sequence[float]) -> str:
    """How values went, in the width of a few words."""
    known = [value for value in values if isfinite(value)]
    step = max(1, -(-len(known) // _WIDTH))
    low = min(known) / 2  # halves, as the whole way may be beyond the largest float
    way = max(known) / 2 - low or 1.0
    return "".join(_BLOCKS[int((value / 2 - low) / way * 7.999)] for value in known[::step])
