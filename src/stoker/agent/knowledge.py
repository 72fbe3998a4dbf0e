"""What an agent knows of a study: looked up in the store, and judged."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import chain, filterfalse, islice
from typing import Any

from stoker.agent.ledger import Ledger
from stoker.agent.view import Decision, Focus, View, Watch, judge
from stoker.agent.world import Attempt, Settings, World
from stoker.store import records
from stoker.store.records import Mark, TrialId

READS = 20
"""So many claims, and so many beats, are read in a look at most. In a fleet of a thousand, each reading all
of them would keep a bucket busier than the trials do: others read the others, and the next look goes on."""


class Knowledge:
    """Plans, orders, trials and other agents, as far as this agent has seen them."""

    def __init__(self, name: str, world: World, ledger: Ledger, settings: Settings) -> None:
        self._name, self._world, self._ledger, self._settings = name, world, ledger, settings
        self._store = world.store
        self.view = View()
        self.watch = Watch(settings.lease, longest_look=settings.lease / 4)
        self.own: dict[TrialId, Attempt] = {}  # what this agent holds
        self.not_before: dict[TrialId, float] = {}  # trials that wait after a failure
        self._holders: dict[str, str] = {}  # claim → agent, of claims without an end
        self.focus: Focus | None = None  # what this agent is for, if not for all of the study
        self._orders = 0
        self._stopped: set[tuple[TrialId, int]] = set()
        self._fresh: set[tuple[TrialId, int]] = set()
        self.is_study_stopped = False
        self._heard: dict[str, str] = {}  # agent → the version of its beat that was read last
        self._beats: dict[str, Mapping[str, Any]] = {}  # agent → that beat
        self._known: dict[tuple[int, int], set[str]] = {}  # keys read, of ranges that are not done

    # Looking

    async def look(self) -> None:
        """Look at the whole store once. Where it does not answer, what is known goes on being so."""
        await self.see_plans()
        await self._see_summaries()
        await self.see_orders()
        await self._see_trials()
        await self._learn_holders()
        await self._see_beats()

    async def see_plans(self) -> None:
        """Read the plan after the last known one, by its key: a listing may be late."""
        while True:
            iteration = max(self.view.iterations, default=0) + 1
            body = await self._ledger.read(records.plan_key(iteration))
            if body is None:
                return
            self.view.add_iteration(iteration, self._world.work.size(body), self._world.work.skipped(body))
            if iteration > 1:  # else there is nothing but what it asks for
                self.view.focus_on(self.focus or self._world.work.in_force())

    async def see_orders(self) -> None:
        """Read the orders after the last known one, in the same way."""
        while True:
            body = await self._ledger.read(records.order_key(self._orders + 1))
            if body is None:
                return
            self._orders += 1
            self._obey(body)

    def _obey(self, order: Mapping[str, Any]) -> None:
        for trial, round_ in _rounds(order, "rounds"):
            self.note(Mark(trial, round_, "round"))
            if order.get("fresh"):
                self._fresh.add((trial, round_))
        self._stopped.update(_rounds(order, "stop"))
        if "study" in order:  # the last order about the whole study counts
            self.is_study_stopped = order["study"] == "stop"

    async def _see_summaries(self) -> None:
        """A range with a summary need not be listed."""
        for entry in await self._store.list("done/"):
            found = records.parse_summary_key(entry.key)
            if found is not None:
                self.view.add_summary(*found)

    async def _see_trials(self) -> None:
        """From the first range with something to do, until one shows that nobody has come so far."""
        for iteration in self.view.iterations:
            for place in self.view.open_ranges(iteration):
                if not await self._see_range(iteration, place):
                    break
        for over in [key for key in self._known if self.view.is_over(*key)]:
            del self._known[over]

    async def _see_range(self, iteration: int, place: int) -> bool:
        prefix, first = records.range_prefix(iteration, place), self.view.first_open(iteration, place)
        entries = await self._store.list(prefix, f"{prefix}{first:09d}")
        known = self._known.setdefault((iteration, place), set())
        news = [entry.key for entry in entries if entry.key not in known]
        known.update(news)
        for key in reversed(news):  # results come first, and make the rest of a trial's records short work
            mark = records.parse_key(key)
            if mark is not None:
                self.note(mark)
        return self.view.is_begun(iteration, place)

    async def _see_beats(self) -> None:
        """One listing tells who is silent; read are only beats of agents that are new, or that hold something
        we want."""
        entries = await self._store.list("beats/")
        holders = set(self._holders.values()) - {self._name}
        shown = {entry.key.removeprefix("beats/"): entry.version for entry in entries}
        shown.pop(self._name, None)
        self.watch.observe({**dict.fromkeys(holders, ""), **shown}, self._world.loop.now())
        strangers = shown.keys() - self._heard.keys()  # they may have left long ago
        news = [
            agent for agent in holders | strangers if shown.get(agent) not in (None, self._heard.get(agent))
        ]
        for agent in self._some(news):
            body = await self._ledger.read(records.beat_key(agent))
            if body is not None:
                if self._is_news(agent, body):  # whatever the listing shows
                    self.watch.revive(agent)
                self._heard[agent], self._beats[agent] = shown[agent], body
                self.hear(agent, body)
        for agent in holders & self._beats.keys():  # a process of this host may be gone since its last beat
            if self._world.is_gone(self._beats[agent]):
                self.watch.bury(agent)
        self.watch.follow(self._holders)

    def hear(self, agent: str, body: Mapping[str, Any]) -> None:
        """A beat tells what its agent stands by; of an agent of this host we know more."""
        self.watch.hear(agent, frozenset(body.get("running", ())), bool(body.get("left")))
        if self._world.is_gone(body):
            self.watch.bury(agent)

    async def _learn_holders(self) -> None:
        """Read whose the claims without an end are, and forget those that are over."""
        for claim in self._holders.keys() - self.view.claims.keys():
            del self._holders[claim]
        for claim in self._some(self.view.claims.keys() - self._holders.keys()):
            body = await self._ledger.read(claim)
            self._holders[claim] = str((body or {}).get("agent", ""))

    def _some(self, keys: Collection[str]) -> list[str]:
        """As many of them as may be read in a look. At random, so that a fleet reads all of them."""
        found = sorted(keys)
        return found if len(found) <= READS else self._world.random.sample(found, READS)

    async def is_back(self, attempt: Attempt) -> bool:
        """Whether whoever held the trial lives after all: a listing of beats may be late, a read is not."""
        before = records.claim_key(attempt.trial, attempt.round, attempt.number - 1)
        agent = self._holders.get(before, "") if before in self.view.claims else ""
        body = await self._ledger.read(records.beat_key(agent)) if agent not in ("", self._name) else None
        if body is None or body.get("left") or before not in body.get("running", ()):
            return False
        if self._world.is_gone(body) or not self._is_news(agent, body):
            return False
        self._beats[agent] = body
        self.watch.revive(agent)
        return True

    def _is_news(self, agent: str, body: Mapping[str, Any]) -> bool:
        """Whether a beat that was read is not the one that is known."""
        return bool(self._beats.get(agent, {}).get("beat") != body.get("beat"))

    async def look_for_failures(self, attempt: Attempt) -> None:
        """Ask by key whether earlier attempts at the round failed: a listing may be late."""
        known = self.view.state(attempt.trial).rounds.get(attempt.round)
        for number in range(1, attempt.number):
            if known is None or known.attempts.get(number) is None:
                failed = records.end_key(attempt.trial, attempt.round, number, records.End.FAILED)
                if await self._store.read(failed) is not None:
                    self.note(Mark(attempt.trial, attempt.round, records.End.FAILED.value, number))

    async def look_for_successors(self) -> None:
        """Ask by key whether somebody took over what we hold: a listing may be late."""
        for attempt in list(self.own.values()):
            following = records.claim_key(attempt.trial, attempt.round, attempt.number + 1)
            if await self._store.read(following) is not None:
                self.note(Mark(attempt.trial, attempt.round, "claim", attempt.number + 1))

    # Knowing

    def note(self, mark: Mark) -> None:
        """Take note of a record, ours or another's."""
        self.view.add(mark)

    def note_holder(self, attempt: Attempt) -> None:
        """A claim that is ours."""
        self._holders[attempt.claim] = self._name

    def let_go(self, attempt: Attempt) -> None:
        """It is over, and no longer ours."""
        self.own.pop(attempt.trial, None)
        if attempt.claim not in self.view.claims:
            self._holders.pop(attempt.claim, None)

    def is_stopped(self, trial: TrialId) -> bool:
        """Whether an operator stopped the trial, in the round it is in now."""
        return bool(self._stopped) and (trial, self.view.state(trial).current) in self._stopped

    def oldest_round(self, attempt: Attempt) -> int:
        """The round from which an attempt goes on: what was finished before it is to run again."""
        fresh = (
            round_ for trial, round_ in self._fresh if trial == attempt.trial and round_ <= attempt.round
        )
        return max(fresh, default=1)

    def is_left(self) -> bool:
        """Whether there is a trial that is not done, running ones included."""
        return self.view.is_left()

    def failures(self, attempt: Attempt) -> int:
        """How many attempts at the round failed so far."""
        known = self.view.state(attempt.trial).rounds.get(attempt.round)
        return sum(end is records.End.FAILED for end in known.attempts.values()) if known else 0

    def no_longer_ours(self) -> Iterator[Attempt]:
        """What we hold although somebody took over, the round is over, or it was stopped."""
        for trial, attempt in list(self.own.items()):
            state = self.view.state(trial)
            known = state.rounds.get(attempt.round)
            taken = known is not None and max(known.attempts, default=0) > attempt.number
            superseded = taken or state.current > attempt.round
            superseded = superseded or self.view.done_round(trial) >= attempt.round
            if superseded or self.is_stopped(trial) or self.is_study_stopped:
                yield attempt

    # Choosing

    def choose(self, slots: int) -> tuple[TrialId, Decision] | None:
        """A trial to do something about now, at random within a window that grows with the fleet."""
        window = self._window(slots)
        free = list(islice(self._again(), window)) or self._free(window)  # what was begun goes first
        if not free:
            return None
        trial = free[self._world.random.randrange(len(free))]  # lest a fleet runs after the same one
        return trial, judge(self.view.state(trial), self._world.work.retries(trial))

    def is_plenty(self, slots: int) -> bool:
        """Whether there is more to do than the whole fleet can begin at once."""
        window = max(self._window(slots), slots + 1)
        return len(self._free(window)) >= window

    def _window(self, slots: int) -> int:
        fleet = self.watch.alive()
        return 1 if fleet == 0 else 2 * (fleet + 1) * slots

    def _free(self, window: int) -> list[TrialId]:
        """The first trials that nobody holds, as many as the window has: first those that somebody held."""
        fresh = filterfalse(self.own.__contains__, self.view.fresh())
        return list(islice(chain(self._again(), fresh), window))

    def _again(self) -> Iterator[TrialId]:
        """Trials that somebody held, and nobody does."""
        touched = sorted(filter(self.view.is_wanted, {*self.view.loose, *self._lost()}))
        return (trial for trial in touched if trial not in self.own and not self._is_early(trial))

    def _lost(self) -> Iterator[TrialId]:
        """Trials whose last attempt has no end, and an agent that is dead or does not stand by it."""
        free, own = self.watch.disowned, {attempt.claim for attempt in self.own.values()}
        for claim, agent in self._holders.items():
            is_free = agent in self.watch.dead or claim in free or (agent == self._name and claim not in own)
            if is_free and claim in self.view.claims:
                yield self.view.claims[claim]

    def _is_early(self, trial: TrialId) -> bool:
        """Whether the trial waits after a failure."""
        return self.not_before.get(trial, 0.0) > self._world.loop.now()


def _rounds(order: Mapping[str, Any], what: str) -> Iterator[tuple[TrialId, int]]:
    """`1.5.2`: iteration, trial, round."""
    words = order.get(what, ())
    for word in words if isinstance(words, list) else ():
        match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", str(word))
        if match:  # whatever else is there is passed over
            yield TrialId(int(match[1]), int(match[2])), int(match[3])
