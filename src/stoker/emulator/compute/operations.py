"""Operations: what was asked for, how far it is, and what went wrong."""

from __future__ import annotations

import re
import secrets
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from stoker.emulator.compute.listing import aggregated, listed
from stoker.emulator.compute.resources import Resource, Shelf, last, new_id, path_of, shown, timestamp
from stoker.emulator.errors import ApiError, invalid, not_found

_MOST = 4000  # older ones are forgotten
_LONGEST = 120.0  # seconds that `wait` waits at most
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Problem = tuple[str, int, str, list[Resource]]
"""What went wrong: its code, the status of HTTP that means the same, a message, details."""


class Operations:
    """All operations, oldest first. Whoever calls holds the lock; `wait` lets go of it meanwhile."""

    def __init__(self, shelf: Shelf, lock: Any, kept: Iterable[Resource]) -> None:
        self._shelf, self._done = shelf, threading.Condition(lock)
        self._is_open = True
        self._all: dict[str, Resource] = {str(one["_path"]): dict(one) for one in kept}
        self._asked = {str(one["_asked"]): one for one in self._all.values() if one.get("_asked")}
        for one in self._all.values():
            if one["status"] != "DONE":
                one |= {"status": "DONE", "progress": 100, "endTime": timestamp(time.time())}

    def begin(self, scope: str, kind: str, target: str, user: str, target_id: str = "") -> Resource:
        """One that runs. `scope` is `zones/…`, `regions/…` or `global`; `target` a path."""
        now = timestamp(time.time())
        ticks = int(time.time() * 1000)
        name = f"operation-{ticks}-{secrets.token_hex(7)[:13]}-{secrets.token_hex(4)}-{secrets.token_hex(4)}"
        path = f"{scope}/operations/{name}"
        where, _, place = scope.partition("/")
        made: Resource = {
            "kind": "compute#operation",
            "id": new_id(),
            "name": name,
            "operationType": kind,
            "targetLink": self._shelf.link(target) if target else self._shelf.link("").rstrip("/"),
            "targetId": target_id or new_id(),
            "status": "RUNNING",
            "user": user,
            "progress": 0,
            "insertTime": now,
            "startTime": now,
            "selfLink": self._shelf.link(path),
            "_path": path,
        }
        if place:
            made[where.rstrip("s")] = self._shelf.link(f"{where}/{place}")
        self._all[path] = made
        self._forget()
        return made

    def finish(self, operation: Resource, problem: Problem | None = None) -> Resource:
        """It is over. May be repeated."""
        if operation["status"] != "DONE":
            operation |= {"status": "DONE", "progress": 100, "endTime": timestamp(time.time())}
            if problem is not None:
                operation |= _failed(problem)
            self._done.notify_all()
        return operation

    def done(self, scope: str, kind: str, target: str, user: str, target_id: str = "") -> Resource:
        """One that is over at once."""
        return self.finish(self.begin(scope, kind, target, user, target_id))

    def _forget(self) -> None:
        """The oldest of those that are over."""
        over = (path for path, one in self._all.items() if one["status"] == "DONE")
        for path in list(islice(over, max(0, len(self._all) - _MOST))):
            self._asked.pop(str(self._all.pop(path).get("_asked")), None)

    # The same request once more

    def before(self, request_id: str, call: str) -> Resource | None:
        """The operation that the same call began before, if it has an id."""
        if request_id and (not _UUID.fullmatch(request_id) or not request_id.strip("0-")):
            raise invalid(f"Invalid value for field 'requestId': '{request_id}'. Must be a valid UUID.")
        found = self._asked.get(f"{call} {request_id}")
        return shown(found) if found is not None else None

    def remember(self, request_id: str, call: str, reply: Mapping[str, Any]) -> None:
        """The operation with which this call was answered."""
        if request_id and reply.get("kind") == "compute#operation":
            found = self._all[path_of(str(reply["selfLink"]))]
            found["_asked"] = f"{call} {request_id}"
            self._asked[found["_asked"]] = found

    def close(self) -> None:
        """Let nobody wait any more."""
        self._is_open = False
        self._done.notify_all()

    # Calls

    def one(self, path: str) -> Resource:
        """One of them, to be finished."""
        if path not in self._all:
            raise not_found(self._shelf.full(path))
        return self._all[path]

    def get(self, path: str) -> Resource:
        """One of them, as others see it."""
        return shown(self.one(path))

    def wait(self, path: str) -> Resource:
        """One of them when it is over, or after two minutes."""
        found = self.one(path)
        self._done.wait_for(lambda: found["status"] == "DONE" or not self._is_open, _LONGEST)
        return shown(found)

    def list_(self, scope: str, query: Mapping[str, str]) -> Resource:
        """Those of one place."""
        path = f"projects/{self._shelf.project}/{scope}/operations"
        return listed(self._of(scope), query, "operationList", path)

    def everywhere(self, scopes: Iterable[str], query: Mapping[str, str]) -> Resource:
        """Those of all places."""
        path = f"projects/{self._shelf.project}/aggregated/operations"
        return aggregated({one: self._of(one) for one in scopes}, query, "operationAggregatedList", path)

    def remove(self, path: str) -> None:
        """Forget one of them."""
        if self.one(path)["status"] != "DONE":
            raise ApiError(400, "invalid", f"The operation '{last(path)}' is not done.")
        del self._all[path]

    def dump(self) -> list[Resource]:
        """All of them, as JSON."""
        return [*self._all.values()]

    def _of(self, scope: str) -> Iterable[Resource]:
        start = f"{scope}/operations/"
        return [one for path, one in self._all.items() if path.startswith(start)]


def _failed(problem: Problem) -> Resource:
    code, status, message, details = problem
    error: Resource = {"code": code, "message": message}
    if details:
        error["errorDetails"] = details
    names = {403: "FORBIDDEN", 404: "NOT FOUND", 409: "CONFLICT", 500: "INTERNAL", 503: "SERVICE UNAVAILABLE"}
    return {
        "error": {"errors": [error]},
        "httpErrorStatusCode": status,
        "httpErrorMessage": names.get(status, "BAD REQUEST"),
    }
