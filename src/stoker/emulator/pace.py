"""How long things take. A real cloud takes minutes; at home they pass faster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds, before `speed` divides them."""

    boot: float = 20.0  # from the start of a VM to its startup script
    operation: float = 2.0  # what an operation takes at least
    notice: float = 30.0  # from the notice of a preemption to the end of the power
    recreate: float = 30.0  # until a group makes a preempted VM again
    repair: float = 5.0  # how often a group looks at its VMs
    speed: float = 1.0

    def of(self, seconds: float) -> float:
        """What so many seconds of the cloud are here."""
        return seconds / self.speed


FAST = Pace(boot=0.2, operation=0.0, notice=3.0, recreate=0.5, repair=0.2)
"""For tests."""
