"""The table of 10,000 trials with 100 points each: Stoker, MLflow `search_runs` on SQLite, TensorBoard's reader.

Each has the same parameters and series, made anew in a temporary directory, and each is asked for one data frame
with a row for each trial, in a fresh process; imports are not counted. `points` asks for all million points: Stoker's
`progress()` and, as MLflow has no such call, one query of its SQLite file for all of them. MLflow and TensorBoard live
in an environment of their own (.venv-peers/results), made when this is called with --install.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from math import exp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".venv-peers" / "results"
TRIALS, POINTS = 10_000, 100
BEGAN = 1_800_000_000.0
STUDY = """\
template: 'train [lr] [width] [seed]'
objective: {metric: loss, goal: min}
---
lr: [0.1, 0.01, 0.001, 0.0001]
width: [32, 64, 128, 256, 512]
seed: {step: [1, SEEDS]}
"""

READ = """\
import resource, sys, time
{imports}
began = time.perf_counter()
{read}
taken = time.perf_counter() - began
assert {check}, {check_shown}
print(taken, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""
READERS = {
    "stoker": ("import stoker, pandas", "found = stoker.open(sys.argv[1]).table()", "len(found)"),
    "mlflow": (
        "import mlflow; mlflow.set_tracking_uri('sqlite:///' + sys.argv[1])",
        "found = mlflow.search_runs(experiment_names=['study'], max_results=50_000)",
        "len(found)",
    ),
}
