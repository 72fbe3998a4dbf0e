"""Where results are read from: a study with its records, or a directory that only has trials.

Tables, failures, figures, exports and the report ask for no more than this, so all of them work on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

from stoker.manager.progress import Series
from stoker.report.rows import Row
from stoker.study.fleet import Agent
from stoker.study.opened import Objective

Thing = TypeVar("Thing")
Found = TypeVar("Found")
Stages = Mapping[str, Mapping[str, Series]]
"""Stage → name → series."""


@dataclass(frozen=True)
class About:
    """What is known of a study besides its trials."""

    name: str
    where: str
    objective: Objective | None = None
    patterns: Mapping[str, str] = field(default_factory=dict)  # metric → what finds it in logs
    file: str = ""  # the study file, as it was run last; empty if there is none
    text: str = ""
    directory: str = ""  # where its commands run
    agents: Sequence[Agent] = ()


class Origin(Protocol):
    """What can be read of a study. Several threads may ask at once; what cannot be read is left out."""

    @property
    def about(self) -> About:
        """What is known besides trials."""

    @property
    def is_slow(self) -> bool:
        """Whether reading the logs of very many trials would take too long."""

    def rows(self, with_waiting: bool = True) -> Iterator[Row]:
        """A row for each trial, in order; those that nobody has begun only if they are wanted."""

    def sweep(self, row: Row) -> str:
        """What the trial's sweep is called."""

    def series(self, row: Row) -> Stages:
        """What the managers of a trial's scripts recorded."""

    def logs(self, row: Row) -> Mapping[str, Callable[[int], str]]:
        """Stage → what reads so many bytes at the end of its last log; the last stage last."""

    def each(self, read: Callable[[Thing], Found], things: Iterable[Thing]) -> Iterator[Found]:
        """What is read of each thing, in their order, in the way that is quickest here."""


class Part(NamedTuple):
    """A series of a trial, by names that people know."""

    trial: str
    name: str
    stage: str
    series: str
    values: Series


PARTS = ("trial", "name", "stage", "series", "step", "value", "time")
"""The columns of series below one another."""


def parts(origin: Origin, rows: Sequence[Row]) -> Iterator[list[Part]]:
    """The series of each trial that have values, one trial after the other."""
    for row, stages in zip(rows, origin.each(origin.series, rows), strict=True):
        yield [
            Part(row.number, row.name, stage, name, series)
            for stage, own in stages.items()
            for name, series in own.items()
            if series.values
        ]
