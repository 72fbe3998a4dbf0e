"""Ranges and sequences of a sweep: `{uniform: [1, 3]}`, `{step: [1000, 500]}` …"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite, log10
from typing import TypeGuard

from stoker.core.values import Spelled, Value
from stoker.plan import options
from stoker.plan.options import Climb
from stoker.plan.sweep import Order

WIDEST = 1 << 62

Number = int | float


@dataclass(frozen=True)
class Range:
    """One kind of range: what its two numbers mean, when they make sense, and the ladder they give."""

    names: tuple[str, str]
    order: Order
    doc: str
    flaw: Callable[[Number, Number], str]  # what is wrong with the numbers, or nothing
    build: Callable[[str, Number, Number, int], Climb]  # (parameter, the two numbers, number of trials)


def _ascending(low: Number, high: Number) -> str:
    if high - low > 1e300:
        return "the range is too wide"
    return "" if low < high else f"{low} is not below {high}"


def _positive_ascending(low: Number, high: Number) -> str:
    return "both numbers must be above 0" if low <= 0 else _ascending(low, high)


def _whole_ascending(low: Number, high: Number) -> str:
    if not (isinstance(low, int) and isinstance(high, int)):
        return "both numbers must be whole"
    if high - low >= WIDEST:
        return "the range is too wide"
    return "" if low <= high else f"{low} is above {high}"


def _spread(mean: Number, deviation: Number) -> str:
    if deviation <= 0:
        return "the deviation must be above 0"
    narrow, wide = abs(mean) / deviation > 1e9, abs(mean) + 10 * deviation > 1e300
    return (
        "the deviation is too small beside the mean" if narrow else "too large to draw from" if wide else ""
    )


def _moving(start: Number, by: Number) -> str:
    return "a step of 0 never moves" if by == 0 else ""


def _growing(start: Number, factor: Number) -> str:
    if factor <= 0 or factor == 1:
        return "the factor must be above 0, and not 1"
    return "a start of 0 never moves" if start == 0 else ""


RANGES = {
    "uniform": Range(
        ("lowest", "highest"),
        Order.DRAW,
        "evenly between the two",
        _ascending,
        lambda param, low, high, n: options.uniform(param, low, high),
    ),
    "log_uniform": Range(
        ("lowest", "highest"),
        Order.DRAW,
        "evenly on a logarithmic scale",
        _positive_ascending,
        lambda param, low, high, n: options.log_uniform(param, low, high),
    ),
    "int_uniform": Range(
        ("lowest", "highest"),
        Order.DRAW,
        "whole numbers, both ends included",
        _whole_ascending,
        lambda param, low, high, n: options.int_uniform(param, int(low), int(high)),
    ),
    "normal": Range(
        ("mean", "deviation"),
        Order.DRAW,
        "from a normal distribution",
        _spread,
        lambda param, mean, deviation, n: options.normal(param, mean, deviation),
    ),
    "step": Range(
        ("start", "step"),
        Order.SEQUENCE,
        "start, start + step, start + 2 step …",
        _moving,
        options.step,
    ),
    "multiple": Range(
        ("start", "factor"),
        Order.SEQUENCE,
        "start, start × factor, start × factor² …",
        _growing,
        options.multiple,
    ),
}
"""Ranges given by two numbers."""

LISTS = {"choice": Order.DRAW, "list": Order.SEQUENCE}
"""Series over values that are written out: drawn, or in turn."""


def flaw(kind: str, first: Value, second: Value, turns: int) -> str:
    """Why a range cannot be, or nothing."""
    if not (_is_number(first) and _is_number(second)):
        return f"expected two numbers, {' and '.join(RANGES[kind].names)}"
    return RANGES[kind].flaw(first, second) or _runaway(kind, first, second, turns)


def build(kind: str, param: str, first: Value, second: Value, turns: int) -> Climb:
    """The ladder of a range that has no flaw."""
    if isinstance(first, str) or isinstance(second, str):
        raise TypeError(f"{kind} of {first} and {second}")
    return RANGES[kind].build(param, first, second, turns)


def _is_number(value: Value) -> TypeGuard[Number]:
    try:
        return not isinstance(value, (str, bool)) and isfinite(value)
    except OverflowError:  # an integer beyond the largest float
        return False


def _runaway(kind: str, first: Number, second: Number, turns: int) -> str:
    """A sequence that leaves the numbers a computer has before it ends."""
    if kind == "multiple":
        exponent = abs(log10(abs(first)) + (turns - 1) * log10(second))
    elif kind == "step":
        exponent = log10(max(abs(first), abs(second), 1)) + log10(turns)
    else:
        return ""
    return "" if exponent < 300 else f"the values run out of bounds within {turns} trials"


def plain_number(value: Value) -> Value:
    """A bound without its spelling: `1e3` counts as the whole number 1000."""
    if not isinstance(value, Spelled):
        return value
    return int(value) if value.is_integer() and "." not in value.spelling else float(value)
