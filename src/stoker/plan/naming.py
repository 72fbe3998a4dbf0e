"""Readable names of trials: `Norm_new-Moment_0.1`, `EaStop_T`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from stoker.core.values import Spelled, Value, digest

NAME_BYTES = 200
VALUE_CHARACTERS = 100
NAMELESS = "default"
MOST_READINGS = 1_000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def label(param: str) -> str:
    """`early-stop` → `EaStop`: inner words shorten to two letters, the last one stays whole."""
    words = param.split("-")
    if len(words) == 1:
        words = param.split("_")
    inner = (word[:2].title() if len(word) > 2 else word for word in words[:-1])
    return "".join(inner) + words[-1].title()


def part(value: Value, exists: Callable[[str], bool]) -> str:
    """What a value contributes to a name. `exists` tells whether a text is the path of something."""
    if isinstance(value, str):
        return _text_part(value, exists)
    if isinstance(value, bool):
        return "T" if value else "F"
    return number_part(value)


def number_part(value: int | float) -> str:
    """A number with six digits at most, as `%g` writes it, or with the spelling of the file."""
    if isinstance(value, Spelled):
        return value.spelling
    try:
        return f"{value:g}"
    except OverflowError:  # an integer beyond the largest float
        return str(value)


def _text_part(value: str, exists: Callable[[str], bool]) -> str:
    shown = value.rstrip("/").rpartition("/")[2] if exists(value) else value.lstrip("/.").replace("/", "_")
    return _CONTROL.sub("_", shown[-VALUE_CHARACTERS:])


def join(parts: Iterable[tuple[str, str]]) -> str:
    """The name of a trial before collisions: labels and parts, in the order of the sweep."""
    return "-".join([f"{label}_{part}" for label, part in parts]) or NAMELESS


def readings(name: str, labels: tuple[str, ...]) -> list[tuple[str, ...]] | None:
    """Every way to read a name as one part for each label; None if there are more than MOST_READINGS.

    A value may itself contain what looks like the next label, so there can be more than one way.
    """
    if not labels:
        return [()] if name == NAMELESS else []
    opening = f"{labels[0]}_"
    partial: list[tuple[tuple[str, ...], str]] = (
        [((), name[len(opening) :])] if name.startswith(opening) else []
    )
    for label in labels[1:]:
        separator = f"-{label}_"
        partial = [
            ((*parts, rest[:end]), rest[end + len(separator) :])
            for parts, rest in partial
            for end in _places(rest, separator)
        ]
        if len(partial) > MOST_READINGS:
            return None
    return [(*parts, rest) for parts, rest in partial]


def _places(text: str, part: str) -> Iterator[int]:
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


def too_long(name: str) -> bool:
    """Whether the name takes more bytes than every file system allows, with room for log names."""
    return len(name.encode()) > NAME_BYTES


def with_hash(name: str, params: Mapping[str, Value]) -> str:
    """The name, shortened if need be, with a short hash of all parameters."""
    room = NAME_BYTES - 13
    return f"{name.encode()[:room].decode(errors='ignore')}-{digest(params)}"
