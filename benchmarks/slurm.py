"""1,000 trials of `true` on a Slurm with three nodes: agents of Stoker, a job for each, and submitit's array.

The cluster is made here, on this machine (Debian's slurm-wlm, as root), with a scheduler that looks every
second. Each way is timed from its command to its last result. submitit lives in .venv-peers/submitit, made
when this is called with --install; what is absent is said to be.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.slurm.cluster import Cluster, is_here  # noqa: E402  (it is not installed)

PEER = ROOT / ".venv-peers" / "submitit"
STOKER = Path(sys.executable).parent / "stoker"
TRIALS = 1000
SUBMITIT = """
import subprocess, sys
import submitit

executor = submitit.AutoExecutor(folder=sys.argv[1], cluster="slurm")
executor.update_parameters(timeout_min=60, slurm_array_parallelism=1000, cpus_per_task=1)
executor.map_array(lambda n: subprocess.run(["true"], check=True).returncode, range(int(sys.argv[2])))
"""


def wait(count: Callable[[], int], most: float = 900.0) -> None:
    until = time.monotonic() + most
    while count() < TRIALS:
        if time.monotonic() > until:
            raise TimeoutError(f"{count()} of {TRIALS}")
        time.sleep(0.1)


def agents(place: Path, cluster: Cluster) -> None:
    numbers = ", ".join(map(str, range(TRIALS)))
    engine = 'engine: {slurm: {agents: 3, cpus: 4, resource: ["", ""]}}'
    text = f'template: "true"\n{engine}\n---\nn: [{numbers}]\n'
    (place / "params.yaml").write_text(text)
    command = [str(STOKER), "run", "--on", "slurm"]
    subprocess.run(command, cwd=place, env=cluster.environment, check=True, capture_output=True)
    wait(lambda: sum(1 for _ in (place / "output/.stoker/trials").rglob("*.result")))


def jobs(place: Path, cluster: Cluster) -> None:
    (place / "done").mkdir()
    script = 'for ((i = 0; i < $1; i++)); do sbatch -Q -o /dev/null --wrap "true; touch done/$i"; done'
    subprocess.run(["bash", "-c", script, "-", str(TRIALS)], cwd=place, env=cluster.environment, check=True)
    wait(lambda: sum(1 for _ in (place / "done").iterdir()))


def submitit(place: Path, cluster: Cluster) -> None:
    command = [str(PEER / "bin" / "python"), "-c", SUBMITIT, str(place / "log"), str(TRIALS)]
    subprocess.run(command, cwd=place, env=cluster.environment, check=True, capture_output=True)
    wait(lambda: sum(1 for _ in (place / "log").glob("*_result.pkl")))


def main() -> None:
    if not is_here():
        print("Slurm is absent, or this is not root")
        return
    if "--install" in sys.argv and not PEER.exists():
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        pip = [str(PEER / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "submitit"]
        subprocess.run(pip, check=True)
    ways = {"agents of Stoker": agents, "a job for each, by sbatch": jobs}
    if PEER.exists():
        ways["submitit's array"] = submitit
    else:
        print("submitit is absent")
    taken = {}
    for name, way in ways.items():
        with tempfile.TemporaryDirectory(prefix="stoker-bench-") as place:
            cluster = Cluster(Path(place) / "cluster", largest_array=2001)
            try:
                work = Path(place) / "work"
                work.mkdir()
                begin = time.perf_counter()
                way(work, cluster)
                taken[name] = time.perf_counter() - begin
            finally:
                cluster.stop()
        print(f"  {taken[name] / taken['agents of Stoker']:6.1f} ×  {taken[name]:7.1f} s  {name}", flush=True)


if __name__ == "__main__":
    main()
