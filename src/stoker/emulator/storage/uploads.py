"""Contents that come in several requests: resumable uploads (JSON interface) and parts (XML interface)."""

from __future__ import annotations

import re
import secrets
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.emulator.storage.bodies import Bodies, Body, Content, Growing, body_of
from stoker.emulator.storage.errors import StorageError, no_upload, wrong

GRAIN = 256 * 1024
"""Bytes: what arrives in the middle of a resumable upload is kept in multiples of this."""
LEAST_PART = 5 * 1024 * 1024
_REMEMBERED = 100
_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


@dataclass
class Resumable:
    """An upload that can go on where it was cut. One request at a time, by its lock."""

    id: str
    bucket: str
    name: str
    about: Mapping[str, Any]
    query: Mapping[str, str]  # of the request that began it: its preconditions
    hashes: dict[str, str]
    growing: Growing
    file: str
    total: int | None = None  # how long it will be, as far as we were told
    done: dict[str, Any] = field(default_factory=dict)  # the object, when it is there
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, header: str, data: Content) -> bool:
        """Some of it; whether that was the last. Raises ApiError for what does not fit."""
        first, last, total = _range(header, len(data), self.growing.size)
        self.total = total if total is not None else self.total
        if last is None:
            return self.growing.size == total
        if len(data) != last - first:
            raise wrong(f"The Content-Range header is for {last - first} bytes, but {len(data)} came.")
        self._add(first, data, is_last=last == total)
        return self.growing.size == total

    def _add(self, first: int, data: Content, is_last: bool) -> None:
        have = self.growing.size
        if first > have:
            message = (
                f"Invalid request.  According to the Content-Range header, the upload offset is {first} "
                f"byte(s), which exceeds already uploaded size of {have} byte(s)."
            )
            raise StorageError(503, "backendError", message)
        if not is_last and len(data) < GRAIN:
            message = (
                "Invalid request.  The number of bytes uploaded is required to be equal or greater than "
                f"{GRAIN}, except for the final request (it's recommended to be the exact multiple of "
                f"{GRAIN}). The received request contained {len(data)} bytes, which does not meet this "
                "requirement."
            )
            raise wrong(message)
        end = len(data) if is_last else (first + len(data)) // GRAIN * GRAIN - first
        if end > have - first:
            with memoryview(data) as view, view[have - first : end] as new:
                self.growing.add(new)


def _range(header: str, length: int, have: int) -> tuple[int, int | None, int | None]:
    """From where to where the data is, and how long all will be; no end for a question how far we are."""
    if not header:
        return 0, length, length
    found = _RANGE.fullmatch(header.strip())
    if found is None:
        raise wrong(f"Failed to parse Content-Range header: '{header}'")
    total = None if found[3] == "*" else int(found[3])
    if found[1] is None:
        return have, None, total
    return int(found[1]), int(found[2]) + 1, total


@dataclass
class Multipart:
    """An upload of numbered parts, in any order and at the same time."""

    id: str
    bucket: str
    name: str
    about: Mapping[str, Any]
    created: int
    parts: dict[int, Body] = field(default_factory=dict)

    def chosen(self, asked: list[tuple[int, str]]) -> list[Body]:
        """The parts of which the object is to be. Raises ApiError."""
        numbers = [number for number, _ in asked]
        if numbers != sorted(set(numbers)):
            raise wrong("The list of parts was not in ascending order.", "InvalidPartOrder")
        for number, tag in asked:
            if number not in self.parts or self.parts[number].md5 != tag.strip('"'):
                raise wrong("One or more of the specified parts could not be found.", "InvalidPart")
        found = [self.parts[number] for number in numbers]
        if not found:
            raise wrong("You must specify at least one part.", "MalformedCompleteMultipartUploadRequest")
        if any(part.size < LEAST_PART for part in found[:-1]):
            raise wrong("Your proposed upload is smaller than the minimum allowed size.", "EntityTooSmall")
        return found


class Uploads:
    """All uploads that are under way. Survive a restart."""

    def __init__(self, bodies: Bodies, kept: Mapping[str, Any]) -> None:
        self._bodies, self._lock = bodies, threading.Lock()
        self._resumable = {data["id"]: self._resumed(data) for data in kept.get("resumable", ())}
        self._multipart = {data["id"]: _restored(data) for data in kept.get("multipart", ())}

    # Resumable

    def begin(self, place: tuple[str, str], about: Mapping[str, Any], query: Mapping[str, str]) -> Resumable:
        """A new one."""
        file = self._bodies.name()
        made = Resumable(
            secrets.token_urlsafe(48), *place, about, query, {}, self._bodies.growing(file), file
        )
        with self._lock:
            self._resumable[made.id] = made
        return made

    def resumable(self, name: str, bucket: str) -> Resumable:
        """Raises ApiError if there is none."""
        with self._lock:
            found = self._resumable.get(name)
        if found is None or found.bucket != bucket:
            raise no_upload()
        return found

    def finish(self, upload: Resumable, made: dict[str, Any]) -> None:
        """The object is there; who did not hear of it may ask again, until there are many of them."""
        with self._lock:
            upload.done = made
            done = [name for name, one in self._resumable.items() if one.done]
            for name in done[:-_REMEMBERED]:
                del self._resumable[name]

    def cancel(self, upload: Resumable) -> None:
        """Forget it, and what came of it."""
        with self._lock:
            self._resumable.pop(upload.id, None)
        self._bodies.remove(upload.file)

    # Parts

    def initiate(self, place: tuple[str, str], about: Mapping[str, Any], now: int) -> Multipart:
        """A new one."""
        made = Multipart(secrets.token_urlsafe(32), *place, about, now)
        with self._lock:
            self._multipart[made.id] = made
        return made

    def multipart(self, name: str, place: tuple[str, str]) -> Multipart:
        """Raises ApiError if there is none."""
        with self._lock:
            found = self._multipart.get(name)
        if found is None or (found.bucket, found.name) != place:
            raise no_upload()
        return found

    def multiparts(self, bucket: str) -> list[Multipart]:
        """All of a bucket."""
        with self._lock:
            found = [one for one in self._multipart.values() if one.bucket == bucket]
        return sorted(found, key=lambda one: (one.name, one.created))

    def add_part(self, upload: Multipart, number: int, part: Body) -> None:
        """In the place of another with this number. Raises ApiError if the upload is over."""
        with self._lock:
            is_open = upload.id in self._multipart
            replaced = upload.parts.get(number) if is_open else part
            if is_open:
                upload.parts[number] = part
        if replaced:
            self._bodies.remove(replaced.file)
        if not is_open:
            raise no_upload()

    def claim(self, upload: Multipart) -> None:
        """From now on nobody else can end it. Raises ApiError if somebody has."""
        with self._lock:
            if self._multipart.pop(upload.id, None) is None:
                raise no_upload()

    def give_back(self, upload: Multipart) -> None:
        """It was not ended after all."""
        with self._lock:
            self._multipart[upload.id] = upload

    def discard(self, upload: Multipart) -> None:
        """The parts of an upload that is over."""
        for part in upload.parts.values():
            self._bodies.remove(part.file)

    # State

    def dump(self) -> dict[str, Any]:
        """All of it, but for the contents."""
        with self._lock:
            return {
                "resumable": [_dumped(one) for one in self._resumable.values()],
                "multipart": [
                    {**vars(one), "parts": [[number, vars(part)] for number, part in one.parts.items()]}
                    for one in self._multipart.values()
                ],
            }

    def files(self) -> set[str]:
        """Of all contents."""
        parts = {part.file for one in self._multipart.values() for part in one.parts.values()}
        return parts | {one.file for one in self._resumable.values() if not one.done}

    def _resumed(self, data: dict[str, Any]) -> Resumable:
        return Resumable(**data, growing=self._bodies.growing(data["file"] if not data["done"] else "none"))


def _dumped(upload: Resumable) -> dict[str, Any]:
    found = {key: value for key, value in vars(upload).items() if key not in ("growing", "lock")}
    return {**found, "hashes": dict(upload.hashes)}  # which grow under another lock


def _restored(data: dict[str, Any]) -> Multipart:
    return Multipart(**{**data, "parts": {number: body_of(part) for number, part in data["parts"]}})
