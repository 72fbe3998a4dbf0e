"""The JSON interface where contents arrive: in one piece, with their description, or resumably."""

from __future__ import annotations

import json
import mmap
from collections.abc import Callable, Mapping
from dataclasses import replace
from email.message import Message
from typing import Any

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.storage.bodies import Body, Content
from stoker.emulator.storage.conditions import of_query
from stoker.emulator.storage.errors import StorageError, wrong
from stoker.emulator.storage.gate import Gate
from stoker.emulator.storage.objects import Object, Objects, check_name
from stoker.emulator.storage.reading import hashes_of
from stoker.emulator.storage.resources import allowed_about, merged, object_resource
from stoker.emulator.storage.uploads import Resumable, Uploads

_LONGEST_HEAD = 1 << 20


class Inserts:
    """`POST /upload/storage/v1/b/BUCKET/o`, and what follows it."""

    def __init__(self, objects: Objects, uploads: Uploads, gate: Gate, url: Callable[[], str]) -> None:
        self._objects, self._uploads, self._gate, self._url = objects, uploads, gate, url

    def handle(self, request: Request, bucket: str) -> Reply:
        """Answer one request. Raises ApiError."""
        if "upload_id" in request.query:
            return self._go_on(request, self._uploads.resumable(request.query["upload_id"], bucket))
        kind = request.query.get("uploadType", "")
        if request.method not in ("POST", "PUT") or kind not in ("media", "multipart", "resumable"):
            raise wrong("Invalid upload request: uploadType is one of media, multipart, resumable.")
        if kind == "resumable":
            return self._begin(request, bucket)
        about, data = _parts(request) if kind == "multipart" else ({}, request.content)
        if kind == "media" and (given := request.headers.get("content-type")):
            about = {"contentType": given}
        name = _name(request, about)
        guard = self._gate.writing(request, bucket, name, of_query(request.query, {}))
        body = self._objects.bodies.keep([data])
        return json_reply(self._put(request, (bucket, name), body, about, guard))

    def _put(
        self, request: Request, place: tuple[str, str], body: Body, about: Mapping[str, Any], guard: Any
    ) -> dict[str, Any]:
        try:
            body.check({**hashes_of(request), **_given_hashes(about)})
            known = _about(request.query, about)
        except ApiError:
            self._objects.bodies.remove(body.file)
            raise
        made = self._objects.put(Object(*place, 0, 0, 0, 0, body, known), guard)
        return object_resource(made, self._url())

    # Resumable

    def _begin(self, request: Request, bucket: str) -> Reply:
        about = request.json()
        name = _name(request, about)
        if given := request.headers.get("x-upload-content-type"):
            about.setdefault("contentType", given)
        self._gate.writing(request, bucket, name, of_query(request.query, {}))
        _about(request.query, about)
        upload = self._uploads.begin((bucket, name), about, dict(request.query))
        length = request.headers.get("x-upload-content-length", "")
        upload.total = int(length) if length.isdigit() else None
        place = f"{self._url()}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={upload.id}"
        return Reply(200, b"", {"Location": place, "X-GUploader-UploadID": upload.id})

    def _go_on(self, request: Request, upload: Resumable) -> Reply:
        with upload.lock:
            if request.method == "DELETE":
                self._uploads.cancel(upload)
                return Reply(499)
            if upload.done:
                return json_reply(upload.done)
            upload.hashes.update(hashes_of(request))
            if not upload.take(request.headers.get("content-range", ""), request.content):
                return _how_far(upload)
            return json_reply(self._finish(request, upload))

    def _finish(self, request: Request, upload: Resumable) -> dict[str, Any]:
        place = upload.bucket, upload.name
        body = self._objects.bodies.copied(upload.growing.body())  # what was sent too soon can be sent again
        whole = replace(request, query=upload.query)
        try:
            guard = self._gate.writing(whole, *place, of_query(upload.query, {}))
            made = self._put(whole, place, body, upload.about, guard)
        except StorageError as error:
            if error.code != 429:
                self._uploads.cancel(upload)
            raise
        self._uploads.finish(upload, made)
        self._objects.bodies.remove(upload.file)
        return made


def _how_far(upload: Resumable) -> Reply:
    have = upload.growing.size
    headers = {"X-GUploader-UploadID": upload.id, "Content-Length": "0"}
    return Reply(308, b"", {**headers, "Range": f"bytes=0-{have - 1}"} if have else headers)


def _name(request: Request, about: Mapping[str, Any]) -> str:
    name = request.query.get("name") or about.get("name")
    if not isinstance(name, str) or not name:
        raise StorageError(400, "required", "Required parameter: name")
    check_name(name)
    return name


def _about(query: Mapping[str, str], about: Mapping[str, Any]) -> dict[str, Any]:
    coding = {"contentEncoding": query["contentEncoding"]} if query.get("contentEncoding") else {}
    return merged({}, {**allowed_about(about), **coding})


def _given_hashes(about: Mapping[str, Any]) -> dict[str, str]:
    return {"md5": str(about.get("md5Hash") or ""), "crc32c": str(about.get("crc32c") or "")}


def _parts(request: Request) -> tuple[dict[str, Any], Content]:
    """What is said of the contents, and the contents, which are not copied if they are large."""
    data, mark = request.content, b"--" + boundary(request.headers.get("content-type", ""))
    first, last = data.find(mark), data.rfind(mark + b"--")
    second = data.find(mark, first + 1)
    if not 0 <= first < second < last or second - first > _LONGEST_HEAD:
        raise wrong("Malformed multipart body.")
    line = (
        b"\r\n" if data[second + len(mark) : second + len(mark) + 2] == b"\r\n" else b"\n"
    )  # some end lines without the return
    _, start = _head(data, first, second, line)
    head, begins = _head(data, second, last, line)
    about = _object(bytes(data[start : second - len(line)]))
    if "content-type" in head:
        about.setdefault("contentType", head["content-type"])
    return about, memoryview(data)[begins : last - len(line)]


def _head(data: bytes | mmap.mmap, start: int, end: int, line: bytes) -> tuple[dict[str, str], int]:
    """The headers of a part, and where what follows them begins."""
    empty = data.find(line + line, start, end)
    if not 0 <= empty <= end - 3 * len(line):
        raise wrong("Malformed multipart body.")
    lines = bytes(data[start:empty]).decode("latin-1").splitlines()[1:]
    pairs = (one.partition(":") for one in lines)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}, empty + 2 * len(line)


def _object(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text or b"{}")
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise wrong("Invalid multipart request: its first part is no JSON object.")
    return found


def boundary(content_type: str) -> bytes:
    """What lies between the parts. Raises ApiError if that is not said."""
    message = Message()
    message["content-type"] = content_type
    found = message.get_param("boundary")
    if not isinstance(found, str) or not found:
        raise wrong("Missing end boundary in multipart body.")
    return found.strip("'").encode("latin-1", "replace")  # gcloud quotes it so
