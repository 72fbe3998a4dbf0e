"""Managers within the process of the tests."""

from __future__ import annotations

from typing import Protocol

from stoker.manager.manager import Manager
from stoker.manager.trial import Trial


class Make(Protocol):
    """Makes a manager, which is closed when the test ends."""

    def __call__(self, trial: Trial, save_every: int | str = 1, allow_pickle: bool = False) -> Manager: ...
