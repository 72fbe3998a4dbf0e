"""Studies whose records are written by hand, and a slow and obvious way to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from stoker.spec.load import load
from stoker.spec.problems import Source
from stoker.store import records
from stoker.store.interface import Entry, Store, StoreError
from stoker.store.memory import MemoryStore
from stoker.store.records import End, Mark, Status, TrialId
from stoker.study import summaries
from stoker.study.fleet import Fleet
from stoker.study.ranges import DONE, State
from stoker.study.state import StudyState
from stoker.study.work import StudyWork, plan_body

NOW = 1_800_000_000.0


def grid(size: int, retry: int = 0) -> str:
    """A study file of so many trials."""
    return f"template: 'echo {{x}}'\nretry: {retry}\n---\nx: {list(range(size))}\n"


class Written:
    """A store that a test writes records into, as agents and operators would."""

    def __init__(self, *texts: str, store: Store | None = None) -> None:
        self.store: Store = store or MemoryStore()
        self.orders = self.plans = 0
        for text in texts:
            self.plan(text)

    def plan(self, text: str, **chosen: Any) -> None:
        self.plans += 1
        body = plan_body(load(Source("params.yaml", text)), chosen, f"time {self.plans}")
        self.put(records.plan_key(self.plans), body)

    def put(self, key: str, body: Mapping[str, Any]) -> None:
        self.store.write(key, records.encode(body))

    def order(self, **body: Any) -> None:
        self.orders += 1
        self.put(records.order_key(self.orders), body)

    def claim(self, trial: TrialId, round_: int = 1, attempt: int = 1, agent: str = "a") -> None:
        body = {"agent": agent, "nonce": "1", "time": "20270115.080000"}
        self.put(records.claim_key(trial, round_, attempt), body)

    def end(self, trial: TrialId, end: End, round_: int = 1, attempt: int = 1) -> None:
        self.put(records.end_key(trial, round_, attempt, end), {"agent": "a", "train": {"seconds": 1.5}})

    def stage(self, trial: TrialId, stage: str, round_: int = 1) -> None:
        self.put(records.stage_key(trial, round_, stage), {"attempt": 1})

    def result(self, trial: TrialId, status: Status = Status.FINISHED, round_: int = 1) -> None:
        self.put(records.result_key(trial, round_), {"status": status.value, "trial": trial.number})

    def finish(self, trial: TrialId, status: Status = Status.FINISHED, round_: int = 1) -> None:
        self.claim(trial, round_)
        self.result(trial, status, round_)
        self.end(trial, End(status.value), round_)

    def beat(self, agent: str, *running: str, **more: Any) -> None:
        self.put(records.beat_key(agent), {"host": "h", "pid": 7, "running": list(running), **more})

    def summary(self, iteration: int, place: int, state: StudyState) -> None:
        """As an agent writes it that sees this state."""
        first = place * records.RANGE + 1
        size = min(records.RANGE, state.size(iteration) - first + 1)
        results = {}
        for number in range(first, first + size):
            now = state.trial(TrialId(iteration, number))
            assert now is not None
            if now.state is not State.SKIPPED:
                body = records.decode(self.store.read(records.result_key(now.trial, now.round)))
                results[number] = (now.round, body)
        data = summaries.encode(iteration, place, size, results)
        self.store.create(records.summary_key(iteration, place), data)

    def state(self, fleet: Fleet | None = None, store: Store | None = None) -> StudyState:
        """The state as somebody sees it who comes now."""
        found = StudyState(store or self.store, StudyWork(None), fleet or Fleet(wall=lambda: NOW))
        found.refresh()
        return found


def states(state: StudyState) -> dict[TrialId, tuple[State, int]]:
    return {now.trial: (now.state, now.round) for now in state.trials(*State)}


class Counting:
    """A store that counts what is asked of it, and fails when it is told to."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self._store = store
        self.asked: list[str] = []
        self.fails: Callable[[], bool] = lambda: False

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.fails():
            raise StoreError("away")

    def create(self, key: str, data: bytes) -> bool:
        self._ask(f"create {key}")
        return self._store.create(key, data)

    def read(self, key: str) -> bytes | None:
        self._ask(f"read {key}")
        return self._store.read(key)

    def write(self, key: str, data: bytes) -> None:
        self._ask(f"write {key}")
        self._store.write(key, data)

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        """A page has a thousand entries, each of which is a request."""
        self._ask(f"list {prefix}")
        for number, entry in enumerate(self._store.list(prefix, after), 1):
            if number % 1000 == 0:
                self._ask(f"list {prefix}")
            yield entry

    def delete(self, key: str) -> None:
        self._store.delete(key)

    def upload(self, key: str, path: Path) -> None:
        raise NotImplementedError

    def download(self, key: str, path: Path) -> bool:
        raise NotImplementedError


def read_slowly(store: Store, alive: frozenset[str]) -> dict[TrialId, tuple[State, int]]:
    """The state of all trials by the letter of docs/records.md: every record is read, nothing is remembered.

    `alive` are the agents that live and stand by what they claimed.
    """
    objects = {entry.key: store.read(entry.key) or b"" for entry in store.list("")}
    marks = [(mark, records.decode(objects[key])) for key in objects if (mark := records.parse_key(key))]
    orders: list[dict[str, Any]] = []
    while (body := records.decode(objects.get(records.order_key(len(orders) + 1)))) is not None:
        orders.append(body)
    work, found = StudyWork(None), {}
    while (body := records.decode(objects.get(records.plan_key(work_size(work) + 1)))) is not None:
        planned, is_skipped = work.add(body), work.skipped(body)
        for number in range(1, planned.size + 1):
            trial = TrialId(work_size(work), number)
            own = [(mark, said) for mark, said in marks if mark.trial == trial]
            retries = int(str(planned.study.settings.get("retry", 0)))
            found[trial] = _read_one(trial, own, orders, retries, alive)
            if is_skipped(number) and found[trial][0] is State.WAITING:
                found[trial] = (State.SKIPPED, found[trial][1])
    asked = _asked_for(work)
    for trial, (state, round_) in found.items():
        planned_trial = work.trial(trial)
        is_asked = planned_trial is not None and repr(planned_trial.params) in asked
        if state not in DONE | {State.RUNNING} and not is_asked:
            found[trial] = (State.SKIPPED, round_)
    return found


def _asked_for(work: StudyWork) -> set[str]:
    """The parameters of all trials that were asked for since the whole file was last run."""
    asked: set[str] = set()
    for planned in work._iterations:
        asked = set() if planned.is_whole else asked
        trials = map(planned.trial, range(1, planned.size + 1))
        asked |= {repr(trial.params) for trial in trials if trial is not None}
    return asked


def work_size(work: StudyWork) -> int:
    return len(work._iterations)


def _read_one(
    trial: TrialId,
    marks: list[tuple[Mark, dict[str, Any] | None]],
    orders: list[dict[str, Any]],
    retries: int,
    alive: frozenset[str],
) -> tuple[State, int]:
    rounds = [mark.round for mark, _ in marks]
    named = [tuple(map(int, word.split("."))) for order in orders for word in order.get("rounds", ())]
    current = max([1, *rounds, *(r for i, n, r in named if (i, n) == trial)])
    marks = [(mark, said) for mark, said in marks if mark.round == current]
    for mark, said in marks:
        if mark.kind == "result":
            return State((said or {"status": "failed"})["status"]), current
    claims = {mark.attempt: said for mark, said in marks if mark.kind == "claim"}
    ends = {mark.attempt: mark.kind for mark, _ in marks if mark.attempt and mark.kind != "claim"}
    last = max([0, *claims, *ends])
    if last and last not in ends and (claims[last] or {}).get("agent") in alive:
        return State.RUNNING, current
    if any(f"{trial}.{current}" in order.get("stop", ()) for order in orders):
        return State.STOPPED, current
    lost = 0
    while last - lost > 0 and last - lost not in ends:
        lost += 1
    has_stage = any(mark.kind == "stage" for mark, _ in marks)
    if list(ends.values()).count("failed") > retries or (lost >= 3 and not has_stage):
        return State.FAILED, current
    if not last:
        return State.WAITING, current
    after = {"": State.LOST, "failed": State.RETRYING, "released": State.RELEASED}
    return after.get(ends.get(last, ""), State.WAITING), current
