"""Disks that are full or read-only, in truth: mounts in a namespace of their own, which needs no rights."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Mounts:
    """Mounts that only those see who enter."""

    holder: int  # the process that keeps them

    @property
    def enter(self) -> list[str]:
        """What to put before a command, so that it sees them."""
        return ["nsenter", f"--target={self.holder}", "--user", "--mount", "--preserve-credentials"]

    def path(self, inside: Path) -> Path:
        """The same place, for those who did not enter."""
        return Path(f"/proc/{self.holder}/root{inside}")


@contextmanager
def mounted(script: str) -> Iterator[Mounts]:
    """What a shell script mounts, until the block ends."""
    command = ["unshare", "--map-root-user", "--mount", "sh", "-ec", f"{script}\necho mounted\nexec cat"]
    try:
        holder = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except FileNotFoundError:
        _give_up("there is no unshare")
    with holder:  # it ends with its input
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"mounted\n":
            _give_up(holder.stderr.read().decode())
        yield Mounts(holder.pid)


def _give_up(reason: str) -> None:
    """Somebody's laptop may not allow it, but never is it missing where it counts."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def fill(path: Path) -> bool:
    """Let a file grow until its disk is full."""
    with path.open("ab", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return True
