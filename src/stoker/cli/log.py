"""Record progress from a command of a study: for scripts that are not written in Python.

Each KEY=VALUE adds a number to that series of the trial, as `manager.add_progress` does. The trial is known
from the environment that its agent gives to every stage.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from math import isfinite

from stoker.core.errors import StokerError, UsageError
from stoker.manager.progress import append, head
from stoker.manager.trial import Trial, from_environment, is_told

USAGE = "KEY=VALUE…"
EXAMPLES = """\
  stoker log loss=0.12 acc=0.97
  stoker log --step 500 loss=0.12
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add arguments."""
    parser.add_argument(
        "values", metavar="KEY=VALUE", nargs="+", help="a series, and the number to add to it"
    )
    parser.add_argument("--step", type=float, metavar="N", help="the step it belongs to (else it is counted)")


def run(options: argparse.Namespace) -> int:
    """Add to the trial's file of progress."""
    if not is_told(os.environ):
        raise UsageError(
            "this is no stage of a study: `stoker log` belongs into a command that `stoker run` runs"
        )
    if options.step is not None and not isfinite(options.step):
        raise UsageError("--step is a number that counts")
    trial, now = from_environment(os.environ), round(time.time(), 3)
    lines = [_line(word, options.step, now) for word in options.values]
    try:
        append(trial.progress, "".join(f"{line}\n" for line in (*_head(trial), *lines)))
    except OSError as error:
        raise StokerError(f"cannot write {trial.progress}: {error.strerror}") from None
    return 0


def _line(word: str, step: float | None, now: float) -> str:
    name, equals, value = word.partition("=")
    try:
        number = float(value)
    except ValueError:
        number = None
    if not name or not equals or number is None:
        raise UsageError(f"'{word}' is no KEY=VALUE with a number as its value, such as loss=0.12")
    told = {"name": name, "values": [number], "times": [now]}
    return json.dumps(told if step is None else {**told, "steps": [step]})


def _head(trial: Trial) -> list[str]:
    return [] if os.path.exists(trial.progress) else [head(trial)]  # noqa: PTH110
