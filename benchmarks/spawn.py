"""How fast an agent starts stages: 3,000 times `true` on two slots, next to what a person would write.

All take turns, so that a noisy machine is noisy to all; the best round of each counts, since noise only adds.
Every stage of ours has its own log, session and mark, and is searched for leftovers.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from stoker.agent.processes import Processes, Spec

SLOTS = 2


def through_processes(command: str, trials: int) -> None:
    with tempfile.TemporaryDirectory() as directory, Processes() as processes:
        left = iter(range(trials))
        running = 0
        for _ in range(SLOTS):
            processes.start(Spec(command, Path(directory, f"log.{next(left)}")))
            running += 1
        while running:
            for ended in processes.poll():
                if ended.code != 0:
                    raise SystemExit(f"failed: {ended}")
                running -= 1
                number = next(left, None)
                if number is not None:
                    processes.start(Spec(command, Path(directory, f"log.{number}")))
                    running += 1


def through_xargs(command: list[str], trials: int) -> None:
    subprocess.run(
        ["xargs", f"-P{SLOTS}", "-n1", *command],
        input="x\n" * trials,
        text=True,
        check=True,
        stdout=subprocess.DEVNULL,
    )


WAYS: dict[str, Callable[[int], None]] = {
    "xargs -P2 -n1 bash -c true": lambda trials: through_xargs(["bash", "-c", "true"], trials),
    "xargs -P2 -n1 true": lambda trials: through_xargs(["true"], trials),
    "stages, started directly: true": lambda trials: through_processes("true", trials),
    "stages, in bash: true;": lambda trials: through_processes("true;", trials),
}


def main(rounds: int = 5, trials: int = 3000) -> None:
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, run in WAYS.items():
            start = time.perf_counter()
            run(trials)
            taken[name].append(time.perf_counter() - start)
    base = min(taken["xargs -P2 -n1 bash -c true"])
    print(f"{trials:,} trials on {SLOTS} slots, best of {rounds} rounds")
    for name, seconds in taken.items():
        best = min(seconds)
        print(f"{best / base:6.2f} ×  {best / trials * 1e6:6.0f} µs a trial  {name}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
