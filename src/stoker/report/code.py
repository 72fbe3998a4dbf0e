"""The code of a study as it is when somebody asks: the commit, and what was changed since."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

MOST = 200_000
"""Letters of a diff that are kept."""

# What a repository may be set up to run when it is looked at is not run, and nothing is fetched.
_GIT = (
    "git",
    "--no-optional-locks",
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.hooksPath=/dev/null"),
    *("-c", "core.quotepath=false"),
    *("-c", "protocol.allow=never"),
)
_ENVIRONMENT = {"GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": ""}
_DIFF = ("--no-color", "--no-ext-diff", "--no-textconv", "--submodule=short", "--ignore-submodules=dirty")


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
    told = _git(directory, "log", "-1", "--no-show-signature", "--no-patch", "--format=%H%n%cI %s")
    if told is None or "\n" not in told:
        return None
    commit, _, line = told.strip().partition("\n")
    unfiltered = _unfiltered(directory)
    diff = "" if unfiltered is None else _git(directory, *unfiltered, "diff", *_DIFF, "HEAD") or ""
    return Code(commit, line, diff[:MOST], len(diff) > MOST)


def _unfiltered(directory: str) -> list[str] | None:
    """Options that turn off all filters of files, as they are commands; None if that cannot be done."""
    listed = _git(directory, "config", "--list", "--name-only", "-z")
    if listed is None:
        return None
    names = {name.rpartition(".")[0] for name in listed.split("\0") if name.startswith("filter.")}
    if any("=" in name or "\ufffd" in name for name in names):  # an option cannot name these
        return None
    none = {"clean": "", "smudge": "", "process": "", "required": "false"}
    return [word for name in sorted(names) for k, v in none.items() for word in ("-c", f"{name}.{k}={v}")]


def _git(directory: str, *words: str) -> str | None:
    try:
        done = subprocess.run(
            [*_GIT, *words],
            cwd=directory,
            env={**os.environ, **_ENVIRONMENT},
            capture_output=True,
            timeout=20,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None
