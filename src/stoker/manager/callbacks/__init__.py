"""The manager for training loops that a framework runs: a module for each framework, imported by its name.

    from stoker.manager.callbacks.lightning import StokerCallback

Each imports its framework, and nothing here imports them. See docs/recipes.md for how they are used.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from stoker.manager.manager import Manager


class Lazy:
    """Something to track that is asked for its state only when a checkpoint is made."""

    def __init__(self, tell: Callable[[], Any], take: Callable[[Any], None]) -> None:
        self.state_dict, self.load_state_dict = tell, take


class Rounds:
    """What is the same for all boosted trees: the booster is tracked, and a resumed one has its rounds."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.booster: Any = None
        """For `train`, which goes on from it: None on a fresh start."""
        manager.track(booster=Lazy(self._tell, self._take))
        manager.start_epoch()

    def _tell(self) -> dict[str, Any]:
        return {"model": None if self.booster is None else self._dump(self.booster)}

    def _take(self, state: dict[str, Any]) -> None:
        if state["model"]:
            self.booster = self._load(state["model"])

    def _dump(self, booster: Any) -> str | bytes:
        raise NotImplementedError  # each library has its own way

    def _load(self, model: Any) -> Any:
        raise NotImplementedError  # as has this


def add_numbers(manager: Manager, values: Mapping[str, Any], step: float | None = None) -> None:
    """Add the numbers among some values: frameworks log texts and tensors as well."""
    for name, value in values.items():
        try:
            number = float(value)
        except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of more than one number
            continue
        manager.add_progress(name, number, step)


def save_now(manager: Manager) -> None:
    """Save whatever `save_every` says: the framework has written a checkpoint that belongs to this one."""
    manager._look_for_best(None)
    manager._save(None, None)
    manager._saver.wait()
    manager._leave_if_asked()


def leave_if_late(manager: Manager) -> None:
    """Within an epoch: end here if we were asked to and the epoch may take too long. The last save stays."""
    if manager.should_stop() and manager._should_leave_now():
        manager._leave_if_asked()
