"""The plan of a study: its trials by number, each computed when asked for."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from stoker.core.values import Value, digest, key
from stoker.plan import naming
from stoker.plan.index import Index
from stoker.plan.overlap import count_new
from stoker.plan.shuffle import Shuffle
from stoker.plan.sweep import Sweep

Owner = Callable[[str], "str | None"]
"""Digest of the parameters to which an existing directory belongs; None if there is no such directory."""


@dataclass(frozen=True)
class Trial:
    """One assignment of parameters."""

    number: int  # from 1, in the order of the file, whatever part of it is planned
    sweep: Sweep
    params: dict[str, Value]
    name: str
    stages: tuple[str, ...]
    same_as: int | None = None  # number of the earlier trial with the same parameters


class Plan:
    """All trials that the sweeps ask for. Trial `i` costs no more than looking at each sweep once."""

    def __init__(
        self, sweeps: Sequence[Sweep], stages: Sequence[str], owner: Owner = lambda name: None
    ) -> None:
        self.sweeps = tuple(sweeps)
        self._stages = tuple(stages)
        self._owner = owner
        self._index = Index(self.sweeps)
        self._starts = [0, *accumulate(sweep.size for sweep in self.sweeps)]

    @property
    def size(self) -> int:
        """How many trials are asked for, counting those asked for twice. May exceed what `len` can return."""
        return self._starts[-1]

    def trial(self, index: int) -> Trial:
        """The trial at `index`, from 0 on."""
        place, params = self._params(index)
        keys = {name: key(value) for name, value in params.items()}
        mentions = list(self._index.containing(keys))
        first = self._starts[mentions[0][0]] + mentions[0][1]
        asked = {stage for mention, _ in mentions for stage in self.sweeps[mention].stages}
        return Trial(
            number=self._number(index),
            sweep=self.sweeps[place],
            params=params,
            name=self._name(first, params),
            stages=tuple(stage for stage in self._stages if stage in asked),
            same_as=None if first == index else self._number(first),
        )

    def index_of(self, number: int) -> int | None:
        """Where the trial with a number stands; None if its sweep is not part of the plan."""
        for start, sweep in zip(self._starts, self.sweeps, strict=False):
            if sweep.first < number <= sweep.first + sweep.size:
                return start + number - sweep.first - 1
        return None

    def first_with(self, params: dict[str, Value]) -> int | None:
        """The number of the first trial with exactly these parameters."""
        found = next(self._index.containing({name: key(value) for name, value in params.items()}), None)
        return None if found is None else self._number(self._starts[found[0]] + found[1])

    def named(self, name: str) -> int | None:
        """The index of the first trial that has this name without a hash."""
        found = self._index.first_named(name)
        return None if found is None else self._starts[found[0]] + found[1]

    def __iter__(self) -> Iterator[Trial]:
        return (self.trial(index) for index in range(self.size))

    def sample(self, count: int, seed: int) -> list[int]:
        """Indices of `count` random trials of each sweep; a larger count keeps those of a smaller one."""
        picked: list[int] = []
        for start, sweep in zip(self._starts, self.sweeps, strict=False):
            order = Shuffle(sweep.size, f"{seed}/sample")
            picked += sorted(start + order[place] for place in range(min(count, sweep.size)))
        return picked

    def duplicates(self) -> list[int | None]:
        """For each sweep, how many of its trials were asked for before; None if that is too long to count."""
        new = count_new(self.sweeps, self._index)
        sizes = (sweep.size for sweep in self.sweeps)
        return [None if n is None else size - n for size, n in zip(sizes, new, strict=True)]

    def _locate(self, index: int) -> tuple[int, int]:
        place = bisect_right(self._starts, index) - 1
        return place, index - self._starts[place]

    def _number(self, index: int) -> int:
        place, local = self._locate(index)
        return self.sweeps[place].first + local + 1

    def _params(self, index: int) -> tuple[int, dict[str, Value]]:
        place, local = self._locate(index)
        return place, self.sweeps[place].params(local)

    def _name(self, index: int, params: dict[str, Value]) -> str:
        """A trial keeps the directory it has; a free one is its own if it comes first with that name."""
        place, local = self._locate(index)
        name = self.sweeps[place].name(local)
        owner = None if naming.too_long(name) else self._owner(name)
        if owner is not None and owner == digest(params):
            return name
        hashed = naming.with_hash(name, params)
        if owner is not None or naming.too_long(name) or self._owner(hashed) is not None:
            return hashed
        return name if self._comes_first(name, (place, local), params) else hashed

    def _comes_first(self, name: str, place: tuple[int, int], params: dict[str, Value]) -> bool:
        first = self._index.first_named(name)
        if first is None or first == place:
            return first is not None
        return digest(self.sweeps[first[0]].params(first[1])) == digest(params)
