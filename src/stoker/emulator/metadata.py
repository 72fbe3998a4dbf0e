"""The metadata server of one VM: what it is, what it was told, its tokens, and whether it is being preempted.

A tree of directories and values, as Google has it. Who looks must send `Metadata-Flavor: Google`, so that no
web page can make a program on the VM fetch a token for it.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from stoker.emulator.http import Reply, Request

Tree = Mapping[str, Any]
Look = Callable[[], Tree]
MakeToken = Callable[[str, Sequence[str]], Mapping[str, Any]]
SetGuestAttribute = Callable[[str, str | None], None]

_LONGEST = 3600.0  # seconds to wait for a change, if nobody says how long
_LARGEST = 256 * 1024  # bytes of a guest attribute
_OWN_NAMES = ("attributes", "guest-attributes", "service-accounts")  # directories whose names are the user's
_LINES = ("scopes", "aliases")  # lists that are told line by line
_EVERY_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_ABOVE = {"/": "0.1/\ncomputeMetadata/\n", "/computeMetadata/": "v1/\n", "/computeMetadata": "v1/\n"}
_TOP = "/computeMetadata/v1"


class MetadataServer:
    """Answers one VM. The data belong to whoever gives these three; none of them is called with a lock held.

    `look` gives the whole tree as it is now. `token` makes one for an account and scopes.
    `set_guest_attribute` gets `namespace/key` and a value, or None to remove it.
    """

    def __init__(self, look: Look, token: MakeToken, set_guest_attribute: SetGuestAttribute) -> None:
        self._look, self._token, self._set = look, token, set_guest_attribute
        self._condition = threading.Condition()
        self._version = 0
        self._boots = 0

    def changed(self) -> None:
        """To be called after each change of the tree: who waits for one looks again."""
        with self._condition:
            self._version += 1
            self._condition.notify_all()

    def disconnect(self) -> None:
        """To be called when the VM has lost its power: nobody waits any more for a change."""
        with self._condition:
            self._boots += 1
            self._condition.notify_all()

    def app(self, request: Request) -> Reply:
        """Answer one request."""
        if request.path in _ABOVE:
            return _reply(200, _ABOVE[request.path])
        if "x-forwarded-for" in request.headers:
            return _reply(403, "Requests with X-Forwarded-For are refused.\n")
        if request.headers.get("metadata-flavor", "").lower() != "google":
            return _reply(403, "Missing Metadata-Flavor:Google header.\n")
        if request.path != _TOP and not request.path.startswith(f"{_TOP}/"):
            return _not_found(request)
        parts = [part for part in request.parts[2:] if part]
        if request.method in ("PUT", "DELETE"):
            return self._write(request, parts)
        if request.method not in ("GET", "HEAD"):
            return _reply(405, "Method not allowed.\n")
        return self._read(request, parts)

    # Reading

    def _read(self, request: Request, parts: Sequence[str]) -> Reply:
        if parts[:2] == ["instance", "service-accounts"] and parts[3:] == ["token"]:
            return self._give_token(request, parts[2])
        refused = self._refuse_guest_attributes(parts)
        if refused is not None:
            return refused
        waits = request.query.get("wait_for_change", "").lower() == "true"
        found, version = self._find(parts)
        if found is None:
            return _not_found(request)
        if _is_directory(found) and not request.path.endswith("/"):
            return _moved(request)
        if waits:
            found = self._wait(request, parts, found, version)
        if found is None:  # it was there when we began to wait
            return _not_found(request)
        return _tell(request, parts, found)

    def _find(self, parts: Sequence[str]) -> tuple[Any, int]:
        """What lies there now, or None; and how many changes there had been before."""
        version = self._version
        here: Any = self._look()
        for part in parts:
            here = _step(here, part)
        return here, version

    def _wait(self, request: Request, parts: Sequence[str], found: Any, version: int) -> Any:
        """What lies there after the next change, or when time is up."""
        last = request.query.get("last_etag") or _etag(found)
        until, boots = time.monotonic() + _seconds(request.query.get("timeout_sec")), self._boots
        while found is not None and _etag(found) == last and self._is_newer(version, boots, until):
            found, version = self._find(parts)
        return found

    def _is_newer(self, version: int, boots: int, until: float) -> bool:
        """Waits for a change. False if time is up, or the VM has lost its power."""
        with self._condition:
            left = max(until - time.monotonic(), 0.0)
            self._condition.wait_for(lambda: (self._version, self._boots) != (version, boots), left)
            return self._boots == boots and self._version != version

    # Accounts

    def _give_token(self, request: Request, name: str) -> Reply:
        account, _ = self._find(["instance", "service-accounts", name])
        if account is None:
            return _not_found(request)
        has = list(account.get("scopes", ()))
        asked = [scope for scope in request.query.get("scopes", "").split(",") if scope]
        scopes = [scope for scope in asked if scope in has or _EVERY_SCOPE in has] or has
        return _reply(200, json.dumps(self._token(account["email"], scopes)), "application/json")

    # Guest attributes

    def _write(self, request: Request, parts: Sequence[str]) -> Reply:
        if parts[:2] != ["instance", "guest-attributes"] or len(parts) != 4:
            return _reply(405, "Method not allowed.\n")
        refused = self._refuse_guest_attributes(parts)
        if refused is not None:
            return refused
        if len(request.content) > _LARGEST:
            return _reply(400, "The value is too large.\n")
        value = request.body.decode(errors="replace") if request.method == "PUT" else None
        self._set("/".join(parts[2:]), value)
        self.changed()
        return _reply(200, "")

    def _refuse_guest_attributes(self, parts: Sequence[str]) -> Reply | None:
        if parts[:2] != ["instance", "guest-attributes"]:
            return None
        tree = self._look()
        for level in ("instance", "project"):
            value = tree.get(level, {}).get("attributes", {}).get("enable-guest-attributes")
            if value is not None:
                break
        if str(value).upper() == "TRUE":
            return None
        return _reply(403, "Guest attributes endpoint access is disabled.\n")


def _step(here: Any, part: str) -> Any:
    if isinstance(here, Mapping):
        return here.get(part)
    if _is_directory(here) and part.isdigit() and int(part) < len(here):
        return here[int(part)]
    return None


def _is_directory(found: Any) -> bool:
    """Lists of objects are directories of numbers."""
    if isinstance(found, Mapping):
        return True
    return isinstance(found, list | tuple) and all(isinstance(one, Mapping) for one in found) and bool(found)


def _entries(found: Any) -> Iterable[tuple[str, Any]]:
    if isinstance(found, Mapping):
        return sorted(found.items())
    return ((str(number), one) for number, one in enumerate(found))


def _etag(found: Any) -> str:
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]


def _seconds(word: str | None) -> float:
    return min(float(word), _LONGEST) if word and word.isascii() and word.isdigit() else _LONGEST


# How it is told


def _tell(request: Request, parts: Sequence[str], found: Any) -> Reply:
    is_recursive = request.query.get("recursive", "").lower() == "true" and _is_directory(found)
    form = request.query.get("alt", "json" if is_recursive else "text")
    keeps_names = parts[-1:] != [] and parts[-1] in _OWN_NAMES
    if form == "json":
        data = _camel(found, keeps_names) if is_recursive or not _is_directory(found) else _names(found)
        return _reply(200, json.dumps(data), "application/json", _etag(found))
    if is_recursive:
        return _reply(200, "".join(f"{name} {value}\n" for name, value in _flat(found)), etag=_etag(found))
    if _is_directory(found):
        account = parts[:2] == ["instance", "service-accounts"] and len(parts) == 3
        names = sorted([*_names(found), "token"]) if account else _names(found)
        return _reply(200, "".join(f"{name}\n" for name in names), etag=_etag(found))
    return _reply(200, _text(found, parts[-1] if parts else ""), etag=_etag(found))


def _names(found: Any) -> list[str]:
    return [f"{name}/" if _is_directory(one) else name for name, one in _entries(found)]


def _text(value: Any, name: str) -> str:
    if isinstance(value, list | tuple):
        return "".join(f"{one}\n" for one in value) if name in _LINES else json.dumps(value)
    if isinstance(value, bool):
        return str(value).upper()
    return str(value)


def _flat(found: Any, before: str = "") -> Iterable[tuple[str, str]]:
    for name, one in _entries(found):
        if _is_directory(one):
            yield from _flat(one, f"{before}{name}/")
        else:
            yield f"{before}{name}", _text(one, name)


def _camel(found: Any, keeps_names: bool) -> Any:
    """`maintenance-event` is `maintenanceEvent` there; but names that the user chose stay."""
    if isinstance(found, list | tuple):
        return [_camel(one, False) for one in found]
    if not isinstance(found, Mapping):
        return found
    return {
        name if keeps_names else _camel_name(name): _camel(one, name in _OWN_NAMES and not keeps_names)
        for name, one in found.items()
    }


def _camel_name(name: str) -> str:
    first, *rest = name.split("-")
    return first + "".join(word.capitalize() for word in rest)


def _reply(status: int, text: str, kind: str = "application/text", etag: str = "") -> Reply:
    headers = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM", "Content-Type": kind}
    return Reply(status, text.encode(), headers | ({"ETag": etag} if etag else {}))


def _not_found(request: Request) -> Reply:
    return _reply(404, f"The requested URL {request.path} was not found on this server.\n")


def _moved(request: Request) -> Reply:
    query = f"?{urlencode(dict(request.query))}" if request.query else ""
    where = f"http://{request.headers.get('host', 'metadata.google.internal')}{request.path}/{query}"
    reply = _reply(301, f"{where}\n")
    return Reply(reply.status, reply.body, {**reply.headers, "Location": where})
