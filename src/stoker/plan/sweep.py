"""One sweep: a grid of written lists, times a series of drawn or counted values that advance together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import prod

from stoker.core.values import Value, key
from stoker.plan import naming
from stoker.plan.options import Choice, Keys, Ladder
from stoker.plan.shuffle import Shuffle, shuffle


class Order(Enum):
    """How the trials of a sweep visit the levels of an axis."""

    GRID = "every level, with every level of the other grid axes"
    SEQUENCE = "one level after another, from the start again when they are used up"
    DRAW = "shuffled, and shuffled anew when they are used up"


@dataclass(frozen=True)
class Axis:
    """One key of a sweep."""

    name: str  # a parameter, or an alias
    ladder: Ladder
    order: Order = Order.GRID
    seed: int = 0

    @cached_property
    def label(self) -> str:
        """The key's name as it stands in names of trials."""
        return naming.label(self.name)

    @cached_property
    def is_fixed(self) -> bool:
        """Whether there is nothing to choose."""
        return self.order is Order.GRID and self.ladder.size == 1

    def level(self, turn: int) -> int:
        """The level of a series at its turn-th value."""
        lap, place = divmod(turn, self.ladder.size)
        return self._shuffle(lap)[place] if self.order is Order.DRAW else place

    def turns(self, levels: Iterable[int], end: int) -> Iterator[int]:
        """The turns before `end` at which a series stands on one of `levels`, ascending."""
        levels, size = list(levels), self.ladder.size
        for lap in range(-(-end // size)):
            drawn = self.order is Order.DRAW
            places = sorted(self._shuffle(lap).index(level) for level in levels) if drawn else levels
            yield from (turn for place in places if (turn := lap * size + place) < end)

    def _shuffle(self, lap: int) -> Shuffle:
        return shuffle(self.ladder.size, f"{self.seed}/{self.name}/{lap}")


@dataclass(frozen=True)
class Sweep:
    """A region of the parameter space whose trials are computed one by one, by index, in no time."""

    axes: tuple[Axis, ...]  # in the order of the file
    base: Mapping[str, Value]  # defaults of the parameters that no axis sets
    stages: tuple[str, ...]
    turns: int = 1  # length of the series: `_trials`
    title: str | None = None
    line: int = 0  # where it stands in the file
    place: int = 0  # how many sweeps stand before it in the file
    first: int = 0  # how many trials those ask for

    @cached_property
    def grid(self) -> tuple[Axis, ...]:
        """Axes that multiply."""
        return tuple(axis for axis in self.axes if axis.order is Order.GRID)

    @cached_property
    def series(self) -> tuple[Axis, ...]:
        """Axes that advance together."""
        return tuple(axis for axis in self.axes if axis.order is not Order.GRID)

    @cached_property
    def size(self) -> int:
        """How many trials the sweep asks for, counting those asked for twice."""
        return prod(axis.ladder.size for axis in self.grid) * self.turns

    @cached_property
    def _backwards(self) -> tuple[tuple[Axis, int], ...]:
        """The axes from the last to the first, with the sizes of those that multiply."""
        return tuple((axis, axis.ladder.size if axis.order is Order.GRID else 0) for axis in self.axes[::-1])

    def choices(self, index: int) -> list[Choice]:
        """What the trial at `index` chooses on each axis; the last grid axis turns before the first."""
        point, turn = divmod(index, self.turns)
        found = []
        for axis, size in self._backwards:
            if size:
                point, level = divmod(point, size)
            else:
                level = axis.level(turn)
            found.append(axis.ladder.choice(level))
        found.reverse()
        return found

    def params(self, index: int) -> dict[str, Value]:
        """All parameters of the trial at `index`: those the sweep sets, in its order, then the defaults."""
        chosen = (pair for choice in self.choices(index) for pair in choice.sets)
        return {**dict(chosen), **self.base}

    def name(self, index: int) -> str:
        """The readable name of the trial at `index`, before collisions."""
        labels = (axis.label for axis in self.axes)
        return naming.join(zip(labels, (choice.part for choice in self.choices(index)), strict=True))

    def find(self, keys: Keys) -> int | None:
        """The first index whose trial has exactly these parameters."""
        if len(keys) != self._width:
            return None
        if any(keys.get(name) != wanted for name, wanted in self.base_keys.items()):
            return None
        return self._first([axis.ladder.levels(keys) for axis in self.axes])

    def find_parts(self, parts: Sequence[str]) -> int | None:
        """The first index whose trial has these parts in its name, one for each axis."""
        return self._first([axis.ladder.named(part) for axis, part in zip(self.axes, parts, strict=True)])

    def _first(self, levels: list[Iterable[int]]) -> int | None:
        """The first index that stands, on each axis, on one of the levels given for it."""
        wanted = {axis.name: list(some) for axis, some in zip(self.axes, levels, strict=True)}
        if not all(wanted.values()):
            return None
        point = 0
        for axis in self.grid:
            point = point * axis.ladder.size + min(wanted[axis.name])
        turn = self._first_turn(wanted)
        return None if turn is None else point * self.turns + turn

    def _first_turn(self, wanted: Mapping[str, list[int]]) -> int | None:
        if not self.series:
            return 0
        leader, *others = sorted(self.series, key=lambda axis: len(wanted[axis.name]) / axis.ladder.size)
        turns = leader.turns(wanted[leader.name], self.turns)
        return next((t for t in turns if all(axis.level(t) in wanted[axis.name] for axis in others)), None)

    @cached_property
    def _width(self) -> int:
        return len(self.base) + sum(len(axis.ladder.params) for axis in self.axes)

    @cached_property
    def base_keys(self) -> Keys:
        """Keys of the values in `base`."""
        return {name: key(value) for name, value in self.base.items()}
