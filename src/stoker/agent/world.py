"""What an agent needs from outside: a store, work, and a machine to stand on.

Everything comes in through these, so that the same agent runs in earnest and in a simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from random import Random
from typing import Any, Protocol

from stoker.agent.loop import Loop
from stoker.agent.view import Focus
from stoker.store import records
from stoker.store.interface import Entry
from stoker.store.records import Status, TrialId


class AsyncStore(Protocol):
    """A store whose answers are waited for."""

    async def create(self, key: str, data: bytes) -> bool: ...  # noqa: D102
    async def read(self, key: str) -> bytes | None: ...  # noqa: D102
    async def write(self, key: str, data: bytes) -> None: ...  # noqa: D102
    async def list(self, prefix: str, after: str = "") -> Sequence[Entry]: ...  # noqa: D102


class Outcome(Enum):
    """How a stage ended."""

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Attempt:
    """One try of this agent at a round of a trial."""

    trial: TrialId
    round: int
    number: int
    nonce: str

    @cached_property
    def claim(self) -> str:
        """The key of its claim."""
        return records.claim_key(self.trial, self.round, self.number)


@dataclass(frozen=True)
class Settings:
    """How agents deal with one another, and with a store."""

    lease: float = 60.0
    beat: float = 5.0
    back_off: float = 2.0  # seconds before the first retry of a failed trial; doubles
    short: float = 60.0  # trials that take less are claimed ahead; longer ones might be missed elsewhere


class Work(Protocol):
    """The iterations of a study: what there is to run."""

    def size(self, body: Mapping[str, Any]) -> int: ...  # noqa: D102
    def skipped(self, body: Mapping[str, Any]) -> Callable[[int], bool]: ...  # noqa: D102
    def in_force(self) -> Focus | None: ...  # noqa: D102
    def stages(self, trial: TrialId) -> Sequence[str]: ...  # noqa: D102
    def retries(self, trial: TrialId) -> int: ...  # noqa: D102
    def needs_slot(self, trial: TrialId, stage: str) -> bool: ...  # noqa: D102


class World(Protocol):
    """The machine an agent stands on."""

    loop: Loop
    random: Random
    store: AsyncStore
    work: Work
    is_slow: bool  # the store takes its time, so that trials are claimed ahead
    is_shared: bool  # what stages write is seen by all machines, so that none may write when it is cut off

    def stamp(self) -> str: ...  # noqa: D102  the time, for people: nothing is decided by it
    def describe(self) -> dict[str, Any]: ...  # noqa: D102  who and where this agent is, for its beat
    def is_gone(self, beat: Mapping[str, Any]) -> bool: ...  # noqa: D102  an agent of this host whose process is no more
    def take_slot(self, slot: int) -> bool: ...  # noqa: D102  False while somebody else has it

    async def prepare(self, attempt: Attempt, oldest_round: int) -> None: ...  # noqa: D102  its files, as earlier attempts left them
    async def run_stage(self, attempt: Attempt, stage: str, slot: int) -> Outcome: ...  # noqa: D102
    async def keep(self, attempt: Attempt) -> None: ...  # noqa: D102  its files, before anything is recorded about them
    def cancel(self, attempt: Attempt) -> None: ...  # noqa: D102  ends the running stage; it comes out as CANCELLED
    def forget(self, attempt: Attempt) -> None: ...  # noqa: D102  it is over
    def suspend(self) -> None: ...  # noqa: D102  all stages stand still
    def resume(self) -> None: ...  # noqa: D102
    def stage_notes(self, attempt: Attempt, stage: str) -> dict[str, Any]: ...  # noqa: D102  what to keep of a finished stage
    def notes(self, attempt: Attempt) -> dict[str, Any]: ...  # noqa: D102  what to keep of an attempt with its end

    def committed(self, trial: TrialId, status: Status, body: Mapping[str, Any]) -> None: ...  # noqa: D102
    def store_is_away(self, why: str) -> None: ...  # noqa: D102  back again if `why` is empty
