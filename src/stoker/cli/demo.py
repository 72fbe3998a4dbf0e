"""Run a small, real study here, to see what Stoker does. It takes about half a minute on two cores.

Twelve networks learn to read scikit-learn's handwritten digits, two at a time; one of them fails on
purpose. The study is written into a new directory, run with `stoker run`, and shown as a table and as a
page, report.html. Its files are yours to play with afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from stoker.cli import frame
from stoker.core.errors import UsageError
from stoker.core.values import text
from stoker.plan.trials import Trial
from stoker.spec.problems import listing, printable
from stoker.study.opened import Opened, open_study

USAGE = "[DIRECTORY]"
EXAMPLES = """\
  stoker demo                 make stoker-demo/ here, and run it
  stoker demo /tmp/digits     make it there
  stoker demo --again         remove the demo that is there, and start over
"""

FILES = {
    "params.yaml": "the study: what to run, what to try",
    "train.py": "the first stage of each trial; it can stop and go on",
    "test.py": "the second stage, which knows nothing of Stoker",
    "digits.py": "the data of both",
}
MADE = ("output", "report.html", "__pycache__")
"""What running it makes."""
ON_PURPOSE = "too fast"
"""The title of the sweep that cannot work."""

NEXT = {
    "stoker run": "again: only what failed runs",
    "stoker status": "how it is, also while it runs",
    "stoker errors": "why trial 9 failed",
    "stoker check": "what params.yaml runs; add a value",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker demo`."""
    parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        default="stoker-demo",
        help="a new directory for it (default: stoker-demo)",
    )
    parser.add_argument(
        "--again",
        action="store_true",
        help="start over: remove DIRECTORY first, if it has a demo and no more",
    )


def run(options: argparse.Namespace) -> int:
    """Write the study, run it, and show what came of it; one failure is meant, and no error."""
    if find_spec("sklearn") is None:
        raise UsageError("the demo needs scikit-learn: pip install 'stoker[demo]'")
    place = Path(options.directory)
    if options.again and place.exists():
        remove(place)
    write(place)
    _say(
        "Which small network reads handwritten digits best?",
        f"12 trials, two at a time. Wrote into {place}:",
    )
    _say_columns(FILES)
    _say("", f"$ cd {shlex.quote(str(place))} && stoker run", "")
    way = _way_to(place)
    os.chdir(place)
    code = frame.run("run", ["params.yaml", "-o", "output"])
    if code == 130:
        _say("", f"Interrupted. `stoker run` in {place} goes on where it stopped.")
        return code
    return conclude(open_study("output"), way)


def remove(place: Path) -> None:
    """Remove an earlier demo, and say so; raises UsageError for whatever else may be there."""
    others = [] if place.is_dir() else [place.name]
    others = others or sorted(path.name for path in place.iterdir() if path.name not in (*FILES, *MADE))
    data = files("stoker").joinpath("demo/digits.py").read_bytes()
    if place.is_symlink() or others or not _has(place / "digits.py", data):
        odd = f": it has {printable(listing(others, 3, 'and'))}" if others else ""
        raise UsageError(f"{place} is not just an earlier demo{odd}; remove it yourself, or name another")
    _say(f"Removing the earlier demo in {place}.")
    try:
        shutil.rmtree(place)
    except OSError as error:
        raise UsageError(f"cannot remove {place}: {error.strerror}") from None


def _has(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def write(place: Path) -> None:
    """Write the study's files into a new directory. Its trials use the Python that runs this."""
    try:
        place.mkdir(parents=True)
        for name in FILES:
            body = files("stoker").joinpath(f"demo/{name}").read_text(encoding="utf-8")
            if name == "params.yaml":
                body = body.replace("python: python", f"python: {json.dumps(sys.executable)}")
            (place / name).write_text(body, encoding="utf-8")
    except FileExistsError:
        raise UsageError(f"{place} exists already; name another: stoker demo DIRECTORY") from None
    except OSError as error:
        raise UsageError(f"cannot write {place}: {error.strerror}") from None


def conclude(opened: Opened, way: str) -> int:
    """Show all results, and what to try next. Returns 1 if anything failed that was not meant to."""
    from stoker.cli.display import console
    from stoker.cli.report import write as write_report

    patterns: Any = opened.study.settings["metrics"]
    metrics = [*(opened.study.objective or ())[:1], *patterns]
    rows = rows_of(opened)
    screen = console()
    screen.print("\nAll trials, best first:\n", style="bold")
    screen.print(_table(rows, metrics, screen.width))
    for row in rows:
        if row.is_meant_to_fail and row.status == "failed":
            _say("", f"Trial {row.trial.number} failed on purpose: its learning rate is absurd.")
    _say("", "All of it to look at, in one page:")
    write_report(opened, "report.html", with_code=False)  # which is Stoker's own, if any
    _say("", "Try next:")
    _say_columns({way: "", **NEXT})
    bad = [row for row in rows if row.status != "finished" and not row.is_meant_to_fail]
    return 1 if bad or opened.state.counts().waiting else 0


# The table


@dataclass(frozen=True)
class Row:
    """A trial and what came of it."""

    trial: Trial
    status: str
    seconds: float
    metrics: Mapping[str, float]

    @property
    def is_meant_to_fail(self) -> bool:
        """Whether its sweep is the one that cannot work."""
        return self.trial.sweep.title == ON_PURPOSE


def rows_of(opened: Opened) -> list[Row]:
    """Every trial with a result, best first by the study's objective; those without a value last."""
    rows = [_row(opened.trial(result.trial), result.body) for result in opened.state.results()]
    objective: Any = opened.study.settings["objective"]
    sign = -1 if objective["goal"] == "max" else 1

    def rank(row: Row) -> tuple[bool, float]:
        value = row.metrics.get(objective["metric"])
        return value is None or row.status != "finished", sign * (value or 0.0)

    return sorted(rows, key=rank)


def _row(trial: Trial, body: Mapping[str, Any]) -> Row:
    stages = (body[stage] for stage in trial.stages if stage in body)
    seconds = sum(stage["seconds"] for stage in stages)
    return Row(trial, str(body.get("status")), seconds, body.get("metrics") or {})


def _table(rows: Sequence[Row], metrics: Sequence[str], width: int) -> Any:
    from rich.table import Table

    gap = 3 if width >= 80 else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    varied = list(_varied(rows))
    for heading in ("#", *varied, *(name.replace("_", " ") for name in metrics), "seconds"):
        table.add_column(printable(heading), justify="right")
    table.add_column("status")
    for place, row in enumerate(rows):
        params = (printable(text(row.trial.params[name])) for name in varied)
        values = (f"{row.metrics[name]:.4f}" if name in row.metrics else "–" for name in metrics)
        style = "red" if row.status == "failed" else "bold green" if place == 0 else ""
        table.add_row(str(row.trial.number), *params, *values, f"{row.seconds:.1f}", row.status, style=style)
    return table


def _varied(rows: Sequence[Row]) -> Iterator[str]:
    """The parameters that are not the same in all trials."""
    for name in rows[0].trial.params if rows else ():
        if len({text(row.trial.params[name]) for row in rows}) > 1:
            yield name


# Words


def _way_to(place: Path) -> str:
    """How a shell gets there from here, and to the command if it does not know it yet."""
    way = f"cd {shlex.quote(str(place))}"
    activate = Path(sys.executable).parent / "activate"
    if shutil.which("stoker") or not activate.exists():
        return way
    return f"source {shlex.quote(min(str(activate), os.path.relpath(activate), key=len))}; {way}"


def _say(*lines: str) -> None:
    sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
    sys.stdout.flush()


def _say_columns(rows: Mapping[str, str]) -> None:
    width = max(len(name) for name, told in rows.items() if told)
    for name, told in rows.items():
        _say(f"  {name:<{width}}   {told}".rstrip())
