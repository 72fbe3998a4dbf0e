"""Real agents on a study in a bucket: they share the work, and a trial's files go with it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store import open_store
from stoker.store.interface import Store
from stoker.store.records import TrialId, parse_key
from stoker.study import files
from stoker.study.state import StudyState
from stoker.study.work import StudyWork, add_plan, plan_body
from tests.local.test_agents import start, wait_until
from tests.store.needs import need
from tests.store.server import BUCKET, Fault, Weather, proxy, s3_server

_places = count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    need("obstore", "moto", "flask", "flask_cors")
    with s3_server() as address:
        yield address


@pytest.fixture
def url(server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    account = {"AWS_ACCESS_KEY_ID": "me", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_REGION": "us-east-1"}
    for name, value in {**account, "NO_PROXY": "127.0.0.1", "AWS_ENDPOINT_URL": server}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STOKER_SCRATCH", str(tmp_path / "scratch"))
    return f"s3://{BUCKET}/studies/{next(_places)}"


def prepare(url: str, text: str) -> Store:
    store = open_store(url)
    add_plan(store, plan_body(load(Source("params.yaml", text)), {}, "20260131.235959"))
    return store


def marks(store: Store) -> Counter[str]:
    found = (parse_key(entry.key) for entry in store.list("trials/"))
    return Counter(mark.kind for mark in found if mark is not None)


def join(url: str, slots: int = 1) -> subprocess.Popen[bytes]:
    return start(url, slots)


@pytest.mark.parametrize(("agents", "trials"), [(2, 30), (8, 40)])
def test_agents_share_the_work(url: str, tmp_path: Path, agents: int, trials: int) -> None:
    numbers = ", ".join(map(str, range(trials)))
    store = prepare(url, f"template: 'echo $$ | tee -a {tmp_path}/trace.{{n}}'\n---\nn: [{numbers}]\n")
    joined = [join(url) for _ in range(agents)]
    assert [agent.wait(timeout=120) for agent in joined] == [0] * agents
    assert all(len(path.read_text().split()) == 1 for path in tmp_path.glob("trace.*"))
    kinds = marks(store)
    assert (kinds["result"], kinds["finished"]) == (trials, trials)
    assert kinds["claim"] == trials + kinds["released"]
    state = StudyState(store, StudyWork(None))
    state.refresh()
    assert state.counts().finished == trials
    log = next(path for path in _files(store, TrialId(1, 7)) if path.startswith("log.train."))
    assert _contents(store, TrialId(1, 7), log) == (tmp_path / "trace.6").read_bytes()
    assert not list((tmp_path / "scratch").rglob("log.*")), "the scratch directory was not cleaned"


def test_a_trial_goes_on_with_its_files_where_it_was_killed(url: str, tmp_path: Path) -> None:
    wait = f"[ $i = 2 ] && [ ! -e {tmp_path}/second ] && sleep 60"
    steps = f"for i in 1 2 3 4; do echo $i >> {{_output}}/steps; {wait}; done"
    resume = f"cat {{_output}}/steps 2> /dev/null > {tmp_path}/found.{{_attempt}}; {steps}"
    store = prepare(url, f"template: '{resume}; true'\nfiles: {{every: 1s}}\n")
    agent = join(url)
    wait_until(lambda: "steps" in _files(store, TrialId(1, 1)), 30)
    os.kill(_pid_of(store), signal.SIGKILL)
    agent.wait(timeout=30)
    (tmp_path / "second").touch()
    assert join(url).wait(timeout=60) == 0
    assert (tmp_path / "found.2").read_text() == "1\n2\n"
    assert _contents(store, TrialId(1, 1), "steps") == b"1\n2\n1\n2\n3\n4\n"


def test_leaving_politely_saves_the_files_first(url: str, tmp_path: Path) -> None:
    trap = (
        'trap "echo saved > {_output}/saved; exit 1" TERM; touch {_output}/begun; while :; do sleep 0.1; done'
    )
    store = prepare(url, f"template: '{trap}'\n")
    agent = join(url)
    wait_until(lambda: any((tmp_path / "scratch").rglob("begun")), 30)
    agent.terminate()
    assert agent.wait(timeout=30) == 0
    assert marks(store) == {"claim": 1, "released": 1}
    assert _contents(store, TrialId(1, 1), "saved") == b"saved\n"


def test_a_store_that_is_away_for_a_while_costs_nothing(
    url: str, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = f"echo x >> {tmp_path}/trace.{{n}}; sleep 0.3"
    store = prepare(url, f"template: '{trace}'\n---\nn: [{', '.join(map(str, range(12)))}]\n")
    weather = Weather()
    with proxy(server, weather) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        agent = join(url, slots=2)
        wait_until(lambda: len(list(tmp_path.glob("trace.*"))) > 3, 30)
        weather.forecast = lambda request: Fault(lands=False, status=503)
        time.sleep(8)
        weather.clear()
        assert agent.wait(timeout=120) == 0
    assert marks(store)["result"] == 12
    assert all(path.read_text() == "x\n" for path in tmp_path.glob("trace.*"))


def _files(store: Store, trial: TrialId) -> list[str]:
    manifest = files.newest(store, trial)
    return list(manifest.files) if manifest else []


def _contents(store: Store, trial: TrialId, path: str) -> bytes:
    manifest = files.newest(store, trial)
    assert manifest is not None
    return b"".join(files.read_file(store, manifest.files[path]))


def _pid_of(store: Store) -> int:
    (beat,) = (store.read(entry.key) for entry in store.list("beats/"))
    return int(json.loads(beat or b"")["pid"])
