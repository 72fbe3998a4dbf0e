"""One value of progress, as training waits for it: against tensorboardX, wandb offline and mlflow on SQLite.

Each tool logs in a process of its own, by its own call, and the median of single calls counts, less what it
takes to call nothing; rounds take turns. The peers live in an environment of their own (.venv-peers/logging),
made when this is called with --install; what is absent is said to be.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".venv-peers" / "logging"
PATH = ROOT / "src" / "stoker" / "manager" / "path"
ROUNDS = 5

MEASURE = """
import json, sys, time

def measure(log, calls, clock=time.perf_counter_ns):
    taken = []
    for step in range(calls):
        value = 1.0 / (step + 1)
        begin = clock()
        log(step, value)
        taken.append(clock() - begin)
    return sorted(taken)

calls = int(sys.argv[1])
taken, none = measure(log, calls), measure(lambda step, value: None, 10000)[5000]
print(json.dumps({"median": taken[calls // 2] - none, "99": taken[calls * 99 // 100] - none}), flush=True)
end()
"""
STOKER = """
from stoker import TestManager
manager = TestManager.create_manager({})
def log(step, value, add=manager.add_progress): add("loss", value)
def end(): pass
"""
TENSORBOARDX = """
from tensorboardX import SummaryWriter
writer = SummaryWriter("logs")
def log(step, value): writer.add_scalar("loss", value, step)
end = writer.close
"""
WANDB = """
import os
os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_CONSOLE="off")
import wandb
run = wandb.init(project="bench", dir=".", settings=wandb.Settings(console="off", x_disable_stats=True))
def log(step, value): run.log({"loss": value})
end = run.finish
"""
MLFLOW = """
import logging, mlflow
logging.disable(logging.WARNING)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.start_run()
def log(step, value): mlflow.log_metric("loss", value, step)
end = mlflow.end_run
"""
PEERS = {"tensorboardX": (TENSORBOARDX, 20000), "wandb": (WANDB, 5000), "mlflow": (MLFLOW, 100)}


def measure(python: str, setup: str, calls: int) -> dict[str, float]:
    """Nanoseconds of a call; it runs where it may write."""
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as place:
        environment = {"PATH": "/usr/bin:/bin", "HOME": place, "PYTHONPATH": str(PATH)}
        command = [python, "-c", setup + MEASURE, str(calls)]
        ran = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(
        next(line for line in ran.stdout.splitlines() if line.startswith("{"))
    )
    return found


def install() -> None:
    if not PEER.exists():
        print("installing tensorboardX, wandb and mlflow into .venv-peers/logging …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        pip = [str(PEER / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, *PEERS], check=True)


def has(module: str) -> bool:
    python = PEER / "bin" / "python"
    return (
        python.exists()
        and not subprocess.run(
            [str(python), "-c", f"import {module}"], capture_output=True, check=False
        ).returncode
    )


def main() -> None:
    if "--install" in sys.argv:
        install()
    tools = {"stoker": (sys.executable, STOKER, 100000)}
    for name, (setup, calls) in PEERS.items():
        if has(name):
            tools[name] = str(PEER / "bin" / "python"), setup, calls
        else:
            print(f"{name} is absent")
    taken: dict[str, list[dict[str, float]]] = {name: [] for name in tools}
    for _ in range(ROUNDS):
        for name, tool in tools.items():
            taken[name].append(measure(*tool))
    base = statistics.median(one["median"] for one in taken["stoker"])
    print("a value of progress: median of single calls, and the 99th of 100")
    for name, found in taken.items():
        middle, high = (statistics.median(one[key] for one in found) / 1000 for key in ("median", "99"))
        print(f"  {middle * 1000 / base:8.1f} ×  {middle:9.2f} µs  {high:9.2f} µs  {name}")


if __name__ == "__main__":
    main()
