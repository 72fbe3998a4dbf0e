"""How much a parameter matters: the share of the differences between results that it alone explains.

Results are replaced by their ranks, so that one run that diverged does not drown the others. Trials are put
into groups by the parameter's value, numbers with many values into a few groups of equal size. What the means
of the groups explain of the variance is the parameter's share, less what so many groups explain by chance.

The limits: parameters that matter only together get nothing here; where a sweep varied two of them in step,
both get the credit; few trials prove little; and it holds for the values that were tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from statistics import fmean

from stoker.core.values import Value, key
from stoker.report.rows import as_numbers

BINS = 6
"""Numbers with more values than this are put into so many groups."""
FEWEST = 5
"""With fewer results nothing is said."""


def importance(params: Sequence[Mapping[str, Value]], results: Sequence[float]) -> dict[str, float]:
    """Parameter → share between 0 and 1, the highest first; those that never differ are left out."""
    known = [(one, value) for one, value in zip(params, results, strict=True) if not isnan(value)]
    if len(known) < FEWEST:
        return {}
    order = ranks([value for _, value in known])
    found = {}
    for name in dict.fromkeys(name for one, _ in known for name in one):
        groups = _groups([one.get(name) for one, _ in known])
        if len(set(groups)) > 1:
            found[name] = explained(groups, order)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def explained(groups: Sequence[int], values: Sequence[float]) -> float:
    """The share of the variance that groups explain beyond chance (epsilon squared); never below 0."""
    mean = fmean(values)
    total = sum((value - mean) ** 2 for value in values)
    members: dict[int, list[float]] = {}
    for group, value in zip(groups, values, strict=True):
        members.setdefault(group, []).append(value)
    free = len(values) - len(members)
    if not total or free < 1:
        return 0.0
    between = sum(len(own) * (fmean(own) - mean) ** 2 for own in members.values())
    by_chance = (len(members) - 1) * (total - between) / free
    return max(0.0, (between - by_chance) / total)


def ranks(values: Sequence[float]) -> list[float]:
    """The place of each value among all, from 0; equal ones share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    begin = 0
    for end in range(1, len(order) + 1):
        if end == len(order) or values[order[end]] != values[order[begin]]:
            for place in order[begin:end]:
                found[place] = (begin + end - 1) / 2
            begin = end
    return found


def _groups(values: Sequence[Value | None]) -> list[int]:
    """A number for each value: the same for equal ones, or for near ones if there are many numbers."""
    numbers = as_numbers(values)
    if len(set(numbers)) > BINS:
        places = ranks(numbers)
        return [min(BINS - 1, int(place * BINS / len(places))) for place in places]
    names: dict[str, int] = {}
    return [names.setdefault("" if value is None else key(value), len(names)) for value in values]
