"""Large studies: a plan of a million trials begins; the state of a hundred thousand finished ones is read.

`stoker status` on them is timed as a person feels it, with Python's start.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STOKER = str(Path(sys.executable).parent / "stoker")
MILLION = "template: 'true'\n---\na: {step: [0, 1]}\n_trials: 1000000\n"
FINISHED = 100_000


def plan(output: Path, text: str) -> None:
    from stoker.spec.load import load
    from stoker.spec.problems import Source
    from stoker.study.place import open_place
    from stoker.study.work import add_plan, plan_body

    body = plan_body(load(Source("params.yaml", text)), {}, "20260131.235959")
    add_plan(open_place(str(output)).store, body)


def begin_million(output: Path) -> None:
    plan(output, MILLION)
    began = time.perf_counter()
    agent = subprocess.Popen([sys.executable, str(ROOT / "tests/local/agent_process.py"), str(output), "2"])
    while not any((output / ".stoker").glob("trials/*/*/*.claim")):
        time.sleep(0.002)
    first = time.perf_counter() - began
    time.sleep(8)
    agent.terminate()
    agent.wait()
    done = len(list((output / ".stoker").glob("trials/*/*/*.result")))
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"  first trial after {first:.2f} s, {done:,} done after 8 s more, {peak:.0f} MB: a million planned"
    )


def read_state(output: Path) -> None:
    from stoker.store import records
    from stoker.study import summaries
    from stoker.study.opened import open_study
    from stoker.study.place import open_place

    plan(output, MILLION.replace("1000000", str(FINISHED)))
    store = open_place(str(output)).store
    figures = {"seconds": 0.002, "cpu": 0.001, "memory": 23093248}
    body = {"status": "finished", "agent": "somebody", "attempt": 1, "train": figures}
    for place in range(FINISHED // records.RANGE):
        numbers = range(place * records.RANGE + 1, (place + 1) * records.RANGE + 1)
        results = dict.fromkeys(numbers, (1, body))
        data = summaries.encode(1, place, records.RANGE, results)
        store.create(records.summary_key(1, place), data)
    began = time.perf_counter()
    state = open_study(str(output)).state
    assert state.counts().finished == FINISHED
    print(f"  {time.perf_counter() - began:.2f} s: the state of {FINISHED:,} finished trials")
    for words in (["status"], ["status", "--json"]):
        began = time.perf_counter()
        environment = {**os.environ, "STOKER_OUTPUT": str(output)}
        done = subprocess.run([STOKER, *words], check=True, capture_output=True, text=True, env=environment)
        assert f"{FINISHED:,}" in done.stdout or json.loads(done.stdout)["counts"]["finished"] == FINISHED
        print(f"  {time.perf_counter() - began:.2f} s: stoker {' '.join(words)}")


def main() -> None:
    print("large studies")
    scratch = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    try:
        begin_million(scratch / "million")
        read_state(scratch / "finished")
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
