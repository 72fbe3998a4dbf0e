"""What a check comes to, and the questions to other programs that many of them ask."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from enum import Enum

FEW = 0.05
"""A share of a disk or of a quota that is little."""
ODD = 5.0
"""Seconds that clocks may differ, and that news may take, before it is worth a word."""
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class Verdict(Enum):
    """How it is."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. What is not well has a remedy."""

    name: str
    verdict: Verdict
    found: str
    remedy: str = ""


def ok(name: str, found: str) -> Check:
    """It is well, or only told."""
    return Check(name, Verdict.OK, found)


def warning(name: str, found: str, remedy: str) -> Check:
    """Stoker works, but something will be odd."""
    return Check(name, Verdict.WARNING, found, remedy)


def bad(name: str, found: str, remedy: str) -> Check:
    """Stoker does not work like this."""
    return Check(name, Verdict.BAD, found, remedy)


def size(count: float) -> str:
    """`17 B`, `1.2 MB`."""
    unit = 0
    while count >= 999.5 and unit < len(_UNITS) - 1:
        count, unit = count / 1000, unit + 1
    return f"{count:.3g} {_UNITS[unit]}"


def judge_clock(name: str, whose: str, ahead: float, unsure: float = 0.0) -> Check:
    """How far a clock is ahead of ours, in seconds, give or take some."""
    if abs(ahead) <= ODD + unsure:
        told = "as ours" if abs(ahead) < max(1.0, unsure) else f"{_apart(ahead)} ours"
        return ok(name, f"{whose} is {told}")
    remedy = "set both by NTP: nothing is decided by clocks, but times shown will be odd"
    return warning(name, f"{whose} is {_apart(ahead)} ours", remedy)


def _apart(ahead: float) -> str:
    return f"{abs(ahead):.1f} s {'ahead of' if ahead > 0 else 'behind'}"


@dataclass(frozen=True)
class Answer:
    """What a command said. The code is None if it is not there, or took too long."""

    code: int | None
    out: str = ""
    error: str = ""

    @property
    def reason(self) -> str:
        """Why it failed, in its own words: the last of them."""
        lines = [line.strip() for line in f"{self.out}\n{self.error}".splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.code}"


def ask(*words: str, patience: float = 10.0) -> Answer:
    """Run a command that only tells something. Never raises, and may be repeated."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(None, error=f"no answer in {patience:.0f} s")
    except OSError as error:
        return Answer(None, error=f"{words[0]}: {error.strerror}")
    return Answer(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
