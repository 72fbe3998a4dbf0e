"""Operators' orders: numbered objects that all agents read in turn and obey.

An order is written once and never taken back; the next one may say otherwise. Two operators may give
orders at the same time: each is decided on what all orders before it say.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stoker.core.errors import StokerError
from stoker.core.times import stamp
from stoker.store import records
from stoker.store.interface import Store, StoreError
from stoker.store.records import TrialId
from stoker.study.ranges import DONE, OPEN, State
from stoker.study.state import StudyState, TrialNow

TRIES = 5
"""How often a store that says neither yes nor no is asked again."""


@dataclass(frozen=True)
class Given:
    """What became of an order."""

    number: int  # of the order; 0 if there was nothing to order
    trials: tuple[TrialNow, ...] = ()  # that it is about, as they were before it
    others: tuple[TrialNow, ...] = ()  # for which there was nothing to do


def stop_trials(state: StudyState, trials: Iterable[TrialId]) -> Given:
    """Stop these trials in the round they are in. Those that are done stay what they are."""
    asked = list(trials)

    def order(concerned: Sequence[TrialNow]) -> dict[str, Any]:
        return {"stop": [f"{now.trial}.{now.round}" for now in concerned]}

    return _give_about(state, asked, OPEN, order)


def open_rounds(state: StudyState, trials: Iterable[TrialId], fresh: bool) -> Given:
    """Ask for these trials again; if `fresh`, their finished stages run again, too.

    A trial that is running or waiting has not come to the end of its round, and there is nothing to do.
    """
    asked = list(trials)

    def order(concerned: Sequence[TrialNow]) -> dict[str, Any]:
        return {"rounds": [f"{now.trial}.{now.round + 1}" for now in concerned], "fresh": fresh}

    return _give_about(state, asked, DONE, order)


def stop_study(state: StudyState) -> Given:
    """Let all agents give back what they run, and claim nothing more."""
    return _give(state, lambda: None if state.is_stopped else {"study": "stop"})


def resume_study(state: StudyState) -> Given:
    """Let a study that was stopped go on."""
    return _give(state, lambda: {"study": "run"} if state.is_stopped else None)


def _give_about(
    state: StudyState,
    asked: Sequence[TrialId],
    wanted: frozenset[State],
    order: Callable[[Sequence[TrialNow]], Mapping[str, Any]],
) -> Given:
    """Give an order about those of the trials that are in one of these states."""
    concerned: list[TrialNow] = []
    others: list[TrialNow] = []

    def decide() -> Mapping[str, Any] | None:
        found = [now for trial in dict.fromkeys(asked) if (now := state.trial(trial)) is not None]
        concerned[:] = [now for now in found if now.state in wanted]
        others[:] = [now for now in found if now.state not in wanted]
        return order(concerned) if concerned else None

    given = _give(state, decide)
    return Given(given.number, tuple(concerned), tuple(others))


def _give(state: StudyState, decide: Callable[[], Mapping[str, Any] | None]) -> Given:
    """Put the order behind the last one; if somebody else was faster, decide again."""
    while True:
        state.see_orders()
        body = decide()
        if body is None:
            return Given(0)
        number = len(state.orders) + 1
        if _put(state.store, records.order_key(number), body):
            state.see_orders()
            return Given(number)


def _put(store: Store, key: str, body: Mapping[str, Any]) -> bool:
    """Whether this order has the key now. Neither "exists" nor an error is an answer: what is there is."""
    nonce = os.urandom(8).hex()
    data = records.encode({**body, "time": stamp(), "nonce": nonce})
    for _ in range(TRIES):
        try:
            if store.create(key, data):
                return True
        except StoreError:
            pass  # it may have landed all the same
        found = store.read(key)
        if found is not None:
            return _is_ours(key, found, nonce)
    raise StoreError(f"cannot write {key}: {store.url} does not take it; try again")


def _is_ours(key: str, found: bytes, nonce: str) -> bool:
    body = records.decode(found)
    if body is None:
        raise StokerError(f"{key} cannot be read, so nobody reads orders behind it; remove it and try again")
    return body.get("nonce") == nonce
