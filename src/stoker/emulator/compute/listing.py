"""Lists in pages, of one place or of all."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from stoker.emulator.compute.filters import parse
from stoker.emulator.compute.resources import ROOT, Resource, shown
from stoker.emulator.errors import invalid

Query = Mapping[str, str]


def page(items: Iterable[Resource], query: Query) -> tuple[list[Resource], str]:
    """The part of them that is asked for, as others see it, and the token of the next part."""
    matches = parse(query.get("filter", ""))
    found = [one for one in map(shown, items) if matches(one)]
    field, _, direction = query.get("orderBy", "").partition(" ")
    if field not in ("", "name", "creationTimestamp"):
        raise invalid(f"Invalid value for field 'orderBy': '{query['orderBy']}'.")
    if field != "creationTimestamp":
        return _part(found, ("name", "name"), query)
    return _part(found, ("creationTimestamp", "name"), query, is_down=direction == "desc")


def _part(
    items: list[Resource], fields: tuple[str, str], query: Query, is_down: bool = False
) -> tuple[list[Resource], str]:
    """A token names the last one of the part before: none is passed over if others are gone meanwhile."""

    def place(one: Resource) -> list[str]:
        return [str(one.get(field, "")) for field in fields]

    rest, most = sorted(items, key=place, reverse=is_down), _most(query)
    if query.get("pageToken"):
        before = _place(query["pageToken"])
        rest = [one for one in rest if (place(one) < before if is_down else place(one) > before)]
    return rest[:most], _token(place(rest[most - 1])) if len(rest) > most else ""


def _most(query: Query) -> int:
    most = query.get("maxResults", "500")
    if not most.isdigit() or not 0 <= int(most) <= 500:
        raise invalid(
            f"Invalid value for field 'maxResults': '{most}'. Must be between 0 and 500, inclusive."
        )
    return int(most) or 500


def _token(place: list[str]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def _place(token: str) -> list[str]:
    try:
        first, second = json.loads(base64.urlsafe_b64decode(token))
    except (ValueError, TypeError):
        raise invalid(f"Invalid value for field 'pageToken': '{token}'.") from None
    return [str(first), str(second)]


def listed(items: Iterable[Resource], query: Query, kind: str, path: str) -> Resource:
    """A reply: `kind` is the list's, such as instanceList."""
    found, following = page(items, query)
    reply: dict[str, Any] = {"kind": f"compute#{kind}", "id": path, "selfLink": ROOT + path}
    if found:
        reply["items"] = found
    if following:
        reply["nextPageToken"] = following
    return reply


def aggregated(scopes: Mapping[str, Iterable[Resource]], query: Query, kind: str, path: str) -> Resource:
    """A reply for all places: `scopes` is `zones/us-central1-a` → what is there."""
    what = path.rpartition("/")[2]
    marked = [{**one, "_scope": scope} for scope, items in scopes.items() for one in items]
    matches = parse(query.get("filter", ""))
    found, following = _part([one for one in marked if matches(shown(one))], ("name", "_scope"), query)
    items: dict[str, Any] = {scope: {"warning": _nothing(scope)} for scope in scopes}
    for one in found:
        items[one["_scope"]].pop("warning", None)
        items[one["_scope"]].setdefault(what, []).append(shown(one))
    reply = {"kind": f"compute#{kind}", "id": path, "selfLink": ROOT + path, "items": items}
    return reply | ({"nextPageToken": following} if following else {})


def _nothing(scope: str) -> Resource:
    return {
        "code": "NO_RESULTS_ON_PAGE",
        "message": f"There are no results for scope '{scope}' on this page.",
        "data": [{"key": "scope", "value": scope}],
    }
