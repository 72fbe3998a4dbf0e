"""Figures as plain data: what is to be seen, and nothing of how it is drawn.

`images` draws charts as SVG, PNG and PDF, `interactive` with Plotly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite, log10
from sys import float_info

from stoker.core.values import Value, text
from stoker.report.rows import as_numbers

_UNITS = ((172800.0, 86400.0, "days"), (7200.0, 3600.0, "hours"), (180.0, 60.0, "minutes"))


@dataclass(frozen=True)
class Axis:
    """What an axis is about. With names, 0 is the first of them."""

    title: str = ""
    is_log: bool = False
    names: tuple[str, ...] = ()
    range: tuple[float, float] | None = None
    at: tuple[float, ...] = ()  # where numbers are written, if not anywhere
    is_bare: bool = False  # no numbers: what they would be is written in the panel


@dataclass(frozen=True)
class Trace:
    """Some marks of one colour. A line is interrupted where a value is not finite."""

    kind: str  # line, steps, points, bars (sideways, from 0), spans (sideways, from x to `ends`)
    x: Sequence[float]
    y: Sequence[float]
    colour: str = "main"
    told: Sequence[str] = ()  # of each mark; of a line, one for all of it
    ends: Sequence[float] = ()
    label: str = ""  # in a legend


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    traces: tuple[Trace, ...]
    x: Axis = Axis()
    y: Axis = Axis()
    texts: tuple[tuple[float, float, str], ...] = ()  # x, y, what is written there


@dataclass(frozen=True)
class Chart:
    """A figure. One without panels tells in its note why there is nothing to see."""

    name: str
    title: str
    panels: tuple[Panel, ...] = ()
    note: str = ""  # what a reader must know: what is left out, and what it means
    is_wide: bool = False  # its panels need the whole width


def axis(title: str, values: Iterable[float], may_be_log: bool = True) -> Axis:
    """An axis for numbers: logarithmic if they are positive and far apart, unless they count something."""
    known = [value for value in values if isfinite(value)]
    if not known:
        return Axis(title)
    low, high = min(known), max(known)
    if may_be_log and low > 0 and high / low >= 100:
        room = 10 ** ((log10(high) - log10(low)) * 0.04)
        return Axis(title, is_log=True, range=(max(low / room, 5e-324), min(high * room, float_info.max)))
    room = (high / 2 - low / 2) * 0.08 or abs(low) * 0.1 or 1.0  # the whole may be beyond the largest float
    return Axis(title, range=(max(low - room, -float_info.max), min(high + room, float_info.max)))


def scale(name: str, values: Sequence[Value]) -> tuple[Axis, list[float]]:
    """An axis for the values of a parameter, and their places on it; names stand in order, at 0, 1, 2, …"""
    numbers = as_numbers(values)
    if numbers and all(map(isfinite, numbers)):
        few = tuple(sorted(set(numbers)))
        return replace(axis(name, numbers), at=few if len(few) <= 6 else ()), numbers
    names = sorted({text(value) for value in values}, key=_natural)
    place = {word: float(number) for number, word in enumerate(names)}
    return Axis(name, names=tuple(names), range=(-0.5, len(names) - 0.5)), [place[text(v)] for v in values]


def _natural(word: str) -> tuple[bool, float, str]:
    try:
        return False, float(word), word
    except ValueError:
        return True, 0.0, word


def heights(found: Axis, values: Sequence[float]) -> tuple[list[float], list[tuple[float, str]]]:
    """Places on an axis as heights between 0 and 1, and what is to be written at which of them."""
    moved = [log10(value) for value in values] if found.is_log else list(values)
    low, high = min(moved), max(moved)
    way = high / 2 - low / 2
    places = [(value / 2 - low / 2) / way if way else 0.5 for value in moved]
    at = dict(zip(values, places, strict=True))
    if found.names:
        step = -(-len(found.names) // 8)
        return places, [(at[v], found.names[int(v)]) for v in sorted(at) if int(v) % step == 0]
    return places, [(at[v], f"{v:.4g}") for v in sorted({min(values), max(values)})]


def with_range(found: Axis, low: float, high: float) -> Axis:
    """The axis from and to what was asked for; a logarithmic one cannot begin below 0."""
    return replace(found, range=(low, high), is_log=found.is_log and low > 0)


def unit_of(seconds: float) -> tuple[float, str]:
    """The unit that so much time is best told in."""
    return next(((size, name) for least, size, name in _UNITS if seconds >= least), (1.0, "seconds"))


def many(count: int, thing: str) -> str:
    """`1 trial`, `2,000 trials`."""
    return f"{count:,} {thing}{'s' * (count != 1)}"


def part(drawn: int, total: int, things: str, which: str = "") -> str:
    """What a reader must know if not all of something is drawn; nothing otherwise."""
    return f"{drawn:,} of {total:,} {things} are drawn{which and f', {which}'}." if drawn < total else ""


def sentences(*parts: str) -> str:
    """Those that say something, one after the other."""
    return " ".join(filter(None, parts))
