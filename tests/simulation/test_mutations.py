"""Break a rule of the protocol on purpose: the simulation must notice. Else it proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from stoker.agent.agent import Agent
from stoker.agent.knowledge import Knowledge
from stoker.agent.ledger import Ledger
from stoker.agent.view import View, Watch
from stoker.agent.world import Attempt
from stoker.store import records
from stoker.store.interface import StoreError
from stoker.store.records import Mark
from tests.simulation.test_protocol import scenario
from tests.simulation.world import Faults, Scenario, Simulation


class TrustingLedger(Ledger):
    async def put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        while True:
            try:
                return await self.store.create(key, records.encode({**body, "nonce": nonce}))
            except StoreError:
                await self._world.loop.sleep(1)


class TrustsExists(Agent):
    """Takes the store's word that a record exists for proof that another one wrote it."""

    make_ledger = TrustingLedger


class OneRound(Knowledge):
    def note(self, mark: Mark) -> None:
        if mark.kind != "round":
            super().note(mark)


class ForgetsRounds(Agent):
    """Passes over what opens a new round."""

    make_knowledge = OneRound


class Clock(Knowledge):
    def hear(self, agent: str, body: Mapping[str, Any]) -> None:
        super().hear(agent, body)
        if abs(self._world.describe()["wall"] - body["wall"]) > self._settings.lease:
            self.watch.bury(agent)


class ComparesClocks(Agent):
    """Judges others by the time in their beats."""

    make_knowledge = Clock


class StagelessLedger(Ledger):
    async def put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        return key.endswith(".stage") or await super().put_once(key, body, nonce)


class KeepsNoStages(Agent):
    """Does not record finished stages one by one."""

    make_ledger = StagelessLedger


class OverwritingLedger(Ledger):
    async def put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        if not key.endswith(".result"):
            return await super().put_once(key, body, nonce)
        await self.insist(self.store.write, key, records.encode({**body, "nonce": nonce}))
        return True


class Overwrites(Agent):
    """Writes results instead of creating them."""

    make_ledger = OverwritingLedger


class Impatience(Knowledge):
    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.watch = Watch(self._settings.lease, longest_look=1e9)


class Impatient(Agent):
    """Counts the time in which it did not look as silence of the others."""

    make_knowledge = Impatience


class ForgetsOwn(Agent):
    """Does not stand by its claims in its beats."""

    async def _beat(self, left: bool = False) -> None:
        held, self._known.own = self._known.own, {}
        try:
            await super()._beat(left)
        finally:
            self._known.own = {**held, **self._known.own}


class RunsOn(Agent):
    """Does not notice that somebody took over, and runs stages without asking what is finished."""

    async def _finished_stages(self, attempt: Attempt) -> tuple[set[str], dict[str, Any]]:
        return set(), {}


class RunsOnAlone(Agent):
    """Lets stages run on while it is cut off from a file system that others see."""

    def _is_cut_off(self) -> bool:
        return False


class Hasty(View):
    def complete_ranges(self) -> list[tuple[int, int]]:
        return sorted(key for key in self._ranges.keys() - self.summarised if self.done_in(*key))


class HastyKnowledge(Knowledge):
    def __init__(self, *words: Any) -> None:
        super().__init__(*words)
        self.view = Hasty()


class SumsUpEarly(Agent):
    """Writes the summary of a range as soon as one of its trials is done."""

    make_knowledge = HastyKnowledge


MUTANTS = [
    RunsOnAlone,
    SumsUpEarly,
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


def sharing(seed: int) -> Scenario:
    """Machines that see one directory, and are cut off from it now and then."""
    faults = Faults(events=2.0, kinds=("cut off",))
    return Scenario(trials=4, machines=6, seconds=1800.0, shared=True, faults=faults)


def moving(seed: int) -> Scenario:
    """Trials that often go on elsewhere, on a store that is rarely sure of anything."""
    faults = Faults(
        before=0.05,
        after=0.05,
        retried=0.05,
        latency=0.05,
        staleness=5.0,
        events=6.0,
        kinds=("kill", "preempt", "cut off"),
        orders=3,
    )
    stages = ("train", "avg", "test")
    return Scenario(trials=10, machines=4, slots=2, stages=stages, seconds=300.0, faults=faults)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_mutant_is_caught(mutant: type[Agent]) -> None:
    for seed in range(40):
        for made in (moving, sharing, waiting, scenario):
            if Simulation(made(seed), seed, mutant).run():
                return
    pytest.fail("nothing was noticed in 160 runs")


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("made", [moving, sharing, waiting])
def test_these_scenes_keep_the_promises(made: Callable[[int], Scenario], seed: int) -> None:
    assert Simulation(made(seed), seed).run() == []
