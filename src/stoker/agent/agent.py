"""The agent: claims trials, runs their stages on its slots, and commits what came of them.

Everything it needs from outside is in `World`, so that the same code runs on a machine and in a simulation.
docs/architecture.md explains the protocol and why each rule is there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stoker.agent.knowledge import Knowledge
from stoker.agent.ledger import Ledger
from stoker.agent.loop import Event
from stoker.agent.view import Decision, Focus, Verdict
from stoker.agent.world import Attempt, Outcome, Settings, World
from stoker.store import records
from stoker.store.interface import StoreError
from stoker.store.records import End, Mark, Status, TrialId
from stoker.study import summaries

BUSY_SLOT = 5.0
"""Seconds between two tries to get a slot that somebody else has."""


class Agent:
    """One machine's agent. `main` returns when nothing is left to do, or after `leave`."""

    make_ledger: Callable[..., Ledger] = Ledger
    make_knowledge: Callable[..., Knowledge] = Knowledge

    def __init__(self, name: str, world: World, slots: int, settings: Settings) -> None:
        self.name = name
        self._world = world
        self._loop = world.loop
        self._slots = slots
        self._settings = settings
        self._ledger = self.make_ledger(world, settings.beat)
        self._known = self.make_knowledge(name, world, self._ledger, settings)
        self._ahead: deque[Attempt] = deque()  # claimed before there is a slot for them
        self._claiming_ahead = False
        self._leaving: Event[None] = Event(self._loop)
        self._pauses: set[Event[None]] = set()
        self._news: Event[None] = Event(self._loop)
        self._beats = 0
        self._heard = self._loop.now()  # when the last beat that arrived was sent
        self._suspended = False
        self._seconds = 0.0  # what a trial takes, lately
        self.is_paused = False

    # Life

    async def main(self) -> None:
        """Join the study, work until nothing is left, and leave."""
        await self._beat()
        chores = [self._loop.spawn(self._keep_beating())]  # the first look may take longer than a lease
        await self._ledger.insist(self._known.look)
        chores.append(self._loop.spawn(self._keep_looking()))
        if self._world.is_shared:
            chores.append(self._loop.spawn(self._keep_standing_still()))
        slots = [self._loop.spawn(self._serve(slot)) for slot in range(self._slots)]
        for slot in slots:
            await slot.ended.wait()
        await self._give_back_ahead()
        while self._known.own:  # stages that need no slot, or that are being given back
            await self._news.wait()
        if not self._leaving.done:
            await self._summarise()
        self._stop_chores()
        for chore in chores:
            await chore.ended.wait()
        await self._beat(left=True)

    @property
    def is_at_work(self) -> bool:
        """Whether it holds claims."""
        return bool(self._known.own)

    def leave(self) -> None:
        """Give everything back and go, as soon as possible: the machine is being taken away."""
        self._stop_chores()
        for attempt in list(self._known.own.values()):
            self._world.cancel(attempt)
        self._wake()

    def focus_on(self, focus: Focus) -> None:
        """Do only what is asked for here; others may do the rest of the study."""
        self._known.focus = focus

    def pause(self, paused: bool) -> None:
        """Claim nothing more for now, or go on; what runs is not touched."""
        self.is_paused = paused
        self._wake()

    def _stop_chores(self) -> None:
        self._leaving.set(None)
        for pause in self._pauses:
            pause.set(None)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than the agent stays."""
        if self._leaving.done:
            return
        pause = self._loop.at(self._loop.now() + seconds)
        self._pauses.add(pause)
        await pause.wait()
        self._pauses.discard(pause)

    def _wake(self) -> None:
        """Something changed: slots that found nothing to do may find something, or that all is done."""
        self._news.set(None)
        self._news = Event(self._loop)

    async def _keep_beating(self) -> None:
        while not self._leaving.done:
            await self._pause(self._beat_interval())
            if not self._leaving.done:
                await self._beat()

    async def _keep_looking(self) -> None:
        """Apart from beating: looking around may take long, and must not make the others worry."""
        while not self._leaving.done:
            await self._pause(self._beat_interval())
            if not self._leaving.done:
                await self._look()

    def _beat_interval(self) -> float:
        """A fleet of a thousand must not flood a bucket with beats."""
        fleet = self._known.watch.alive()
        return max(self._settings.beat, min(fleet / 20, self._settings.lease / 4))

    async def _beat(self, left: bool = False) -> None:
        self._beats += 1
        sent = self._loop.now()
        running = sorted(attempt.claim for attempt in self._known.own.values())
        body = {**self._world.describe(), "beat": self._beats, "running": running, "left": left}
        try:
            await self._ledger.store.write(records.beat_key(self.name), records.encode(body))
        except StoreError as error:  # the next one will do, or others will take over
            self._world.store_is_away(str(error))
        else:
            self._heard = sent
            self._world.store_is_away("")

    async def _look(self) -> None:
        answers = True
        try:
            await self._known.look()
            if self._suspended:
                await self._known.look_for_successors()
        except StoreError:
            answers = False
        for attempt in self._known.no_longer_ours():
            self._drop(attempt)
        self._wake()
        if self._suspended and answers and not self._is_cut_off():
            self._suspended = False
            self._world.resume()
        if answers:
            await self._summarise()

    def _drop(self, attempt: Attempt) -> None:
        """Somebody took over, or the trial was stopped: our stage must not go on."""
        if attempt in self._ahead:
            self._ahead.remove(attempt)
            self._loop.spawn(self._give_back(attempt))
        else:
            self._world.cancel(attempt)

    # Standing still

    async def _keep_standing_still(self) -> None:
        """Where all machines see what a stage writes, none may write once others may think its agent dead."""
        while not self._leaving.done:
            await self._pause(self._settings.lease / 20)
            if self._is_cut_off() and not self._suspended:
                self._suspended = True
                self._world.suspend()

    def _is_cut_off(self) -> bool:
        """Whether no beat has arrived for so long that the lease may be over soon."""
        return self._loop.now() - self._heard > self._settings.lease * 0.6

    # Working

    async def _serve(self, slot: int) -> None:
        while not self._world.take_slot(slot):
            await self._pause(BUSY_SLOT)
            if self._leaving.done or self._known.is_study_stopped or await self._is_all_done():
                return
        while not self._leaving.done:
            attempt = await self._next_attempt()
            if attempt is None:
                return
            freed: Event[None] = Event(self._loop)
            self._loop.spawn(self._run(attempt, slot, freed))
            self._claim_ahead()
            await freed.wait()

    async def _next_attempt(self) -> Attempt | None:
        """Claim a trial; None when nothing is left, now or later."""
        while not self._leaving.done and not self._known.is_study_stopped:
            if self._ahead and not self.is_paused:
                return self._ahead.popleft()
            chosen = None if self.is_paused else self._known.choose(self._slots)
            if chosen is not None:
                attempt = await self._act(*chosen)
                if attempt is not None:
                    return attempt
            elif await self._is_all_done():
                return None
            else:
                await self._wait_for_news()
        return None

    async def _is_all_done(self) -> bool:
        """Nothing is left, and nobody has asked for more meanwhile."""
        if not self._known.is_left():
            await self._ledger.insist(self._known.see_plans)
            await self._ledger.insist(self._known.see_orders)
        return not self._known.is_left()

    async def _wait_for_news(self) -> None:
        if self.is_paused or (self._known.choose(self._slots) is None and not self._ahead):
            await self._news.wait()

    def _claim_ahead(self) -> None:
        """Have the next trial ready, so that a slot need not wait for a slow store.

        Only short trials: a long one, held by an agent that is busy, might be missed where slots are idle.
        """
        is_short = 0 < self._seconds < self._settings.short
        if self._world.is_slow and is_short and len(self._ahead) < self._slots and not self._claiming_ahead:
            self._claiming_ahead = True
            self._loop.spawn(self._fill_ahead())

    async def _fill_ahead(self) -> None:
        try:
            while not self._leaving.done and len(self._ahead) < self._slots and not self.is_paused:
                chosen = self._known.choose(self._slots) if self._known.is_plenty(self._slots) else None
                attempt = None if chosen is None else await self._act(*chosen)
                if chosen is None:
                    return
                if attempt is not None:
                    self._ahead.append(attempt)
                    self._wake()
        finally:
            self._claiming_ahead = False

    async def _give_back_ahead(self) -> None:
        while self._claiming_ahead:
            await self._loop.sleep(0.01)
        while self._ahead:
            await self._give_back(self._ahead.popleft())

    async def _give_back(self, attempt: Attempt) -> None:
        await self._end_early(attempt, Outcome.CANCELLED)
        self._known.let_go(attempt)
        self._wake()

    async def _act(self, trial: TrialId, decision: Decision) -> Attempt | None:
        if self._known.is_stopped(trial):
            await self._commit(trial, decision.round, Status.STOPPED, {"why": "stopped"})
        elif decision.verdict is Verdict.HOPELESS:
            await self._commit(trial, decision.round, Status.FAILED, {"why": decision.why})
        else:
            return await self._claim(trial, decision)
        return None

    async def _claim(self, trial: TrialId, decision: Decision) -> Attempt | None:
        attempt = Attempt(trial, decision.round, decision.attempt, self._ledger.nonce())
        self._known.own[trial] = attempt  # from here on beats stand by it, and no other slot wants it
        if await self._is_won(attempt):
            return attempt
        self._known.own.pop(trial, None)
        return None

    async def _is_won(self, attempt: Attempt) -> bool:
        if attempt.number > 1:
            if await self._has_result(attempt.trial, attempt.round):
                return False
            if await self._ledger.insist(self._known.is_back, attempt):
                return False
        won = await self._ledger.put_once(
            attempt.claim, {"agent": self.name, "time": self._world.stamp()}, attempt.nonce
        )
        if won:
            self._known.note_holder(attempt)
        self._known.note(Mark(attempt.trial, attempt.round, "claim", attempt.number))
        return won

    async def _has_result(self, trial: TrialId, round_: int) -> bool:
        """Whether the round is done after all: its holder may have left faster than listings tell."""
        found = await self._ledger.insist(self._ledger.store.read, records.result_key(trial, round_))
        if found is not None:
            self._known.note(Mark(trial, round_, "result"))
        return found is not None

    async def _run(self, attempt: Attempt, slot: int, freed: Event[None]) -> None:
        """Run an attempt to its end; the slot is free as soon as no stage that is left needs it."""
        try:
            await self._run_stages(attempt, slot, freed)
        finally:
            self._known.let_go(attempt)
            self._world.forget(attempt)
            freed.set(None)
            self._wake()

    async def _run_stages(self, attempt: Attempt, slot: int, freed: Event[None]) -> None:
        finished, known = await self._finished_stages(attempt)
        stages = self._world.work.stages(attempt.trial)
        left = [stage for stage in stages if stage not in finished]
        began = self._loop.now()
        if not self._leaving.done:
            await self._ledger.insist(self._world.prepare, attempt, self._known.oldest_round(attempt))
        for place, stage in enumerate(left):
            self._free(freed, attempt, left[place:])
            outcome = Outcome.CANCELLED
            if not self._leaving.done:
                outcome = await self._world.run_stage(attempt, stage, slot)
            self._free(freed, attempt, left[place + 1 :] if outcome is Outcome.FINISHED else ())
            await self._loop.sleep(0)  # whoever waits for the slot goes first
            await self._ledger.insist(self._world.keep, attempt)
            if outcome is not Outcome.FINISHED:
                await self._end_early(attempt, outcome)
                return
            if stage != left[-1]:  # the result speaks for the last one
                await self._record_stage(attempt, stage)
        self._seconds = (self._seconds + self._loop.now() - began) / (2 if self._seconds else 1)
        notes = {"stages": [*sorted(finished.difference(stages)), *stages], **self._notes(attempt)}
        for what, numbers in known.items():
            notes[what] = {**numbers, **notes.get(what, {})}
        await self._commit(attempt.trial, attempt.round, Status.FINISHED, notes)
        await self._end(attempt, End.FINISHED)

    def _free(self, freed: Event[None], attempt: Attempt, left: Sequence[str]) -> None:
        """Give the slot to the next trial unless one of these stages needs it."""
        if not any(self._world.work.needs_slot(attempt.trial, stage) for stage in left):
            freed.set(None)

    async def _record_stage(self, attempt: Attempt, stage: str) -> None:
        key = records.stage_key(attempt.trial, attempt.round, stage)
        body = {"attempt": attempt.number, **self._world.stage_notes(attempt, stage)}
        await self._ledger.put_once(key, body, attempt.nonce)
        self._known.note(Mark(attempt.trial, attempt.round, "stage", stage=stage))

    async def _finished_stages(self, attempt: Attempt) -> tuple[set[str], dict[str, Any]]:
        """Stages that earlier attempts finished, in this round or in those it goes on from; their numbers.

        Read one by one: a listing may be late, and a finished stage must never run again.
        """
        if attempt.number == 1 and attempt.round == 1:
            return set(), {}
        return await self._ledger.insist(self._read_stages, attempt)

    async def _read_stages(self, attempt: Attempt) -> tuple[set[str], dict[str, Any]]:
        found: set[str] = set()
        known: dict[str, Any] = {}
        stages = self._world.work.stages(attempt.trial)
        for round_ in range(self._known.oldest_round(attempt), attempt.round + 1):
            result = await self._ledger.read(records.result_key(attempt.trial, round_))
            if result is not None and result.get("status") == Status.FINISHED.value:
                found.update(result.get("stages", stages))
                _add_numbers(known, result)
                continue
            for stage in stages:
                body = await self._ledger.read(records.stage_key(attempt.trial, round_, stage))
                if body is not None:
                    found.add(stage)
                    _add_numbers(known, body)
        return found, known

    async def _end_early(self, attempt: Attempt, outcome: Outcome) -> None:
        if outcome is Outcome.FAILED:
            await self._end_failed(attempt)
        elif self._known.is_stopped(attempt.trial):
            await self._commit(attempt.trial, attempt.round, Status.STOPPED, {"why": "stopped"})
            await self._end(attempt, End.STOPPED)
        else:
            await self._end(attempt, End.RELEASED)

    async def _end_failed(self, attempt: Attempt) -> None:
        notes = self._notes(attempt)
        await self._ledger.insist(self._known.look_for_failures, attempt)
        before = self._known.failures(attempt)
        if before + 1 > self._world.work.retries(attempt.trial):
            await self._commit(attempt.trial, attempt.round, Status.FAILED, {"why": "failed", **notes})
        else:
            pause = self._settings.back_off * 2**before
            self._known.not_before[attempt.trial] = self._loop.now() + pause
            self._loop.spawn(self._wake_after(pause))
        await self._end(attempt, End.FAILED, notes)

    async def _wake_after(self, seconds: float) -> None:
        await self._pause(seconds)
        self._wake()

    # Writing

    async def _commit(self, trial: TrialId, round_: int, status: Status, more: dict[str, Any]) -> None:
        """Commit the round's result, unless somebody did."""
        body = {"status": status.value, "agent": self.name, **more}
        won = await self._ledger.put_once(records.result_key(trial, round_), body, self._ledger.nonce())
        self._known.note(Mark(trial, round_, "result"))
        if won:
            self._world.committed(trial, status, body)

    async def _end(self, attempt: Attempt, end: End, notes: dict[str, Any] | None = None) -> None:
        key = records.end_key(attempt.trial, attempt.round, attempt.number, end)
        body = {"agent": self.name, **(self._notes(attempt) if notes is None else notes)}
        await self._ledger.put_once(key, body, attempt.nonce)
        self._known.note(Mark(attempt.trial, attempt.round, end.value, attempt.number))

    def _notes(self, attempt: Attempt) -> dict[str, Any]:
        return {"attempt": attempt.number, **self._world.notes(attempt)}

    # Summing up

    async def _summarise(self) -> None:
        """Put what came of a finished range into one object, for those who want to know of all trials."""
        for iteration, place in self._known.view.complete_ranges():
            with suppress(StoreError):
                if await self._ledger.store.read(records.summary_key(iteration, place)) is None:
                    await self._write_summary(iteration, place)
                self._known.view.add_summary(iteration, place)

    async def _write_summary(self, iteration: int, place: int) -> None:
        view = self._known.view
        rounds = {trial: view.done_round(trial) for trial in view.done_in(iteration, place)}
        keys = [records.result_key(trial, round_) for trial, round_ in rounds.items()]
        bodies = await self._read_many(keys)
        if None in bodies:
            return  # one cannot be read now; a summary is for ever
        results = {
            trial.number: (round_, body) for (trial, round_), body in zip(rounds.items(), bodies, strict=True)
        }
        data = summaries.encode(iteration, place, view.size_of_range(iteration, place), results)
        await self._ledger.store.create(records.summary_key(iteration, place), data)

    async def _read_many(self, keys: Sequence[str]) -> list[dict[str, Any] | None]:
        """Records by their keys, some at a time, so that slots need not wait."""
        found: list[dict[str, Any] | None] = []
        for first in range(0, len(keys), 50):
            some = keys[first : first + 50]
            tasks = [self._loop.spawn(self._ledger.insist(self._ledger.read, key)) for key in some]
            found += [await task.ended.wait() for task in tasks]
            await self._loop.sleep(0.002)
        return found


def _add_numbers(known: dict[str, Any], body: Mapping[str, Any]) -> None:
    """What stages came to: a later one's numbers go before an earlier one's of the same name."""
    for what in ("metrics", "series"):
        if what in body:
            known[what] = {**known.get(what, {}), **body[what]}
