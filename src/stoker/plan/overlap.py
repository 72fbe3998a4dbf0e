"""How many trials of a sweep were asked for before: counted as regions, without listing trials.

A region is a product of factors; a factor is a set of rows over a few parameters (one parameter of a
grid, the group of an alias, all parameters of a series). Taking one region from another leaves at
most one disjoint region per factor, so the trials that are new can be added up from their sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import prod
from typing import TypeAlias

from stoker.plan.index import Index
from stoker.plan.sweep import Axis, Sweep

Params: TypeAlias = frozenset[str]
Row: TypeAlias = frozenset[tuple[str, str]]
"""Pairs of a parameter and the key of its value."""
Region: TypeAlias = dict[Params, set[Row]]

LARGEST_FACTOR = 200_000


class TooLargeError(Exception):
    """Counting would take a list too long to be worth it."""


def count_new(sweeps: Sequence[Sweep], index: Index) -> list[int | None]:
    """For each sweep, how many of its trials no earlier trial equals; None where that is too much work."""
    regions: list[Region | None] = []
    counts: list[int | None] = []
    region: Region | None
    for place, sweep in enumerate(sweeps):
        try:
            region = _region(sweep)
        except TooLargeError:
            region = None
        counts.append(_count_outside(region, (regions[other] for other in index.perhaps_overlapping(place))))
        regions.append(region)
    return counts


def _region(sweep: Sweep) -> Region:
    region: Region = {frozenset({name}): {frozenset({(name, key)})} for name, key in sweep.base_keys.items()}
    for axis in sweep.grid:
        region[frozenset(axis.ladder.params)] = {_row(axis, level) for level in range(axis.ladder.size)}
    if sweep.series:
        if sweep.turns > LARGEST_FACTOR:
            raise TooLargeError
        params = frozenset(name for axis in sweep.series for name in axis.ladder.params)
        region[params] = {
            frozenset().union(*(_row(axis, axis.level(turn)) for axis in sweep.series))
            for turn in range(sweep.turns)
        }
    return region


def _row(axis: Axis, level: int) -> Row:
    choice = axis.ladder.choice(level)
    return frozenset(zip(axis.ladder.params, choice.keys, strict=True))


def _count_outside(region: Region | None, earlier: Iterable[Region | None]) -> int | None:
    if region is None:
        return None
    pieces = [region]
    try:
        for other in earlier:
            pieces = [rest for piece in pieces for rest in _subtract(piece, other or {})]
    except TooLargeError:
        return None
    return sum(prod(len(rows) for rows in piece.values()) for piece in pieces)


def _subtract(region: Region, other: Region) -> list[Region]:
    """Disjoint regions that together hold what is in `region` and not in `other`."""
    if _apart(region, other):
        return [region]
    groups = _groups(region, other)
    region, other = _gathered(region, groups), _gathered(other, groups)
    if _apart(region, other):
        return [region]
    pieces, common = [], dict(region)
    for params, rows in region.items():
        outside = rows - other[params]
        if outside:
            pieces.append({**common, params: outside})
        common[params] = rows & other[params]
    return pieces


def _apart(region: Region, other: Region) -> bool:
    """Whether they differ in what they set, or share a factor without a common row."""
    if frozenset().union(*region) != frozenset().union(*other):
        return True
    return any(rows.isdisjoint(other[params]) for params, rows in region.items() if params in other)


def _groups(region: Region, other: Region) -> list[Params]:
    """The finest division of the parameters that cuts through no factor of either region."""
    groups: list[Params] = []
    for params in (*region, *other):
        touching = [group for group in groups if group & params]
        groups = [group for group in groups if not group & params]
        groups.append(params.union(*touching))
    return groups


def _gathered(region: Region, groups: Iterable[Params]) -> Region:
    return {group: _multiplied([region[params] for params in region if params <= group]) for group in groups}


def _multiplied(factors: list[set[Row]]) -> set[Row]:
    if len(factors) == 1:
        return factors[0]
    if prod(map(len, factors)) > LARGEST_FACTOR:
        raise TooLargeError
    return {frozenset().union(*rows) for rows in product(*factors)}
