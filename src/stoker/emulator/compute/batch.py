"""Several requests in one, as the gcloud CLI sends them: each is a part of a multipart message."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator
from http.client import responses
from urllib.parse import parse_qsl, urlsplit

from stoker.emulator.errors import invalid
from stoker.emulator.http import Reply, Request


def answer(request: Request, one: Callable[[Request], Reply]) -> Reply:
    """All replies in one. `one` answers a single request, and raises nothing."""
    boundary = f"batch_{secrets.token_hex(8)}"
    parts = []
    for name, inner in _requests(request):
        parts.append(f"--{boundary}\r\n".encode() + _part(name, one(inner)))
    body = b"".join(parts) + f"--{boundary}--\r\n".encode()
    return Reply(200, body, {"Content-Type": f"multipart/mixed; boundary={boundary}"})


def _part(name: str, reply: Reply) -> bytes:
    head = [
        "Content-Type: application/http",
        f"Content-ID: <response-{name.strip('<>')}>",
        "",
        f"HTTP/1.1 {reply.status} {responses.get(reply.status, '')}",
        *(f"{key}: {value}" for key, value in reply.headers.items()),
        f"Content-Length: {len(reply.body)}",
        "",
        "",
    ]
    return "\r\n".join(head).encode() + reply.body + b"\r\n"


def _requests(request: Request) -> Iterator[tuple[str, Request]]:
    match = re.search(r'boundary="?([^";]+)"?', request.headers.get("content-type", ""))
    if match is None:
        raise invalid("Failed to parse batch request, error: no boundary.")
    for part in request.body.split(b"--" + match[1].encode())[1:]:
        if part.startswith(b"--"):
            return
        outer, _, inner = _split(part.lstrip(b"\r\n"))
        yield _headers(outer).get("content-id", ""), _request(inner, request)


def _split(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Headers, what divides them from the rest, the rest; whatever the ends of lines are."""
    match = re.search(rb"\r?\n\r?\n", data)
    if match is None:
        return data, b"", b""
    return data[: match.start()], match.group(), data[match.end() :]


def _headers(data: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in data.decode("latin-1").splitlines() if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


def _request(data: bytes, around: Request) -> Request:
    head, _, body = _split(data)
    first, _, rest = head.partition(b"\n")
    words = first.decode("latin-1").split()
    if len(words) < 2:
        raise invalid("Failed to parse batch request, error: a part is no request.")
    url = urlsplit(words[1])
    query = dict(parse_qsl(url.query, keep_blank_values=True))
    headers = {**around.headers, **_headers(rest)}
    return Request(words[0], url.path, query, headers, body.rstrip(b"\r\n"), around.extra)
