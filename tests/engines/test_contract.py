"""What every engine promises: agents are placed, listed and removed; those of other studies are not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.engines import make_engine
from stoker.engines.interface import Engine, Placed, Site, State
from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.study.opened import open_study
from stoker.study.place import open_place
from stoker.study.work import add_plan, plan_body
from tests.slurm.conftest import cluster, running_cluster, wait_until

__all__ = ["cluster", "running_cluster"]
Make = Callable[[str, str], Engine]


@pytest.fixture(params=["local", "slurm"])
def make(request: pytest.FixtureRequest, workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes a study of five trials, and an engine for it."""
    if request.param == "slurm":
        found = request.getfixturevalue("cluster")
        for name, value in found.environment.items():
            monkeypatch.setenv(name, value)

    def make_study(name: str, command: str) -> Engine:
        text = f"template: {command}\nresource: ['', '']\n---\nn: [1, 2, 3, 4, 5]\n"
        body = plan_body(load(Source("params.yaml", text)), {"directory": str(workplace)}, "20260131.235959")
        add_plan(open_place(name).store, body)
        return make_engine(request.param, Site(name, str(workplace / name), str(workplace)))

    return make_study


def standing(engine: Engine) -> list[Placed]:
    return [placed for placed in engine.list() if placed.state is not State.ENDED]


def finished(name: str) -> int:
    return open_study(name).state.counts().finished


def test_agents_are_placed_and_leave_when_all_is_done(make: Make) -> None:
    engine = make("study", "sleep 0.2")
    engine.check()
    assert standing(engine) == []
    (told,) = engine.place(5)
    assert told
    wait_until(lambda: standing(engine) != [])
    wait_until(lambda: finished("study") == 5)
    wait_until(lambda: standing(engine) == [])
    agents = open_study("study").state.agents()
    assert [agent.placed.partition(":")[0] for agent in agents] == [told.partition(":")[0]]


def test_what_is_removed_gives_its_trials_back(make: Make) -> None:
    engine = make("study", "sleep 100")
    engine.place(5)
    wait_until(lambda: open_study("study").state.counts().running > 0)
    engine.remove(waiting_only=True)
    assert len(standing(engine)) == 1, "it does not wait"
    engine.remove()
    wait_until(lambda: standing(engine) == [])
    counts = open_study("study").state.counts()
    assert (counts.running, counts.failed, counts.lost) == (0, 0, 0)
    engine.remove()
    engine.remove(waiting_only=True)


def test_each_study_has_its_own(make: Make) -> None:
    one, other = make("one", "sleep 100"), make("other", "sleep 100")
    one.place(5)
    other.place(5)
    wait_until(lambda: all(open_study(name).state.counts().running for name in ("one", "other")))
    one.remove()
    wait_until(lambda: standing(one) == [])
    assert len(standing(other)) == 1
    other.remove()
    wait_until(lambda: standing(other) == [])


def test_nothing_is_placed_where_nothing_is_left(make: Make) -> None:
    engine = make("study", "'true'")
    assert engine.place(0) == []
    assert standing(engine) == []
