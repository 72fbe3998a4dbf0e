"""The XML interface: `/BUCKET/OBJECT`, with preconditions in headers and uploads of parts."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import chain
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, Request
from stoker.emulator.storage.bodies import Body, from_file
from stoker.emulator.storage.conditions import of_headers, of_reader
from stoker.emulator.storage.errors import StorageError, wrong
from stoker.emulator.storage.gate import Gate
from stoker.emulator.storage.listing import Query, count, start_of
from stoker.emulator.storage.objects import Object, Objects
from stoker.emulator.storage.reading import about_of, download, hashes_of, headers_of
from stoker.emulator.storage.resources import moment
from stoker.emulator.storage.uploads import Multipart, Uploads

_SPACE = "http://doc.s3.amazonaws.com/2006-03-01"
_SPACE_OF_PARTS = "http://s3.amazonaws.com/doc/2006-03-01/"
_MOST_PARTS = 10_000

Place = tuple[str, str]


class XmlApi:
    """Buckets are read here, not made."""

    def __init__(self, objects: Objects, uploads: Uploads, gate: Gate) -> None:
        self._objects, self._uploads, self._gate = objects, uploads, gate

    def handle(self, request: Request) -> Reply:
        """Answer one request. Raises ApiError."""
        place = _place(request.path.removeprefix("/"))
        if not place[1]:
            return self._of_bucket(request, place[0])
        if "uploads" in request.query or "uploadId" in request.query:
            return self._of_upload(request, place)
        calls = {"GET": self._get, "HEAD": self._get, "PUT": self._put, "DELETE": self._delete}
        call = calls.get(request.method)
        if call is None:
            raise _no_method()
        return call(request, place)

    def _of_upload(self, request: Request, place: Place) -> Reply:
        calls = {"PUT": self._part, "POST": self._complete, "DELETE": self._abort, "GET": self._parts}
        call = self._initiate if "uploads" in request.query else calls.get(request.method)
        if call is None:
            raise _no_method()
        return call(request, place)

    # Buckets

    def _of_bucket(self, request: Request, bucket: str) -> Reply:
        if not bucket or request.method not in ("GET", "HEAD"):
            raise _no_method()
        self._gate.check(request, "storage.objects.list", bucket)
        if request.method == "HEAD":
            return Reply(200, b"", {"Content-Type": "application/xml; charset=UTF-8"})
        if "uploads" in request.query:
            return self._list_uploads(bucket)
        return self._page(request, bucket, count(request.query.get("max-keys", "")))

    def _page(self, request: Request, bucket: str, most: int) -> Reply:
        query, is_new = request.query, request.query.get("list-type") == "2"
        after = query.get("start-after" if is_new else "marker", "")
        token = query.get("continuation-token", "") if is_new else ""
        start = max(after + "\0" if after else "", start_of(token))
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        page, found = self._objects.page(bucket, Query(prefix, delimiter, start, most=most))
        last = max([*page.names[-1:], *page.prefixes[-1:]], default="")
        goes_on = _tag("NextContinuationToken" if is_new else "NextMarker", page.token if is_new else last)
        return _xml(
            "ListBucketResult",
            _tag("Name", bucket),
            _tag("Prefix", prefix),
            _tag("StartAfter" if is_new else "Marker", after),
            _tag("Delimiter", delimiter) if delimiter else "",
            _tag("MaxKeys", most),
            _tag("KeyCount", len(page.names) + len(page.prefixes)) if is_new else "",
            _tag("IsTruncated", str(bool(page.token)).lower()),
            goes_on if page.token else "",
            *map(_entry, found),
            *(f"<CommonPrefixes>{_tag('Prefix', one)}</CommonPrefixes>" for one in page.prefixes),
        )

    def _list_uploads(self, bucket: str) -> Reply:
        each = (
            f"<Upload>{_tag('Key', one.name)}{_tag('UploadId', one.id)}"
            f"{_tag('Initiated', moment(one.created))}</Upload>"
            for one in self._uploads.multiparts(bucket)
        )
        return _xml("ListMultipartUploadsResult", _tag("Bucket", bucket), *each)

    # Objects

    def _get(self, request: Request, place: Place) -> Reply:
        self._gate.check(request, "storage.objects.get", *place)
        return download(self._objects, place, request, of_reader(request.headers), is_xml=True)

    def _put(self, request: Request, place: Place) -> Reply:
        if "x-goog-copy-source" in request.headers:
            return self._copy(request, place)
        guard = self._gate.writing(request, *place, of_headers(request.headers))
        body = self._checked(request)
        made = self._objects.put(Object(*place, 0, 0, 0, 0, body, about_of(request)), guard)
        return Reply(200, b"", _headers(made))

    def _checked(self, request: Request) -> Body:
        """New contents, as they were meant. Raises ApiError."""
        body = self._objects.bodies.keep([request.content])
        try:
            body.check(hashes_of(request))
        except ApiError:
            self._objects.bodies.remove(body.file)
            raise
        return body

    def _copy(self, request: Request, place: Place) -> Reply:
        source = _place(request.headers["x-goog-copy-source"].removeprefix("/"))
        self._gate.check(request, "storage.objects.get", *source)
        guard = self._gate.writing(request, *place, of_headers(request.headers))
        seen = of_headers(request.headers, "x-goog-copy-source-if-")
        generation = request.headers.get("x-goog-copy-source-generation", "")
        found = self._objects.copied(*source, generation, seen.check)
        is_new = request.headers.get("x-goog-metadata-directive", "COPY").upper() == "REPLACE"
        about = about_of(request) if is_new else found.about
        made = self._objects.put(replace(found, bucket=place[0], name=place[1], about=about), guard)
        tags = _tag("LastModified", moment(made.updated)) + _tag("ETag", f'"{made.xml_tag}"')
        return _xml("CopyObjectResult", tags, headers=_headers(made))

    def _delete(self, request: Request, place: Place) -> Reply:
        self._gate.check(request, "storage.objects.delete", *place)
        conditions = of_headers(request.headers)
        self._objects.delete(*place, request.query.get("generation", ""), conditions.check)
        return Reply(204)

    # Parts

    def _initiate(self, request: Request, place: Place) -> Reply:
        if request.method != "POST":
            raise _no_method()
        self._gate.writing(request, *place, of_headers({}))
        upload = self._uploads.initiate(place, about_of(request), time.time_ns() // 1000)
        tags = _tag("Bucket", place[0]), _tag("Key", place[1]), _tag("UploadId", upload.id)
        return _xml("InitiateMultipartUploadResult", *tags)

    def _part(self, request: Request, place: Place) -> Reply:
        self._gate.check(request, "storage.objects.create", *place)
        upload = self._uploads.multipart(request.query["uploadId"], place)
        number = request.query.get("partNumber", "")
        if not number.isascii() or not number.isdigit() or not 1 <= int(number) <= _MOST_PARTS:
            raise wrong(f"Part number must be an integer between 1 and {_MOST_PARTS}, inclusive.")
        part = self._checked(request)
        self._uploads.add_part(upload, int(number), part)
        sums = ",".join(f"{name}={value}" for name, value in part.hashes.items())
        return Reply(200, b"", {"ETag": f'"{part.md5}"', "X-Goog-Hash": sums})

    def _complete(self, request: Request, place: Place) -> Reply:
        upload = self._uploads.multipart(request.query["uploadId"], place)
        guard = self._gate.writing(request, *place, of_headers(request.headers))
        chosen = upload.chosen(_asked(request.small))
        self._uploads.claim(upload)
        try:
            made = self._objects.put(self._composed(upload, chosen), guard)
        except ApiError:
            self._uploads.give_back(upload)
            raise
        self._uploads.discard(upload)
        tags = _tag("Bucket", place[0]), _tag("Key", place[1]), _tag("ETag", f'"{made.xml_tag}"')
        return _xml("CompleteMultipartUploadResult", *tags, headers=_headers(made))

    def _composed(self, upload: Multipart, chosen: list[Body]) -> Object:
        bodies = self._objects.bodies
        whole = bodies.keep(
            chain.from_iterable(from_file(bodies.open(part), 0, part.size) for part in chosen)
        )
        return Object(upload.bucket, upload.name, 0, 0, 0, 0, whole.composed(), upload.about, len(chosen))

    def _abort(self, request: Request, place: Place) -> Reply:
        self._gate.check(request, "storage.objects.create", *place)
        upload = self._uploads.multipart(request.query["uploadId"], place)
        self._uploads.claim(upload)
        self._uploads.discard(upload)
        return Reply(204)

    def _parts(self, request: Request, place: Place) -> Reply:
        self._gate.check(request, "storage.objects.create", *place)
        upload = self._uploads.multipart(request.query["uploadId"], place)
        each = (
            f"<Part>{_tag('PartNumber', number)}{_tag('ETag', chr(34) + part.md5 + chr(34))}"
            f"{_tag('Size', part.size)}</Part>"
            for number, part in sorted(upload.parts.items())
        )
        return _xml("ListPartsResult", _tag("Bucket", place[0]), _tag("Key", place[1]), *each)


def _place(path: str) -> Place:
    """Bucket and object. A slash in a name may be written as it is."""
    bucket, _, name = path.partition("/")
    try:
        return unquote(bucket, errors="strict"), unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise wrong("The name of the object is not UTF-8.", "InvalidURI") from None


def _no_method() -> StorageError:
    return StorageError(405, "methodNotAllowed", "The specified method is not allowed against this resource.")


def _asked(body: bytes) -> list[tuple[int, str]]:
    """Numbers and ETags of the parts that somebody wants."""
    try:
        root = ElementTree.fromstring(body)  # noqa: S314  (whoever sends it owns this machine)
        parts = [one for one in root.iter() if one.tag.rpartition("}")[2] == "Part"]
        return [
            _asked_part({inner.tag.rpartition("}")[2]: inner.text or "" for inner in one}) for one in parts
        ]
    except (ElementTree.ParseError, KeyError, ValueError):
        message = "The XML you provided was not well-formed or did not validate against our schema."
        raise wrong(message, "MalformedCompleteMultipartUploadRequest") from None


def _asked_part(part: dict[str, str]) -> tuple[int, str]:
    return int(part["PartNumber"]), part["ETag"]


def _headers(made: Object) -> dict[str, str]:
    """What is told of an object that was written."""
    told = headers_of(made, is_xml=True)
    kept = (
        "ETag",
        "X-Goog-Generation",
        "X-Goog-Metageneration",
        "X-Goog-Hash",
        "X-Goog-Stored-Content-Length",
    )
    return {name: told[name] for name in kept}


def _entry(found: Object) -> str:
    tags = {
        "Key": found.name,
        "Generation": found.generation,
        "MetaGeneration": found.metageneration,
        "LastModified": moment(found.updated),
        "ETag": f'"{found.xml_tag}"',
        "Size": found.body.size,
        "StorageClass": found.about.get("storageClass") or "STANDARD",
    }
    return f"<Contents>{''.join(_tag(name, value) for name, value in tags.items())}</Contents>"


def _tag(name: str, value: Any) -> str:
    return f"<{name}>{escape(str(value))}</{name}>"


def _xml(root: str, *tags: str, headers: dict[str, str] | None = None) -> Reply:
    space = _SPACE_OF_PARTS if "Part" in root or "Multipart" in root else _SPACE
    body = f"<?xml version='1.0' encoding='UTF-8'?><{root} xmlns='{space}'>{''.join(tags)}</{root}>"
    told = {"Content-Type": "application/xml; charset=UTF-8", **(headers or {})}
    return Reply(200, body.encode("utf-8", "replace"), told)
