"""Moments as records and people have them: UTC, to the second."""

from __future__ import annotations

import calendar
import time

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def stamp(seconds: float | None = None) -> str:
    """A moment, now if none is given: 2026-01-31T23:59:59Z."""
    return time.strftime(_FORMAT, time.gmtime(seconds))


def seconds(told: object) -> float | None:
    """Seconds since 1970 of a stamp; None if it is none."""
    try:
        return float(calendar.timegm(time.strptime(str(told), _FORMAT)))
    except ValueError:
        return None
