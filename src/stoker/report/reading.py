"""Reading something of many trials: one after the other from a disk, several at a time from a bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from stoker.study.opened import Opened
from stoker.study.state import READERS

Thing = TypeVar("Thing")
Found = TypeVar("Found")


def each(opened: Opened, read: Callable[[Thing], Found], things: Iterable[Thing]) -> list[Found]:
    """What is read of each thing, in their order."""
    if not opened.place.is_remote:
        return list(map(read, things))
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(read, things))
