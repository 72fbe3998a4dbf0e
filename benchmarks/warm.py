"""How fast short trials of a script that uses torch follow one another: cold, preloaded, and served.

A study of trials that import torch and train for a tenth of a second, on two slots, three times: as it is,
with `preload`, and with `warm: true`. They take turns, the cold one of each round is divided by the others,
and the median of these ratios counts: of the time for a trial once each slot has had its first one; and,
beside it, of all the time since the agent was started, divided by the trials.

torch imports a large part of itself only when the first optimizer is made, so that is preloaded too.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SLOTS = 2
TRAIN = """
import time
import torch

def run(*_):
    until = time.perf_counter() + 0.1
    model = torch.nn.Linear(32, 32)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while time.perf_counter() < until:
        optimizer.zero_grad()
        model(torch.randn(64, 32)).square().mean().backward()
        optimizer.step()
"""
PLAIN = f"{TRAIN}\nrun()\n"
SERVED = f"{TRAIN}\nfrom stoker import Manager\nManager.create_manager().hyparam_search(run)\n"
WAYS = {
    "cold": (PLAIN, "", 6),
    "preload": (PLAIN, "preload: torch\n", 60),
    "warm": (SERVED, "warm: true\n", 60),
}


def seconds_a_trial(script: str, setting: str, trials: int) -> tuple[float, float]:
    """Seconds for each trial, with everything and without the first of each slot."""
    from tests.local.test_agents import prepare

    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        (place / "train.py").write_text(script)
        numbers = ", ".join(map(str, range(trials)))
        command = f"{sys.executable} {place / 'train.py'}"
        prepare(place / "output", f"template: {command}\n{setting}---\nn: [{numbers}]\n")
        agent = [sys.executable, str(ROOT / "tests/warm/agent_process.py"), str(place / "output"), str(SLOTS)]
        began = time.time()
        told = subprocess.run(agent, check=True, capture_output=True, text=True).stdout
    events = [json.loads(line) for line in told.splitlines()]
    problems = [event for event in events if event["event"] == "note" or event.get("outcome") == "failed"]
    if problems:
        raise SystemExit(f"failed: {problems[0]}")
    ends = sorted(event["time"] for event in events if event["event"] == "end")
    return (ends[-1] - began) / trials, (ends[-1] - ends[SLOTS - 1]) / (trials - SLOTS)


def main(rounds: int = 3) -> None:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            taken[name].append(seconds_a_trial(*way))
    print(f"trials that import torch and train 0.1 s, {SLOTS} slots, {rounds} rounds")
    for name, each in taken.items():
        whole, later = (
            statistics.median(cold[k] / one[k] for cold, one in zip(taken["cold"], each, strict=True))
            for k in (0, 1)
        )
        middle, trials = statistics.median(one[1] for one in each), WAYS[name][2]
        print(f"{later:6.1f} ×  {1000 * middle:6.0f} ms a trial  {name}")
        print(f"{whole:6.1f} ×  all {trials}, from the start of the agent")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
