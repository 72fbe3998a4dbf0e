"""Many machines, one store and everything that can go wrong, in virtual time and decided by a seed.

The agents are the real ones. A run leaves a history, from which `violations` tells broken promises, and a
story that a person can read.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from stoker.agent.agent import Agent
from stoker.agent.loop import Event, Loop, Task
from stoker.agent.world import Attempt, Outcome, Settings
from stoker.store import records
from stoker.store.interface import Entry, StoreError
from stoker.store.records import Status, TrialId

PAGE = 1000
"""So many entries of a listing come with one request."""


@dataclass
class Faults:
    """How rough the world is; all of it zero is a quiet night."""

    before: float = 0.0  # a store call fails and did nothing
    after: float = 0.0  # a write lands, and is answered with an error
    retried: float = 0.0  # a create lands, is tried again underneath, and is answered with "exists"
    latency: float = 0.01
    staleness: float = 0.0  # listings may be so late, in seconds
    events: float = 0.0  # troubles of these kinds per machine and hour
    kinds: tuple[str, ...] = ("kill", "pause", "preempt", "cut off", "outage")
    orders: int = 0  # times an operator meddles
    failing: float = 0.0  # a stage fails


@dataclass
class Scenario:
    """One study and its machines."""

    trials: int = 10
    machines: int = 2
    slots: int = 1
    stages: tuple[str, ...] = ("train",)
    seconds: float = 60.0  # mean length of a stage
    retries: int = 1
    slow: bool = False  # trials are claimed ahead
    shared: bool = False  # stages stand still when their machine is cut off
    range: int = 1000  # so many trials have one summary
    hours: float = 2.0  # for so long things go wrong; then a healthy machine finishes the rest
    faults: Faults = field(default_factory=Faults)


@dataclass(slots=True)
class Stored:
    data: bytes
    entry: Entry
    time: float
    writer: object
    before: Stored | None = None  # what late listings still show

    def as_of(self, horizon: float, reader: object) -> Stored | None:
        """What a listing shows that is as late as this. Nobody's own writes are late."""
        shown: Stored | None = self
        while shown is not None and shown.time > horizon and shown.writer is not reader:
            shown = shown.before
        return shown


class Machine:
    """A group of tasks that can be paused, killed, or cut off from the store."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.dead = self.paused = self.cut_off = False
        self.disturbed = self.suspended = False
        self.parked: list[Task] = []
        self.task: Task
        self.clock = simulation.random.uniform(-1e5, 1e5)  # its wall clock is wrong by so much
        self.running: dict[Attempt, Event[Outcome]] = {}
        self.activity: list[tuple[float, frozenset[TrialId]]] = []
        self.requests: Counter[str] = Counter()  # as a bucket counts them: a page of a listing is one
        # what World asks for
        self.loop: Loop = simulation.loop
        self.random = Random(simulation.random.getrandbits(64))
        self.store = SimulatedStore(self)
        self.work = simulation.work
        self.is_slow = simulation.scenario.slow
        self.is_shared = simulation.scenario.shared
        self.agent = simulation.make_agent(name, self, simulation.scenario.slots, simulation.settings)

    def describe(self) -> dict[str, Any]:
        return {"wall": self.loop.now() + self.clock, "host": self.name}

    def stamp(self) -> str:
        return ""

    def is_gone(self, beat: Mapping[str, Any]) -> bool:
        return False

    async def run_stage(self, attempt: Attempt, stage: str, slot: int) -> Outcome:
        simulation = self.simulation
        over: Event[Outcome] = Event(self.loop)
        self.running[attempt] = over
        self.note_activity()
        simulation.starts.append(Start(self.loop.now(), self, attempt, stage))
        simulation.tell(
            self, f"starts {stage} of {attempt.trial}, round {attempt.round}, attempt {attempt.number}"
        )
        fails = self.random.random() < simulation.scenario.faults.failing
        seconds = self.random.expovariate(1 / simulation.scenario.seconds)
        self.loop.spawn(_set_after(self.loop, over, seconds, Outcome.FAILED if fails else Outcome.FINISHED))
        outcome = await over.wait()
        self.running.pop(attempt, None)
        self.note_activity()
        simulation.tell(self, f"{outcome.value} {stage} of {attempt.trial}")
        return outcome

    def stage_notes(self, attempt: Attempt, stage: str) -> dict[str, Any]:
        return {}

    def notes(self, attempt: Attempt) -> dict[str, Any]:
        return {}

    def take_slot(self, slot: int) -> bool:
        return self.random.random() < 0.8

    async def prepare(self, attempt: Attempt, oldest_round: int) -> None:
        pass

    def forget(self, attempt: Attempt) -> None:
        pass

    async def keep(self, attempt: Attempt) -> None:
        pass

    def committed(self, trial: TrialId, status: Status, body: Mapping[str, Any]) -> None:
        pass

    def store_is_away(self, why: str) -> None:
        pass

    def suspend(self) -> None:
        self.simulation.tell(self, "suspends its stages")
        self.suspended = True
        self.note_activity()

    def resume(self) -> None:
        self.simulation.tell(self, "goes on")
        self.suspended = False
        self.note_activity()

    def note_activity(self) -> None:
        """Take down which trials' stages make progress on this machine from now on."""
        is_still = self.dead or self.paused or self.suspended
        trials = frozenset() if is_still else frozenset(attempt.trial for attempt in self.running)
        self.activity.append((self.loop.now(), trials))

    def cancel(self, attempt: Attempt) -> None:
        over = self.running.get(attempt)
        if over is not None:
            over.set(Outcome.CANCELLED)


async def _set_after(loop: Loop, event: Event[Outcome], seconds: float, outcome: Outcome) -> None:
    await loop.sleep(seconds)
    event.set(outcome)


class SimulatedStore:
    """The shared store as one machine sees it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._shared = machine.simulation.objects
        self._faults = machine.simulation.scenario.faults

    async def _travel(self, failing: float) -> None:
        random, loop = self._machine.random, self._machine.loop
        await loop.sleep(random.uniform(0.1, 1.9) * self._faults.latency)
        if self._machine.cut_off or self._machine.simulation.outages:
            await loop.sleep(5.0)
            raise StoreError("cut off")
        if random.random() < failing:
            raise StoreError("unavailable")

    def _put(self, key: str, data: bytes) -> None:
        simulation, old = self._machine.simulation, self._shared.get(key)
        now = simulation.loop.now()
        if old is not None and not key.startswith("beats/"):
            simulation.overwritten.append(key)
        simulation.put(key, data, self._machine)
        while old is not None and old.time > now - self._faults.staleness:
            old = old.before
        if old is not None:
            old.before = None  # too old to be shown by any listing

    async def create(self, key: str, data: bytes) -> bool:
        self._machine.requests["create"] += 1
        await self._travel(self._faults.before)
        created = key not in self._shared
        if created:
            self._put(key, data)
        await self._travel(self._faults.after)
        return created and self._machine.random.random() >= self._faults.retried

    async def read(self, key: str) -> bytes | None:
        self._machine.requests["read"] += 1
        await self._travel(self._faults.before)
        found = self._shared.get(key)
        return found.data if found else None

    async def write(self, key: str, data: bytes) -> None:
        self._machine.requests["write"] += 1
        await self._travel(self._faults.before)
        self._put(key, data)
        await self._travel(self._faults.after)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:
        await self._travel(self._faults.before)
        machine = self._machine
        horizon = machine.loop.now() - machine.random.uniform(0, self._faults.staleness)
        stored = machine.simulation.stored_under(prefix, after)
        shown = [found if found.time <= horizon else found.as_of(horizon, machine) for found in stored]
        entries = [found.entry for found in shown if found is not None]
        machine.requests["list"] += 1 + len(entries) // PAGE
        return entries


class SimulatedLoop(Loop):
    """Virtual time, and tasks that stand still with their machine."""

    def __init__(self) -> None:
        self.time = 0.0
        super().__init__(lambda: self.time)
        self.graveyard: list[Task] = []  # kept, lest closing a coroutine runs its last lines

    def _run(self, task: Task) -> None:
        machine = task.group
        if isinstance(machine, Machine) and machine.dead:
            self.graveyard.append(task)
        elif isinstance(machine, Machine) and machine.paused:
            machine.parked.append(task)
        else:
            super()._run(task)

    def run_until(self, is_over: Callable[[], bool], limit: float) -> bool:
        """Let time pass; False if the limit came before the end."""
        while not is_over():
            if not self.step():
                due = self.next_timer()
                if due is None or due > limit:
                    return is_over()
                self.time = max(self.time, due)
        return True


class SimulatedWork:
    """Iterations of trials that all have the same stages."""

    def __init__(self, stages: tuple[str, ...], retries: int) -> None:
        self._stages, self._retries = stages, retries

    def retries(self, trial: TrialId) -> int:
        return self._retries

    def size(self, body: Mapping[str, Any]) -> int:
        return int(body["size"])

    def skipped(self, body: Mapping[str, Any]) -> Callable[[int], bool]:
        return lambda number: False

    def in_force(self) -> None:
        return None

    def stages(self, trial: TrialId) -> Sequence[str]:
        return self._stages

    def needs_slot(self, trial: TrialId, stage: str) -> bool:
        return stage != "avg"


@dataclass(frozen=True)
class Start:
    """A stage that some machine started."""

    time: float
    machine: Machine
    attempt: Attempt
    stage: str


class Simulation:
    """A scenario played with a seed."""

    def __init__(self, scenario: Scenario, seed: int, make_agent: Callable[..., Agent] = Agent) -> None:
        self.scenario = scenario
        self.random = Random(seed)
        self.make_agent = make_agent
        self.settings = Settings(lease=60.0, beat=5.0)
        self.loop = SimulatedLoop()
        self.objects: dict[str, Stored] = {}
        self.versions = 0
        self.work = SimulatedWork(scenario.stages, scenario.retries)
        self.machines: list[Machine] = []
        self.at_work: set[Machine] = set()  # neither dead nor gone
        self.starts: list[Start] = []
        self.story: list[str] = []
        self.sizes: dict[int, int] = {}
        self.rounds: dict[TrialId, int] = {}
        self.stuck = False
        self.outages = 0
        self.overwritten: list[str] = []
        self._keys: list[str] = []  # sorted
        self._stored: list[Stored] = []  # in the same order
        self._orders = 0

    def tell(self, who: Machine | None, what: str) -> None:
        self.story.append(f"{self.loop.time:9.2f}  {who.name if who else 'operator':<10} {what}")

    def stored_under(self, prefix: str, after: str) -> list[Stored]:
        first, end = bisect_left(self._keys, max(prefix, after)), bisect_left(self._keys, prefix + "\x7f")
        return self._stored[first:end]

    def put(self, key: str, data: bytes, writer: object) -> None:
        self.versions += 1
        before, place = self.objects.get(key), bisect_left(self._keys, key)
        stored = Stored(data, Entry(key, str(self.versions)), self.loop.time, writer, before)
        self.objects[key] = stored
        if before is None:
            self._keys.insert(place, key)
            self._stored.insert(place, stored)
        else:
            self._stored[place] = stored

    def run(self) -> list[str]:
        """Play it, and return what promises were broken."""
        usual = records.RANGE, records.parse_key
        records.RANGE = self.scenario.range
        records.parse_key = cache(records.parse_key)  # a thousand machines read the same keys
        try:
            return self._run()
        finally:
            records.RANGE, records.parse_key = usual

    def _run(self) -> list[str]:
        self.add_iteration(self.scenario.trials)
        for _ in range(self.scenario.machines):
            self.start_machine()
        self._calm: Event[None] = Event(self.loop)
        self._meddled: Event[None] = Event(self.loop)
        self.loop.spawn(self._trouble())
        self.loop.spawn(self._meddle())
        over = self.loop.run_until(self._is_over, limit=48 * 3600.0)
        self.stuck = not over
        return violations(self)

    def _is_over(self) -> bool:
        return self._calm.done and not self.at_work

    def start_machine(self) -> Machine:
        machine = Machine(self, f"m{len(self.machines) + 1}")
        self.machines.append(machine)
        self.at_work.add(machine)
        self.tell(machine, "joins")
        machine.task = self.loop.spawn(_live(machine), group=machine)
        return machine

    def add_iteration(self, size: int) -> None:
        iteration = len(self.sizes) + 1
        self.sizes[iteration] = size
        self.put(records.plan_key(iteration), records.encode({"size": size}), None)

    def order(self, body: dict[str, Any]) -> None:
        self._orders += 1
        self.put(records.order_key(self._orders), records.encode(body), None)

    # What goes wrong

    async def _trouble(self) -> None:
        end, random = self.scenario.hours * 3600, self.random
        rate = self.scenario.faults.events * self.scenario.machines / 3600
        while rate and self.loop.time < end:
            await self.loop.sleep(random.expovariate(rate))
            alive = [machine for machine in self.machines if machine in self.at_work]
            if alive:
                kind, machine = random.choice(self.scenario.faults.kinds), random.choice(alive)
                trouble = TROUBLES[kind]
                machine.disturbed = machine.disturbed or trouble is not _outage
                self.loop.spawn(trouble(self, machine))
        await self._meddled.wait()
        self.start_machine()
        self._calm.set(None)

    async def _meddle(self) -> None:
        for _ in range(self.scenario.faults.orders):
            await self.loop.sleep(
                self.random.uniform(1, self.scenario.hours * 1800 / self.scenario.faults.orders)
            )
            self.random.choice(MEDDLINGS)(self)
            self.start_machine()
        self._meddled.set(None)


async def _live(machine: Machine) -> None:
    await machine.agent.main()
    machine.simulation.at_work.discard(machine)
    machine.simulation.tell(machine, "leaves")


async def _kill(simulation: Simulation, machine: Machine) -> None:
    simulation.tell(machine, "is killed")
    machine.dead = True
    simulation.at_work.discard(machine)
    machine.note_activity()
    await simulation.loop.sleep(simulation.random.uniform(1, 200))
    simulation.start_machine()


async def _pause(simulation: Simulation, machine: Machine) -> None:
    simulation.tell(machine, "is paused")
    machine.paused = True
    machine.note_activity()
    await simulation.loop.sleep(simulation.random.uniform(1, 300))
    machine.paused = False
    machine.note_activity()
    simulation.tell(machine, "wakes up")
    for task in machine.parked:
        simulation.loop.wake(task)
    machine.parked.clear()


async def _preempt(simulation: Simulation, machine: Machine) -> None:
    simulation.tell(machine, "is told to leave")
    machine.agent.leave()
    await simulation.loop.sleep(30)
    await _kill(simulation, machine)


async def _cut_off(simulation: Simulation, machine: Machine) -> None:
    simulation.tell(machine, "is cut off")
    machine.cut_off = True
    await simulation.loop.sleep(simulation.random.uniform(1, 300))
    machine.cut_off = False
    simulation.tell(machine, "is connected again")


async def _outage(simulation: Simulation, machine: Machine) -> None:
    """The store is away for all; nobody has a reason to take anything from anybody."""
    simulation.tell(None, "finds the store away")
    simulation.outages += 1
    await simulation.loop.sleep(simulation.random.uniform(1, 600))
    simulation.outages -= 1
    simulation.tell(None, "finds the store back")


TROUBLES: dict[str, Callable[[Simulation, Machine], Coroutine[Any, Any, None]]] = {
    "kill": _kill,
    "pause": _pause,
    "preempt": _preempt,
    "cut off": _cut_off,
    "outage": _outage,
}


def _retry(simulation: Simulation) -> None:
    """Open a new round for some trial, fresh (`--force`) or going on from what is finished (`retry`)."""
    iteration = simulation.random.choice(list(simulation.sizes))
    trial = TrialId(iteration, simulation.random.randint(1, simulation.sizes[iteration]))
    round_ = simulation.rounds.get(trial, 1) + 1
    fresh = simulation.random.random() < 0.5
    simulation.rounds[trial] = round_
    simulation.tell(None, f"opens round {round_} of {trial}{', fresh' if fresh else ''}")
    simulation.order({"rounds": [f"{trial}.{round_}"], "fresh": fresh})


def _stop_trial(simulation: Simulation) -> None:
    iteration = simulation.random.choice(list(simulation.sizes))
    trial = TrialId(iteration, simulation.random.randint(1, simulation.sizes[iteration]))
    simulation.tell(None, f"stops {trial}")
    simulation.order({"stop": [f"{trial}.{simulation.rounds.get(trial, 1)}"]})


def _next_iteration(simulation: Simulation) -> None:
    simulation.tell(None, "adds an iteration")
    simulation.add_iteration(simulation.random.randint(1, 10))


MEDDLINGS = [_retry, _stop_trial, _next_iteration]


# What must hold


def violations(simulation: Simulation) -> list[str]:
    """Broken promises, in words."""
    if simulation.stuck:
        return ["agents did not leave in two days", *_missing_results(simulation)]
    checks = (
        _missing_results,
        _run_again,
        _unrecorded,
        _overwritten,
        _left_open,
        _robbed,
        _failed_too_often,
        _summaries_before_results,
        _written_by_two,
    )
    return [broken for check in checks for broken in check(simulation)]


def _missing_results(simulation: Simulation) -> list[str]:
    found = []
    for iteration, size in simulation.sizes.items():
        for number in range(1, size + 1):
            trial = TrialId(iteration, number)
            round_ = simulation.rounds.get(trial, 1)
            if records.result_key(trial, round_) not in simulation.objects:
                found.append(f"round {round_} of {trial} has no result")
    return found


def _run_again(simulation: Simulation) -> list[str]:
    """A stage that was recorded as finished, started by an attempt that was claimed after that."""
    found = []
    for start in simulation.starts:
        attempt = start.attempt
        is_last = start.stage == simulation.scenario.stages[-1]
        by_result = records.result_key(attempt.trial, attempt.round)
        by_itself = records.stage_key(attempt.trial, attempt.round, start.stage)
        record = simulation.objects.get(by_result if is_last else by_itself)
        claim = simulation.objects.get(attempt.claim)
        if record is not None and claim is not None and record.time < claim.time:
            found.append(f"{start.stage} of {attempt.trial} ran again in attempt {attempt.number}")
    return found


def _unrecorded(simulation: Simulation) -> list[str]:
    """A finished trial, one of whose stages before the last has no record."""
    found = []
    for key, stored in simulation.objects.items():
        mark = records.parse_key(key)
        if (
            mark is None
            or mark.kind != "result"
            or (records.decode(stored.data) or {})["status"] != "finished"
        ):
            continue
        for stage in simulation.scenario.stages[:-1]:
            keys = [records.stage_key(mark.trial, round_, stage) for round_ in range(1, mark.round + 1)]
            keys += [records.result_key(mark.trial, round_) for round_ in range(1, mark.round)]
            if not any(key in simulation.objects for key in keys):
                found.append(f"{stage} of {mark.trial} is not recorded")
    return found


def _summaries_before_results(simulation: Simulation) -> list[str]:
    """A summary of a range of which some trial has no result."""
    found = []
    for key, stored in simulation.objects.items():
        summary = records.parse_summary_key(key)
        if summary is None:
            continue
        iteration, place = summary
        first, size = place * simulation.scenario.range + 1, simulation.sizes[iteration]
        for number in range(first, min(first + simulation.scenario.range, size + 1)):
            trial = TrialId(iteration, number)
            rounds = range(1, simulation.rounds.get(trial, 1) + 1)
            results = [simulation.objects.get(records.result_key(trial, round_)) for round_ in rounds]
            if not any(result is not None and result.time <= stored.time for result in results):
                found.append(f"{key} was written before {trial} had a result")
    return found


TOLERATED = 15.0
"""Seconds: whoever took over may have decided to just before the other came back."""


def _written_by_two(simulation: Simulation) -> list[str]:
    """Two machines that worked on one trial at the same time, in a directory that both see."""
    if not simulation.scenario.shared or simulation.scenario.faults.latency > 0.1:
        return []
    spans: dict[TrialId, list[tuple[float, float, str]]] = {}
    for machine in simulation.machines:
        activity = [*machine.activity, (simulation.loop.now(), frozenset[TrialId]())]
        for (begin, trials), (end, _) in itertools.pairwise(activity):
            for trial in trials:
                spans.setdefault(trial, []).append((begin, end, machine.name))
    found = []
    for trial, times in spans.items():
        times.sort()
        for one, two in itertools.pairwise(times):
            if one[2] != two[2] and min(one[1], two[1]) - two[0] > TOLERATED:
                found.append(f"{one[2]} and {two[2]} both worked on {trial} at {two[0]:.0f}")
    return found


def _overwritten(simulation: Simulation) -> list[str]:
    """A record that is not a beat, written twice."""
    return [f"{key} was overwritten" for key in simulation.overwritten]


def _failed_too_often(simulation: Simulation) -> list[str]:
    """An attempt that was claimed although the round had failed as often as the study allows."""
    failures: dict[tuple[TrialId, int], list[float]] = {}
    claims: list[tuple[records.Mark, float]] = []
    for key, stored in simulation.objects.items():
        mark = records.parse_key(key)
        if mark is not None and mark.kind == "failed":
            failures.setdefault((mark.trial, mark.round), []).append(stored.time)
        elif mark is not None and mark.kind == "claim":
            claims.append((mark, stored.time))
    found = []
    for mark, time in claims:
        before = [failure for failure in failures.get((mark.trial, mark.round), []) if failure < time]
        if len(before) > simulation.scenario.retries:
            found.append(f"attempt {mark.attempt} at {mark.trial} came after {len(before)} failures")
    return found


def _left_open(simulation: Simulation) -> list[str]:
    """A claim without an end, of an agent that nothing happened to."""
    calm = {machine.name for machine in simulation.machines if not machine.dead}
    found = []
    for key, stored in simulation.objects.items():
        mark = records.parse_key(key)
        if mark is not None and mark.kind == "claim":
            holder = (records.decode(stored.data) or {})["agent"]
            ends = (records.end_key(mark.trial, mark.round, mark.attempt, end) for end in records.End)
            if holder in calm and not any(end in simulation.objects for end in ends):
                found.append(f"{holder} left its claim {key} open")
    return found


def _robbed(simulation: Simulation) -> list[str]:
    """An attempt taken from an agent that nothing happened to."""
    calm = {machine.name for machine in simulation.machines if not machine.disturbed}
    found = []
    for start in simulation.starts:
        attempt = start.attempt
        if attempt.number == 1:
            continue
        before = records.claim_key(attempt.trial, attempt.round, attempt.number - 1)
        claim, mine = simulation.objects[before], simulation.objects[attempt.claim]
        ends = [records.end_key(attempt.trial, attempt.round, attempt.number - 1, end) for end in records.End]
        ended = [simulation.objects[end].time for end in ends if end in simulation.objects]
        holder = (records.decode(claim.data) or {})["agent"]
        if holder in calm and not any(time <= mine.time for time in ended):
            found.append(f"{start.machine.name} took {attempt.trial} from {holder}, which was at work")
    return found
