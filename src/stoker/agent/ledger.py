"""Writing records so that they are written once, and asking a store until it answers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from stoker.agent.world import AsyncStore, World
from stoker.store import records
from stoker.store.interface import StoreError

T = TypeVar("T")


class Ledger:
    """The store, as an agent writes to it. Nothing here gives up: a store that is away comes back."""

    def __init__(self, world: World, longest_pause: float) -> None:
        self.store: AsyncStore = world.store
        self._world = world
        self._longest_pause = longest_pause

    def nonce(self) -> str:
        """What tells one write from all others."""
        return f"{self._world.random.getrandbits(64):016x}"

    async def put_once(self, key: str, body: dict[str, Any], nonce: str) -> bool:
        """Put a record if there is none; True if it is ours, however often the store said otherwise."""
        data = records.encode({**body, "nonce": nonce})

        async def settle() -> bool:
            why = f"{key} is neither written nor there"
            try:
                if await self.store.create(key, data):
                    return True
            except StoreError as error:  # it may have landed all the same
                why = str(error)
            found = await self.store.read(key)
            if found is None:
                raise StoreError(why)
            return (records.decode(found) or {}).get("nonce") == nonce

        return await self.insist(settle)

    async def read(self, key: str) -> dict[str, Any] | None:
        """A record by its key, which is never late as a listing may be."""
        return records.decode(await self.store.read(key))

    async def insist(self, act: Callable[..., Coroutine[Any, Any, T]], *words: Any) -> T:
        """Try again, with pauses that grow, until the store answers."""
        pause = 0.1
        while True:
            try:
                return await act(*words)
            except StoreError as error:
                self._world.store_is_away(str(error))
                await self._world.loop.sleep(pause * (0.5 + self._world.random.random()))
                pause = min(2 * pause, self._longest_pause)
