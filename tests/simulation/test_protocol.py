"""The promises hold, whatever happens."""

from __future__ import annotations

import os
from dataclasses import replace
from random import Random

import pytest

from tests.simulation.world import Faults, Scenario, Simulation

SEEDS = int(os.environ.get("STOKER_TEST_SEEDS", "200"))
BATCH = 20
SOAK = 1000
"""From so many seeds on, fleets are played that take minutes each."""


def scenario(seed: int) -> Scenario:
    """Some study, some machines, some trouble."""
    random = Random(seed)
    rough = random.choice([0.0, 0.02, 0.1])
    return Scenario(
        trials=random.choice([1, 3, 10, 30]),
        machines=random.choice([1, 2, 3, 8]),
        slots=random.choice([1, 1, 2, 4]),
        stages=random.choice([("train",), ("train", "test"), ("train", "avg", "test"), ("train", "avg")]),
        seconds=random.choice([5.0, 60.0, 600.0]),
        retries=random.choice([0, 1, 3]),
        slow=random.choice([True, False]),
        shared=random.choice([True, False]),
        range=random.choice([3, 1000]),
        faults=Faults(
            before=rough,
            after=rough,
            retried=rough,
            latency=random.choice([0.001, 0.05, 2.0]),
            staleness=random.choice([0.0, 0.0, 20.0]),
            events=random.choice([0.0, 1.0, 6.0]),
            orders=random.choice([0, 0, 3]),
            failing=random.choice([0.0, 0.2]),
        ),
    )


def fleet(machines: int, trials: int, hours: float) -> Scenario:
    """A fleet on a bucket. Each machine has its own troubles, the store a few for all."""
    own = ("kill", "pause", "preempt", "cut off")
    faults = Faults(
        before=0.01,
        after=0.01,
        retried=0.01,
        latency=0.05,
        staleness=5.0,
        events=2.0,
        kinds=own * machines + ("outage",),
        orders=3,
        failing=0.02,
    )
    return Scenario(trials, machines, slow=True, hours=hours, faults=faults)


FLEETS = {
    "a long study": fleet(machines=100, trials=10_000, hours=1.0),
    "a wide study": fleet(machines=1000, trials=1500, hours=0.1),
    "idle machines": fleet(machines=1000, trials=200, hours=0.1),
    "many stages": replace(fleet(machines=200, trials=1500, hours=0.2), stages=("train", "avg", "test")),
    "a long and wide study": fleet(machines=1000, trials=10_000, hours=0.1),
    "many slots": replace(fleet(machines=100, trials=3000, hours=0.2), slots=8),
}


def check(scenario: Scenario, seed: int) -> None:
    simulation = Simulation(scenario, seed)
    broken = simulation.run()
    assert not broken, "\n".join([f"seed {seed}: {scenario}", *broken, *simulation.story[-60:]])


@pytest.mark.parametrize("first", range(0, SEEDS, BATCH))
def test_promises(first: int) -> None:
    for seed in range(first, first + BATCH):
        check(scenario(seed), seed)


@pytest.mark.skipif(SEEDS < SOAK, reason="for a long soak")
@pytest.mark.parametrize("name", FLEETS)
def test_promises_of_fleets(name: str) -> None:
    check(FLEETS[name], 0)


def test_a_quiet_night_wastes_nothing() -> None:
    simulation = Simulation(Scenario(trials=50, machines=3, slots=2, stages=("train", "test")), 0)
    assert simulation.run() == []
    assert len(simulation.starts) == 100


def test_a_seed_replays_exactly() -> None:
    stories = [Simulation(scenario(7), 7) for _ in range(2)]
    for simulation in stories:
        simulation.run()
    assert stories[0].story == stories[1].story
