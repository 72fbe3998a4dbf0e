"""Which of many sweeps can contain a trial, or give a name: found without asking each of them.

Studies written line by line have hundreds of sweeps that differ in what they hold fixed. Sweeps that
hold the same parameters fixed form a group, in which those with the wanted values are looked up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import merge

from stoker.plan import naming
from stoker.plan.options import Keys
from stoker.plan.sweep import Sweep

Fixed = tuple[str, ...]
Group = dict[Fixed, list[int]]
"""Places of sweeps by the values they hold fixed."""


class Index:
    """The sweeps of a plan, to be searched from the first to the last."""

    def __init__(self, sweeps: Sequence[Sweep]) -> None:
        self._sweeps = sweeps
        self._by_params: dict[Fixed, Group] = {}
        self._by_labels: dict[tuple[Fixed, tuple[int, ...]], Group] = {}
        for place, sweep in enumerate(sweeps):
            self._add(place, sweep)

    def _add(self, place: int, sweep: Sweep) -> None:
        fixed = fixed_keys(sweep)
        names = tuple(sorted(fixed))
        self._by_params.setdefault(names, {}).setdefault(tuple(fixed[name] for name in names), []).append(
            place
        )
        constant = tuple(at for at, axis in enumerate(sweep.axes) if axis.is_fixed)
        labels = tuple(axis.label for axis in sweep.axes)
        parts = tuple(sweep.axes[at].ladder.choice(0).part for at in constant)
        self._by_labels.setdefault((labels, constant), {}).setdefault(parts, []).append(place)

    def containing(self, keys: Keys) -> Iterator[tuple[int, int]]:
        """Sweeps that contain a trial with these parameters, and the first index there."""
        found = (
            group.get(tuple(keys.get(name, "") for name in names), [])
            for names, group in self._by_params.items()
        )
        for place in merge(*found):
            index = self._sweeps[place].find(keys)
            if index is not None:
                yield place, index

    def first_named(self, name: str) -> tuple[int, int] | None:
        """The first sweep and index whose trial has this name before collisions.

        None if none has, or if the name can be read in too many ways to look through.
        """
        best: tuple[int, int] | None = None
        for (labels, constant), group in self._by_labels.items():
            readings = naming.readings(name, labels)
            if readings is None:
                return None
            for parts in readings:
                places = group.get(tuple(parts[at] for at in constant), [])
                best = min(filter(None, [best, self._first_with(parts, places)]), default=None)
        return best

    def _first_with(self, parts: Fixed, places: Iterable[int]) -> tuple[int, int] | None:
        for place in places:
            index = self._sweeps[place].find_parts(parts)
            if index is not None:
                return place, index
        return None

    def perhaps_overlapping(self, place: int) -> Iterator[int]:
        """Earlier sweeps that may share trials with the sweep at a place; others surely do not."""
        fixed = fixed_keys(self._sweeps[place])
        found: list[Iterable[int]] = []
        for names, group in self._by_params.items():
            if all(name in fixed for name in names):
                found.append(group.get(tuple(fixed[name] for name in names), []))
            else:
                found += group.values()
        return (other for other in merge(*found) if other < place)


def fixed_keys(sweep: Sweep) -> dict[str, str]:
    """Parameters that have one value in all of a sweep, and the key of that value."""
    fixed = dict(sweep.base_keys)
    for axis in sweep.axes:
        if axis.is_fixed:
            fixed.update(zip(axis.ladder.params, axis.ladder.choice(0).keys, strict=True))
    return fixed
