"""Secret Manager v1 by REST; with it, whatever else has its place below `/v1/projects`."""

from __future__ import annotations

import base64
import binascii
import copy
import re
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from stoker.emulator.errors import ApiError, invalid
from stoker.emulator.http import Reply, Request, json_reply
from stoker.emulator.policies import replaced, tested, told
from stoker.emulator.projects import Projects
from stoker.emulator.service import Kept, Surroundings, caller_of
from stoker.emulator.storage.crc32c import crc32c

LARGEST = 65536
"""Bytes of one payload."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,255}")
_CHANGEABLE = (
    "labels",
    "annotations",
    "versionAliases",
    "topics",
    "expireTime",
    "ttl",
    "rotation",
    "versionDestroyTtl",
)
_GIVEN = (*_CHANGEABLE, "replication", "name", "etag", "createTime", "secretType", "tags", "policyMember")
_PAGE = 25_000


@dataclass
class _Secret:
    resource: dict[str, Any]  # as the API tells it
    versions: dict[str, dict[str, Any]] = field(default_factory=dict)  # by number: the newest is the last
    payloads: dict[str, str] = field(default_factory=dict, repr=False)  # by number, in base 64
    policy: dict[str, Any] = field(default_factory=dict)


class Secrets:
    """All secrets of the project. Payloads are in its state alone, never in a message."""

    def __init__(self, around: Surroundings, kept: Kept) -> None:
        self._around = around
        self._lock = threading.RLock()
        self._secrets = {name: _Secret(**one) for name, one in kept.get("secrets", {}).items()}
        self.projects = Projects(around, kept.get("accounts", {}))
        self._calls: Mapping[tuple[str, int, str], tuple[str, _Call]] = {
            ("GET", 2, ""): ("secrets.list", self._list),
            ("POST", 2, ""): ("secrets.create", self._create),
            ("GET", 3, ""): ("secrets.get", self._get),
            ("PATCH", 3, ""): ("secrets.update", self._update),
            ("DELETE", 3, ""): ("secrets.delete", self._delete),
            ("POST", 3, "addVersion"): ("versions.add", self._add),
            ("GET", 3, "getIamPolicy"): ("secrets.getIamPolicy", self._policy),
            ("POST", 3, "setIamPolicy"): ("secrets.setIamPolicy", self._set_policy),
            ("POST", 3, "testIamPermissions"): ("", self._test),
            ("GET", 4, ""): ("versions.list", self._versions),
            ("GET", 5, ""): ("versions.get", self._version),
            ("GET", 5, "access"): ("versions.access", self._access),
            ("POST", 5, "enable"): ("versions.enable", self._enable),
            ("POST", 5, "disable"): ("versions.disable", self._disable),
            ("POST", 5, "destroy"): ("versions.destroy", self._destroy),
        }

    def handle(self, request: Request) -> Reply:
        """Answer one request."""
        try:
            return json_reply(self._answer(request))
        except ApiError as error:
            return json_reply(error.new_body(), error.code)

    def dump(self) -> dict[str, Any]:
        """Secrets with their payloads, and service accounts."""
        with self._lock:
            secrets = {name: asdict(one) for name, one in self._secrets.items()}
        return {"secrets": secrets, "accounts": self.projects.dump()}

    def close(self) -> None:
        """Nothing runs."""

    def _answer(self, request: Request) -> dict[str, Any]:
        *parts, last = request.parts[2:] or [""]
        last, _, verb = last.partition(":")
        where = [*parts, last]
        if where[0] not in (self._around.project, self._around.identity.number, "-"):
            raise ApiError(403, "forbidden", f"Permission denied on resource project {where[0]}.")
        found = self.projects.answer(request, where, verb)
        return self._of_secrets(request, where, verb) if found is None else found

    def _of_secrets(self, request: Request, where: list[str], verb: str) -> dict[str, Any]:
        found = self._calls.get((request.method, len(where), verb))
        if found is None or where[1] != "secrets" or where[3:4] not in ([], ["versions"]):
            raise ApiError(404, "notFound", "Method not found.")
        permission, call = found
        with self._lock:
            known = self._secrets.get(where[2]) if len(where) > 2 else None
            what, policy = f"projects/{'/'.join(where)}", known.policy if known else {}
            if permission:
                identity = self._around.identity
                identity.require(caller_of(request), f"secretmanager.{permission}", what, policy)
            reply = call(request, where)
            if request.method != "GET":
                self._around.changed()
            return copy.deepcopy(reply)

    # Secrets

    def _list(self, request: Request, where: list[str]) -> dict[str, Any]:
        chosen = _filter(request.query.get("filter", ""))
        found = [one.resource for one in self._secrets.values() if chosen(one.resource)]
        return _page(request, "secrets", found[::-1])

    def _create(self, request: Request, where: list[str]) -> dict[str, Any]:
        name, body = request.query.get("secretId", ""), _checked(request.json())
        if not _NAME.fullmatch(name):
            raise invalid(f"SecretId [{name}] must match [A-Za-z0-9_-] and have 1 to 255 letters.")
        if not isinstance(body.get("replication"), dict) or not body["replication"]:
            raise invalid("Secret.replication must be provided.")
        path = self._path(name)
        if name in self._secrets:
            raise ApiError(409, "alreadyExists", f"Secret [{path}] already exists.")
        given = {key: body[key] for key in (*_CHANGEABLE, "replication") if key in body}
        made = {"name": path, **given, "createTime": _now(), "etag": _etag()}
        self._secrets[name] = _Secret(made)
        return made

    def _get(self, request: Request, where: list[str]) -> dict[str, Any]:
        return self._found(where).resource

    def _update(self, request: Request, where: list[str]) -> dict[str, Any]:
        resource, body = self._found(where).resource, _checked(request.json())
        _match(resource, body.get("etag"))
        names = [_camel(name) for name in request.query.get("updateMask", "").split(",") if name]
        if not names:
            raise invalid("Field [update_mask] is required.")
        for name in names:
            if name.partition(".")[0] not in _CHANGEABLE:
                raise invalid(f"Field [{name}] cannot be updated.")
        for name in {name.partition(".")[0] for name in names}:
            resource.pop(name, None)
            resource |= {name: body[name]} if body.get(name) else {}
        resource["etag"] = _etag()
        return resource

    def _delete(self, request: Request, where: list[str]) -> dict[str, Any]:
        _match(self._found(where).resource, request.query.get("etag"))
        del self._secrets[where[2]]
        return {}

    def _policy(self, request: Request, where: list[str]) -> dict[str, Any]:
        return told(self._found(where).policy)

    def _set_policy(self, request: Request, where: list[str]) -> dict[str, Any]:
        found = self._found(where)
        found.policy = replaced(found.policy, request.json())
        return told(found.policy)

    def _test(self, request: Request, where: list[str]) -> dict[str, Any]:
        found = self._found(where)
        return tested(self._around.identity, caller_of(request), request.json(), found.policy)

    # Versions

    def _add(self, request: Request, where: list[str]) -> dict[str, Any]:
        found = self._found(where)
        data, is_checked = _payload(request.json())
        number = str(len(found.versions) + 1)
        name = f"{self._path(where[2])}/versions/{number}"
        made: dict[str, Any] = {"name": name, "createTime": _now(), "state": "ENABLED"}
        made |= {"replicationStatus": {kind: {} for kind in found.resource["replication"]}, "etag": _etag()}
        made |= {"clientSpecifiedPayloadChecksum": True} if is_checked else {}
        found.versions[number] = made
        found.payloads[number] = base64.b64encode(data).decode()
        return made

    def _versions(self, request: Request, where: list[str]) -> dict[str, Any]:
        chosen = _filter(request.query.get("filter", ""))
        found = [one for one in self._found(where).versions.values() if chosen(one)]
        return _page(request, "versions", found[::-1])

    def _version(self, request: Request, where: list[str]) -> dict[str, Any]:
        return self._found_version(where)

    def _access(self, request: Request, where: list[str]) -> dict[str, Any]:
        version = self._found_version(where)
        if version["state"] != "ENABLED":
            message = f"Secret Version [{version['name']}] is in {version['state']} state."
            raise ApiError(400, "failedPrecondition", message)
        data = self._found(where).payloads[version["name"].rpartition("/")[2]]
        checksum = str(crc32c(base64.b64decode(data)))
        return {"name": version["name"], "payload": {"data": data, "dataCrc32c": checksum}}

    def _enable(self, request: Request, where: list[str]) -> dict[str, Any]:
        return self._become("ENABLED", request, where)

    def _disable(self, request: Request, where: list[str]) -> dict[str, Any]:
        return self._become("DISABLED", request, where)

    def _destroy(self, request: Request, where: list[str]) -> dict[str, Any]:
        version = self._become("DESTROYED", request, where)
        version["destroyTime"] = _now()
        self._found(where).payloads.pop(version["name"].rpartition("/")[2], None)
        return version

    def _become(self, state: str, request: Request, where: list[str]) -> dict[str, Any]:
        version = self._found_version(where)
        _match(version, request.json().get("etag"))
        if version["state"] == "DESTROYED":
            message = f"Secret Version [{version['name']}] is in DESTROYED state."
            raise ApiError(400, "failedPrecondition", message)
        version |= {"state": state, "etag": _etag()}
        return version

    # What is where

    def _path(self, name: str) -> str:
        return f"projects/{self._around.identity.number}/secrets/{name}"

    def _found(self, where: list[str]) -> _Secret:
        found = self._secrets.get(where[2])
        if found is None:
            raise ApiError(404, "notFound", f"Secret [{self._path(where[2])}] not found.")
        return found

    def _found_version(self, where: list[str]) -> dict[str, Any]:
        secret, number = self._found(where), where[4]
        if number == "latest":
            number = next(reversed(secret.versions), "")
            if not number:
                message = f"Secret [{self._path(where[2])}] not found or has no versions."
                raise ApiError(404, "notFound", message)
        number = str(secret.resource.get("versionAliases", {}).get(number, number))
        if number not in secret.versions:
            message = f"Secret Version [{self._path(where[2])}/versions/{where[4]}] not found."
            raise ApiError(404, "notFound", message)
        return secret.versions[number]


_Call = Callable[[Request, list[str]], dict[str, Any]]


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    for name in body:
        if name not in _GIVEN:
            message = (
                f"Invalid JSON payload received. Unknown name \"{name}\" at 'secret': Cannot find field."
            )
            raise invalid(message)
    for name in ("labels", "annotations"):
        given = body.get(name, {})
        if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
            raise invalid(f"Invalid value at 'secret.{name}': names and texts are expected.")
    return body


def _payload(body: dict[str, Any]) -> tuple[bytes, bool]:
    """The bytes, and whether they came with a checksum."""
    payload = body.get("payload")
    if not isinstance(payload, dict):
        raise invalid("Field [payload] is required.")
    try:
        data = base64.b64decode(payload.get("data", ""), validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise invalid("Invalid value at 'payload.data' (TYPE_BYTES), Base64 decoding failed.") from None
    if not 0 < len(data) <= LARGEST:
        raise invalid(f"Secret Payload must have 1 to {LARGEST} bytes.")
    if str(payload.get("dataCrc32c", crc32c(data))) != str(crc32c(data)):
        raise invalid(
            "The checksum in field [payload.data_crc32c] did not match the data in field [payload.data]."
        )
    return data, "dataCrc32c" in payload


def _match(resource: Mapping[str, Any], etag: object) -> None:
    if etag and etag != resource["etag"]:
        raise ApiError(400, "failedPrecondition", "The etag provided does not match the current etag.")


def _page(request: Request, name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        size, start = int(request.query.get("pageSize") or 0), int(request.query.get("pageToken") or 0)
    except ValueError:
        raise invalid("Invalid page size or page token.") from None
    if size < 0 or start < 0:
        raise invalid("Invalid page size or page token.")
    end = start + min(size or _PAGE, _PAGE)
    shown = {name: found[start:end]} if found[start:end] else {}
    return {**shown, "totalSize": len(found), **({"nextPageToken": str(end)} if end < len(found) else {})}


_TERM = re.compile(r"\s*(?:(name|state|labels\.[a-z0-9_-]+)\s*([:=])\s*)?\"?([^\s\"]+)\"?\s*")


def _filter(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """`labels.a=b AND name:c`, `state:ENABLED`, or a part of a name. More than this is refused."""
    terms = [_TERM.fullmatch(term) for term in re.split(r"\s+AND\s+", text)] if text.strip() else []
    if None in terms:
        raise invalid(f"Invalid filter: {text}")

    def chosen(resource: Mapping[str, Any]) -> bool:
        return all(_meets(resource, *term.groups()) for term in terms if term)

    return chosen


def _meets(resource: Mapping[str, Any], key: str | None, sign: str | None, value: str) -> bool:
    key, _, label = (key or "name").partition(".")
    found = resource.get("labels", {}).get(label) if label else resource.get(key)
    if found is None or sign == "=" or label or key == "state":
        return found is not None and (found == value or (label != "" and value == "*"))
    return value.lower() in str(found).rpartition("/")[2].lower()


def _camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), name.strip())


def _etag() -> str:
    return f'"{uuid.uuid4().hex[:14]}"'


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
