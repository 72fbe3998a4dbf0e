"""The agent: claims trials, runs their stages on its slots, and commits what came of them.

Everything it needs from outside is in `World`, so that the same code runs on a machine and in a simulation.
docs/architecture.md explains the protocol and why each rule is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from stoker.agent.loop import Event
from stoker.agent.view import Decision, Verdict, View, Watch, candidates, pick
from stoker.agent.world import Attempt, Outcome, Settings, World
from stoker.store import records
from stoker.store.interface import StoreError
from stoker.store.records import End, Status, TrialId


class Agent:
    """One machine's agent. `main` returns when nothing is left to do, or after `leave`."""

    def __init__(self, name: str, world: World, slots: int, settings: Settings) -> None:
        self.name = name
        self._world = world
        self._loop = world.loop
        self._store = world.store
        self._slots = slots
        self._settings = settings
        self._view = View()
        self._watch = Watch(settings.lease, longest_look=settings.lease / 4)
        self._holders: dict[str, str] = {}  # claim → agent, of claims without an end
        self._own: dict[TrialId, Attempt] = {}  # what this agent holds
        self._not_before: dict[TrialId, float] = {}  # trials that wait after a failure
        self._orders: list[dict[str, Any]] = []
        self._leaving: Event[None] = Event(self._loop)
        self._pauses: set[Event[None]] = set()
        self._refreshed: Event[None] = Event(self._loop)
        self._heard: dict[str, str] = {}  # agent → the version of its beat that was read last
        self._known: dict[tuple[int, int], set[str]] = {}  # keys read, of ranges that are not done
        self._beats = 0

    # Life

    async def main(self) -> None:
        """Join the study, work until nothing is left, and leave."""
        await self._beat()
        await self._until_it_works(self._look)
        chores = [self._loop.spawn(self._keep_beating()), self._loop.spawn(self._keep_looking())]
        slots = [self._loop.spawn(self._serve(slot)) for slot in range(self._slots)]
        for slot in slots:
            await slot.ended.wait()
        while self._own:  # stages that need no slot, or that are being given back
            await self._refreshed.wait()
        self._stop_chores()
        for chore in chores:
            await chore.ended.wait()
        await self._beat(left=True)

    def leave(self) -> None:
        """Give everything back and go, as soon as possible: the machine is being taken away."""
        self._stop_chores()
        for attempt in list(self._own.values()):
            self._world.cancel(attempt)
        self._wake()

    def _stop_chores(self) -> None:
        self._leaving.set(None)
        for pause in self._pauses:
            pause.set(None)

    async def _pause(self, seconds: float) -> None:
        """Sleep, but not longer than the agent stays."""
        pause = self._loop.at(self._loop.now() + seconds)
        self._pauses.add(pause)
        await pause.wait()
        self._pauses.discard(pause)

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
                await self._refresh()

    def _beat_interval(self) -> float:
        """A fleet of a thousand must not flood a bucket with beats."""
        fleet = self._watch.alive()
        return max(self._settings.beat, min(fleet / 20, self._settings.lease / 4))

    async def _beat(self, left: bool = False) -> None:
        self._beats += 1
        running = sorted(attempt.claim for attempt in self._own.values())
        body = {**self._world.describe(), "beat": self._beats, "running": running, "left": left}
        try:
            await self._store.write(records.beat_key(self.name), records.encode(body))
        except StoreError:
            return  # the next one will do, or others will take over

    # Knowing

    async def _refresh(self) -> None:
        """Look at the whole store once. Where it does not answer, what is known goes on being so."""
        with suppress(StoreError):
            await self._look()
        self._cancel_what_is_no_longer_ours()
        self._wake()

    async def _look(self) -> None:
        await self._see_plans()
        await self._see_trials()
        await self._see_orders()
        await self._learn_holders()
        await self._see_beats()

    def _wake(self) -> None:
        self._refreshed.set(None)
        self._refreshed = Event(self._loop)

    async def _see_plans(self) -> None:
        """Read the plan after the last known one, by its key: a listing may be late."""
        while True:
            iteration = max(self._view.iterations, default=0) + 1
            body = records.decode(await self._store.read(records.plan_key(iteration)))
            if body is None:
                return
            self._view.add_iteration(iteration, self._world.work.size(body), self._world.work.skipped(body))

    async def _see_trials(self) -> None:
        """From the first range with something to do, until one shows that nobody has come so far."""
        ranges = {iteration: list(self._view.open_ranges(iteration)) for iteration in self._view.iterations}
        for done in set(self._known) - {(i, place) for i, places in ranges.items() for place in places}:
            del self._known[done]
        for iteration, places in ranges.items():
            for place in places:
                if not await self._see_range(iteration, place):
                    break

    async def _see_range(self, iteration: int, place: int) -> bool:
        entries = await self._store.list(records.range_prefix(iteration, place))
        known = self._known.setdefault((iteration, place), set())
        for key in [entry.key for entry in entries if entry.key not in known]:
            known.add(key)
            mark = records.parse_key(key)
            if mark is not None:
                self._view.add(mark)
        return bool(entries)

    async def _see_beats(self) -> None:
        """One listing tells who is silent; only beats of agents that hold something we want are read."""
        entries = await self._store.list("beats/")
        now, holders = self._loop.now(), set(self._holders.values()) - {self.name}
        shown = {entry.key.partition("/")[2]: entry.version for entry in entries}
        shown.pop(self.name, None)
        for agent in {**shown, **dict.fromkeys(holders)}:
            self._watch.observe(agent, shown.get(agent, ""), now)
        for agent in sorted(holders.intersection(shown)):
            if self._heard.get(agent) != shown[agent]:
                body = records.decode(await self._store.read(records.beat_key(agent)))
                if body is not None:
                    self._heard[agent] = shown[agent]
                    self._hear(agent, body)

    def _hear(self, agent: str, body: Mapping[str, Any]) -> None:
        self._watch.hear(agent, frozenset(body.get("running", ())), bool(body.get("left")))
        if self._world.is_gone(body):
            self._watch.bury(agent)

    async def _see_orders(self) -> None:
        """Read the orders after the last known one, in the same way."""
        while True:
            body = records.decode(await self._store.read(records.order_key(len(self._orders) + 1)))
            if body is None:
                return
            self._orders.append(body)
            for opened in body.get("rounds", ()):
                iteration, number, round_ = map(int, opened.split("."))
                self._note(records.Mark(TrialId(iteration, number), round_, "round"))

    def _is_stopped(self, trial: TrialId) -> bool:
        """Whether an operator stopped the trial, in the round it is in now."""
        key = f"{trial}.{self._view.state(trial).current}"
        return any(key in order.get("stop", ()) for order in self._orders)

    def _is_study_stopped(self) -> bool:
        """The last order about the whole study counts."""
        orders = [order["study"] for order in self._orders if "study" in order]
        return bool(orders) and orders[-1] == "stop"

    def _is_held(self, trial: TrialId, round_: int, attempt: int) -> bool:
        claim = records.claim_key(trial, round_, attempt)
        holder = self._holders.get(claim)
        if holder is None:
            return True  # not known yet: `_learn_holders` will tell
        if holder == self.name:
            own = self._own.get(trial)
            return own is not None and own.claim == claim
        return self._watch.is_alive(holder) and self._watch.stands_by(holder, claim)

    async def _learn_holders(self) -> None:
        """Read whose the claims without an end are, and forget those that are over."""
        wanted = {}
        for trial, state in self._view.touched():
            known = state.rounds.get(state.current)
            last = max(known.attempts, default=0) if known else 0
            if known and last and known.attempts[last] is None:
                wanted[records.claim_key(trial, state.current, last)] = trial
        self._holders = {claim: agent for claim, agent in self._holders.items() if claim in wanted}
        for claim in wanted:
            if claim not in self._holders:
                body = records.decode(await self._store.read(claim))
                self._holders[claim] = str((body or {}).get("agent", ""))

    def _cancel_what_is_no_longer_ours(self) -> None:
        """Somebody took over, or the trial was stopped: our stage must not go on."""
        for trial, attempt in list(self._own.items()):
            state = self._view.state(trial)
            known = state.rounds.get(attempt.round)
            taken = known is not None and max(known.attempts, default=0) > attempt.number
            superseded = (
                taken or state.current > attempt.round or self._view.done_round(trial) >= attempt.round
            )
            if superseded or self._is_stopped(trial) or self._is_study_stopped():
                self._world.cancel(attempt)

    # Working

    async def _serve(self, slot: int) -> None:
        while not self._leaving.done:
            attempt = await self._next_attempt()
            if attempt is None:
                return
            freed: Event[None] = Event(self._loop)
            self._loop.spawn(self._run(attempt, slot, freed))
            await freed.wait()

    async def _next_attempt(self) -> Attempt | None:
        """Claim a trial; None when nothing is left, now or later."""
        while not self._leaving.done and not self._is_study_stopped():
            chosen = self._choose()
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
        if next(self._view.unfinished(), None) is None:
            await self._until_it_works(self._see_plans)
            await self._until_it_works(self._see_orders)
        return next(self._view.unfinished(), None) is None

    async def _wait_for_news(self) -> None:
        if self._choose() is None:
            await self._refreshed.wait()

    def _choose(self) -> tuple[TrialId, Decision] | None:
        now = self._loop.now()
        fleet = self._watch.alive()
        window = 1 if fleet == 0 else 2 * (fleet + 1) * self._slots
        found = candidates(self._view, self._settings.retries, self._is_held, window + len(self._own))
        free = [
            (trial, decision)
            for trial, decision in found
            if trial not in self._own and self._not_before.get(trial, 0.0) <= now
        ]
        return pick(free[:window], self._world.random)

    async def _act(self, trial: TrialId, decision: Decision) -> Attempt | None:
        if self._is_stopped(trial):
            await self._commit(trial, decision.round, Status.STOPPED, {"why": "stopped"})
        elif decision.verdict is Verdict.HOPELESS:
            await self._commit(trial, decision.round, Status.FAILED, {"why": decision.why})
        else:
            return await self._claim(trial, decision)
        return None

    async def _claim(self, trial: TrialId, decision: Decision) -> Attempt | None:
        attempt = Attempt(
            trial, decision.round, decision.attempt, f"{self._world.random.getrandbits(64):016x}"
        )
        self._own[trial] = attempt  # from here on beats stand by it, and no other slot wants it
        if await self._is_won(attempt):
            return attempt
        self._own.pop(trial, None)
        return None

    async def _is_won(self, attempt: Attempt) -> bool:
        if attempt.number > 1 and await self._has_result(attempt.trial, attempt.round):
            return False
        body = {"agent": self.name, "nonce": attempt.nonce}
        won = await self._put_once(attempt.claim, body, attempt.nonce)
        if won:
            self._holders[attempt.claim] = self.name
        self._note(records.Mark(attempt.trial, attempt.round, "claim", attempt.number))
        return won

    async def _has_result(self, trial: TrialId, round_: int) -> bool:
        """Whether the round is done after all: its holder may have left faster than listings tell."""
        found = await self._until_it_works(self._store.read, records.result_key(trial, round_))
        if found is not None:
            self._note(records.Mark(trial, round_, "result"))
        return found is not None

    async def _run(self, attempt: Attempt, slot: int, freed: Event[None]) -> None:
        """Run an attempt to its end; the slot is free as soon as no stage that is left needs it."""
        try:
            await self._run_stages(attempt, slot, freed)
        finally:
            self._own.pop(attempt.trial, None)
            freed.set(None)
            self._wake()  # slots that found nothing to do may find something, or that all is done

    async def _run_stages(self, attempt: Attempt, slot: int, freed: Event[None]) -> None:
        finished = await self._finished_stages(attempt)
        work, trial = self._world.work, attempt.trial
        left = [stage for stage in work.stages(trial) if stage not in finished]
        for place, stage in enumerate(left):
            if not any(work.needs_slot(trial, later) for later in left[place:]):
                freed.set(None)
            outcome = Outcome.CANCELLED
            if not self._leaving.done:
                outcome = await self._world.run_stage(attempt, stage, slot)
            if outcome is not Outcome.FINISHED:
                await self._end_early(attempt, outcome)
                return
            if stage != left[-1]:  # the result speaks for the last one
                await self._record_stage(attempt, stage)
        await self._commit(trial, attempt.round, Status.FINISHED, self._notes(attempt))
        await self._end(attempt, End.FINISHED)

    async def _record_stage(self, attempt: Attempt, stage: str) -> None:
        key = records.stage_key(attempt.trial, attempt.round, stage)
        await self._put_once(key, {"attempt": attempt.number, "nonce": attempt.nonce}, attempt.nonce)
        self._note(records.Mark(attempt.trial, attempt.round, "stage", stage=stage))

    async def _finished_stages(self, attempt: Attempt) -> set[str]:
        """Stages that earlier attempts finished, in this round or in those it goes on from.

        Read one by one: a listing may be late, and a finished stage must never run again.
        """
        if attempt.number == 1 and attempt.round == 1:
            return set()
        found: set[str] = await self._until_it_works(self._read_stages, attempt)
        return found

    async def _read_stages(self, attempt: Attempt) -> set[str]:
        found: set[str] = set()
        stages = self._world.work.stages(attempt.trial)
        for round_ in range(attempt.round, 0, -1):
            found.update(await self._stages_of_round(attempt.trial, round_, stages))
            opened = records.decode(await self._store.read(records.round_key(attempt.trial, round_)))
            if opened is not None and opened.get("fresh"):
                break
        return found

    async def _stages_of_round(self, trial: TrialId, round_: int, stages: Sequence[str]) -> set[str]:
        result = records.decode(await self._store.read(records.result_key(trial, round_)))
        if result is not None and result.get("status") == Status.FINISHED.value:
            return set(stages)
        keys = {stage: records.stage_key(trial, round_, stage) for stage in stages}
        return {stage for stage, key in keys.items() if await self._store.read(key) is not None}

    async def _end_early(self, attempt: Attempt, outcome: Outcome) -> None:
        if outcome is Outcome.FAILED:
            await self._end_failed(attempt)
        elif self._is_stopped(attempt.trial):
            await self._commit(attempt.trial, attempt.round, Status.STOPPED, {"why": "stopped"})
            await self._end(attempt, End.STOPPED)
        else:
            await self._end(attempt, End.RELEASED)

    async def _end_failed(self, attempt: Attempt) -> None:
        known = self._view.state(attempt.trial).rounds.get(attempt.round)
        before = sum(end is End.FAILED for end in known.attempts.values()) if known else 0
        if before + 1 > self._settings.retries:
            await self._commit(
                attempt.trial, attempt.round, Status.FAILED, {"why": "failed", **self._notes(attempt)}
            )
        pause = self._settings.back_off * 2**before
        self._not_before[attempt.trial] = self._loop.now() + pause
        self._loop.spawn(self._wake_after(pause))
        await self._end(attempt, End.FAILED)

    async def _wake_after(self, seconds: float) -> None:
        await self._loop.sleep(seconds)
        self._wake()

    # Writing

    async def _commit(self, trial: TrialId, round_: int, status: Status, more: dict[str, Any]) -> None:
        """Commit the round's result, unless somebody did."""
        nonce = f"{self._world.random.getrandbits(64):016x}"
        body = {"status": status.value, "agent": self.name, "nonce": nonce, **more}
        await self._put_once(records.result_key(trial, round_), body, nonce)
        self._note(records.Mark(trial, round_, "result"))

    async def _end(self, attempt: Attempt, end: End) -> None:
        key = records.end_key(attempt.trial, attempt.round, attempt.number, end)
        body = {"agent": self.name, "nonce": attempt.nonce, **self._notes(attempt)}
        await self._put_once(key, body, attempt.nonce)
        self._note(records.Mark(attempt.trial, attempt.round, end.value, attempt.number))

    def _notes(self, attempt: Attempt) -> dict[str, Any]:
        return {"attempt": attempt.number, **self._world.notes(attempt)}

    def _note(self, mark: records.Mark) -> None:
        self._view.add(mark)

    async def _put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        """Put a record if there is none; True if it is ours, however often the store said otherwise."""
        data = records.encode(body)

        async def settle() -> bool:
            try:
                if await self._store.create(key, data):
                    return True
            except StoreError:
                pass  # it may have landed all the same
            found = await self._store.read(key)
            if found is None:
                raise StoreError(f"{key} is neither written nor there")
            return (records.decode(found) or {}).get("nonce") == nonce

        return bool(await self._until_it_works(settle))

    async def _until_it_works(self, act: Callable[..., Any], *words: Any) -> Any:
        """Try again, with pauses that grow, until the store answers."""
        pause = 0.1
        while True:
            try:
                return await act(*words)
            except StoreError:
                await self._loop.sleep(pause * (0.5 + self._world.random.random()))
                pause = min(2 * pause, self._settings.beat)
