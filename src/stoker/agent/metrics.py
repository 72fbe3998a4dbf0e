"""Metrics of scripts that say them only in their logs: the last match of each pattern."""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|nan|inf(?:inity)?)", re.IGNORECASE)
"""All of a number, also where the pattern matches only its beginning: `[0-9.]+` finds 2.1 in 2.1e-05."""

ENOUGH = 4 * 1024 * 1024
"""Bytes at the end of a log that are looked through."""


def read_metrics(log: str, patterns: Mapping[str, str], most: int = ENOUGH) -> dict[str, float]:
    """The last number that each pattern finds in a log; those that find none are left out."""
    try:
        with open(log, "rb") as file:  # noqa: PTH123
            size = file.seek(0, 2)
            file.seek(max(0, size - most))
            text = file.read(most).decode(errors="replace")
    except OSError:
        return {}
    found = {name: _last(pattern, text) for name, pattern in patterns.items()}
    return {name: value for name, value in found.items() if value is not None}


def _last(pattern: str, text: str) -> float | None:
    last = None
    for match in re.finditer(pattern, text, re.MULTILINE):
        number = _NUMBER.match(text, match.start(1 if match.re.groups else 0))
        if number is not None:
            last = float(number[0])
    return last
