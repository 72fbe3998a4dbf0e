"""How often to save."""

from __future__ import annotations

import math
import re

MOST_OVERHEAD = 0.035
"""Of the time of training, so much may go into waiting for checkpoints."""
BETWEEN_LOSSES = 3600.0
"""Seconds that a machine is assumed to last: saving more often than that costs more than it saves."""


class Pace:
    """`auto`, every so many saves asked for (`5`), or every so many seconds (`"30s"`)."""

    def __init__(self, every: int | str = "auto") -> None:
        self._count = self._seconds = 0.0
        self._auto = every == "auto"
        match = re.fullmatch(r"(\d+(?:\.\d+)?) ?(s|min|h)", every) if isinstance(every, str) else None
        if match:
            self._seconds = float(match.group(1)) * {"s": 1, "min": 60, "h": 3600}[match.group(2)]
        elif isinstance(every, int) and every > 0:
            self._count = every
        elif not self._auto:
            raise ValueError(
                f"save_every is 'auto', a count such as 5 or a time such as '30s', not {every!r}"
            )
        self._asked, self._last = 0, -math.inf

    def is_due(self, now: float) -> bool:
        """Whether to save now. The first time one is asked, it is."""
        self._asked += 1
        return (self._asked - 1) % self._count == 0 if self._count else now - self._last >= self._seconds

    def saved(self, now: float, stall: float, writing: float) -> None:
        """Training waited so long for a checkpoint, and the last one took so long to be written."""
        self._last = now
        if self._auto:
            least_loss = math.sqrt(2 * stall * BETWEEN_LOSSES)  # of waiting, and of work that is done again
            self._seconds = max(least_loss, stall / MOST_OVERHEAD, writing)
