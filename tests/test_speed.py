"""What must stay instant: starting, helping, and looking at a huge grid. Ratios, never seconds alone."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.stories.command import STOKER

pytestmark = pytest.mark.timing
MEASURED = f"""
import resource, subprocess
subprocess.run([{STOKER!r}, "check"], check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A small process in between: Linux counts in what a process had before it became another one."""


def seconds(*command: str, times: int = 15) -> float:
    """Median time of a command."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def test_help_is_instant() -> None:
    assert seconds(STOKER, "--help") <= 8 * seconds(sys.executable, "-c", "pass")


def test_importing_costs_next_to_nothing() -> None:
    added = seconds(sys.executable, "-c", "import stoker") - seconds(sys.executable, "-c", "pass")
    assert added <= 0.030


def test_ten_million_trials(workplace: Path) -> None:
    """Half a second on a quiet machine; here as a multiple of what importing yaml and rich takes."""
    values = ", ".join(str(value) for value in range(10))
    axes = "".join(f"p{axis}: [{values}]\n" for axis in range(7))
    Path("params.yaml").write_text(f"template: run [p0] [p1]\n---\n{axes}---\n{axes}", encoding="utf-8")
    start = time.perf_counter()
    told = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    taken = time.perf_counter() - start
    assert "trials     10,000,000 (20,000,000 asked for, 10,000,000 of them repeats)" in told.stdout
    assert taken <= 8 * seconds(sys.executable, "-c", "import yaml, rich.table")
    assert int(told.stdout.split()[-1]) <= 100 * 1024
