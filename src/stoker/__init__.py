"""Stoker runs a study of training runs, described by one YAML file, on the GPUs you have.

From Python: `stoker.run("params.yaml")`, `stoker.open("output")`, and `Examiner` for parsers of your own; see
docs/python.md. In a training script: `from stoker import Manager`; see docs/manager.md. That part runs in any
Python from 3.8 on, and so does this file.
"""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = [
    "EarlyStopping",
    "Examiner",
    "Manager",
    "StokerError",
    "Stopped",
    "Study",
    "TestManager",
    "Trial",
    "examine",
    "latest_log",
    "open",
    "run",
]

TYPE_CHECKING = False  # as in typing, whose import would take longer than all the rest
if TYPE_CHECKING:
    from stoker.api import StokerError, Study, Trial, open, run
    from stoker.manager import EarlyStopping, Manager, Stopped, TestManager
    from stoker.report import examine
    from stoker.report.examine import Examiner, latest_log


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: most programs import this package for one small part."""
    if name in ("EarlyStopping", "Manager", "Stopped", "TestManager"):
        from stoker import manager

        return getattr(manager, name)
    if name in ("Examiner", "examine", "latest_log"):
        from stoker.report import examine

        return examine if name == "examine" else getattr(examine, name)
    if name in __all__:
        from stoker import api

        return getattr(api, name)
    raise AttributeError(f"module 'stoker' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
