"""What a test needs from outside may be missing on somebody's laptop, but never where it counts."""

import os
from importlib.util import find_spec

import pytest


def need(*modules: str) -> None:
    """Skip the test if a module is missing; fail it if this is CI, where nothing may be."""
    missing = [module for module in modules if find_spec(module) is None]
    if not missing:
        return
    reason = f"not installed: {', '.join(missing)}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
