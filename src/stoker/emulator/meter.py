"""Every second of every VM: what a bill would be made from, to be compared with other accounts of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Use:
    """One VM from one start to the end of its power. Kept when the VM is deleted."""

    id: str
    name: str
    zone: str
    machine_type: str
    model: str  # SPOT or STANDARD
    accelerators: tuple[tuple[str, int], ...]  # type and count
    start: float  # seconds since 1970
    stop: float | None = None  # None: it runs

    def seconds(self, now: float) -> float:
        """How long it ran, until now."""
        return (now if self.stop is None else self.stop) - self.start


class Meter:
    """All uses, in the order in which they began. Called from many threads."""

    def __init__(self, kept: Iterable[Mapping[str, Any]] = (), until: float = 0.0) -> None:
        """`until`: what still ran when it was kept, ran until then."""
        self._lock = threading.Lock()
        self._over = [_use(one, until) for one in kept]
        self._live: dict[str, Use] = {}

    def begin(self, use: Use) -> None:
        """From now on it costs."""
        with self._lock:
            self._live[use.id] = use

    @property
    def is_live(self) -> bool:
        """Whether anything costs now."""
        return bool(self._live)

    def end(self, id_: str) -> None:
        """It costs no more. May be repeated."""
        with self._lock:
            found = self._live.pop(id_, None)
            if found is not None:
                self._over.append(replace(found, stop=time.time()))

    def all(self) -> list[Use]:
        """Those that are over, and those that go on."""
        with self._lock:
            return sorted([*self._over, *self._live.values()], key=lambda use: use.start)

    def total(self, now: float) -> float:
        """VM-seconds until now."""
        return sum(use.seconds(now) for use in self.all())

    def dump(self) -> list[dict[str, Any]]:
        """As JSON."""
        return [asdict(use) for use in self.all()]


def _use(data: Mapping[str, Any], until: float) -> Use:
    accelerators = tuple((str(kind), int(count)) for kind, count in data["accelerators"])
    stop = data["stop"] if data["stop"] is not None else max(until, data["start"])
    return Use(**{**data, "accelerators": accelerators, "stop": stop})
