"""Several calls of the JSON interface in one request, each answered on its own."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from http.client import responses
from urllib.parse import parse_qsl, urlsplit

from stoker.emulator.http import Reply, Request
from stoker.emulator.storage.errors import wrong
from stoker.emulator.storage.inserts import boundary

_MOST = 100


def answer(request: Request, handle: Callable[[Request], Reply]) -> Reply:
    """One reply for all. Raises ApiError for what is no batch."""
    mark = b"--" + boundary(request.headers.get("content-type", ""))
    parts = [part for part in request.small.split(mark)[1:] if not part.startswith(b"--")]
    if len(parts) > _MOST:
        raise wrong(f"The batch request should not contain more than {_MOST} calls.")
    name = f"batch_{secrets.token_hex(8)}"
    told = b"".join(b"--" + name.encode() + b"\r\n" + _answered(part, request, handle) for part in parts)
    headers = {"Content-Type": f'multipart/mixed; boundary="{name}"'}
    return Reply(200, told + b"--" + name.encode() + b"--", headers)


def _answered(part: bytes, whole: Request, handle: Callable[[Request], Reply]) -> bytes:
    head, _, inner = part.replace(b"\r\n", b"\n").strip(b"\n").partition(b"\n\n")
    reply = handle(_inner(inner, whole))
    id_ = _fields(head).get("content-id", "").strip("<>")
    lines = [
        "Content-Type: application/http",
        f"Content-ID: <response-{id_}>",
        "",
        f"HTTP/1.1 {reply.status} {responses.get(reply.status, '')}",
        *(f"{name}: {value}" for name, value in reply.headers.items()),
        f"Content-Length: {len(reply.body)}",
    ]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + reply.body + b"\r\n"


def _inner(text: bytes, whole: Request) -> Request:
    head, _, body = text.partition(b"\n\n")
    first, _, rest = head.partition(b"\n")
    words = first.decode("latin-1").split()
    if len(words) < 2:
        raise wrong("Failed to parse batch request: a call has no method and path.")
    url = urlsplit(words[1])
    pairs = tuple(parse_qsl(url.query, keep_blank_values=True))
    return replace(
        whole,
        method=words[0],
        path=url.path,
        query=dict(pairs),
        pairs=pairs,
        headers=_fields(rest),
        body=body,
    )


def _fields(text: bytes) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.decode("latin-1").split("\n") if ":" in line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}
