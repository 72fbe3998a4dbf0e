"""Planning: one trial of a large grid, against listing the grid as a script would (itertools.product)."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable

from stoker.plan.trials import Plan
from stoker.spec.load import load
from stoker.spec.problems import Source

VALUES = list(range(10))
AXES = 6


def plan() -> Plan:
    axes = "".join(f"p{axis}: {VALUES}\n" for axis in range(AXES))
    study = load(Source("params.yaml", f"template: run [p0]\n---\n{axes}"))
    return Plan(study.sweeps, ["train"])


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds and peak megabytes."""
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    return seconds, peak


def main() -> None:
    size = len(VALUES) ** AXES
    names = [f"p{axis}" for axis in range(AXES)]
    listed = measured(
        lambda: [dict(zip(names, row, strict=True)) for row in itertools.product(VALUES, repeat=AXES)]
    )
    planned = measured(lambda: plan().trial(size - 1))
    made = plan()
    start = time.perf_counter()
    for index in range(0, size, size // 1000):
        made.trial(index)
    each = (time.perf_counter() - start) / 1000
    print(f"a grid of {size:,} trials")
    print(f"  list them all   {listed[0]:8.3f} s  {listed[1]:8.1f} MB")
    print(f"  plan, last one  {planned[0]:8.3f} s  {planned[1]:8.1f} MB")
    print(f"  planning is {listed[0] / planned[0]:.0f} × faster")
    print(f"  one trial with name, duplicates and collisions decided: {each * 1e6:.0f} µs")


if __name__ == "__main__":
    main()
