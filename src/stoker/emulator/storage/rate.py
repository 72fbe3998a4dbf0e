"""How often one name may be written: about once a second, as Cloud Storage has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stoker.emulator.storage.errors import too_often

_MANY = 10_000


@dataclass
class WriteRate:
    """A name gathers `each_second` writes a second, at most `burst`. A write that finds none fails with 429.

    A write that its precondition stops costs nothing, unless `counts_lost`: in the cloud, of many who race
    for one name some are told 412 and some 429, and nobody can say which. Whoever asks holds a lock.
    """

    now: Callable[[], float]
    each_second: float = 1.0  # 0: no limit
    burst: float = 5.0
    counts_lost: bool = False
    _left: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)  # how many, and when

    def spend(self, bucket: str, name: str) -> None:
        """One write. Raises ApiError if there were too many."""
        if not self.each_second:
            return
        now, key = self.now(), (bucket, name)
        left = self._gathered(key, now)
        if left < 1:
            raise too_often(bucket, name)
        self._left[key] = left - 1, now
        if len(self._left) > _MANY:
            self._forget(now)

    def lost(self, bucket: str, name: str) -> None:
        """One write that its precondition stopped."""
        if self.counts_lost:
            self.spend(bucket, name)

    def _gathered(self, key: tuple[str, str], now: float) -> float:
        left, since = self._left.get(key, (self.burst, now))
        return min(self.burst, left + (now - since) * self.each_second)

    def _forget(self, now: float) -> None:
        """Those that are full again; of many that are not, the older half."""
        kept = {key: one for key, one in self._left.items() if self._gathered(key, now) < self.burst}
        if len(kept) > _MANY // 2:
            kept = dict(list(kept.items())[len(kept) // 2 :])
        self._left = kept
