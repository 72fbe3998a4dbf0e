"""What is there: buckets, objects and their generations. Nothing of HTTP, and nothing of who may do what."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from stoker.emulator.errors import ApiError
from stoker.emulator.storage.bodies import Bodies, Body, body_of
from stoker.emulator.storage.conditions import Conditions
from stoker.emulator.storage.errors import conflict, no_bucket, no_object, not_met, wrong
from stoker.emulator.storage.listing import Page, Query, page
from stoker.emulator.storage.rate import WriteRate

_BUCKET = re.compile(r"[a-z0-9][-_.a-z0-9]{1,220}[a-z0-9]")
_RESERVED = ("batch", "compute", "download", "emulator", "resumable", "storage", "upload", "v1")

About = Mapping[str, Any]
"""What those who write an object say of it, as the JSON interface names it: `contentType`, `metadata` …"""


@dataclass(frozen=True)
class Object:
    """One generation of an object."""

    bucket: str
    name: str
    generation: int
    metageneration: int
    created: int  # microseconds since 1970
    updated: int
    body: Body
    about: About
    components: int = 0  # of how many it was composed; 0: of none

    @property
    def etag(self) -> str:
        """In the JSON interface: both generations, as a protocol buffer has them."""
        numbers = b"\x08" + _varint(self.generation) + b"\x10" + _varint(self.metageneration)
        return base64.b64encode(numbers).decode()

    @property
    def tags(self) -> tuple[str, ...]:
        """In either interface."""
        return self.etag, self.xml_tag

    @property
    def xml_tag(self) -> str:
        """In the XML interface: the MD5 of the contents, where there is one. Without the quotes."""
        return self.body.md5 or f"-{self.etag}"


@dataclass
class Bucket:
    """A bucket. Whoever reads or changes it holds the lock of all."""

    name: str
    fields: dict[str, Any]  # as the JSON interface names them
    created: int
    updated: int
    generation: int
    metageneration: int = 1
    policy: dict[str, Any] = field(default_factory=dict)
    objects: dict[str, Object] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)  # in order

    @property
    def tags(self) -> tuple[str, ...]:
        """Its ETag."""
        return (base64.b64encode(b"\x08" + _varint(self.metageneration)).decode(),)

    @property
    def policy_tag(self) -> str:
        """The ETag of its policy."""
        digest = hashlib.sha256(repr(sorted(self.policy.items())).encode()).digest()
        return base64.b64encode(digest[:6]).decode()

    def put(self, made: Object) -> None:
        """In the place of whatever has the name."""
        if made.name not in self.objects:
            insort(self.names, made.name)
        self.objects[made.name] = made

    def drop(self, name: str) -> None:
        """No more."""
        del self.objects[name]
        del self.names[bisect_left(self.names, name)]


Guard = Callable[[Object | None], None]
"""Judges what is there before it is changed, with nobody in between; raises ApiError."""


class Objects:
    """All buckets. Every change is whole: others see what was before, or what is after."""

    def __init__(self, bodies: Bodies, rate: WriteRate, kept: Mapping[str, Any]) -> None:
        self.bodies, self.rate = bodies, rate
        self._lock = threading.RLock()
        self._last = int(kept.get("last", 0))
        self._buckets = {data["name"]: self._restored(data) for data in kept.get("buckets", ())}

    # Buckets

    @contextmanager
    def bucket(self, name: str) -> Iterator[Bucket]:
        """A bucket, with nobody else at it. Raises ApiError if there is none."""
        with self._lock:
            found = self._buckets.get(name)
            if found is None:
                raise no_bucket()
            yield found

    def policy(self, name: str) -> dict[str, Any]:
        """Of a bucket. Raises ApiError if there is none."""
        with self.bucket(name) as bucket:
            return bucket.policy

    def create_bucket(self, name: str, fields: dict[str, Any], policy: dict[str, Any]) -> Bucket:
        """A new one. Raises ApiError if it exists."""
        if not _BUCKET.fullmatch(name):
            raise wrong(f"Invalid bucket name: '{name}'", "InvalidBucketName")
        if name in _RESERVED:
            message = f"The bucket name '{name}' is taken: here, its paths belong to something else."
            raise wrong(message, "InvalidBucketName")
        with self._lock:
            if name in self._buckets:
                message = "Your previous request to create the named bucket succeeded and you already own it."
                raise conflict(message, "BucketAlreadyOwnedByYou")
            now = self._next()
            self._buckets[name] = Bucket(name, fields, now, now, now, policy=policy)
            return self._buckets[name]

    def change_bucket(self, name: str, fields: dict[str, Any], conditions: Conditions) -> Bucket:
        """What is told of it."""
        with self.bucket(name) as bucket:
            conditions.check(bucket)
            bucket.fields, bucket.updated = fields, self._next()
            bucket.metageneration += 1
            return bucket

    def change_policy(self, name: str, policy: dict[str, Any], tag: str) -> Bucket:
        """Who may do what; raises ApiError if it was changed since somebody saw it with this tag."""
        with self.bucket(name) as bucket:
            if tag not in ("", bucket.policy_tag):
                raise not_met()
            bucket.policy, bucket.updated = policy, self._next()
            bucket.metageneration += 1
            return bucket

    def delete_bucket(self, name: str, conditions: Conditions) -> None:
        """Raises ApiError unless it is empty."""
        with self.bucket(name) as bucket:
            conditions.check(bucket)
            if bucket.objects:
                raise conflict("The bucket you tried to delete is not empty.", "BucketNotEmpty")
            del self._buckets[name]

    def buckets(self) -> list[Bucket]:
        """All, by name."""
        with self._lock:
            return [self._buckets[name] for name in sorted(self._buckets)]

    # Objects

    def find(self, bucket: str, name: str, generation: str = "") -> Object:
        """Raises ApiError if there is none, or not this generation."""
        with self.bucket(bucket) as within:
            found = within.objects.get(name)
            if found is None or (generation and generation != str(found.generation)):
                raise no_object(bucket, name)
            return found

    def open(self, bucket: str, name: str, generation: str = "") -> tuple[Object, BinaryIO]:
        """An object and its contents, which go together."""
        with self._lock:
            found = self.find(bucket, name, generation)
            return found, self.bodies.open(found.body)

    def copied(self, bucket: str, name: str, generation: str, check: Callable[[Object], None]) -> Object:
        """An object with contents of its own, for a new one. Raises ApiError."""
        with self._lock:
            found = self.find(bucket, name, generation)
            check(found)
            return replace(found, body=self.bodies.copied(found.body))

    def put(self, made: Object, guard: Guard) -> Object:
        """A new generation, whatever `made` has. If that fails, its contents are gone. Raises ApiError."""
        try:
            with self.bucket(made.bucket) as bucket:
                found = self._guarded(bucket, made.name, guard)
                now = self._next()
                new = replace(made, generation=now, metageneration=1, created=now, updated=now)
                bucket.put(new)
        except ApiError:
            self.bodies.remove(made.body.file)
            raise
        if found:
            self.bodies.remove(found.body.file)
        return new

    def check(self, bucket: str, name: str, guard: Guard) -> None:
        """As `put` would: so that nobody sends or copies for nothing."""
        check_name(name)
        with self.bucket(bucket) as within:
            found = within.objects.get(name)
            try:
                guard(found)
            except ApiError:
                self.rate.lost(bucket, name)
                raise

    def change(
        self, place: tuple[str, str], generation: str, changed: Callable[[Object], About], guard: Guard
    ) -> Object:
        """What is told of an object."""
        with self.bucket(place[0]) as bucket:
            found = self.find(*place, generation)
            self._guarded(bucket, found.name, guard)
            about, number = changed(found), found.metageneration + 1
            new = replace(found, metageneration=number, updated=self._next(), about=about)
            bucket.put(new)
            return new

    def delete(self, bucket: str, name: str, generation: str, guard: Guard) -> None:
        """Raises ApiError if there is none."""
        with self.bucket(bucket) as within:
            found = self.find(bucket, name, generation)
            self._guarded(within, name, guard)
            within.drop(name)
        self.bodies.remove(found.body.file)

    def move(self, bucket: str, source: str, name: str, guards: tuple[Guard, Guard]) -> Object:
        """Another name for an object, within a bucket: nobody sees both, or none."""
        check_name(name)
        with self.bucket(bucket) as within:
            found = self.find(bucket, source)
            self._guarded(within, source, guards[0])
            replaced = self._guarded(within, name, guards[1])
            now = self._next()
            new = replace(found, name=name, generation=now, metageneration=1, created=now, updated=now)
            within.drop(source)
            within.put(new)
        if replaced and source != name:
            self.bodies.remove(replaced.body.file)
        return new

    def page(self, bucket: str, query: Query) -> tuple[Page, list[Object]]:
        """Of a listing."""
        with self.bucket(bucket) as within:
            found = page(within.names, query)
            return found, [within.objects[name] for name in found.names]

    def _guarded(self, bucket: Bucket, name: str, guard: Guard) -> Object | None:
        found = bucket.objects.get(name)
        try:
            guard(found)
        except ApiError:
            self.rate.lost(bucket.name, name)
            raise
        self.rate.spend(bucket.name, name)
        return found

    def _next(self) -> int:
        """A number for a generation: the time in microseconds, but never the same or less."""
        with self._lock:
            self._last = max(self._last + 1, time.time_ns() // 1000)
            return self._last

    # State

    def dump(self) -> dict[str, Any]:
        """All of it, but for the contents."""
        with self._lock:
            return {"last": self._last, "buckets": [_dumped(bucket) for bucket in self._buckets.values()]}

    def files(self) -> set[str]:
        """Of all contents."""
        with self._lock:
            return {one.body.file for bucket in self._buckets.values() for one in bucket.objects.values()}

    def _restored(self, data: dict[str, Any]) -> Bucket:
        objects = [Object(**{**one, "body": body_of(one["body"])}) for one in data["objects"]]
        found = {one.name: one for one in objects if self.bodies.has(one.body.file)}
        return Bucket(**{**data, "objects": found, "names": sorted(found)})


def check_name(name: str) -> None:
    """Raise ApiError for what cannot be the name of an object."""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:  # half of a pair, from JSON
        size = 0
    if not 0 < size <= 1024 or name in (".", "..") or set(name) & {"\r", "\n"}:
        raise wrong(f"Invalid object name: {name!r}", "InvalidObjectName")


def _dumped(bucket: Bucket) -> dict[str, Any]:
    rest = {key: value for key, value in vars(bucket).items() if key not in ("objects", "names")}
    objects = [{**vars(one), "body": vars(one.body)} for one in bucket.objects.values()]
    return {**rest, "objects": objects}


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
