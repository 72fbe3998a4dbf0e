"""Trivial trials through whole tools, as a user starts them: xargs, GNU parallel, Ray Tune, Syne Tune.

Each runs `bash -c true` N times, two at a time, from its command or script to its end; ratios to
`xargs -P2 -n1 bash -c true` in the same round. Ray Tune and Syne Tune live in environments of their own
(.venv-peers), made when this is called with --install; what is absent is said to be.
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
PEERS = ROOT / ".venv-peers"
STOKER = Path(sys.executable).parent / "stoker"
ROUNDS = 3

RAY = """\
import subprocess, sys
import ray
from ray import tune

def train(config):
    subprocess.run(["bash", "-c", "true"], check=True)
    tune.report({"done": 1})

ray.init(num_cpus=2, include_dashboard=False, logging_level="error")
tuner = tune.Tuner(
    tune.with_resources(train, {"cpu": 1}),
    param_space={"n": tune.grid_search(list(range(int(sys.argv[1]))))},
    run_config=tune.RunConfig(storage_path=sys.argv[2], verbose=0),
)
assert len(tuner.fit()) == int(sys.argv[1])
"""
SYNE_TRAIN = """\
import argparse, subprocess
from syne_tune import Reporter

parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int)
parser.parse_known_args()
subprocess.run(["bash", "-c", "true"], check=True)
Reporter()(done=1, epoch=1)
"""
SYNE = """\
import sys
from syne_tune import StoppingCriterion, Tuner
from syne_tune.backend import LocalBackend
from syne_tune.config_space import randint
from syne_tune.optimizer.baselines import RandomSearch

count = int(sys.argv[1])
tuner = Tuner(
    trial_backend=LocalBackend(entry_point=sys.argv[2]),
    scheduler=RandomSearch({"n": randint(0, 10**9)}, metrics=["done"]),
    stop_criterion=StoppingCriterion(max_num_trials_finished=count),
    n_workers=2,
    print_update_interval=1e9,
)
tuner.run()
"""


def shell(command: str) -> None:
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)


def stoker(trials: int, place: Path) -> None:
    numbers = ", ".join(map(str, range(trials)))
    study = f'template: bash -c true\nresource: ["", ""]\n---\nn: [{numbers}]\n'
    (place / "params.yaml").write_text(study)
    subprocess.run([STOKER, "run"], cwd=place, check=True, capture_output=True)


def script(peer: str, text: str, *words: str) -> None:
    python = PEERS / peer / "bin" / "python"
    subprocess.run([str(python), "-c", text, *words], check=True, capture_output=True, cwd=words[-1])


def syne(trials: int, place: Path) -> None:
    (place / "train.py").write_text(SYNE_TRAIN)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(place), "SYNETUNE_FOLDER": str(place)}
    python = PEERS / "syne-tune" / "bin" / "python"
    command = [str(python), "-c", SYNE, str(trials), str(place / "train.py")]
    subprocess.run(command, check=True, capture_output=True, cwd=place, env=environment)


def tools(trials: int) -> dict[str, Callable[[Path], None]]:
    known: dict[str, Callable[[Path], None]] = {
        "xargs bash": lambda place: shell(f"seq {trials} | xargs -P2 -n1 bash -c true"),
        "stoker run": lambda place: stoker(trials, place),
    }
    if shutil.which("parallel"):
        known["GNU parallel"] = lambda place: shell(f"seq {trials} | parallel -j2 bash -c true")
    if (PEERS / "ray").exists():
        known["Ray Tune"] = lambda place: script("ray", RAY, str(trials), str(place))
    if (PEERS / "syne-tune").exists():
        known["Syne Tune"] = lambda place: syne(trials, place)
    return known


def install() -> None:
    for peer, package in (("ray", "ray[tune]"), ("syne-tune", "syne-tune")):
        if not (PEERS / peer).exists():
            print(f"installing {package} into .venv-peers/{peer} …", flush=True)
            subprocess.run([sys.executable, "-m", "venv", str(PEERS / peer)], check=True)
            pip = [str(PEERS / peer / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
            subprocess.run([*pip, package], check=True)


def compare(trials: int, names: tuple[str, ...]) -> None:
    known = {name: act for name, act in tools(trials).items() if name in names}
    taken: dict[str, list[float]] = {name: [] for name in known}
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as scratch:
        for round_ in range(ROUNDS):
            for name, act in known.items():
                place = Path(scratch) / f"{name.replace(' ', '-')}-{round_}"
                place.mkdir()
                began = time.perf_counter()
                act(place)
                taken[name].append(time.perf_counter() - began)
    base = statistics.median(taken["xargs bash"])
    print(f"{trials:,} trials of `bash -c true`, two at a time, start and end of the tool included")
    for name, seconds in taken.items():
        middle = statistics.median(seconds)
        print(f"  {middle / base:8.2f} ×  {middle:7.2f} s  {name}")
    for name in names:
        if name not in known:
            print(f"  absent: {name}")


def main() -> None:
    if "--install" in sys.argv:
        install()
    compare(1000, ("xargs bash", "stoker run", "GNU parallel"))
    compare(20, ("xargs bash", "stoker run", "GNU parallel", "Ray Tune", "Syne Tune"))


if __name__ == "__main__":
    main()
