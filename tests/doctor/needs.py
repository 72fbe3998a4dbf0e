"""Programs that a test needs may be missing on somebody's laptop, but never where it counts."""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest

PLACES = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))


def program(name: str, package: str) -> str:
    """The path of a program; skips the test if there is none, and fails it in CI."""
    path = shutil.which(name, path=PLACES)
    if path is None:
        give_up(f"there is no {name}: install {package}")
    return path


def give_up(reason: str) -> NoReturn:
    """Skip, or fail in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
