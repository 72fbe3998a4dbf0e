"""The code of a study as it is when somebody asks: the commit, and what was changed since."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

MOST = 200_000
"""Letters of a diff that are kept."""

# What a repository may be set up to run when it is looked at is not run.
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotepath=false")


@dataclass(frozen=True)
class Code:
    """A commit, and the changes to it that nobody had committed."""

    commit: str
    told: str  # its time and its first line
    diff: str
    is_cut: bool


def code_of(directory: str) -> Code | None:
    """The code in a directory now; None if it is not known, not here, or not in a repository."""
    if not directory or not Path(directory).is_dir():
        return None
    told = _git(directory, "log", "-1", "--no-show-signature", "--format=%H%n%cI %s")
    if told is None or "\n" not in told:
        return None
    commit, _, line = told.strip().partition("\n")
    diff = _git(directory, "diff", "--no-color", "--no-ext-diff", "--no-textconv", "HEAD") or ""
    return Code(commit, line, diff[:MOST], len(diff) > MOST)


def _git(directory: str, *words: str) -> str | None:
    try:
        done = subprocess.run(
            [*_GIT, *words],
            cwd=directory,
            capture_output=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
