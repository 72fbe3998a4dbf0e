"""Parameter values: what they are, how they read in a command, and when two are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TypeAlias


class Spelled(float):
    """A number that keeps the spelling of the study file: `1e-3` stays `1e-3` in commands and names."""

    __slots__ = ("spelling",)
    spelling: str

    def __new__(cls, spelling: str) -> Spelled:  # noqa: D102
        number = super().__new__(cls, spelling)
        number.spelling = spelling
        return number

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override]  # float's own returns its number
        return (self.spelling,)


Value: TypeAlias = str | bool | int | float


def text(value: Value) -> str:
    """The value as a command or a table shows it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Spelled):
        return value.spelling
    return str(value)


_TAGS = {str: "s", bool: "b", int: "i"}


def key(value: Value) -> str:
    """Two values are the same if and only if their keys are: same type, same text.

    Equality of Python would take `true` for 1 and 1 for 1.0, which read differently in a command.
    """
    return f"{_TAGS.get(type(value), 'f')}{text(value)}"


def digest(params: Mapping[str, Value]) -> str:
    """Twelve hex digits that stand for these parameters, in whatever order they come."""
    canonical = "\0".join(f"{name}\0{key(params[name])}" for name in sorted(params))
    return hashlib.blake2b(canonical.encode(), digest_size=6).hexdigest()
