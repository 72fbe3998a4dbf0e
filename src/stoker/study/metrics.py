"""Metrics of a trial: what its script's manager recorded, and the last match of each pattern in its log."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from math import isnan
from pathlib import Path

from stoker.manager import progress
from stoker.manager.trial import files, progress_path

_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
"""All of a number, also where the pattern matches only its beginning: `[0-9.]+` finds 2.1 in 2.1e-05."""

EPOCHS = "epochs"
"""The series by which a manager counts epochs: it tells how far a trial is, not how good."""
_LOG = re.compile(r"log\.(.+)\.\d{8}\.\d{6}")
ENOUGH = 4 * 1024 * 1024
"""Bytes at the end of a log that are looked through."""
TAIL = 64 * 1024
"""The same for a log that runs, which is looked through again and again."""


def read_metrics(log: str, patterns: Mapping[str, str], most: int = ENOUGH) -> dict[str, float]:
    """The last number that each pattern finds in a log; those that find none are left out."""
    return metrics_in(read_end(log, most), patterns)


def metrics_in(text: str, patterns: Mapping[str, str]) -> dict[str, float]:
    """The same in what a log says."""
    found = {name: _last(pattern, text) for name, pattern in patterns.items()}
    return {name: value for name, value in found.items() if value is not None}


def read_end(path: str, most: int) -> str:
    """So many bytes at the end of a file; nothing if it cannot be read."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            file.seek(max(0, file.seek(0, 2) - most))
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _last(pattern: str, text: str) -> float | None:
    last = deque(numbers_in(text, pattern), 1)
    return last[0] if last else None


def numbers_in(text: str, pattern: str) -> Iterator[float]:
    """All numbers that a pattern finds, in order."""
    for match in re.finditer(pattern, text, re.MULTILINE):
        number = _NUMBER.match(text, match.start(1 if match.re.groups else 0))
        if number is not None:
            yield float(number[0])


def read_series(directory: str, stage: str, attempt: tuple[int, int]) -> dict[str, dict[str, float]]:
    """What a script's manager recorded: of each series the number of values, the last, lowest and highest."""
    if not os.path.exists(progress_path(directory, stage, attempt)):  # noqa: PTH110  (asked for every trial)
        return {}
    found = {}
    for name, series in progress.read_attempt(directory, stage, attempt).items():
        if not series.values:
            continue
        told: dict[str, float] = {"count": len(series.values), "last": series.values[-1]}
        numbers = [value for value in series.values if not isnan(value)]
        if numbers:
            told.update(min=min(numbers), max=max(numbers))
        found[name] = told
    return found


def metrics_of(series: Mapping[str, Mapping[str, float]], objective: object) -> dict[str, float]:
    """The one number that stands for a series: the last, but of the objective the best."""
    told = {name: numbers["last"] for name, numbers in series.items() if name != EPOCHS}
    if isinstance(objective, dict) and objective.get("metric") in series:
        metric = objective["metric"]
        told = {metric: series[metric].get(objective["goal"], series[metric]["last"])} | (
            {name: value for name, value in told.items() if name != metric}
        )
    return told


def read_latest(log: str, patterns: object, objective: object = None) -> dict[str, float]:
    """What a stage that runs said last, in its log by patterns and to its manager: the objective first."""
    found = read_metrics(log, patterns, TAIL) if isinstance(patterns, dict) and patterns else {}
    path = Path(log)
    match = _LOG.fullmatch(path.name)
    last = deque(files(str(path.parent), f"progress.{match[1]}", "jsonl"), 1) if match else ()
    for file in last:
        found.update(_last_values(file.path))
    first = objective.get("metric") if isinstance(objective, dict) else None
    return dict(sorted(found.items(), key=lambda item: (item[0] != first, item[0] == EPOCHS)))


def _last_values(path: str) -> dict[str, float]:
    """The last value of each series near the end of a file of progress."""
    found: dict[str, float] = {}
    for line in read_end(path, TAIL).split("\n"):
        with suppress(ValueError, KeyError, TypeError, IndexError):  # the first may be cut, the last torn
            told = json.loads(line)
            found[str(told["name"])] = float(told["values"][-1])
    return found
