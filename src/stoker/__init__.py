"""Stoker runs a study of training runs, described by one YAML file, on the GPUs you have.

From Python: `stoker.run("params.yaml")` and `stoker.open("output")`; see docs/python.md.
"""

__version__ = "0.1.0"
__all__ = ["StokerError", "Study", "Trial", "open", "run"]

TYPE_CHECKING = False  # as in typing, whose import would take longer than all the rest
if TYPE_CHECKING:
    from stoker.api import StokerError, Study, Trial, open, run


def __getattr__(name: str) -> object:
    """Import what is asked for when it is: most programs import this package for one small part."""
    if name in __all__:
        from stoker import api

        return getattr(api, name)
    raise AttributeError(f"module 'stoker' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
