"""What goes wrong on request: by the file given to `stoker emulate`, or while it runs, by `/emulator/faults`.

Faults are plain data. A fault says where (`api`, `method`, `path`, `zone`), what (`kind`) and how often
(`rate`, `times`, `after`). Everything is decided here; others ask, and act.
"""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from math import expm1, inf
from typing import Any

from stoker.emulator.errors import invalid

REPLIES = ("error", "error-after", "drop", "drop-after", "slow")
"""Of requests: an answer instead of the effect, or after it; no answer; a late one."""
ZONES = ("exhausted", "quota")
"""Of VMs that are to be made: the zone has none, or the region's quota is used up."""
BOOTS = ("boot-failure", "slow-boot")
"""Of VMs that start."""
PREEMPTIONS = ("preempt",)
"""Of VMs that run: by `rate` (an hour, each VM), or at the `moments` (seconds since the fault began)."""
APIS = ("compute", "storage", "secretmanager", "metadata")
KINDS = (*REPLIES, *ZONES, *BOOTS, *PREEMPTIONS)


@dataclass(frozen=True)
class Fault:
    """One thing that goes wrong."""

    kind: str
    api: str = ""  # compute, storage, secretmanager, metadata; empty: any
    method: str = ""  # GET, POST …; empty: any
    path: str = ""  # a regular expression that the path contains
    zone: str = ""  # a zone or a region, for VMs
    name: str = ""  # a regular expression that names of VMs contain
    status: int = 503
    reason: str = "backendError"
    seconds: float = 0.0  # how much longer something slow takes
    rate: float = 1.0  # the chance that a request meets it; of preemptions: how many an hour, for each VM
    times: int = 0  # how often at most; 0: no limit
    after: int = 0  # how many pass unharmed before; not of preemptions
    lasts: float = 0.0  # seconds until it is over; 0: until it is removed
    moments: tuple[float, ...] = ()  # of preemptions
    id: str = ""


_REASONS = {
    403: "forbidden",
    404: "notFound",
    409: "conflict",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
}
"""Of a status, if nothing else is said."""


def fault_of(data: object) -> Fault:
    """From JSON. Raises ApiError for what makes no sense."""
    if not isinstance(data, Mapping):
        raise invalid("fault: names and values are expected")
    known = {one.name: one.default for one in fields(Fault)}
    for name in data:
        if name not in known:
            raise invalid(f"fault: unknown key '{name}'; known are {', '.join(known)}")
    if data.get("kind") not in KINDS:
        raise invalid(f"fault: kind is one of {', '.join(KINDS)}")
    made = Fault(**{name: _value(name, known[name], given) for name, given in data.items()})
    _check(made)
    return made if "reason" in data else replace(made, reason=_REASONS.get(made.status, made.reason))


def _value(name: str, default: object, given: object) -> Any:
    """As it is kept. What looks like something else (`"3"` for 3, a truth for a number) is refused."""
    if name == "moments" and isinstance(given, (list, tuple)):
        return tuple(sorted(_value("moments", 0.0, moment) for moment in given))
    kinds: tuple[type, ...] = (int, float) if isinstance(default, float) else (type(default),)
    if name == "kind":
        kinds = (str,)
    if isinstance(given, bool) or not isinstance(given, kinds) or given != given:  # noqa: PLR0124  (not a number)
        expected = {str: "a text", int: "a whole number", float: "a number", tuple: "a list of numbers"}
        raise invalid(f"fault: {name}: {given!r} is not {expected[kinds[-1]]}")
    return given


def _check(fault: Fault) -> None:
    numbers = (fault.rate, fault.seconds, fault.lasts, fault.times, fault.after, *fault.moments)
    if min(numbers) < 0 or max(numbers) == inf or not 400 <= fault.status <= 599:
        raise invalid("fault: numbers are not negative and not endless, and a status is 400 to 599")
    if fault.api not in ("", *APIS):
        raise invalid(f"fault: api is one of {', '.join(APIS)}")
    if fault.kind not in PREEMPTIONS and fault.moments:
        raise invalid("fault: only preemptions have moments")
    if fault.kind in PREEMPTIONS and fault.after:
        raise invalid("fault: a preemption has no `after`; it has moments")
    for name in ("path", "name"):
        try:
            re.compile(getattr(fault, name))
        except re.error as error:
            raise invalid(f"fault: {name}: {error}") from None


@dataclass
class _Live:
    fault: Fault
    began: float
    seen: int = 0
    done: int = 0


@dataclass
class Faults:
    """All that are to go wrong now. `random` and the times come from outside, so that it can be repeated."""

    random: random.Random = field(default_factory=random.Random)
    _live: dict[str, _Live] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _number: int = 0

    def add(self, fault: Fault, now: float) -> Fault:
        """From now on this goes wrong; with the id that removes it. One of the same id is replaced."""
        with self._lock:
            self._number += 1
            while str(self._number) in self._live:
                self._number += 1
            made = replace(fault, id=fault.id or str(self._number))
            self._live[made.id] = _Live(made, now)
            return made

    def remove(self, id_: str = "") -> bool:
        """One of them, or all. Whether there was one."""
        with self._lock:
            found = [self._live.pop(key, None) for key in ([id_] if id_ else list(self._live))]
            return any(found)

    def all(self) -> list[Fault]:
        """Those that are known, over or not."""
        with self._lock:
            return [live.fault for live in self._live.values()]

    def counts(self) -> dict[str, int]:
        """How often each has happened, by its id."""
        with self._lock:
            return {id_: live.done for id_, live in self._live.items()}

    def of_request(self, api: str, method: str, path: str, now: float) -> Fault | None:
        """The first that this request meets."""

        def meets(fault: Fault) -> bool:
            return (
                fault.api in ("", api)
                and fault.method.upper() in ("", method)
                and re.search(fault.path, path) is not None
            )

        return self._strike(REPLIES, meets, now)

    def of_vm(self, kinds: Iterable[str], zone: str, name: str, now: float) -> Fault | None:
        """The first that a VM meets, in a zone."""
        region = zone.rpartition("-")[0]

        def meets(fault: Fault) -> bool:
            return fault.zone in ("", zone, region) and re.search(fault.name, name) is not None

        return self._strike(kinds, meets, now)

    def preemptions(self, running: Mapping[str, str], passed: float, now: float) -> list[str]:
        """Which of the VMs that run (name → zone) are taken away, `passed` seconds after the last look."""
        left = dict(running)
        with self._lock:
            for live in self._live.values():
                if live.fault.kind in PREEMPTIONS and not _is_over(live, now):
                    for name in self._taken(live, left, passed, now):
                        del left[name]  # nobody is taken away twice
        return [name for name in running if name not in left]

    def _taken(self, live: _Live, running: Mapping[str, str], passed: float, now: float) -> list[str]:
        fault = live.fault
        there = [
            name
            for name, zone in running.items()
            if fault.zone in ("", zone, zone.rpartition("-")[0]) and re.search(fault.name, name)
        ]
        if fault.moments:  # those that found no VM wait for one
            due = sum(1 for moment in fault.moments if moment <= now - live.began) - live.done
            chosen = self.random.sample(there, min(due, len(there)))
        else:
            chance = -expm1(-fault.rate * passed / 3600)
            chosen = [name for name in there if self.random.random() < chance]
        if fault.times:
            chosen = chosen[: fault.times - live.done]
        live.done += len(chosen)
        return chosen

    def _strike(self, kinds: Iterable[str], meets: Callable[[Fault], bool], now: float) -> Fault | None:
        kinds = tuple(kinds)
        with self._lock:
            for live in self._live.values():
                if live.fault.kind not in kinds or _is_over(live, now) or not meets(live.fault):
                    continue
                live.seen += 1
                if live.seen > live.fault.after and self.random.random() < live.fault.rate:
                    live.done += 1
                    return live.fault
        return None


def _is_over(live: _Live, now: float) -> bool:
    fault = live.fault
    return bool(
        (fault.lasts and now > live.began + fault.lasts) or (fault.times and live.done >= fault.times)
    )
