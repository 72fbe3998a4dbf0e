"""Removes a directory with all that is in it, however deep, and whatever its modes are."""

# Paths are text here: the processes of a VM start faster without pathlib.
# ruff: noqa: PTH101, PTH104, PTH106, PTH108, PTH118

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count


def remove_tree(top: str) -> None:
    """May be repeated. Nobody else may be at it.

    Each directory is moved to the top before it is emptied: neither the stack of Python nor the length of a
    path sets a limit to what a VM may have left.
    """
    if not os.path.lexists(top):
        return
    numbers = count()
    waiting = _empty(top, top, numbers)
    while waiting:
        path = waiting.pop()
        waiting += _empty(path, top, numbers)
        os.rmdir(path)
    os.rmdir(top)


def _empty(directory: str, top: str, numbers: count[int]) -> list[str]:
    """Remove its files; with where its directories are now."""
    os.chmod(directory, 0o700)  # the kernel leaves directories that even their owner cannot read
    with os.scandir(directory) as found:
        entries = list(found)
    moved = []
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            os.chmod(entry.path, 0o700)  # else it cannot be moved
            moved.append(_move(entry.path, top, numbers))
        else:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)
    return moved


def _move(path: str, top: str, numbers: count[int]) -> str:
    """To the top, under a name that nobody has there."""
    while True:
        new = os.path.join(top, f"removed-{os.getpid()}-{next(numbers)}")
        if not os.path.lexists(new):
            os.rename(path, new)
            return new
