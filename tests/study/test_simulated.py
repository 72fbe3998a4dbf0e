"""What real agents write in rough weather, record by record: the state agrees with a slow reader always."""

from __future__ import annotations

import pytest

from stoker.store import records
from stoker.study.ranges import DONE
from stoker.study.state import StudyState
from stoker.study.work import StudyWork
from tests.simulation.world import Faults, Scenario, Simulation
from tests.study.written import Written, read_slowly, states

ROUGH = Faults(before=0.02, after=0.02, retried=0.02, staleness=5.0, events=6.0, orders=4, failing=0.2)


@pytest.mark.parametrize("seed", range(4))
def test_the_records_of_a_rough_night(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "RANGE", 4)
    scenario = Scenario(trials=11, stages=("train", "test"), hours=1.0, range=records.RANGE, faults=ROUGH)
    simulation = Simulation(scenario, seed)
    assert simulation.run() == []
    written = Written()
    looking = StudyState(written.store, StudyWork(None))
    replayed = [(stored.time, key, stored.data) for key, stored in simulation.objects.items()]
    for step, (_, key, data) in enumerate(sorted(replayed)):
        if key.startswith("plan/"):
            iteration = int(key[-4:])
            values = [iteration * 1000 + number for number in range(simulation.sizes[iteration])]
            written.plan(f"template: 'echo {{x}}'\nretry: {scenario.retries}\n---\nx: {values}\n", sample=99)
        elif not key.startswith("beats/"):  # only the last ones are left: nobody seems to live
            written.store.write(key, data)
        if step % 7 == 0:
            looking.refresh()
            assert states(looking) == read_slowly(written.store, frozenset())
    looking.refresh()
    assert states(looking) == states(written.state()) == read_slowly(written.store, frozenset())
    assert {now.state for now in looking.trials()} <= DONE
    rounds = {now.trial: now.round for now in looking.trials() if now.round > 1}
    assert rounds == simulation.rounds
    assert records.summary_key(1, 0) in simulation.objects
