"""The report of a large study: 10,000 trials with 100 values of two metrics each; one in fifty failed.

Prints how long `stoker report` takes with all of Python's start, how large the page is, and how much memory
it took. The limits are 20 s and 30 MB.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from math import exp, sin
from pathlib import Path
from typing import Any

STOKER = str(Path(sys.executable).parent / "stoker")
TRIALS, POINTS, SLOTS = 10_000, 100, 8
TEXT = """\
template: 'train.py [lr] [depth] [norm]'
objective: {metric: val_loss, goal: min}
---
_title: wide
_trials: 8000
lr: {log_uniform: [1e-5, 1]}
depth: {int_uniform: [1, 12]}
norm: {choice: [batch, layer, none]}
---
_title: near
_trials: 2000
lr: {log_uniform: [1e-3, 1e-2]}
depth: 4
norm: layer
"""
BEGAN = 1_760_000_000.0


def make(output: Path) -> None:
    """Write the study as agents would leave it."""
    from stoker.agent.directory import write_param
    from stoker.manager.progress import signed
    from stoker.manager.trial import progress_path
    from stoker.spec.load import load
    from stoker.spec.problems import Source
    from stoker.store import records
    from stoker.study import summaries
    from stoker.study.opened import open_study
    from stoker.study.place import open_place
    from stoker.study.work import add_plan, plan_body

    store = open_place(str(output)).store
    add_plan(store, plan_body(load(Source("params.yaml", TEXT)), {}, "20260131.235959"))
    opened = open_study(str(output))
    stage = opened.study.stages[0].name
    for place in range(TRIALS // records.RANGE):
        results = {}
        for number in range(place * records.RANGE + 1, (place + 1) * records.RANGE + 1):
            trial = opened.work.trial(records.TrialId(1, number))
            if trial is None:  # drawn before
                continue
            body, series = trial_of(number, stage, float(trial.params["lr"]))
            results[number] = (1, body)
            directory = output / trial.name
            directory.mkdir(parents=True)
            write_param(str(directory), trial.params, {}, {})
            if body["status"] == "failed":
                (directory / f"log.{stage}.20260131.235959").write_text(LOG.format(number=number))
                continue
            path = Path(progress_path(str(directory), stage, (1, 1)))
            path.parent.mkdir(exist_ok=True)
            lines = [{"v": 1, "stage": stage, "attempt": [1, 1], "after": None}]
            lines += [{"name": name, "values": values, "times": TIMES} for name, values in series.items()]
            path.write_text("".join(f"{signed(line)}\n" for line in lines))
        data = summaries.encode(1, place, records.RANGE, results)
        store.create(records.summary_key(1, place), data)


TIMES = [round(BEGAN + 0.5 * n, 3) for n in range(POINTS)]
LOG = (
    'Traceback (most recent call last):\n  File "/x/train.py", line 7, in main\nValueError: {number} is bad\n'
)


def trial_of(number: int, stage: str, lr: float) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """The result of a trial, and its series."""
    end = 0.2 + 0.1 * sin(number) + min(1.0, lr)
    loss = [round(end + 2 * exp(-n / 15) + 0.02 * sin(n * number), 6) for n in range(POINTS)]
    series = {"val_loss": loss, "val_acc": [round(1 - value / 4, 6) for value in loss]}
    told = {
        name: {"count": POINTS, "last": v[-1], "min": min(v), "max": max(v)} for name, v in series.items()
    }
    figures: dict[str, Any] = {
        "seconds": 50.0,
        "cpu": 48.0,
        "memory": 2 << 30,
        "slot": f"gpu {number % SLOTS}",
    }
    figures["began"] = BEGAN + 50.2 * (number // SLOTS)
    body: dict[str, Any] = {
        "agent": "machine-1",
        "attempt": 1,
        "time": "2026-01-31T23:59:59Z",
        stage: figures,
    }
    if number % 50 == 0:
        figures.update(code=1, signal=None, why="exited")
        return {"status": "failed", "why": "failed", **body}, {}
    metrics = {"val_loss": told["val_loss"]["min"], "val_acc": told["val_acc"]["last"]}
    return {"status": "finished", "metrics": metrics, "series": told, **body}, series


def main() -> None:
    scratch = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        output, page = scratch / "output", scratch / "report.html"
        make(output)
        print(f"the report of {TRIALS:,} trials with {2 * POINTS} values each")
        began = time.perf_counter()
        subprocess.run(
            [STOKER, "report", str(output), "-o", str(page)], check=True, stdout=subprocess.DEVNULL
        )
        took = time.perf_counter() - began
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
        size = page.stat().st_size / 1e6
        print(f"  {took:.1f} s, {size:.1f} MB of HTML, {peak:.0f} MB of memory")
        assert took < 20, "it takes too long"
        assert size < 30, "it is too large"
        if len(sys.argv) > 1:
            shutil.copy(page, sys.argv[1])
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
