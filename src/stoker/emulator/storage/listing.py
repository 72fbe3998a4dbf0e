"""Which names are on a page of a listing."""

from __future__ import annotations

import base64
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from stoker.emulator.storage.errors import wrong

MOST = 1000
_LAST = "\U0010ffff"


@dataclass(frozen=True)
class Query:
    """What is asked for. `start` is the first name that may come, `end` the first that may not."""

    prefix: str = ""
    delimiter: str = ""
    start: str = ""
    end: str = ""
    most: int = MOST
    with_folders: bool = False  # an object named as a prefix is told twice
    glob: str = ""


@dataclass
class Page:
    """Names and prefixes together are at most as many as were asked for; `token` is for the next page."""

    names: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str = ""


def page(names: Sequence[str], query: Query) -> Page:
    """The first names, in order, and what the others have in common up to the delimiter."""
    found, wanted = Page(), _compiled(query.glob) if query.glob else None
    start = max(query.start, query.prefix)
    place, seen = bisect_left(names, start), 0
    while place < len(names) and _is_within(name := names[place], query):
        if wanted and not wanted.fullmatch(name):
            place += 1
            continue
        if seen == query.most:
            found.token = token(start)
            break
        seen += 1
        start = _take(found, name, query)
        place = bisect_left(names, start, place)
    return found


def _take(found: Page, name: str, query: Query) -> str:
    """Put a name on the page, or its prefix; where the next one may begin."""
    folder = _folder(name, query)
    if folder is None or (query.with_folders and folder == name):
        found.names.append(name)
    if folder is None:
        return name + "\0"
    found.prefixes.append(folder)
    return behind(folder)


def count(text: str) -> int:
    """How many at most. Raises ApiError."""
    if text and (not text.isascii() or not text.isdigit() or len(text) > 18):
        raise wrong(f"Invalid value for the number of results: '{text}'")
    return min(int(text or MOST), MOST) or MOST


def token(start: str) -> str:
    """For a page that begins there."""
    return base64.urlsafe_b64encode(start.encode("utf-8", "surrogatepass")).decode()


def start_of(given: str) -> str:
    """Where the page of a token begins. Raises ApiError."""
    try:
        return base64.b64decode(given, b"-_", validate=True).decode("utf-8", "surrogatepass")
    except ValueError:
        raise wrong(f"Invalid page token: '{given}'") from None


def behind(prefix: str) -> str:
    """The least text that is greater than all that begins so."""
    kept = prefix.rstrip(_LAST)
    return kept[:-1] + chr(ord(kept[-1]) + 1) if kept else _LAST * 2000  # longer than any name


def _is_within(name: str, query: Query) -> bool:
    return name.startswith(query.prefix) and (not query.end or name < query.end)


def _folder(name: str, query: Query) -> str | None:
    if not query.delimiter:
        return None
    place = name.find(query.delimiter, len(query.prefix))
    return None if place < 0 else name[: place + len(query.delimiter)]


_SIGNS = re.compile(r"(\*\*)|(\*)|(\?)|(\[!?[^]]+\])|(\{[^}]*\})|(.)", re.DOTALL)


def _compiled(glob: str) -> re.Pattern[str]:
    try:
        return re.compile(_pattern(glob))
    except re.error:
        raise wrong(f"Invalid glob: '{glob}'") from None


def _pattern(glob: str) -> str:
    """A glob of Cloud Storage as a regular expression: one star stays within a folder, two do not."""
    return "".join(_sign(*found.groups()) for found in _SIGNS.finditer(glob))


def _sign(stars: str, star: str, one: str, signs: str, words: str, letter: str) -> str:
    if stars or star or one:
        return "(?s:.*)" if stars else "[^/]*" if star else "[^/]"
    if words:
        return "(?:" + "|".join(map(_pattern, words[1:-1].split(","))) + ")"
    if signs:
        inner = signs[1:-1].replace("\\", "\\\\")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(letter)
