"""Lists in pages, of one place or of all."""

from __future__ import annotations

import base64
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
    found = _ordered(found, query.get("orderBy", ""))
    begin, most = _begin(query.get("pageToken", "")), _most(query)
    end = begin + most
    return found[begin:end], _token(end) if end < len(found) else ""


def _ordered(items: list[Resource], order: str) -> list[Resource]:
    field, _, direction = order.partition(" ")
    if field == "creationTimestamp":
        return sorted(
            items, key=lambda one: str(one.get("creationTimestamp", "")), reverse=direction == "desc"
        )
    if field not in ("", "name"):
        raise invalid(f"Invalid value for field 'orderBy': '{order}'.")
    return sorted(items, key=lambda one: str(one.get("name", "")))


def _most(query: Query) -> int:
    most = query.get("maxResults", "500")
    if not most.isdigit() or not 0 <= int(most) <= 500:
        raise invalid(
            f"Invalid value for field 'maxResults': '{most}'. Must be between 0 and 500, inclusive."
        )
    return int(most) or 500


def _token(number: int) -> str:
    return base64.urlsafe_b64encode(b"at:%d" % number).decode()


def _begin(token: str) -> int:
    if not token:
        return 0
    try:
        return int(base64.urlsafe_b64decode(token).decode().removeprefix("at:"))
    except ValueError:
        raise invalid(f"Invalid value for field 'pageToken': '{token}'.") from None


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
    found = sorted((one for one in marked if matches(shown(one))), key=lambda one: str(one["name"]))
    begin, most = _begin(query.get("pageToken", "")), _most(query)
    items: dict[str, Any] = {scope: {"warning": _nothing(scope)} for scope in scopes}
    for one in found[begin : begin + most]:
        items[one["_scope"]].pop("warning", None)
        items[one["_scope"]].setdefault(what, []).append(shown(one))
    reply = {"kind": f"compute#{kind}", "id": path, "selfLink": ROOT + path, "items": items}
    return reply | ({"nextPageToken": _token(begin + most)} if begin + most < len(found) else {})


def _nothing(scope: str) -> Resource:
    return {
        "code": "NO_RESULTS_ON_PAGE",
        "message": f"There are no results for scope '{scope}' on this page.",
        "data": [{"key": "scope", "value": scope}],
    }
