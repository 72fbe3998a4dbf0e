"""How fast an agent starts stages: 3,000 times `true` on two slots, next to what a person would write.

All take turns, and each is divided by the first of its round, so that a noisy machine is noisy to all; the
median of these ratios counts. Every stage of ours has its own log, group and mark, and is searched for
leftovers. Logs are deleted at the end only: ext4 makes new files slowly after thousands were deleted.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stoker.agent.processes import Processes, Spec

SLOTS = 2


def through_processes(command: str, trials: int, directory: Path) -> None:
    specs = (Spec(command, directory / f"log.{number}") for number in range(trials))
    with Processes() as processes:
        running = [processes.start(next(specs)) for _ in range(SLOTS)]
        while running:
            for ended in processes.poll():
                if ended.code != 0:
                    raise SystemExit(f"failed: {ended}")
                running.remove(ended.stage)
                running += [processes.start(spec) for spec in [next(specs, None)] if spec]


def through_xargs(command: list[str], trials: int) -> None:
    subprocess.run(
        ["xargs", f"-P{SLOTS}", "-n1", *command],
        input="x\n" * trials,
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )


WAYS: dict[str, Callable[[int, Path], None]] = {
    "xargs -P2 -n1 bash -c true": lambda trials, _: through_xargs(["bash", "-c", "true"], trials),
    "xargs -P2 -n1 true": lambda trials, _: through_xargs(["true"], trials),
    "stages, started directly: true": lambda trials, logs: through_processes("true", trials, logs),
    "stages, in bash: true;": lambda trials, logs: through_processes("true;", trials, logs),
}


def seconds(run: Callable[[int, Path], None], trials: int, logs: Path) -> float:
    logs.mkdir(parents=True)
    start = time.perf_counter()
    run(trials, logs)
    return time.perf_counter() - start


def main(rounds: int = 5, trials: int = 3000) -> None:
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as place:
        for number in range(rounds):
            for name, run in WAYS.items():
                taken[name].append(seconds(run, trials, Path(place, name, str(number))))
    first = next(iter(taken.values()))
    print(f"{trials:,} trials on {SLOTS} slots, {rounds} rounds")
    for name, each in taken.items():
        ratio = statistics.median(ours / base for ours, base in zip(each, first, strict=True))
        print(f"{ratio:6.2f} ×  {statistics.median(each) / trials * 1e6:6.0f} µs a trial  {name}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
