"""Contents and headers of a download, whole or in part."""

from __future__ import annotations

import re
from email.utils import formatdate

from stoker.emulator.errors import ApiError
from stoker.emulator.http import Reply, Request
from stoker.emulator.storage.bodies import PIECE, from_file
from stoker.emulator.storage.conditions import Conditions
from stoker.emulator.storage.errors import not_there
from stoker.emulator.storage.objects import Object, Objects

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEY = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")  # of metadata: others fit in no header
_TOLD = {  # headers of the XML interface, and what they are called in the JSON interface
    "Cache-Control": "cacheControl",
    "Content-Disposition": "contentDisposition",
    "Content-Encoding": "contentEncoding",
    "Content-Language": "contentLanguage",
    "Content-Type": "contentType",
}


def download(
    objects: Objects, place: tuple[str, str], request: Request, conditions: Conditions, is_xml: bool
) -> Reply:
    """The contents of an object, or the part of them that is asked for. Raises ApiError."""
    found, file = objects.open(*place, request.query.get("generation", ""))
    try:
        conditions.check_read(found)
        span = _span(request.headers.get("range", ""), found.body.size)
    except ApiError:
        file.close()
        raise
    start, end = span or (0, found.body.size)
    headers = {**headers_of(found, is_xml), "Content-Length": str(end - start)}
    if span:
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{found.body.size}"
    rest, status = from_file(file, start, end), 206 if span else 200
    if request.method == "HEAD":
        file.close()
        return Reply(status, b"", headers)
    if end - start <= PIECE:
        return Reply(status, b"".join(rest), headers)
    return Reply(status, b"", headers, rest)


def _span(header: str, size: int) -> tuple[int, int] | None:
    """From where to where; None for all of it, as for several ranges at once."""
    asked = _RANGE.fullmatch(header.strip())
    if asked is None or not (asked[1] or asked[2]):
        return None
    if not asked[1]:
        start, end = max(0, size - int(asked[2])), size
    else:
        start, end = int(asked[1]), min(size, int(asked[2]) + 1 if asked[2] else size)
    if start >= size or (asked[2] and asked[1] and int(asked[2]) < start):
        raise not_there(size)
    return start, end


def headers_of(found: Object, is_xml: bool) -> dict[str, str]:
    """What is told with the contents."""
    about, body = found.about, found.body
    told = {name: str(about[key]) for name, key in _TOLD.items() if about.get(key)}
    parts = {"X-Goog-Component-Count": str(found.components)} if found.components else {}
    own = {
        f"x-goog-meta-{key}": value for key, value in about.get("metadata", {}).items() if _KEY.fullmatch(key)
    }
    return {
        "Content-Type": "application/octet-stream",
        **told,
        "ETag": f'"{found.xml_tag}"' if is_xml else found.etag,
        "Last-Modified": formatdate(found.updated // 1_000_000, usegmt=True),
        "Accept-Ranges": "bytes",
        "X-Goog-Generation": str(found.generation),
        "X-Goog-Metageneration": str(found.metageneration),
        "X-Goog-Hash": ",".join(f"{name}={value}" for name, value in body.hashes.items()),
        "X-Goog-Stored-Content-Encoding": str(about.get("contentEncoding") or "identity"),
        "X-Goog-Stored-Content-Length": str(body.size),
        "X-Goog-Storage-Class": str(about.get("storageClass") or "STANDARD"),
        **parts,
        **own,
    }


def about_of(request: Request) -> dict[str, object]:
    """What the headers of the XML interface say of an object."""
    headers = request.headers
    found: dict[str, object] = {
        key: headers[name.lower()] for name, key in _TOLD.items() if headers.get(name.lower())
    }
    own = {name[12:]: value for name, value in headers.items() if name.startswith("x-goog-meta-")}
    if own:
        found["metadata"] = own
    if headers.get("x-goog-storage-class"):
        found["storageClass"] = headers["x-goog-storage-class"]
    return found


def hashes_of(request: Request) -> dict[str, str]:
    """What the sender computed: `x-goog-hash` and `Content-MD5`."""
    pairs = (one.strip().partition("=") for one in request.headers.get("x-goog-hash", "").split(","))
    found = {name: value for name, _, value in pairs if name in ("md5", "crc32c")}
    if given := request.headers.get("content-md5"):
        found["md5"] = given.strip()
    return found
