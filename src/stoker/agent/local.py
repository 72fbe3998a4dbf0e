"""An agent on this machine: real time, real processes, a study in a directory or a bucket."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from stoker.agent import gpus, guardian
from stoker.agent.access import Inline, Threaded, Threads
from stoker.agent.agent import Agent
from stoker.agent.directory import write_param, write_stat
from stoker.agent.keeper import Keeper
from stoker.agent.loop import Event, Loop
from stoker.agent.processes import Ended, Processes, Spec, Stage, StageError, Why
from stoker.agent.sampling import EVERY, Figures, look_at_gpus
from stoker.agent.slots import child_environment
from stoker.agent.world import AsyncStore, Attempt, Outcome, Settings, Work
from stoker.core.values import Value
from stoker.store.records import Status, TrialId
from stoker.study.place import Place
from stoker.study.work import StudyWork

Tell = Callable[[dict[str, Any]], None]
"""Takes what happens, as `{"event": …}`, for whoever watches."""

_STORE_THREADS = 16


class LocalWorld:
    """This machine. Everything but waiting for a slow store happens in the thread that calls `run`."""

    def __init__(self, place: Place, keeper: Keeper, processes: Processes, tell: Tell) -> None:
        self.loop = Loop(time.monotonic)
        self.random = Random()  # noqa: S311  (spreads agents over trials; nothing secret)
        self._processes = processes
        self.is_shared = place.is_shared
        self.is_slow = place.is_remote or place.is_shared
        self._threads = Threads(self.loop, processes.wakeup, _STORE_THREADS if self.is_slow else 0)
        self.store: AsyncStore = Threaded(place.store, self._threads) if self.is_slow else Inline(place.store)
        assert place.output is not None  # noqa: S101
        self._output = place.output
        self._study = StudyWork(self._output)
        self.work: Work = self._study
        self._keeper = keeper
        self._tell = tell
        self._running: dict[Attempt, Stage] = {}
        self._slot_of: dict[Attempt, int] = {}
        self._over: dict[Stage, Event[Ended]] = {}
        self._cancelled: set[Attempt] = set()
        self._states: dict[TrialId, dict[str, str]] = {}
        self._notes: dict[Attempt, dict[str, Any]] = {}
        self._seen: dict[Attempt, Figures] = {}
        self._told_to_leave = self._is_away = False
        self._environments: dict[tuple[int, int], Mapping[str, str]] = {}

    # What an agent asks for

    def describe(self) -> dict[str, Any]:
        """Who this agent is, so that another one on this host knows at once when it is dead."""
        about = {"host": host(), "pid": os.getpid(), "start": _start_of(os.getpid())}
        return {**about, "time": _now(), "slots": len(self._keeper.slots)}

    def is_gone(self, beat: Mapping[str, Any]) -> bool:
        """Whether the beat is of a process of this host that is no more."""
        return beat.get("host") == host() and _start_of(int(beat.get("pid", 0))) != beat.get("start")

    def take_slot(self, slot: int) -> bool:
        """Have the slot's GPUs locked, unless others use them; tell who they are."""
        before = self._keeper.holders.get(slot)
        taken = self._keeper.take(slot)
        if self._keeper.holders.get(slot) != before:
            self.tell_slots()
        return taken

    def tell_slots(self) -> None:
        """Tell which slots there are, and who has those that are not ours."""
        holders = self._keeper.holders
        shown = [{"label": slot.label, "holder": holders.get(slot.number, "")} for slot in self._keeper.slots]
        self._tell({"event": "slots", "slots": shown, "notes": self._keeper.notes})

    def notes(self, attempt: Attempt) -> dict[str, Any]:
        """What its stages came to."""
        return {"time": _now(), **self._notes.pop(attempt, {})}

    def committed(self, trial: TrialId, status: Status, body: Mapping[str, Any]) -> None:
        """A result of this agent's is in the store."""
        self._states.pop(trial, None)
        told = {"trial": str(trial), "name": self._name(trial), "status": status.value}
        self._tell({"event": "trial", "time": time.time(), **told, "metrics": body.get("metrics", {})})

    def store_is_away(self, why: str) -> None:
        """The store does not answer, or does again: said once."""
        if bool(why) != self._is_away:
            self._is_away = bool(why)
            self._tell({"event": "store", "time": time.time(), "away": self._is_away, "why": why})

    # Stages

    async def prepare(self, attempt: Attempt) -> None:
        """The files of a trial are where they were."""

    async def keep(self, attempt: Attempt) -> None:
        """What a stage wrote is where it belongs."""

    def cancel(self, attempt: Attempt) -> None:
        """End the running stage, with a grace."""
        stage = self._running.get(attempt)
        if stage is not None and attempt not in self._cancelled:
            self._cancelled.add(attempt)
            self._processes.terminate(stage)

    def suspend(self) -> None:
        """All stages stand still."""
        for stage in self._running.values():
            self._processes.suspend(stage)

    def resume(self) -> None:
        """All stages go on."""
        for stage in self._running.values():
            self._processes.resume(stage)

    async def run_stage(self, attempt: Attempt, stage: str, slot: int) -> Outcome:
        """Run a stage's command, and wait for it."""
        notes = self._notes.setdefault(attempt, {})
        try:
            spec = self._spec(attempt, stage, slot)
            process = self._processes.start(spec)
        except (OSError, StageError) as error:  # no space, no right to write there, no more processes
            notes[stage] = {"error": str(error)}
            self._tell_stage("start", attempt, stage, slot, "")
            self._tell_stage("end", attempt, stage, slot, "", outcome="failed", why=str(error), seconds=0.0)
            return Outcome.FAILED
        over: Event[Ended] = Event(self.loop)
        self._running[attempt], self._over[process], self._slot_of[attempt] = process, over, slot
        self._show(attempt.trial, stage, "running")
        self._tell_stage("start", attempt, stage, slot, str(spec.log))
        ended = await over.wait()
        del self._running[attempt], self._slot_of[attempt]
        outcome = _outcome(ended, attempt in self._cancelled)
        self._cancelled.discard(attempt)
        became = "released" if outcome is Outcome.CANCELLED else outcome.value
        self._show(attempt.trial, stage, became)
        figures = _figures(ended, self._seen.pop(attempt, None))
        notes[stage] = figures
        told = {"outcome": became, "seconds": figures["seconds"], "code": ended.code, "signal": ended.signal}
        self._tell_stage("end", attempt, stage, slot, str(spec.log), why=ended.why.value, **told)
        return outcome

    def _tell_stage(
        self, event: str, attempt: Attempt, stage: str, slot: int, log: str, **more: object
    ) -> None:
        where = slot if self.work.needs_slot(attempt.trial, stage) else None
        about = {"trial": str(attempt.trial), "name": self._name(attempt.trial), "stage": stage}
        numbers = {"round": attempt.round, "attempt": attempt.number}
        self._tell(
            {"event": event, "time": time.time(), "slot": where, **about, **numbers, "log": log, **more}
        )

    def _name(self, trial: TrialId) -> str:
        found = self._study.trial(trial)
        return found.name if found is not None else str(trial)

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
            "_slot": self._keeper.slots[slot].devices,
            "_study": planned.study.name,
        }
        commands = planned.study.commands(trial, reserved)
        if attempt.trial not in self._states:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103  (paths are texts here: this runs for every trial)
            write_param(directory, trial.params, about, commands)
        timeout = next(known.timeout for known in planned.study.stages if known.name == stage)
        log = f"{directory}/log.{stage}.{_now()}"
        return Spec(commands[stage], log, self._environment(slot, attempt.trial.iteration), timeout=timeout)

    def _environment(self, slot: int, iteration: int) -> Mapping[str, str]:
        """What a stage's environment has more than the agent's own."""
        key = (slot, iteration)
        if key not in self._environments:
            found = self._study.planned(iteration).study.settings.get("env", {})
            asked = (
                {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
            )
            whole = child_environment(self._keeper.slots[slot], os.environ, asked)
            self._environments[key] = {n: v for n, v in whole.items() if os.environ.get(n) != v}
        return self._environments[key]

    def _show(self, trial: TrialId, stage: str, state: str) -> None:
        states = self._states.setdefault(trial, {})
        states[stage] = state
        try:
            write_stat(f"{self._output}/{self._name(trial)}", states)
        except OSError as error:  # for people only: the records decide
            self._tell({"event": "note", "text": f"cannot write {error.filename}: {error.strerror}"})

    # Running

    def run(self, agent: Agent) -> None:
        """Let the agent live its life. SIGTERM and SIGINT make it leave."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear_signal)
        self.loop.spawn(self._keep_sampling())
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
        self._threads.deliver()

    async def _keep_sampling(self) -> None:
        while True:
            await self.loop.sleep(EVERY)
            self._keeper.refresh()
            for attempt, stage in self._running.items():
                identities = self._keeper.slots[self._slot_of[attempt]].identities
                seen = self._seen.setdefault(attempt, Figures())
                seen.add(self._processes.usage(stage), look_at_gpus(identities, gpus.utilisation))


def run_agent(
    place: Place,
    keeper: Keeper,
    settings: Settings,
    guard: guardian.Guard,
    tell: Tell = lambda event: None,
) -> None:
    """Join the study at a place with the slots of this machine, until nothing is left."""
    with Processes(guard) as processes:
        world = LocalWorld(place, keeper, processes, tell)
        world.tell_slots()
        name = f"{host()}-{os.getpid()}-{world.random.getrandbits(32):08x}"
        world.run(Agent(name, world, len(keeper.slots), settings))


def _outcome(ended: Ended, cancelled: bool) -> Outcome:
    if ended.code == 0 and ended.why is Why.EXITED:
        return Outcome.FINISHED
    return Outcome.CANCELLED if cancelled or ended.why in (Why.KILLED, Why.UNGUARDED) else Outcome.FAILED


def _figures(ended: Ended, seen: Figures | None) -> dict[str, Any]:
    """What a person may want to know of a stage later."""
    told: dict[str, Any] = {
        "seconds": round(ended.wall, 3),
        "cpu": round(ended.cpu, 3),
        "memory": ended.memory,
        **(seen.told() if seen else {}),
    }
    if ended.code != 0:
        told.update(code=ended.code, signal=ended.signal, why=ended.why.value)
    return told


def _now() -> str:
    return time.strftime("%Y%m%d.%H%M%S")


_HOST: list[str] = []


def host() -> str:
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
