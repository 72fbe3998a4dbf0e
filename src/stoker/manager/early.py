"""When to stop a training that does not get better."""

from __future__ import annotations

from math import isnan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class EarlyStopping:
    """`stop(metric)` is True when the metric has not got better for `patience` calls in a row.

    Give it to `manager.track(early=...)`, and a resumed trial goes on counting where it was.
    """

    def __init__(self, mode: str = "min", patience: int = 10, min_delta: float = 0.0) -> None:
        if mode not in ("min", "max"):
            raise ValueError(f"mode is 'min' or 'max', not {mode!r}")
        self.mode, self.patience, self.min_delta = mode, patience, min_delta
        self.best: float | None = None
        self.waited = 0

    def stop(self, metric: float) -> bool:
        """Take note of the metric, and tell whether to stop. NaN is never better."""
        value = float(metric)
        if self.best is None and not isnan(value):
            is_better = True
        elif self.best is None:
            is_better = False
        elif self.mode == "min":
            is_better = value < self.best - self.min_delta
        else:
            is_better = value > self.best + self.min_delta
        if is_better:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints."""
        return {"best": self.best, "waited": self.waited}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As it was."""
        self.best, self.waited = state["best"], state["waited"]
