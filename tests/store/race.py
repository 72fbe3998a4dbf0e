"""What other processes do to a store, in modules and functions that they can import."""

from __future__ import annotations

import errno
import os
import sys
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path

from stoker.store.directory import DirectoryStore

Outcome = list[bool]


def no_link(source: str, target: str) -> None:
    """What link(2) says on FAT."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), source)


def directory_store(root: Path, links: bool) -> DirectoryStore:
    return DirectoryStore(root) if links else DirectoryStore(root, link=no_link)


def race(root: Path, links: bool, processes: int, keys: int) -> list[Outcome]:
    """What each of the processes heard for each key."""
    context = get_context("spawn")
    barrier = context.Barrier(processes)
    work = [(root, links, index, keys) for index in range(processes)]
    with context.Pool(processes, initializer=_remember, initargs=(barrier,)) as pool:
        return pool.starmap(_create_all, work, chunksize=1)


_barriers: list[Barrier] = []


def _remember(barrier: Barrier) -> None:
    _barriers.append(barrier)


def _create_all(root: Path, links: bool, index: int, keys: int) -> Outcome:
    store = directory_store(root, links)
    _barriers[0].wait(timeout=20)
    return [store.create(f"claims/{key // 50}/{key:04}", b"%d" % index * 100) for key in range(keys)]


def create_for_ever(root: str, links: str) -> None:
    """Whole records, one after the other, until killed."""
    store = directory_store(Path(root), links == "True")
    number = 0
    while True:
        store.create(f"a/{number:07}", b"x" * 5000)
        number += 1


if __name__ == "__main__":
    create_for_ever(*sys.argv[1:])
