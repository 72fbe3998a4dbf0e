"""Preconditions: "only if it is still as I saw it". Judged while nobody else can change the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

from stoker.emulator.storage.errors import not_met, not_modified, wrong


class Versioned(Protocol):
    """What preconditions are about."""

    @property
    def generation(self) -> int:
        """Of the contents."""

    @property
    def metageneration(self) -> int:
        """Of what is told about them."""

    @property
    def updated(self) -> int:
        """Microseconds since 1970."""

    @property
    def tags(self) -> tuple[str, ...]:
        """Its ETags, in each interface."""


@dataclass(frozen=True)
class Conditions:
    """All must hold. None: not asked for. A generation of 0 is that of nothing."""

    generation: int | None = None
    not_generation: int | None = None
    metageneration: int | None = None
    not_metageneration: int | None = None
    tags: tuple[str, ...] = ()
    not_tags: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None

    def check(self, found: Versioned | None) -> None:
        """Of a writer. Raises ApiError."""
        if not (self._matches(found) and self._differs(found)):
            raise not_met()

    def check_read(self, found: Versioned) -> None:
        """Of a reader: what they do not want again is "not modified". Raises ApiError."""
        if not self._matches(found):
            raise not_met()
        if not self._differs(found):
            raise not_modified()

    def _matches(self, found: Versioned | None) -> bool:
        generation, metageneration = (found.generation, found.metageneration) if found else (0, 0)
        if self.generation not in (None, generation) or self.metageneration not in (None, metageneration):
            return False
        if self.tags and not _has_tag(found, self.tags):
            return False
        return self.until is None or bool(self.tags) or _seconds(found) <= self.until.timestamp()

    def _differs(self, found: Versioned | None) -> bool:
        generation, metageneration = (found.generation, found.metageneration) if found else (0, 0)
        if self.not_generation == generation or (self.not_metageneration == metageneration):
            return False
        if self.not_tags:
            return not _has_tag(found, self.not_tags)
        return self.since is None or _seconds(found) > self.since.timestamp()


def _seconds(found: Versioned | None) -> int:
    return found.updated // 1_000_000 if found else 0


def _has_tag(found: Versioned | None, wanted: tuple[str, ...]) -> bool:
    return found is not None and ("*" in wanted or any(tag in wanted for tag in found.tags))


def of_query(query: Mapping[str, str], headers: Mapping[str, str], prefix: str = "if") -> Conditions:
    """As the JSON interface takes them: `ifGenerationMatch` and the like, and two headers."""
    return Conditions(
        _number(query.get(prefix + "GenerationMatch")),
        _number(query.get(prefix + "GenerationNotMatch")),
        _number(query.get(prefix + "MetagenerationMatch")),
        _number(query.get(prefix + "MetagenerationNotMatch")),
        _tags(headers.get("if-match")),
        _tags(headers.get("if-none-match")),
    )


def of_headers(headers: Mapping[str, str], prefix: str = "x-goog-if-") -> Conditions:
    """As the XML interface takes them for writing: generations only."""
    return Conditions(
        generation=_number(headers.get(prefix + "generation-match")),
        metageneration=_number(headers.get(prefix + "metageneration-match")),
    )


def of_reader(headers: Mapping[str, str]) -> Conditions:
    """As the XML interface takes them for reading."""
    numbers = of_headers(headers)
    return Conditions(
        numbers.generation,
        None,
        numbers.metageneration,
        None,
        _tags(headers.get("if-match")),
        _tags(headers.get("if-none-match")),
        _date(headers.get("if-modified-since")),
        _date(headers.get("if-unmodified-since")),
    )


def _number(text: str | None) -> int | None:
    if text is None or text == "":
        return None
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise wrong(f"Invalid value for a generation: '{text}'")
    return int(text)


def _tags(text: str | None) -> tuple[str, ...]:
    if not text:
        return ()
    return tuple(tag.strip().removeprefix("W/").strip('"') for tag in text.split(","))


def _date(text: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:  # as HTTP has it, a date that is none is not heard
        return None
