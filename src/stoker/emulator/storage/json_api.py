"""The JSON interface: buckets, their policies, and objects, but for their contents on the way in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any, BinaryIO

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.service import Surroundings
from stoker.emulator.storage.bodies import from_file
from stoker.emulator.storage.buckets import BucketsApi
from stoker.emulator.storage.conditions import of_query
from stoker.emulator.storage.errors import not_met, wrong
from stoker.emulator.storage.gate import Gate
from stoker.emulator.storage.listing import Query, count, start_of
from stoker.emulator.storage.objects import Object, Objects
from stoker.emulator.storage.reading import download
from stoker.emulator.storage.resources import allowed_about, merged, object_resource

Handler = Callable[..., Reply]
_MOST_SOURCES = 32


class JsonApi:
    """`/storage/v1/…`."""

    def __init__(self, around: Surroundings, objects: Objects, gate: Gate) -> None:
        self._around, self._objects, self._gate = around, objects, gate
        buckets = BucketsApi(around, objects, gate)
        one, to = "b/*/o/*", "b/*/o/*"
        self._calls: tuple[tuple[str, str, Handler], ...] = (
            *buckets.calls(),
            ("GET", "b/*/o", self._list),
            ("GET", one, self._get),
            ("PATCH", one, self._patch),
            ("PUT", one, self._update),
            ("DELETE", one, self._delete),
            ("POST", f"{one}/compose", self._compose),
            ("POST", f"{one}/copyTo/{to}", self._copy),
            ("POST", f"{one}/rewriteTo/{to}", self._rewrite),
            ("POST", f"{one}/moveTo/o/*", self._move),
        )

    def handle(self, request: Request, parts: list[str]) -> Reply:
        """Answer one request; `parts` follow `/storage/v1`. Raises ApiError."""
        for method, shape, call in self._calls:
            if method == request.method and (found := _matched(shape, parts)) is not None:
                return call(request, *found)
        raise ApiError(404, "notFound", "Not Found")

    # Reading

    def _list(self, request: Request, bucket: str) -> Reply:
        self._gate.check(request, "storage.objects.list", bucket)
        query = request.query
        start = query.get("startOffset", "")
        if token := query.get("pageToken"):
            start = max(start, start_of(token))
        page, found = self._objects.page(
            bucket,
            Query(
                query.get("prefix", ""),
                query.get("delimiter", ""),
                start,
                query.get("endOffset", ""),
                count(query.get("maxResults", "")),
                query.get("includeTrailingDelimiter", "").lower() == "true",
                query.get("matchGlob", ""),
            ),
        )
        told: dict[str, Any] = {"kind": "storage#objects"}
        if page.names:
            told["items"] = [self._told(one) for one in found]
        if page.prefixes:
            told["prefixes"] = page.prefixes
        if page.token:
            told["nextPageToken"] = page.token
        return json_reply(told)

    def _get(self, request: Request, bucket: str, name: str) -> Reply:
        self._gate.check(request, "storage.objects.get", bucket, name)
        conditions = of_query(request.query, request.headers)
        if request.query.get("alt") == "media":
            return download(self._objects, (bucket, name), request, conditions, is_xml=False)
        found = self._objects.find(bucket, name, request.query.get("generation", ""))
        conditions.check_read(found)
        return json_reply(self._told(found), ETag=found.etag)

    # Changing

    def _patch(self, request: Request, bucket: str, name: str) -> Reply:
        return self._changed(request, bucket, name, merged)

    def _update(self, request: Request, bucket: str, name: str) -> Reply:
        return self._changed(request, bucket, name, lambda old, new: merged({}, new))

    def _changed(self, request: Request, bucket: str, name: str, merge: Any) -> Reply:
        self._gate.check(request, "storage.objects.update", bucket, name)
        conditions = of_query(request.query, request.headers)
        given = allowed_about(request.json())

        def changed(old: Object) -> dict[str, Any]:
            made: dict[str, Any] = merge(old.about, given)
            return made

        generation = request.query.get("generation", "")
        return json_reply(
            self._told(self._objects.change((bucket, name), generation, changed, conditions.check))
        )

    def _delete(self, request: Request, bucket: str, name: str) -> Reply:
        self._gate.check(request, "storage.objects.delete", bucket, name)
        conditions = of_query(request.query, request.headers)
        self._objects.delete(bucket, name, request.query.get("generation", ""), conditions.check)
        return Reply(204)

    # Making one of others

    def _compose(self, request: Request, bucket: str, name: str) -> Reply:
        given = request.json()
        sources = given.get("sourceObjects")
        if not isinstance(sources, list) or not 0 < len(sources) <= _MOST_SOURCES:
            raise wrong(f"The number of source components is 1 to {_MOST_SOURCES}.")
        self._gate.check(request, "storage.objects.get", bucket, name)
        guard = self._gate.writing(request, bucket, name, of_query(request.query, {}))
        about = merged({}, allowed_about(given.get("destination") or {}))
        opened: list[tuple[Object, BinaryIO]] = []
        try:
            for source in sources:
                opened.append(self._source(bucket, source))
            body = self._objects.bodies.keep(
                chain.from_iterable(from_file(file, 0, found.body.size) for found, file in opened)
            )
        finally:
            for _, file in opened:
                file.close()
        parts = sum(max(1, found.components) for found, _ in opened)
        made = Object(bucket, name, 0, 0, 0, 0, body.composed(), about, parts)
        return json_reply(self._told(self._objects.put(made, guard)))

    def _source(self, bucket: str, source: Any) -> tuple[Object, BinaryIO]:
        if not isinstance(source, dict) or not isinstance(source.get("name"), str):
            raise wrong("A source object needs a name.")
        found, file = self._objects.open(bucket, source["name"], str(source.get("generation") or ""))
        wanted = (source.get("objectPreconditions") or {}).get("ifGenerationMatch")
        if wanted is not None and str(wanted) != str(found.generation):
            file.close()
            raise not_met()
        return found, file

    def _copy(self, request: Request, bucket: str, name: str, to_bucket: str, to: str) -> Reply:
        return json_reply(self._told(self._copied(request, (bucket, name), (to_bucket, to))))

    def _rewrite(self, request: Request, bucket: str, name: str, to_bucket: str, to: str) -> Reply:
        made = self._copied(request, (bucket, name), (to_bucket, to))
        size = str(made.body.size)
        told = {"totalBytesRewritten": size, "objectSize": size, "done": True, "resource": self._told(made)}
        return json_reply({"kind": "storage#rewriteResponse", **told})

    def _copied(self, request: Request, source: tuple[str, str], to: tuple[str, str]) -> Object:
        self._gate.check(request, "storage.objects.get", *source)
        guard = self._gate.writing(request, *to, of_query(request.query, {}))
        given = allowed_about(request.json())
        seen = of_query(request.query, {}, "ifSource")
        generation = request.query.get("sourceGeneration", "")
        found = self._objects.copied(*source, generation, seen.check_read)
        about = merged({}, given) if given else found.about
        return self._objects.put(replace(found, bucket=to[0], name=to[1], about=about), guard)

    def _move(self, request: Request, bucket: str, name: str, to: str) -> Reply:
        self._gate.check(request, "storage.objects.get", bucket, name)
        self._gate.check(request, "storage.objects.delete", bucket, name)
        guard = self._gate.writing(request, bucket, to, of_query(request.query, {}))
        leaving = of_query(request.query, {}, "ifSource")
        return json_reply(self._told(self._objects.move(bucket, name, to, (leaving.check, guard))))

    def _told(self, found: Object) -> dict[str, Any]:
        return object_resource(found, self._around.url())


def _matched(shape: str, parts: list[str]) -> list[str] | None:
    """What stands in the place of the stars, if the parts have this shape."""
    wanted = shape.split("/")
    if len(wanted) != len(parts) or any(
        one not in ("*", part) for one, part in zip(wanted, parts, strict=True)
    ):
        return None
    return [part for one, part in zip(wanted, parts, strict=True) if one == "*"]
