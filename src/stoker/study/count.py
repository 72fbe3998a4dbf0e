"""How many trials there are to run, without listing them where that can be helped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from stoker.plan.trials import Plan
from stoker.study.work import Planned

MOST_LISTED = 20_000
"""So many trials are looked at one by one, if there is no other way."""


@dataclass(frozen=True)
class Total:
    """A number of trials; if it is not exact, there are no more than that."""

    count: int = 0
    is_exact: bool = True

    def __add__(self, other: Total) -> Total:
        return Total(self.count + other.count, self.is_exact and other.is_exact)


def count(
    bodies: Sequence[Mapping[str, Any]], planned: Sequence[Planned], is_skipped: Callable[[int], bool]
) -> Total:
    """How many trials of the last of these iterations are to be run."""
    *earlier, last = planned
    if not any(body.get("sample") is not None for body in bodies):
        return _count_new(earlier, last)
    size, numbers = _asked(bodies[-1].get("sample"), last)
    if size > MOST_LISTED:
        return Total(size, is_exact=False)
    return Total(sum(not is_skipped(number) for number in numbers))


def _count_new(earlier: Sequence[Planned], last: Planned) -> Total:
    """One plan of all sweeps tells which trials of the last ones were asked for before."""
    sweeps = [sweep for planned in earlier for sweep in planned.plan.sweeps]
    twice = Plan([*sweeps, *last.plan.sweeps], ()).duplicates()[len(sweeps) :]
    return Total(last.plan.size - sum(n or 0 for n in twice), is_exact=None not in twice)


def _asked(sample: int | None, planned: Planned) -> tuple[int, Iterable[int]]:
    """How many trials are asked for, counting those asked for twice, and their numbers."""
    plan = planned.plan
    if sample is None:
        ranges = (range(sweep.first + 1, sweep.first + sweep.size + 1) for sweep in plan.sweeps)
        return plan.size, chain.from_iterable(ranges)
    picked = plan.sample(int(sample), planned.study.seed)
    return len(picked), (plan.trial(index).number for index in picked)
