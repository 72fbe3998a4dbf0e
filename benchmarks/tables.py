"""The table of 10,000 trials with 100 points each: Stoker, MLflow on SQLite, TensorBoard event files.

All have the same parameters and the same series, `loss`, made anew in a temporary directory: Stoker's as
records, summaries and files of progress; MLflow's as rows of the tables that MLflow made; TensorBoard's by
tensorboardX. Each is asked for one row for each trial with its parameters and its last value, in a process of
its own, in turn; imports are not counted. MLflow and TensorBoard live in an environment of their own
(.venv-peers/results), made when this is called with --install; what is absent is said to be.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from math import exp
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEER = ROOT / ".venv-peers" / "results"
TRIALS, POINTS, ROUNDS = 10_000, 100, 5
BEGAN = 1_800_000_000.0
RATES, WIDTHS = (0.1, 0.01, 0.001, 0.0001), (32, 64, 128, 256, 512)
STUDY = f"""\
template: {{train: 'train [lr] [width] [seed]'}}
objective: {{metric: loss, goal: min}}
---
lr: {list(RATES)}
width: {list(WIDTHS)}
seed: {list(range(1, TRIALS // 20 + 1))}
"""

TIMED = """\
import resource, sys, time
{imports}
place = sys.argv[1]
began = time.perf_counter()
{read}
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
assert found == {expected}, found
"""
STOKER = (
    "import pandas, stoker, stoker.api, stoker.report.frames, stoker.report.recorded",
    "found = len(stoker.open(place).table())",
)
POINTWISE = (STOKER[0], "found = len(stoker.open(place).progress())")
MLFLOW = (
    "import mlflow; mlflow.set_tracking_uri('sqlite:///' + sys.argv[1])",
    "found = len(mlflow.search_runs(experiment_names=['study'], max_results=50_000))",
)
TENSORBOARD = (
    "import os; from tensorboard.backend.event_processing.event_accumulator import EventAccumulator",
    """\
found = 0
for name in os.listdir(place):
    events = EventAccumulator(os.path.join(place, name))
    events.Reload()
    told = events.summary_metadata['_hparams_/session_start_info'].plugin_data.content
    found += bool(events.Scalars('loss')[-1].value and told)""",
)

MAKE_MLFLOW = """\
import json, sqlite3, sys
import mlflow

mlflow.set_tracking_uri("sqlite:///" + sys.argv[1])
experiment = int(mlflow.create_experiment("study"))
base, runs, params, points, latest, tags = sqlite3.connect(sys.argv[1]), [], [], [], [], []
for line in sys.stdin:
    number, name, told, values = json.loads(line)
    run = f"{number:032x}"
    times = 1_800_000_000_000, 1_800_000_100_000
    source = "me", "LOCAL", "", "", ""
    runs.append((run, name, "FINISHED", *times, "active", "/runs/" + run, experiment, *source))
    params += [(key, str(value), run) for key, value in told.items()]
    points += [("loss", v, 1_800_000_000_000 + 1000 * n, run, n, 0) for n, v in enumerate(values)]
    latest.append(("loss", values[-1], 1_800_000_099_000, len(values) - 1, 0, run))
    tags += [("mlflow.runName", name, run), ("mlflow.user", "me", run)]

def insert(table, columns, rows):
    marks = ", ".join("?" * len(rows[0]))
    base.executemany(f"insert into {table} ({columns}) values ({marks})", rows)

about = "run_uuid, name, status, start_time, end_time, lifecycle_stage, artifact_uri, experiment_id, "
about += "user_id, source_type, source_name, entry_point_name, source_version"
insert("runs", about, runs)
insert("params", "key, value, run_uuid", params)
insert("metrics", "key, value, timestamp, run_uuid, step, is_nan", points)
insert("latest_metrics", "key, value, timestamp, step, is_nan, run_uuid", latest)
insert("tags", "key, value, run_uuid", tags)
base.commit()
"""
MAKE_TENSORBOARD = """\
import json, os, sys
from tensorboardX import SummaryWriter
from tensorboardX.summary import hparams

for line in sys.stdin:
    number, name, told, values = json.loads(line)
    with SummaryWriter(os.path.join(sys.argv[1], name), max_queue=1000) as out:
        for summary in hparams(told, {"loss": values[-1]}):
            out.file_writer.add_summary(summary)
        for step, value in enumerate(values):
            out.add_scalar("loss", value, step, walltime=1_800_000_000 + step)
"""


def series(number: int, rate: float) -> list[float]:
    return [exp(-rate * step) + number * 1e-6 for step in range(POINTS)]


def make_stoker(output: Path) -> list[str]:
    """Write the study; a line for each trial, with number, name, parameters and values, for the others."""
    import json

    from stoker.agent.directory import write_param, write_stat
    from stoker.manager.progress import head, signed
    from stoker.manager.trial import Trial
    from stoker.spec.load import load
    from stoker.spec.problems import Source
    from stoker.store import records
    from stoker.study import summaries
    from stoker.study.place import open_place
    from stoker.study.work import Planned, add_plan, plan_body

    store = open_place(str(output)).store
    body = plan_body(load(Source("params.yaml", STUDY)), {}, "20260131.235959")
    add_plan(store, body)
    planned, lines, results = Planned(body, None), [], {}
    for number in range(1, TRIALS + 1):
        trial = planned.trial(number)
        assert trial is not None
        values = series(number, float(trial.params["lr"]))
        lines.append(json.dumps([number, trial.name, trial.params, values]) + "\n")
        directory = str(output / trial.name)
        Path(directory).mkdir()
        write_param(directory, trial.params, {"_name": trial.name}, {"train": "train"})
        write_stat(directory, {"train": "finished"})
        told = {"name": "loss", "values": values, "times": [BEGAN + step for step in range(POINTS)]}
        progress = f"{head(Trial({}, directory))}\n{signed(told)}\n"
        Path(directory, "progress.train.1-1.jsonl").write_text(progress, encoding="utf-8")
        known = {"count": POINTS, "last": values[-1], "min": min(values), "max": max(values)}
        figures = {"seconds": 100.0, "cpu": 90.0, "memory": 23093248, "slot": "gpu 0", "began": BEGAN}
        result = {"v": 1, "status": "finished", "agent": "somebody", "attempt": 1, "train": figures}
        results[number] = (1, {**result, "series": {"loss": known}, "metrics": {"loss": known["min"]}})
    for place in range(TRIALS // records.RANGE):
        numbers = range(place * records.RANGE + 1, (place + 1) * records.RANGE + 1)
        data = summaries.encode(1, place, records.RANGE, {number: results[number] for number in numbers})
        store.create(records.summary_key(1, place), data)
    return lines


def run(python: str, script: str, *words: str, given: str = "") -> str:
    done = subprocess.run(
        [python, "-c", script, *words], input=given, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def install() -> None:
    if not PEER.exists():
        print("installing MLflow and TensorBoard into .venv-peers/results …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(PEER)], check=True)
        pip = [str(PEER / "bin" / "pip"), "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*pip, "mlflow", "tensorboard", "tensorboardX"], check=True)


def main() -> None:
    if "--install" in sys.argv:
        install()
    print(f"a table of {TRIALS:,} trials with {POINTS} points each")
    own, peer = sys.executable, str(PEER / "bin" / "python")
    with tempfile.TemporaryDirectory(prefix="stoker-bench-") as scratch:
        places = {name: str(Path(scratch, name)) for name in ("output", "mlflow.db", "events")}
        lines = "".join(make_stoker(Path(places["output"])))
        tools = {
            "stoker.open(…).table()": (own, STOKER, places["output"], TRIALS),
            "stoker.open(…).progress(), all points": (own, POINTWISE, places["output"], TRIALS * POINTS),
        }
        if PEER.exists():
            run(peer, MAKE_MLFLOW, places["mlflow.db"], given=lines)
            run(peer, MAKE_TENSORBOARD, places["events"], given=lines)
            tools["MLflow search_runs, SQLite"] = (peer, MLFLOW, places["mlflow.db"], TRIALS)
            tools["TensorBoard EventAccumulator"] = (peer, TENSORBOARD, places["events"], TRIALS)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in tools}
        for _ in range(ROUNDS):
            for name, (python, (imports, read), place, expected) in tools.items():
                told = run(python, TIMED.format(imports=imports, read=read, expected=expected), place)
                seconds, memory = map(float, told.split()[-2:])
                taken[name].append((seconds, memory))
    base = statistics.median(seconds for seconds, _ in taken["stoker.open(…).table()"])
    for name, found in taken.items():
        middle = statistics.median(seconds for seconds, _ in found)
        print(f"  {middle / base:8.2f} ×  {middle:7.2f} s  {max(m for _, m in found):5.0f} MB  {name}")
    if not PEER.exists():
        print("  absent: MLflow, TensorBoard (--install)")


if __name__ == "__main__":
    main()
