"""An agent on this machine, on a study in a directory: real time, real processes."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from stoker.agent import guardian
from stoker.agent.agent import Agent
from stoker.agent.directory import write_param, write_stat
from stoker.agent.loop import Event, Loop
from stoker.agent.processes import Ended, Processes, Spec, Stage, StageError, Why
from stoker.agent.slots import Slot, child_environment
from stoker.agent.world import AsyncStore, Attempt, Outcome, Settings, Work
from stoker.core.values import Value
from stoker.store import records
from stoker.store.directory import DirectoryStore
from stoker.store.interface import Entry, Store
from stoker.store.records import TrialId
from stoker.study.work import StudyWork

RECORDS = ".stoker"
"""Where the records stand in the output directory of a local study."""


class Inline:
    """A store that answers at once: a directory needs no waiting."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def create(self, key: str, data: bytes) -> bool:  # noqa: D102
        return self._store.create(key, data)

    async def read(self, key: str) -> bytes | None:  # noqa: D102
        return self._store.read(key)

    async def write(self, key: str, data: bytes) -> None:  # noqa: D102
        self._store.write(key, data)

    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]:  # noqa: D102
        return list(self._store.list(prefix, after))


class LocalWorld:
    """This machine. Everything happens in the thread that calls `run`."""

    def __init__(self, output: Path, slots: Sequence[Slot], processes: Processes) -> None:
        self.loop = Loop(time.monotonic)
        self.random = Random()  # noqa: S311  (spreads agents over trials; nothing secret)
        self.store: AsyncStore = Inline(DirectoryStore(output / RECORDS))
        self._study = StudyWork(output)
        self.work: Work = self._study
        self._output = output
        self._slots = slots
        self._processes = processes
        self._running: dict[Attempt, Stage] = {}
        self._over: dict[Stage, Event[Ended]] = {}
        self._cancelled: set[Attempt] = set()
        self._states: dict[TrialId, dict[str, str]] = {}
        self._notes: dict[Attempt, dict[str, Any]] = {}
        self._told_to_leave = False
        self._environments: dict[tuple[int, int], Mapping[str, str]] = {}

    # What an agent asks for

    def describe(self) -> dict[str, Any]:
        """Who this agent is, so that another one on this host knows at once when it is dead."""
        return {"host": _host(), "pid": os.getpid(), "start": _start_of(os.getpid()), "time": _now()}

    def is_gone(self, beat: Mapping[str, Any]) -> bool:
        """Whether the beat is of a process of this host that is no more."""
        return beat.get("host") == _host() and _start_of(int(beat.get("pid", 0))) != beat.get("start")

    def notes(self, attempt: Attempt) -> dict[str, Any]:
        """What its stages came to."""
        return {"time": _now(), **self._notes.pop(attempt, {})}

    def cancel(self, attempt: Attempt) -> None:
        """End the running stage, with a grace."""
        stage = self._running.get(attempt)
        if stage is not None and attempt not in self._cancelled:
            self._cancelled.add(attempt)
            self._processes.terminate(stage)

    async def run_stage(self, attempt: Attempt, stage: str, slot: int) -> Outcome:
        """Run a stage's command in the trial's directory's name, and wait for it."""
        try:
            process = self._processes.start(self._spec(attempt, stage, slot))
        except (OSError, StageError) as error:  # no space, no right to write there, no more processes
            self._notes.setdefault(attempt, {})[stage] = {"error": str(error)}
            return Outcome.FAILED
        over: Event[Ended] = Event(self.loop)
        self._running[attempt], self._over[process] = process, over
        self._show(attempt.trial, stage, "running")
        ended = await over.wait()
        del self._running[attempt]
        outcome = _outcome(ended, attempt in self._cancelled)
        self._cancelled.discard(attempt)
        self._show(attempt.trial, stage, "released" if outcome is Outcome.CANCELLED else outcome.value)
        self._notes.setdefault(attempt, {})[stage] = _figures(ended)
        return outcome

    def _spec(self, attempt: Attempt, stage: str, slot: int) -> Spec:
        trial = self._study.trial(attempt.trial)
        planned = self._study.planned(attempt.trial.iteration)
        assert trial is not None  # noqa: S101  (it was claimed, so it is to be run)
        directory = f"{self._output}/{trial.name}"
        about: dict[str, Value] = {"_name": trial.name, "_output": directory, "_time": planned.time}
        reserved: dict[str, Value] = {
            **about,
            "_trial": trial.number,
            "_attempt": attempt.number,
            "_slot": self._slots[slot].devices,
            "_study": planned.study.name,
        }
        commands = planned.study.commands(trial, reserved)
        if attempt.trial not in self._states:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103  (paths are texts here: this runs for every trial)
            write_param(directory, trial.params, about, commands)
        timeout = next(known.timeout for known in planned.study.stages if known.name == stage)
        log = Path(f"{directory}/log.{stage}.{_now()}")
        return Spec(commands[stage], log, self._environment(slot, attempt.trial.iteration), timeout=timeout)

    def _environment(self, slot: int, iteration: int) -> Mapping[str, str]:
        """What a stage's environment has more than the agent's own."""
        key = (slot, iteration)
        if key not in self._environments:
            found = self._study.planned(iteration).study.settings.get("env", {})
            asked = (
                {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
            )
            whole = child_environment(self._slots[slot], os.environ, asked)
            self._environments[key] = {n: v for n, v in whole.items() if os.environ.get(n) != v}
        return self._environments[key]

    def _show(self, trial: TrialId, stage: str, state: str) -> None:
        states = self._states.setdefault(trial, {})
        states[stage] = state
        found = self._study.trial(trial)
        if found is not None:
            write_stat(f"{self._output}/{found.name}", states)
            if len(states) == len(found.stages) and state == "finished":
                del self._states[trial]

    # Running

    def run(self, agent: Agent) -> None:
        """Let the agent live its life. SIGTERM and SIGINT make it leave."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear_signal)
        life = self.loop.spawn(agent.main())
        while not life.ended.done:
            if self._told_to_leave or not self._processes.guarded:
                self._told_to_leave = False
                agent.leave()
            if not self.loop.step():
                self._wait()

    def _hear_signal(self, *_: object) -> None:
        """Only take note: a signal may come in the middle of anything."""
        self._told_to_leave = True
        self._processes.wakeup()

    def _wait(self) -> None:
        due = self.loop.next_timer()
        for ended in self._processes.poll(None if due is None else max(0.0, due - self.loop.now())):
            self._over.pop(ended.stage).set(ended)


def add_plan(output: Path, body: Mapping[str, Any]) -> int:
    """Put a plan into a study, as its next iteration."""
    store = DirectoryStore(output / RECORDS)
    iteration = 1
    while not store.create(records.plan_key(iteration), records.encode(body)):
        iteration += 1
    return iteration


def run_agent(output: Path, slots: Sequence[Slot], settings: Settings, guard: guardian.Guard) -> None:
    """Join the study in a directory with these slots, until nothing is left."""
    with Processes(guard) as processes:
        world = LocalWorld(output, slots, processes)
        name = f"{_host()}-{os.getpid()}-{world.random.getrandbits(32):08x}"
        world.run(Agent(name, world, len(slots), settings))


def _outcome(ended: Ended, cancelled: bool) -> Outcome:
    if ended.code == 0 and ended.why is Why.EXITED:
        return Outcome.FINISHED
    return Outcome.CANCELLED if cancelled or ended.why in (Why.KILLED, Why.UNGUARDED) else Outcome.FAILED


def _figures(ended: Ended) -> dict[str, Any]:
    """What a person may want to know of a stage later."""
    told: dict[str, Any] = {
        "seconds": round(ended.wall, 3),
        "cpu": round(ended.cpu, 3),
        "memory": ended.memory,
    }
    if ended.code != 0:
        told.update(code=ended.code, signal=ended.signal, why=ended.why.value)
    return told


def _now() -> str:
    return time.strftime("%Y%m%d.%H%M%S")


_HOST: list[str] = []


def _host() -> str:
    """This host and its boot, as one word."""
    if not _HOST:
        boot = Path("/proc/sys/kernel/random/boot_id")
        known = boot.read_text(encoding="ascii").strip() if boot.exists() else "0"
        name = re.sub(r"[^A-Za-z0-9_]", "_", os.uname().nodename)
        _HOST.append(f"{name}-{known[:8]}")
    return _HOST[0]


def _start_of(pid: int) -> int:
    """When a process was started, in ticks since boot; 0 if it is no more."""
    found = guardian.read(pid) if pid else None
    return found.start if found is not None and found.state != "Z" else 0
