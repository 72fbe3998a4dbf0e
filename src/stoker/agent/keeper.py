"""The slots of this machine, taken one by one as others let go of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stoker.agent import gpus as reading
from stoker.agent.gpus import Gpu
from stoker.agent.locks import Lock, Locks, Owner, find_locks
from stoker.agent.slots import Slot, plan_slots, usable_cores, used_by_others

_DAY = 24 * 3600.0


class Keeper:
    """Which slots there are, and which of them are ours: those that nobody else has locked or computes on."""

    def __init__(
        self,
        resource: tuple[str, ...] | None,
        study: str,
        read: Callable[[], tuple[Gpu, ...] | None] = lambda: reading.read().gpus,
        locks: Locks | None = None,
    ) -> None:
        plan = plan_slots(resource, read(), os.environ.get("CUDA_VISIBLE_DEVICES"), usable_cores())
        self.slots: tuple[Slot, ...] = plan.slots
        self.notes: list[str] = list(plan.notes)
        self.holders: dict[int, str] = {}  # slot → who has it, of those we wait for
        self._read, self._locks = read, locks or find_locks()
        self._owner = Owner.here(study, time.time())
        self._held: dict[int, Lock] = {}
        self._asks_driver = resource is None  # who names a GPU means it, whoever else computes there
        self._refreshed = time.monotonic()

    def take(self, number: int) -> bool:
        """Try to have a slot; False while somebody else does, see `holders`."""
        slot = self.slots[number]
        holder = self._user(slot) or self._lock(number, slot)
        if holder:
            self.holders[number] = holder
        else:
            self.holders.pop(number, None)
        return not holder

    def refresh(self) -> None:
        """Once a day: what is old is cleaned from /tmp, locks included."""
        if time.monotonic() - self._refreshed > _DAY:
            self._refreshed = time.monotonic()
            for lock in self._held.values():
                lock.refresh()

    def _user(self, slot: Slot) -> str:
        """Who computes on the slot's GPUs without asking anybody."""
        if not self._asks_driver or not slot.devices:
            return ""
        busy = used_by_others(self._read() or (), frozenset(self._ours()))
        return "another program" if any(_gpu(name) in busy for name in slot.identities) else ""

    def _ours(self) -> list[str]:
        return [_gpu(name) for number in self._held for name in self.slots[number].identities]

    def _lock(self, number: int, slot: Slot) -> str:
        if not slot.identities:
            return ""
        found = self._locks.try_acquire(slot.identities, self._owner)
        if not isinstance(found, Lock):
            return str(found)
        self._held[number] = found
        self.notes += [problem for problem in found.problems if problem not in self.notes]
        return ""


def _gpu(identity: str) -> str:
    return identity.partition("#")[0]
