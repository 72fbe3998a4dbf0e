"""What a training script holds: its parameters, progress and checkpoints.

Only the standard library, and only what Python 3.8 has: it runs in whatever environment the script runs in.
numpy and torch are used if the script has imported them. It touches local files alone; its agent does all the
talking to the store.
"""

from __future__ import annotations

import os

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "path")
"""A directory in which there is nothing but the package `stoker`, for PYTHONPATH."""
BIN = os.path.join(PATH, "bin")
"""A directory in which there is nothing but the command `stoker`, for PATH."""

__all__ = ["EarlyStopping", "Manager", "Stopped", "TestManager"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoker.manager.early import EarlyStopping
    from stoker.manager.manager import Manager, TestManager
    from stoker.manager.stopping import Stopped


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: the agent needs only the path."""
    if name == "EarlyStopping":
        from stoker.manager.early import EarlyStopping

        return EarlyStopping
    if name == "Stopped":
        from stoker.manager.stopping import Stopped

        return Stopped
    if name in __all__:
        from stoker.manager import manager

        return getattr(manager, name)
    raise AttributeError(f"module 'stoker.manager' has no attribute '{name}'")
