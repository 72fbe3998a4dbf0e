"""Resources as JSON: their names, links, ids and fingerprints, and the shelf on which they lie."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import secrets
from collections.abc import Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from stoker.emulator.errors import ApiError, exists_already, invalid, not_found

ROOT = "https://www.googleapis.com/compute/v1/"
"""What all links begin with, wherever this cloud answers."""

Resource = dict[str, Any]
"""As Google shows it; what begins with an underscore is ours and is not shown."""

_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LINK = re.compile(r"^https?://[^/]+/compute/[^/]+/|^//compute\.googleapis\.com/|^/")


def check_name(name: object, field: str = "resource.name") -> str:
    """A name by RFC 1035."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        message = f"Invalid value for field '{field}': '{name or ''}'. Must be a match of regex '{_PATTERN}'"
        raise invalid(message)
    return name


_PATTERN = r"(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"


def timestamp(seconds: float) -> str:
    """A moment as Google writes it."""
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")


def seconds_of(text: str) -> float:
    """The moment that a timestamp means. Raises ApiError for what is none."""
    try:
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text))
    except ValueError:
        raise invalid(f"Invalid value for a timestamp: '{text}'. Must be in RFC 3339 format.") from None
    return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()


def new_id() -> str:
    """An id that no resource had before."""
    return str(secrets.randbits(62) | 1 << 60)


def fingerprint(data: object) -> str:
    """Changes when the data does."""
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).digest()
    return base64.urlsafe_b64encode(digest[:8]).decode()


def check_fingerprint(sent: object, data: object, is_needed: bool = True) -> None:
    """Raise if somebody changed what the caller has read."""
    if not sent and not is_needed:
        return
    if sent != fingerprint(data):
        raise ApiError(
            412, "conditionNotMet", "Supplied fingerprint does not match current metadata fingerprint."
        )


def shown(resource: Mapping[str, Any]) -> Resource:
    """What others see of it."""
    return {name: value for name, value in resource.items() if not name.startswith("_")}


def path_of(link: str) -> str:
    """`zones/us-central1-a/instances/vm` of any link to it, whole or partial; the project is dropped."""
    path = _LINK.sub("", link)
    return re.sub(r"^projects/[^/]+/", "", path)


def project_of(link: str) -> str:
    """The project that a link names; empty if it names none."""
    found = re.search(r"(?:^|/)projects/([^/]+)/", link)
    return found.group(1) if found else ""


def last(link: object) -> str:
    """The name at the end of a link."""
    return str(link or "").rstrip("/").rpartition("/")[2]


def region_of(zone: str) -> str:
    """Where a zone is."""
    return zone.rpartition("-")[0]


class Shelf:
    """All resources, by the path of their collection and their name. Whoever uses it holds the lock."""

    def __init__(self, project: str, kept: Mapping[str, Mapping[str, Resource]]) -> None:
        self.project = project
        self._all: dict[str, dict[str, Resource]] = {path: dict(kept[path]) for path in kept}

    def link(self, path: str, project: str = "") -> str:
        """The whole link to what has this path."""
        return f"{ROOT}projects/{project or self.project}/{path}"

    def full(self, path: str) -> str:
        """As error messages name it."""
        return f"projects/{self.project}/{path}"

    def put(self, path: str, resource: Resource) -> Resource:
        """Lay it there. Raises ApiError if something lies there already."""
        collection, _, name = path.rpartition("/")
        if name in self._all.get(collection, {}):
            raise exists_already(self.full(path))
        self._all.setdefault(collection, {})[name] = resource
        return resource

    def find(self, path: str) -> Resource | None:
        """What lies there."""
        collection, _, name = path.rpartition("/")
        return self._all.get(collection, {}).get(name)

    def get(self, path: str) -> Resource:
        """What lies there. Raises ApiError if nothing does."""
        found = self.find(path)
        if found is None:
            raise not_found(self.full(path))
        return found

    def remove(self, path: str) -> None:
        """May be repeated."""
        collection, _, name = path.rpartition("/")
        self._all.get(collection, {}).pop(name, None)

    def all(self, collection: str) -> list[Resource]:
        """All of one place."""
        return list(self._all.get(collection, {}).values())

    def everywhere(self, kind: str) -> Iterator[tuple[str, Resource]]:
        """All of one kind, such as `instances`, with their paths."""
        for collection, found in list(self._all.items()):
            if collection.endswith("/" + kind):
                for name, resource in list(found.items()):
                    yield f"{collection}/{name}", resource

    def dump(self) -> dict[str, dict[str, Resource]]:
        """All of it, as JSON."""
        return {path: found for path, found in self._all.items() if found}
