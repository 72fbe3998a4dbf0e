"""Rows of a study in a bucket: results from records, progress of what runs from files that agents sent."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stoker.agent.mirror import Mirror
from stoker.agent.world import Attempt
from stoker.core.times import stamp
from stoker.report import frames
from stoker.report.recorded import Recorded
from stoker.report.rows import Numbers
from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store import records
from stoker.store.memory import MemoryStore
from stoker.store.records import TrialId
from stoker.study.opened import Opened
from stoker.study.place import Place
from stoker.study.work import add_plan, plan_body
from tests.report.test_rows import AGENT, Fact, Try, result, write_progress

STUDY = """\
template: {train: 'true'}
metrics: {speed: 'speed (\\S+)'}
objective: {metric: loss, goal: min}
---
seed: [1, 2, 3]
"""


def put(store: MemoryStore, key: str, body: Mapping[str, Any]) -> None:
    store.write(key, records.encode(body))


def send(store: MemoryStore, directory: Path, trial: TrialId, fact: Fact) -> None:
    """As an agent sends what a trial wrote."""
    directory.mkdir()
    write_progress(directory, fact)
    (directory / "log.train.20260131.235959").write_text("speed 1\nspeed 2.5\n", encoding="utf-8")
    (directory / "model.pt").write_bytes(b"\0" * 1000)
    Mirror(store, Attempt(trial, 1, len(fact.tries), "nonce"), directory).save()


def test_a_bucket_while_the_study_runs(tmp_path: Path) -> None:
    store = MemoryStore()
    add_plan(store, plan_body(load(Source("params.yaml", STUDY)), {}, "20260131.235959"))
    done = Fact("finished", (Try(1.0, {"loss": [3.0, 1.0, 2.0]}),), {}, {"seconds": 2.0})
    running = Fact("running", (Try(1.0, {"loss": [5.0, 4.0]}), Try(0.5, {"loss": [3.0, 6.0]})))
    send(store, tmp_path / "1", TrialId(1, 1), done)
    send(store, tmp_path / "2", TrialId(1, 2), running)
    put(store, records.claim_key(TrialId(1, 1), 1, 1), {"agent": AGENT, "time": stamp(), "nonce": "1"})
    put(store, records.result_key(TrialId(1, 1), 1), result(done, None))
    claim = records.claim_key(TrialId(1, 2), 1, 2)
    put(store, claim, {"agent": AGENT, "time": stamp(), "nonce": "1"})
    put(store, records.beat_key(AGENT), {"host": "h", "pid": 7, "running": [claim], "time": stamp()})
    opened = Opened(Place("memory://", store, None))
    opened.refresh()

    made = list(Recorded(opened).rows())
    assert [(row.status, row.attempts) for row in made] == [("finished", 1), ("running", 2), ("waiting", 0)]
    assert made[0].metrics == {"loss": Numbers(2.0, 1.0, 3.0, 3)}
    assert made[1].metrics == {"loss": Numbers(6.0, 3.0, 6.0, 3), "speed": Numbers(2.5)}
    assert made[2].metrics == {}

    long = frames.progress(Recorded(opened))
    assert long["value"].tolist() == [3.0, 1.0, 2.0, 5.0, 3.0, 6.0]
    assert long["trial"].tolist() == ["1"] * 3 + ["2"] * 3
    assert long["step"].tolist() == [0, 1, 2, 0, 1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]
