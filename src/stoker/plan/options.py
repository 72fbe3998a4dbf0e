"""The values one key of a sweep can take: written out, a range to draw from, or a sequence.

All three are *ladders*: a number of levels, a choice on each. A grid climbs every level, a sequence
climbs from the first on, a draw jumps between them in a shuffled order without repeating one until
all are used. Ladders can be searched, so that "which level gives this value?" needs no list of all.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cached_property
from typing import Protocol, TypeVar

from stoker.core.values import Value, key
from stoker.plan.naming import number_part

_K = TypeVar("_K")
Keys = Mapping[str, str]
"""Parameter name → key of its value: what identifies a trial."""

LEAST_LEVELS = 10_000
DIGITS = 6


@dataclass(frozen=True)
class Choice:
    """One possibility of one key of a sweep."""

    part: str  # what it contributes to the trial's name
    sets: tuple[tuple[str, Value], ...]  # the parameters it sets: one, or an alias's group

    @cached_property
    def keys(self) -> tuple[str, ...]:
        """Keys of the values it sets, in the order of `sets`."""
        return tuple(key(value) for _, value in self.sets)


class Ladder(Protocol):
    """Choices by level. Both searches return levels in ascending order."""

    @property
    def size(self) -> int: ...  # noqa: D102
    @property
    def params(self) -> tuple[str, ...]: ...  # noqa: D102
    def choice(self, level: int) -> Choice: ...  # noqa: D102
    def levels(self, keys: Keys) -> Iterable[int]: ...  # noqa: D102
    def named(self, part: str) -> Iterable[int]: ...  # noqa: D102


@dataclass(frozen=True)
class Written:
    """Choices written out in the file, one by one. They all set the same parameters, in the same order."""

    choices: tuple[Choice, ...]

    @property
    def size(self) -> int:
        """How many choices there are."""
        return len(self.choices)

    @property
    def params(self) -> tuple[str, ...]:
        """The parameters every choice sets."""
        return tuple(name for name, _ in self.choices[0].sets)

    def choice(self, level: int) -> Choice:
        """The choice at that place of the list."""
        return self.choices[level]

    def levels(self, keys: Keys) -> Sequence[int]:
        """Places that set exactly these values."""
        return self._by_keys.get(tuple(keys.get(name, "") for name in self.params), ())

    def named(self, part: str) -> Sequence[int]:
        """Places that give this part of a name."""
        return self._by_part.get(part, ())

    @cached_property
    def _by_keys(self) -> dict[tuple[str, ...], list[int]]:
        return _group(choice.keys for choice in self.choices)

    @cached_property
    def _by_part(self) -> dict[str, list[int]]:
        return _group(choice.part for choice in self.choices)


def _group(keys: Iterable[_K]) -> dict[_K, list[int]]:
    places: dict[_K, list[int]] = {}
    for place, item in enumerate(keys):
        places.setdefault(item, []).append(place)
    return places


@dataclass(frozen=True)
class Climb:
    """Numbers that never turn back: `number(level)` only grows, or only falls, with the level."""

    param: str
    size: int
    number: Callable[[int], int | float]

    @property
    def params(self) -> tuple[str, ...]:
        """The one parameter it sets."""
        return (self.param,)

    def choice(self, level: int) -> Choice:
        """The number on that level, as a choice."""
        number = self.number(level)
        return Choice(number_part(number), ((self.param, number),))

    def levels(self, keys: Keys) -> Iterable[int]:
        """Levels whose number has the key that `keys` gives for the parameter."""
        wanted = keys.get(self.param, "")
        try:
            near = self._between(float(wanted[1:]), float) if wanted[:1] in ("i", "f") else range(0)
        except ValueError:  # no number
            return ()
        return [level for level in near if key(self.number(level)) == wanted]

    def named(self, part: str) -> Iterable[int]:
        """Levels whose number reads as `part` in a name."""
        try:
            near = self._between(float(part), lambda number: float(number_part(number)))
        except ValueError:
            return ()
        return [level for level in near if number_part(self.number(level)) == part]

    def _between(self, target: float, view: Callable[[int | float], float]) -> range:
        sign = 1 if self.number(0) <= self.number(self.size - 1) else -1

        def height(level: int) -> float:
            return sign * view(self.number(level))

        every = range(self.size)
        return range(
            bisect_left(every, sign * target, key=height), bisect_right(every, sign * target, key=height)
        )


def uniform(param: str, low: float, high: float) -> Climb:
    """Decimal numbers between the bounds, evenly spaced, with six digits unless the range is narrow."""
    low_, high_ = Decimal(repr(float(low))), Decimal(repr(float(high)))
    exponent = max(low_.adjusted(), high_.adjusted()) - DIGITS + 1
    first, size = _multiples(low_, high_, exponent)
    while size < LEAST_LEVELS:
        exponent -= 1
        first, size = _multiples(low_, high_, exponent)
    return Climb(param, size, lambda level: float(f"{first + level}e{exponent}"))


def _multiples(low: Decimal, high: Decimal, exponent: int) -> tuple[int, int]:
    first = int(low.scaleb(-exponent).to_integral_value(ROUND_CEILING))
    last = int(high.scaleb(-exponent).to_integral_value(ROUND_FLOOR))
    return first, last - first + 1


def log_uniform(param: str, low: float, high: float) -> Climb:
    """Numbers between the bounds with evenly spaced logarithms."""
    low, high = float(low), float(high)
    span = math.log(high) - math.log(low)
    size = max(LEAST_LEVELS, int(span / 10 ** (1 - DIGITS)))
    digits = DIGITS if span / size >= 10 ** (1 - DIGITS) else 12

    def number(level: int) -> float:
        rounded = _round(math.exp(math.log(low) + span * level / (size - 1)), digits)
        return min(max(rounded, low), high)

    return Climb(param, size, number)


def int_uniform(param: str, low: int, high: int) -> Climb:
    """Every whole number from `low` to `high`, both included."""
    return Climb(param, high - low + 1, lambda level: low + level)


def normal(param: str, mean: float, deviation: float) -> Climb:
    """The quantiles of a normal distribution."""
    from statistics import NormalDist

    mean, deviation = float(mean), float(deviation)
    distribution, size = NormalDist(), 10 * LEAST_LEVELS
    extra = math.ceil(math.log10(abs(mean) / deviation)) if abs(mean) > deviation else 0
    digits = min(DIGITS + extra, 15)
    return Climb(
        param,
        size,
        lambda level: _round(mean + deviation * distribution.inv_cdf((level + 0.5) / size), digits),
    )


def step(param: str, start: int | float, by: int | float, size: int) -> Climb:
    """start, start + by, start + 2 by …"""
    return Climb(param, size, lambda level: _exact(start + level * by))


def multiple(param: str, start: int | float, factor: int | float, size: int) -> Climb:
    """start, start × factor, start × factor² …; the factor is positive."""
    return Climb(param, size, lambda level: _exact(start * factor**level))


def _exact(number: int | float) -> int | float:
    """Sums and products of decimals without the dust of binary fractions: 0.3, not 0.30000000000000004."""
    return number if isinstance(number, int) else _round(number, 12)


def _round(number: float, digits: int) -> float:
    """Rounded to significant digits, which also hides what machines disagree on in the last bit."""
    return float(f"{number:.{digits}g}")
