"""3,000 trials of `true` on two slots, all records kept, against xargs and GNU parallel.

Rounds take turns, so that a noisy machine is noisy to all. Ratios to `xargs -P2 -n1 bash -c true`.
What the rounds wrote is removed at the end: for a minute after many files were removed, ext4 creates new ones
twenty times more slowly, as it passes over inodes that were deleted lately.
`python benchmarks/trials.py DIRECTORY` runs it on the file system of that directory.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIALS, ROUNDS = 3000, 5
STUDY = f'template: "true"\n---\nn: [{", ".join(map(str, range(TRIALS)))}]\n'
XARGS = f"seq {TRIALS} | xargs -P2 -n1 bash -c true"
PARALLEL = f"seq {TRIALS} | parallel -j2 true"


def stoker(place: Path) -> None:
    from stoker.spec.load import load
    from stoker.spec.problems import Source
    from stoker.study.place import open_place
    from stoker.study.work import add_plan, plan_body

    output = Path(tempfile.mkdtemp(dir=place)) / "output"
    add_plan(
        open_place(str(output)).store, plan_body(load(Source("params.yaml", STUDY)), {}, "20260131.235959")
    )
    agent = [sys.executable, str(ROOT / "tests/local/agent_process.py"), str(output), "2"]
    subprocess.run(agent, check=True)
    assert len(list((output / ".stoker/trials/0001").rglob("*.result"))) == TRIALS


def shell(command: str) -> None:
    subprocess.run(["bash", "-c", command], check=True)


def main() -> None:
    around = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.gettempdir())
    place = Path(tempfile.mkdtemp(dir=around, prefix=".bench-"))
    work: dict[str, Callable[[], None]] = {
        "xargs bash": lambda: shell(XARGS),
        "stoker": lambda: stoker(place),
    }
    if shutil.which("parallel"):
        work["GNU parallel"] = lambda: shell(PARALLEL)
    else:
        print("GNU parallel is absent")
    taken: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(ROUNDS):
        for name, run in work.items():
            start = time.perf_counter()
            run()
            taken[name].append(time.perf_counter() - start)
    shutil.rmtree(place)
    base = statistics.median(taken["xargs bash"])
    print(f"{TRIALS} trials of `true` in {around}")
    for name, seconds in taken.items():
        print(f"  {statistics.median(seconds) / base:5.2f} ×  {statistics.median(seconds):6.2f} s  {name}")


if __name__ == "__main__":
    main()
