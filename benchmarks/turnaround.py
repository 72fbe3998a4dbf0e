"""How long a slot stands empty: from the end of a trial's last process to the start of the next one's first.

10,000 trials are planned and some thousands of them run (`sleep 0.02`, two slots), on a directory; then some
hundreds on a real S3 server on loopback that takes 50 ms longer for every answer than it needs.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
PLANNED = 10_000
LATENCY = 0.05
TMPFS = Path("/dev/shm")  # noqa: S108


def agent(place: str, seconds: float) -> None:
    """Be an agent for some seconds, and print how long its slots stood empty."""
    from stoker.agent import guardian

    guard = guardian.enter()

    import threading

    from stoker.agent import local
    from stoker.agent.keeper import Keeper
    from stoker.agent.processes import Processes, Spec, Stage
    from stoker.agent.world import Settings
    from stoker.study.place import open_place

    ended: dict[str, float] = {}
    empty: list[float] = []

    class Measured(Processes):
        def start(self, spec: Spec) -> Stage:
            stage = super().start(spec)
            slot = spec.environment.get("CUDA_VISIBLE_DEVICES", "")
            if slot in ended:
                empty.append(time.perf_counter() - ended.pop(slot))
            return stage

        def _note_end(self, stage: Stage) -> None:
            ended[stage.spec.environment.get("CUDA_VISIBLE_DEVICES", "")] = time.perf_counter()
            super()._note_end(stage)

    local.Processes = Measured  # type: ignore[attr-defined]  # a name that it only imports
    opened = open_place(place)
    keeper = Keeper(("0", "1"), opened.url, read=lambda: None)

    def listen(obey: Callable[[str], None]) -> None:
        threading.Timer(seconds, obey, ["leave"]).start()

    local.run_agent(opened, keeper, Settings(), guard, local.Contact(listen=listen))
    print(json.dumps(sorted(empty)))


def measure(name: str, place: str, trial: str, seconds: float) -> None:
    from stoker.spec.load import load
    from stoker.spec.problems import Source
    from stoker.study.place import open_place
    from stoker.study.work import add_plan, plan_body

    text = f"template: {trial}\n---\nn: [{', '.join(map(str, range(PLANNED)))}]\n"
    add_plan(open_place(place).store, plan_body(load(Source("params.yaml", text)), {}, "20260131.235959"))
    command = [sys.executable, __file__, "agent", place, str(seconds)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    empty = [1000 * one for one in json.loads(done.stdout)]
    middle, late = statistics.median(empty), empty[int(len(empty) * 0.99)]
    print(f"  median {middle:6.2f} ms   99 % {late:6.2f} ms   {len(empty):5} times   {name}")


@contextmanager
def slow_bucket() -> Iterator[str]:
    from tests.store.server import BUCKET, Fault, Weather, proxy, s3_server

    account = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "us-east-1"}
    os.environ.update(account, NO_PROXY="127.0.0.1")
    weather = Weather(lambda request: Fault(delay=LATENCY))
    with s3_server() as server, proxy(server, weather) as address:
        os.environ["AWS_ENDPOINT_URL"] = address
        yield f"s3://{BUCKET}/study"


def main() -> None:
    print(f"how long a slot stands empty between two trials, {PLANNED:,} planned")
    scratch = Path(tempfile.mkdtemp(prefix=".bench-", dir="."))
    os.environ["STOKER_SCRATCH"] = str(scratch / "scratch")
    try:
        for name, place in (("tmpfs", TMPFS / scratch.name), ("this disk", scratch)):
            measure(f"a directory on {name}", str(place / "output"), "sleep 0.02", 15)
            if place != scratch:
                shutil.rmtree(place)
        with slow_bucket() as url:
            measure(f"S3, {1000 * LATENCY:.0f} ms latency", url, "sleep 0.5", 40)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    if sys.argv[1:2] == ["agent"]:
        agent(sys.argv[2], float(sys.argv[3]))
    else:
        main()
