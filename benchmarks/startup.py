"""How long a person waits for `--help`, and for a plan, next to what they might use instead.

Peers are installed into a virtual environment of their own (.venv-peers), once. All commands take turns, so
that a noisy machine is noisy to all; medians are printed as multiples of `python -c pass`.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-peers"
ROUNDS = 15

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "stoker --help": [str(Path(sys.executable).parent / "stoker"), "--help"],
    "stoker check (starter file)": [
        str(Path(sys.executable).parent / "stoker"), "check", str(ROOT / "src/stoker/spec/starter.yaml"),
    ],
    "optuna --help": [str(PEERS / "bin/optuna"), "--help"],
    "wandb --help": [str(PEERS / "bin/wandb"), "--help"],
    "import hydra": [str(PEERS / "bin/python"), "-c", "import hydra"],
    "import submitit": [str(PEERS / "bin/python"), "-c", "import submitit"],
}  # fmt: skip


def main() -> None:
    if not PEERS.exists():
        print("installing peers into .venv-peers …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True)
        packages = ["optuna", "wandb", "hydra-core", "submitit"]
        subprocess.run([str(PEERS / "bin/pip"), "install", "--quiet", *packages], check=False)
    present = {name: command for name, command in COMMANDS.items() if Path(command[0]).exists()}
    taken: dict[str, list[float]] = {name: [] for name in present}
    for _ in range(ROUNDS):
        for name, command in present.items():
            start = time.perf_counter()
            subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            taken[name].append(time.perf_counter() - start)
    base = statistics.median(taken["python -c pass"])
    for name in COMMANDS:
        told = f"{statistics.median(taken[name]) / base:6.1f} ×" if name in taken else "  absent"
        print(f"{told}  {name}")


if __name__ == "__main__":
    main()
