"""Break a rule of the protocol on purpose: the simulation must notice. Else it proves nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from stoker.agent.agent import Agent
from stoker.agent.view import View, Watch
from stoker.agent.world import Attempt
from stoker.store import records
from stoker.store.interface import StoreError
from stoker.store.records import Mark, Status, TrialId
from tests.simulation.test_protocol import scenario
from tests.simulation.world import Faults, Scenario, Simulation


class TrustsExists(Agent):
    """Takes the store's word that a record exists for proof that another one wrote it."""

    async def _put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        while True:
            try:
                return await self._store.create(key, records.encode(body))
            except StoreError:
                await self._loop.sleep(1)


class OneRoundView(View):
    def add(self, mark: Mark) -> None:
        if mark.kind != "round":
            super().add(mark)


class ForgetsRounds(Agent):
    """Passes over what opens a new round."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._view = OneRoundView()


class ComparesClocks(Agent):
    """Judges others by the time in their beats."""

    def _hear(self, agent: str, body: Mapping[str, Any]) -> None:
        super()._hear(agent, body)
        if abs(self._world.describe()["wall"] - body["wall"]) > self._settings.lease:
            self._watch.bury(agent)


class KeepsNoStages(Agent):
    """Does not record finished stages one by one."""

    async def _put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        return key.endswith(".stage") or await super()._put_once(key, body, nonce)


class Overwrites(Agent):
    """Writes results instead of creating them."""

    async def _commit(self, trial: TrialId, round_: int, status: Status, more: dict[str, Any]) -> None:
        body = records.encode({"status": status.value, **more})
        await self._until_it_works(self._store.write, records.result_key(trial, round_), body)
        self._note(Mark(trial, round_, "result"))


class Impatient(Agent):
    """Counts the time in which it did not look as silence of the others."""

    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self._watch = Watch(self._settings.lease, longest_look=1e9)


class ForgetsOwn(Agent):
    """Does not stand by its claims in its beats."""

    async def _beat(self, left: bool = False) -> None:
        held, self._own = self._own, {}
        try:
            await super()._beat(left)
        finally:
            self._own = {**held, **self._own}


class RunsOn(Agent):
    """Does not notice that somebody took over, and runs stages without asking what is finished."""

    async def _finished_stages(self, attempt: Attempt) -> set[str]:
        return set()


MUTANTS = [
    TrustsExists,
    ForgetsRounds,
    ComparesClocks,
    KeepsNoStages,
    Overwrites,
    Impatient,
    ForgetsOwn,
    RunsOn,
]


def waiting(seed: int) -> Scenario:
    """More machines than trials wait for something to take over, and the store is away now and then."""
    outages = Faults(events=1.0, kinds=("outage",))
    return Scenario(trials=4, machines=6, seconds=1800.0, stages=("train", "test"), faults=outages)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant: type[Agent]) -> None:
    for seed in range(40):
        for made in (waiting, scenario):
            if Simulation(made(seed), seed, mutant).run():
                return
    pytest.fail("nothing was noticed in 80 runs")


@pytest.mark.parametrize("seed", range(10))
def test_waiting_machines_keep_the_promises(seed: int) -> None:
    assert Simulation(waiting(seed), seed).run() == []
