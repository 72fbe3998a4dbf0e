"""An agent on this machine: real time, real processes, a study in a directory or a bucket."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from stoker.agent import gpus, guardian
from stoker.agent.access import Inline, Threaded, Threads
from stoker.agent.agent import Agent
from stoker.agent.directory import write_param, write_stat
from stoker.agent.host import here, host, is_gone
from stoker.agent.keeper import Keeper
from stoker.agent.loop import Event, Loop
from stoker.agent.preload import Parents
from stoker.agent.processes import Ended, Processes, Spec, Stage, StageError, Why
from stoker.agent.sampling import EVERY, Figures, look_at_gpus
from stoker.agent.slots import child_environment, with_manager
from stoker.agent.warm import Serving
from stoker.agent.world import AsyncStore, Attempt, Outcome, Settings, Work
from stoker.core.errors import StokerError
from stoker.core.times import stamp
from stoker.core.values import Value
from stoker.manager import trial as managed
from stoker.manager.stopping import STOPPED
from stoker.store.records import Status, TrialId
from stoker.study.metrics import metrics_of, read_metrics, read_series
from stoker.study.place import FLAT, RECORDS, Place
from stoker.study.work import Focus, Planned, StudyWork

if TYPE_CHECKING:
    from stoker.agent.carrier import Carrier

Tell = Callable[[dict[str, Any]], None]
"""Takes what happens, as `{"event": …}`, for whoever watches."""

Listen = Callable[[Callable[[str], None]], None]
"""Passes what the agent is told (`pause`, `resume`, `leave`, `kill`) on to a function, from a thread."""


@dataclass(frozen=True)
class Contact:
    """How an agent and whoever started it speak with each other."""

    tell: Tell = lambda event: None
    listen: Listen = lambda obey: None


@dataclass(frozen=True)
class Terms:
    """On what terms an agent joins a study."""

    only: int | None = None  # the iteration whose trials are wanted; None for all
    placed: str = ""  # what the engine that placed it calls its place
    idle: float = inf  # seconds without a trial after which it leaves
    grace: float = 10.0  # seconds that stages have to end when they are asked to
    is_allotted: bool = False  # a scheduler gave this job its GPUs, and other machines see the directory


PATIENCE = 3.0
"""Seconds that an agent which is to end at once has for its last records: the store may be away."""
HEARSAY = 1.0
"""Seconds in which an agent hears that its machine is taken away, after one of its stages has heard it."""
_TOLD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_STORE_THREADS = 16
_FILE_THREADS = 8


class LocalWorld:
    """This machine. Everything but waiting for a slow store happens in the thread that calls `run`."""

    def __init__(
        self,
        name: str,
        place: Place,
        keeper: Keeper,
        processes: Processes,
        tell: Tell,
        terms: Terms,
    ) -> None:
        self.loop = Loop(time.monotonic)
        self.random = Random()  # noqa: S311  (spreads agents over trials; nothing secret)
        self._processes = processes
        self.is_shared = place.is_shared
        self.is_slow = place.is_remote or place.is_shared
        self._threads = Threads(self.loop, processes.wakeup, _STORE_THREADS if self.is_slow else 0)
        self.store: AsyncStore = Threaded(place.store, self._threads) if self.is_slow else Inline(place.store)
        self._carrier: Carrier | None = None
        if place.is_remote:
            from stoker.agent.carrier import Carrier

            files = Threads(self.loop, processes.wakeup, _FILE_THREADS)
            self._carrier = Carrier(place.store, self.loop, files, self._complain)
            self._deliveries = [self._threads, files]
        else:
            self._deliveries = [self._threads]
        self._output = place.output or scratch(place.url) / name
        self.study = StudyWork(place.output)
        self.work: Work = self.study
        self._keeper = keeper
        self._tell, self._terms = tell, terms
        self._worked = self.loop.now()
        self._parents = Parents(self.loop, processes, self._complain)
        self._serving = Serving(processes, self._complain)
        self._starting: set[Attempt] = set()
        self._running: dict[Attempt, Stage] = {}
        self._slot_of: dict[Attempt, int] = {}
        self._over: dict[Stage, Event[Ended]] = {}
        self._cancelled: set[Attempt] = set()
        self._states: dict[TrialId, dict[str, str]] = {}
        self._notes: dict[Attempt, dict[str, Any]] = {}
        self._seen: dict[Attempt, Figures] = {}
        self._logs: dict[Attempt, tuple[str, str]] = {}  # the stage that ended last, and its log
        self._since: dict[Attempt, int] = {}  # the round from which an attempt goes on, if not the first
        self._is_away = False
        self._words: deque[str] = deque()
        self._too_late: Event[None] = Event(self.loop)
        self._environments: dict[tuple[int, Planned], Mapping[str, str]] = {}

    # What an agent asks for

    def describe(self) -> dict[str, Any]:
        """Who this agent is, so that another one on this host knows at once when it is dead."""
        told = {**here(), "time": stamp(), "slots": len(self._keeper.slots)}
        return {**told, "placed": self._terms.placed} if self._terms.placed else told

    def is_gone(self, beat: Mapping[str, Any]) -> bool:
        """Whether the beat is of a process of this host that is no more."""
        return is_gone(beat)

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
        self._tell({"event": "slots", "pid": os.getpid(), "slots": shown, "notes": self._keeper.notes})

    def stage_notes(self, attempt: Attempt, stage: str) -> dict[str, Any]:
        """What a finished stage came to, in case that a later attempt does the rest."""
        notes = self._notes.get(attempt, {})
        return {name: notes[name] for name in (stage, "metrics", "series") if name in notes}

    def notes(self, attempt: Attempt) -> dict[str, Any]:
        """What its stages came to."""
        return {"time": stamp(), **self._notes.pop(attempt, {})}

    def stamp(self) -> str:
        """The time, for people to read."""
        return stamp()

    def committed(self, trial: TrialId, status: Status, body: Mapping[str, Any]) -> None:
        """A result of this agent's is in the store."""
        told = {"trial": str(trial), "name": self._name(trial), "status": status.value}
        self._tell({"event": "trial", "time": time.time(), **told, "metrics": body.get("metrics", {})})

    def store_is_away(self, why: str) -> None:
        """The store does not answer, or does again: said once."""
        if bool(why) != self._is_away:
            self._is_away = bool(why)
            self._tell({"event": "store", "time": time.time(), "away": self._is_away, "why": why})

    # Stages

    async def prepare(self, attempt: Attempt, oldest_round: int) -> None:
        """With a remote store, get the trial's files; else they are where they were."""
        if oldest_round > 1:
            self._since[attempt] = oldest_round
        if self._carrier is not None:
            from stoker.study.files import Select

            asked = self.study.newest(attempt.trial).study.settings.get("files")
            settings = asked if isinstance(asked, dict) else {}
            select = Select(tuple(settings.get("include", ())), tuple(settings.get("exclude", ())))
            directory, every = Path(self._directory(attempt.trial)), float(settings.get("every", 60.0))
            await self._carrier.bring(attempt, directory, oldest_round, select, every)

    async def keep(self, attempt: Attempt) -> None:
        """With a remote store, send what a stage wrote; else it is where it belongs."""
        self._note_metrics(attempt)
        if self._carrier is not None:
            await self._carrier.save(attempt)

    def _note_metrics(self, attempt: Attempt) -> None:
        """Metrics of the log and of the script's manager; what a later stage says goes before."""
        stage, log = self._logs.pop(attempt, ("", ""))
        if not log:
            return
        notes, patterns = self._notes.setdefault(attempt, {}), self._patterns(attempt.trial)
        metrics = read_metrics(log, patterns) if patterns else {}
        directory, whose = self._own_directory(attempt.trial), (attempt.round, attempt.number)
        series = read_series(directory, stage, whose)
        if series:
            notes["series"] = {**notes.get("series", {}), **series}
            objective = self.study.newest(attempt.trial).study.settings.get("objective")
            metrics.update(metrics_of(series, objective))
        if metrics:
            notes["metrics"] = {**notes.get("metrics", {}), **metrics}

    def _own_directory(self, trial: TrialId) -> str:
        """Where the trial's manager writes: its directory, but for trials that share one."""
        is_flat = self.study.planned(trial.iteration).is_flat
        output = os.path.abspath(self._output)  # noqa: PTH100
        return f"{output}/{FLAT if is_flat else ''}{self._name(trial)}"

    def _patterns(self, trial: TrialId) -> Mapping[str, str]:
        found = self.study.newest(trial).study.settings.get("metrics", {})
        return found if isinstance(found, dict) else {}

    def forget(self, attempt: Attempt) -> None:
        """The attempt is over, and nothing more is asked about it."""
        self._states.pop(attempt.trial, None)
        self._since.pop(attempt, None)
        if self._carrier is not None:
            self._carrier.forget(attempt)

    def cancel(self, attempt: Attempt) -> None:
        """End the running stage, with a grace."""
        stage = self._running.get(attempt)
        if (stage is not None or attempt in self._starting) and attempt not in self._cancelled:
            self._cancelled.add(attempt)
            if stage is not None:
                self._processes.terminate(stage)
            self._parents.wake()

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
            process = await self._start(attempt, stage, slot, spec)
        except (OSError, StageError) as error:  # no space, no right to write there, no more processes
            notes[stage] = {"error": str(error)}
            self._tell_stage("start", attempt, stage, slot, "")
            self._tell_stage("end", attempt, stage, slot, "", outcome="failed", why=str(error), seconds=0.0)
            return Outcome.FAILED
        if process is None:
            self._cancelled.discard(attempt)
            return Outcome.CANCELLED
        over: Event[Ended] = Event(self.loop)
        self._running[attempt], self._over[process], self._slot_of[attempt] = process, over, slot
        self._show(attempt.trial, stage, "running")
        self._tell_stage("start", attempt, stage, slot, str(spec.log))
        if attempt in self._cancelled:  # while it was being started
            self._processes.terminate(process)
        ended = await over.wait()
        if _was_told_to_end(ended) and attempt not in self._cancelled:
            await self.loop.sleep(HEARSAY)
        del self._running[attempt], self._slot_of[attempt]
        outcome = _outcome(ended, attempt in self._cancelled)
        self._cancelled.discard(attempt)
        became = "released" if outcome is Outcome.CANCELLED else outcome.value
        self._show(attempt.trial, stage, became)
        figures = {
            **_figures(ended, self._seen.pop(attempt, None)),
            "slot": self._keeper.slots[slot].label,
            "began": round(time.time() - ended.wall, 3),
        }
        notes[stage] = figures
        self._logs[attempt] = stage, str(spec.log)
        told = {"outcome": became, "seconds": figures["seconds"], "code": ended.code, "signal": ended.signal}
        self._tell_stage("end", attempt, stage, slot, str(spec.log), why=ended.why.value, **told)
        return outcome

    async def _start(self, attempt: Attempt, stage: str, slot: int, spec: Spec) -> Stage | None:
        """Start a stage, warm if the study says so and it is possible; None if it was cancelled meanwhile."""
        settings = self.study.newest(attempt.trial, stage).study.settings
        label = self._keeper.slots[slot].label
        is_served = bool(settings.get("warm"))
        if is_served:
            started = self._serving.start(label, stage, spec)
            if started is not None:
                return started
            spec = replace(spec, about={**spec.about, "STOKER_WARM": self._serving.address()})
        started = await self._preloaded(attempt, slot, settings.get("preload"), spec)
        if started is None and attempt not in self._cancelled:
            started = self._processes.start(spec)
        if started is not None and is_served:
            self._serving.expect(label, stage, started)
        return started

    async def _preloaded(self, attempt: Attempt, slot: int, modules: object, spec: Spec) -> Stage | None:
        """Start a stage from a parent that has its modules; None if that is not asked for or not possible."""
        if not isinstance(modules, tuple):
            return None
        self._starting.add(attempt)
        self._tell({"event": "wait", "slot": slot, "text": f"importing {', '.join(map(str, modules))}"})
        try:
            wanted = lambda: attempt not in self._cancelled  # noqa: E731
            label = self._keeper.slots[slot].label
            return await self._parents.start(label, tuple(map(str, modules)), spec, wanted)
        finally:
            self._starting.discard(attempt)

    def _tell_stage(
        self, event: str, attempt: Attempt, stage: str, slot: int, log: str, **more: object
    ) -> None:
        where = slot if self.work.needs_slot(attempt.trial, stage) else None
        about = {"trial": str(attempt.trial), "name": self._name(attempt.trial), "stage": stage}
        stages = self.work.stages(attempt.trial)
        numbers = {"round": attempt.round, "attempt": attempt.number}
        if stage in stages:  # a newer plan may not have it
            numbers.update(step=stages.index(stage) + 1, steps=len(stages))
        self._tell(
            {"event": event, "time": time.time(), "slot": where, **about, **numbers, "log": log, **more}
        )

    def _name(self, trial: TrialId) -> str:
        found = self.study.trial(trial)
        return found.name if found is not None else str(trial)

    def _spec(self, attempt: Attempt, stage: str, slot: int) -> Spec:
        trial = self.study.trial(attempt.trial)
        planned, newest = self.study.planned(attempt.trial.iteration), self.study.newest(attempt.trial, stage)
        assert trial is not None  # noqa: S101  (it was claimed, so it is to be run)
        directory = self._directory(attempt.trial)
        named = planned.output if planned.output is not None and self._carrier is None else str(self._output)
        shown = named if planned.is_flat else f"{named}/{trial.name}"
        about: dict[str, Value] = {"_name": trial.name, "_output": shown, "_time": planned.time}
        reserved: dict[str, Value] = {
            **about,
            "_trial": trial.number,
            "_attempt": attempt.number,
            "_slot": self._keeper.slots[slot].devices,
            "_study": planned.study.name,
        }
        asked = replace(trial, stages=(*self.study.stages(attempt.trial), stage))
        commands = newest.study.commands(asked, reserved)
        if attempt.trial not in self._states:
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103  (paths are texts here: this runs for every trial)
            if not planned.is_flat:
                write_param(directory, trial.params, about, commands)
        timeout = next(known.timeout for known in newest.study.stages if known.name == stage)
        log = f"{directory}/log.{stage}.{_now()}{f'.{trial.name}' if planned.is_flat else ''}"
        own = self._about(attempt, stage, trial.params, newest)
        environment, where = self._environment(slot, newest), self._workplace(newest)
        return Spec(commands[stage], log, environment, own, where, timeout, self._terms.grace)

    def _about(
        self, attempt: Attempt, stage: str, params: Mapping[str, Value], planned: Planned
    ) -> dict[str, str]:
        """What a training script's manager finds its trial by."""
        directory, since = self._own_directory(attempt.trial), self._since.get(attempt, 1)
        whose = attempt.round, attempt.number
        told = managed.Trial(params, directory, stage, whose, planned.study.objective, since)
        return managed.to_environment(told, str(attempt.trial))

    def _directory(self, trial: TrialId) -> str:
        """Where the trial's files are, as this process reaches them."""
        is_flat = self.study.planned(trial.iteration).is_flat
        return str(self._output) if is_flat else f"{self._output}/{self._name(trial)}"

    def _workplace(self, planned: Planned) -> Path | None:
        """Where commands run: where `stoker run` was called, if that is here."""
        if planned.directory is None or self._carrier is not None:
            return None
        return Path(planned.directory)

    def _environment(self, slot: int, planned: Planned) -> Mapping[str, str]:
        """What a stage's environment has more than the agent's own."""
        key = (slot, planned)
        if key not in self._environments:
            found = planned.study.settings.get("env", {})
            asked = (
                {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
            )
            whole = with_manager(child_environment(self._keeper.slots[slot], os.environ, asked))
            self._environments[key] = {n: v for n, v in whole.items() if os.environ.get(n) != v}
        return self._environments[key]

    def _show(self, trial: TrialId, stage: str, state: str) -> None:
        states = self._states.setdefault(trial, {})
        states[stage] = state
        if self.study.planned(trial.iteration).is_flat:
            return
        try:
            write_stat(self._directory(trial), states)
        except OSError as error:  # for people only: the records decide
            self._complain(f"cannot write {self._directory(trial)}/stat: {error.strerror}")

    def _complain(self, text: str) -> None:
        self._tell({"event": "note", "text": text})

    # Running

    def run(self, agent: Agent, listen: Listen) -> None:
        """Let the agent live its life. SIGTERM and SIGINT make it leave."""
        self._agent = agent
        listen(self._hear)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._hear_signal)
        self.loop.spawn(self._keep_sampling())
        life, is_leaving = self.loop.spawn(agent.main()), False
        while not life.ended.done and not self._too_late.done:
            while self._words:
                self._obey(self._words.popleft())
            if not self._processes.guarded and not is_leaving:
                is_leaving = True
                agent.leave()
            if not self.loop.step():
                self._wait()
        self._serving.close()
        self._parents.close()

    def _hear(self, word: str) -> None:
        """Take note of a word, from any thread."""
        self._words.append(word)
        self._processes.wakeup()

    def _hear_signal(self, *_: object) -> None:
        """Only take note: a signal may come in the middle of anything."""
        self._hear("leave")

    def _obey(self, word: str) -> None:
        if word in ("pause", "resume"):
            self._agent.pause(word == "pause")
        elif word == "leave":
            self._agent.leave()
        elif word == "kill":
            for stage in list(self._over):
                self._processes.kill(stage)
            self._agent.leave()
            self._too_late = self.loop.at(self.loop.now() + PATIENCE)

    def _wait(self) -> None:
        due = self.loop.next_timer()
        for ended in self._processes.poll(None if due is None else max(0.0, due - self.loop.now())):
            self._over.pop(ended.stage).set(ended)
        for threads in self._deliveries:
            threads.deliver()

    async def _keep_sampling(self) -> None:
        while True:
            await self.loop.sleep(EVERY)
            self._keeper.refresh()
            self._leave_if_idle()
            for attempt, stage in self._running.items():
                identities = self._keeper.slots[self._slot_of[attempt]].identities
                seen = self._seen.setdefault(attempt, Figures())
                seen.add(self._processes.usage(stage), look_at_gpus(identities, gpus.utilisation))

    def _leave_if_idle(self) -> None:
        """Others are at work on what is left, and somebody else may want this machine."""
        now = self.loop.now()
        if self._agent.is_at_work:
            self._worked = now
        elif now - self._worked > self._terms.idle:
            self._complain(f"nothing to do for {self._terms.idle:g} s: this agent leaves")
            self._agent.leave()


def run_agent(
    place: Place,
    keeper: Keeper,
    settings: Settings,
    guard: guardian.Guard,
    contact: Contact = Contact(),  # noqa: B008  (it has no state)
    terms: Terms = Terms(),  # noqa: B008  (nor has this)
) -> None:
    """Join the study at a place with the slots of this machine, until nothing is left."""
    if terms.is_allotted:
        place = replace(place, is_shared=not place.is_remote)
    for path in (place.output, place.output / RECORDS) if place.output else (scratch(place.url),):
        _check_writable(path)
    with Processes(guard) as processes:
        name = f"{host()}-{os.getpid()}-{os.urandom(4).hex()}"
        world = LocalWorld(name, place, keeper, processes, contact.tell, terms)
        world.tell_slots()
        agent = Agent(name, world, len(keeper.slots), settings)
        if terms.only is not None:
            agent.focus_on(Focus(world.study, [terms.only]))
        world.run(agent, contact.listen)


def scratch(url: str) -> Path:
    """Where this machine has the trials' directories of a study in a bucket, while they run."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    place = os.environ.get("STOKER_SCRATCH") or Path(caches) / "stoker"
    return Path(place).absolute() / re.sub(r"\W+", "_", url)[-100:]


def _check_writable(path: Path) -> None:
    """Refuse at once what would be refused for ever. A disk that is full or away may come back."""
    there = next(above for above in (path, *path.absolute().parents) if os.path.exists(above))  # noqa: PTH110  (no right to look there is an answer)
    if not os.access(there, os.W_OK | os.X_OK):
        raise StokerError(f"cannot write to {there}: not allowed, or the disk is read-only")


def _was_told_to_end(ended: Ended) -> bool:
    """Whether a signal ended it, as a shell tells that, too, or a manager that heard it."""
    is_signal = ended.signal in _TOLD or (ended.code is not None and ended.code - 128 in _TOLD)
    return ended.why is Why.EXITED and (is_signal or ended.code == STOPPED)


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
