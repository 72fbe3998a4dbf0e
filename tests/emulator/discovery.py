"""A strict reader over the emulator's shoulder: are its exchanges what Google's discovery documents say?

The documents come with google-api-python-client. What they do not describe is not looked at: the XML
interface of Cloud Storage, the chunks of a resumable upload, batches.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from stoker.emulator.errors import BUG
from stoker.emulator.http import Reply, Request

DOCUMENTS = ("compute.v1", "storage.v1", "secretmanager.v1", "cloudresourcemanager.v1", "iam.v1")
_SCOPE = re.compile(r"/(?:compute/v1|(?:upload/|download/)?storage/v1|v1/projects)(?:/|$)")
_EVERYWHERE = {
    "$alt",
    "$prettyPrint",
    "$fields",
    "$key",
    "userProject",
    "upload_id",
    "upload_protocol",
    "name",
}
"""Parameters of queries that the documents leave out, but the service takes."""
_START = 1 << 20  # bytes of an upload in parts: its first part is in these
_BITS = {"int32": (-(2**31), 2**31), "uint32": (0, 2**32), "int64": (-(2**63), 2**63), "uint64": (0, 2**64)}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_FORMATS = {
    "date-time": _TIME,
    "google-datetime": _TIME,
    "google-duration": re.compile(r"-?\d+(\.\d+)?s"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
}

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Method:
    """One call of one API."""

    document: str
    details: Mapping[str, Any] = field(repr=False)
    template: str
    is_upload: bool = False

    @property
    def id(self) -> str:
        """`compute.instances.insert`."""
        return str(self.details["id"])

    @property
    def parameters(self) -> Mapping[str, Schema]:
        """Of the path and of the query."""
        found: Mapping[str, Schema] = self.details.get("parameters", {})
        return found

    def schema(self, which: str) -> str:
        """The name of what is sent (`request`) or answered (`response`); empty if nothing is."""
        return str(self.details.get(which, {}).get("$ref", ""))


@cache
def _document(name: str) -> dict[str, Any]:
    package = find_spec("googleapiclient")
    assert package is not None
    assert package.origin is not None
    place = Path(package.origin).parent / "discovery_cache" / "documents"
    found: dict[str, Any] = json.loads((place / f"{name}.json").read_text(encoding="utf-8"))
    return found


@cache
def _index() -> dict[tuple[str, int], list[tuple[re.Pattern[str], int, Method]]]:
    """By HTTP method and number of the path's parts."""
    found: dict[tuple[str, int], list[tuple[re.Pattern[str], int, Method]]] = {}
    for name in DOCUMENTS:
        for details in _methods(_document(name)):
            for method in _places(name, details):
                pattern, literal = _pattern(method.template)
                key = details["httpMethod"], method.template.count("/")
                found.setdefault(key, []).append((pattern, literal, method))
    return found


def _methods(resource: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from resource.get("methods", {}).values()
    for inner in resource.get("resources", {}).values():
        yield from _methods(inner)


def _places(name: str, details: Mapping[str, Any]) -> Iterator[Method]:
    """Where a method is called: uploads and downloads have places of their own."""
    start = _document(name)["servicePath"]
    path = details.get("flatPath") or details["path"]
    path = path if path.startswith(start) else start + path
    yield Method(name, details, f"/{path}")
    if details.get("supportsMediaDownload"):
        yield Method(name, details, f"/download/{path}")
    if details.get("supportsMediaUpload"):
        yield Method(name, details, details["mediaUpload"]["protocols"]["simple"]["path"], is_upload=True)


def _pattern(template: str) -> tuple[re.Pattern[str], int]:
    """What matches it, and how much of it is literal: the more, the better a match is."""
    pieces = re.split(r"\{\+?(\w+)\}", template)
    texts = [f"(?P<{piece}>[^/]+)" if n % 2 else re.escape(piece) for n, piece in enumerate(pieces)]
    return re.compile("".join(texts)), sum(map(len, pieces[::2]))


class Discovery:
    """Compares exchanges with the documents."""

    def method(self, request: Request) -> tuple[Method, dict[str, str]] | None:
        """Which one is called, with the path's parameters; the most literal of those that match."""
        places = _index().get((request.method, request.path.count("/")), [])
        found = [
            (literal, match, method)
            for how, literal, method in places
            if (match := how.fullmatch(request.path))
        ]
        if not found:
            return None
        _, match, method = max(found, key=lambda one: one[0])
        return method, {name: unquote(value) for name, value in match.groupdict().items()}

    def check(self, request: Request, reply: Reply) -> list[str]:
        """What is wrong with an exchange. What the emulator refused (4xx) may have been a wrong request."""
        if not reply.status or not _SCOPE.match(request.path) or _is_chunk(request):
            return []
        found = self.method(request)
        problems = list(_errors(request, reply)) if reply.status >= 400 else []
        if found is None:
            return problems if reply.status >= 400 else [*problems, "no such method is known"]
        method, parameters = found
        if not 400 <= reply.status < 500:
            problems += _parameters(method, request, parameters)
            problems += _sent(method, request)
        if reply.status < 300:
            problems += _answered(method, request, reply)
        return problems


@dataclass
class Watch:
    """Sees all exchanges of an emulator, as `Emulator(observe=watch)`, and keeps what is wrong with them."""

    problems: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)  # how often each method was called
    _discovery: Discovery = field(default_factory=Discovery)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, request: Request, reply: Reply) -> None:
        found = [
            f"{request.method} {request.path} → {reply.status}: {one}"
            for one in self._discovery.check(request, reply)
        ]
        called = self._discovery.method(request)
        with self._lock:
            self.problems += [problem for problem in found if problem not in self.problems]
            if called is not None:
                self.seen[called[0].id] = self.seen.get(called[0].id, 0) + 1


# Requests


def _is_chunk(request: Request) -> bool:
    """Of a resumable upload: the documents do not tell how they look."""
    return request.path.startswith("/upload/") and "upload_id" in request.query


def _parameters(method: Method, request: Request, path: Mapping[str, str]) -> Iterator[str]:
    known = method.parameters
    general = _document(method.document).get("parameters", {})
    for name, value in path.items():
        if name in known:
            yield from _parameter(known[name], value, f"path.{name}")
    pairs = request.pairs or tuple(request.query.items())
    for name, value in pairs:
        described = known.get(name) or general.get(name)
        if described is not None and described.get("location") == "query":
            yield from _parameter(described, value, f"query.{name}")
        elif name not in _EVERYWHERE or (name == "name" and not method.is_upload):
            yield f"query.{name}: not a parameter of {method.id}"
    for name in request.query:
        if len([one for one, _ in pairs if one == name]) > 1 and not known.get(name, {}).get("repeated"):
            yield f"query.{name}: several times"
    for name, described in known.items():
        needed = described.get("required") and described["location"] == "query"
        if needed and name not in request.query:
            yield f"query.{name}: required by {method.id}"


def _parameter(described: Schema, value: str, where: str) -> Iterator[str]:
    kind = described.get("type")
    if kind == "boolean" and value not in ("true", "false"):
        yield f"{where}: {value!r} is neither true nor false"
    elif kind == "integer" and not _is_whole(value, described):
        yield f"{where}: {value!r} is no {described.get('format', 'integer')}"
    elif kind == "string":
        yield from _text(described, value, where)


def _sent(method: Method, request: Request) -> Iterator[str]:
    name, body = method.schema("request"), _described_body(method, request)
    if body is None:
        return
    if not name or not body.strip():
        if body.strip() not in (b"", b"{}"):
            yield f"request: {method.id} takes no body"
        return
    try:
        data = json.loads(body)
    except ValueError:
        yield "request: no JSON"
        return
    yield from _Look(method.document, is_request=True, has_numbers=_has_numbers(request)).at(
        name, data, "request"
    )
    yield from _required(method, name, data)


def _described_body(method: Method, request: Request) -> bytes | None:
    """The part of the body that a schema describes; None if there is none."""
    if not method.is_upload:
        return request.body
    if request.query.get("uploadType") == "resumable":
        return request.body
    if request.query.get("uploadType") != "multipart":
        return None
    boundary = re.search(r"boundary=\"?([^\";]+)", request.headers.get("content-type", ""))
    if boundary is None:
        return b"no boundary"
    first = request.content[:_START].split(b"--" + boundary[1].strip("'").encode())[1]
    return first.partition(b"\r\n\r\n" if b"\r\n\r\n" in first else b"\n\n")[2]


def _required(method: Method, name: str, data: object) -> Iterator[str]:
    for key, described in _document(method.document)["schemas"][name].get("properties", {}).items():
        is_needed = method.id in described.get("annotations", {}).get("required", ())
        if is_needed and isinstance(data, dict) and key not in data:
            yield f"request.{key}: required by {method.id}"


def _has_numbers(request: Request) -> bool:
    """Whether enums may be told by their numbers."""
    return "enum-encoding=int" in request.query.get("$alt", "") + request.query.get("alt", "")


# Replies


def _answered(method: Method, request: Request, reply: Reply) -> Iterator[str]:
    name = method.schema("response")
    if request.query.get("alt") == "media" or request.query.get("uploadType") == "resumable":
        return
    if not name or reply.status == 204:
        if reply.body:
            yield f"reply: {method.id} answers nothing"
        return
    if not _header(reply, "content-type").startswith("application/json"):
        yield "reply: its Content-Type is not JSON"
    try:
        data = json.loads(reply.body)
    except ValueError:
        yield "reply: no JSON"
        return
    yield from _Look(method.document, is_request=False, has_numbers=_has_numbers(request)).at(
        name, data, "reply"
    )


def _errors(request: Request, reply: Reply) -> Iterator[str]:
    """`{"error": {"code": …, "message": …}}`. A download may fail in plain words."""
    if request.query.get("alt") == "media" and not _header(reply, "content-type").startswith(
        "application/json"
    ):
        return
    try:
        error = json.loads(reply.body)["error"]
        code, message = error["code"], error["message"]
    except (ValueError, KeyError, TypeError):
        yield "reply: an error without code and message"
        return
    if code != reply.status or not isinstance(message, str) or not message:
        yield f"reply: error {code} in a reply of {reply.status}, {message!r}"
    if any(one.get("reason") == BUG for one in error.get("errors", ())):
        yield f"reply: {message}"


def _header(reply: Reply, name: str) -> str:
    return next((value for key, value in reply.headers.items() if key.lower() == name), "")


# Values


@dataclass(frozen=True)
class _Look:
    """At a value, as a schema of a document describes it."""

    document: str
    is_request: bool
    has_numbers: bool

    def at(self, name: str, value: object, where: str) -> Iterator[str]:
        """By the name of a schema."""
        yield from self._value(_document(self.document)["schemas"][name], value, where)

    def _value(self, schema: Schema, value: object, where: str) -> Iterator[str]:
        if "$ref" in schema:
            yield from self.at(schema["$ref"], value, where)
        elif value is None:
            if not self.is_request:
                yield f"{where}: null"
        elif schema.get("type") == "object":
            yield from self._object(schema, value, where)
        elif schema.get("type") == "array":
            yield from self._array(schema, value, where)
        else:
            yield from self._plain(schema, value, where)

    def _object(self, schema: Schema, value: object, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no object"
            return
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            if key in known:
                yield from self._value(known[key], inner, f"{where}.{key}")
                yield from self._kind(known[key], key, inner, where)
            elif others is not None:
                yield from self._value(others, inner, f"{where}.{key}")
            else:
                yield f"{where}.{key}: not a field of {schema.get('id', 'this')}"

    @staticmethod
    def _kind(schema: Schema, key: str, value: object, where: str) -> Iterator[str]:
        if key == "kind" and "default" in schema and value != schema["default"]:
            yield f"{where}.kind: {value!r} instead of {schema['default']!r}"

    def _array(self, schema: Schema, value: object, where: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for number, inner in enumerate(value):
            yield from self._value(schema["items"], inner, f"{where}[{number}]")

    def _plain(self, schema: Schema, value: object, where: str) -> Iterator[str]:
        kind = schema.get("type")
        if kind == "boolean" and not isinstance(value, bool):
            yield f"{where}: {value!r} is no boolean"
        elif kind == "integer" and (not isinstance(value, int) or not _is_whole(value, schema)):
            yield f"{where}: {value!r} is no {schema.get('format', 'integer')}"
        elif kind == "number" and (isinstance(value, bool) or not isinstance(value, (int, float))):
            yield f"{where}: {value!r} is no number"
        elif kind == "string":
            yield from self._string(schema, value, where)

    def _string(self, schema: Schema, value: object, where: str) -> Iterator[str]:
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if is_number and self.is_request and schema.get("format") in _BITS:
            value = str(value)  # the service takes both
        if is_number and self.has_numbers and 0 <= int(str(value)) < len(schema.get("enum", ())):
            return
        if not isinstance(value, str):
            yield f"{where}: {value!r} is no text"
        elif not (self.is_request and value == ""):
            yield from _text(schema, value, where)


def _text(schema: Schema, value: str, where: str) -> Iterator[str]:
    form = schema.get("format", "")
    if "enum" in schema and value not in schema["enum"]:
        yield f"{where}: {value!r} is none of {', '.join(schema['enum'])}"
    if form in _BITS and not _is_whole(value, schema):
        yield f"{where}: {value!r} is no {form}"
    if form == "byte" and not _is_base64(value):
        yield f"{where}: {value!r} is not in base 64"
    if form in _FORMATS and not _FORMATS[form].fullmatch(value):
        yield f"{where}: {value!r} is no {form}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{where}: {value!r} does not match {schema['pattern']}"


def _is_whole(value: object, schema: Schema) -> bool:
    if isinstance(value, bool) or not re.fullmatch(r"-?\d+", str(value)):
        return False
    low, high = _BITS.get(schema.get("format", ""), _BITS["int64"])
    low, high = max(low, int(schema.get("minimum", low))), min(high - 1, int(schema.get("maximum", high - 1)))
    return low <= int(str(value)) <= high


def _is_base64(value: str) -> bool:
    try:
        base64.b64decode(value.replace("-", "+").replace("_", "/") + "=" * (-len(value) % 4), validate=True)
    except binascii.Error:
        return False
    return True
