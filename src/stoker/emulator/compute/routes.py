"""Which call a request is, and what the caller must be allowed to do for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stoker.emulator.compute.resources import Resource
from stoker.emulator.errors import ApiError
from stoker.emulator.http import Request
from stoker.emulator.identity import Caller
from stoker.emulator.service import caller_of


@dataclass(frozen=True)
class Call:
    """One request, taken apart."""

    request: Request
    project: str
    path: str  # behind the project
    names: Mapping[str, str]  # what stands in the path for {zone}, {name} …
    body: dict[str, Any]

    @property
    def query(self) -> Mapping[str, str]:
        """What stands behind the question mark."""
        return self.request.query

    @property
    def caller(self) -> Caller:
        """Who asks."""
        return caller_of(self.request)

    @property
    def user(self) -> str:
        """Who asks, as operations name it."""
        return self.caller.member.partition(":")[2]

    @property
    def scope(self) -> str:
        """`zones/…`, `regions/…` or `global`."""
        first, _, rest = self.path.partition("/")
        return f"{first}/{rest.partition('/')[0]}" if first in ("zones", "regions") else "global"

    @property
    def collection(self) -> str:
        """The path of the collection in which the named resource lies."""
        where = self.path.removeprefix(self.scope + "/").partition("/")[0]
        return f"{self.scope}/{where}"

    @property
    def target(self) -> str:
        """The path of the named resource."""
        return f"{self.collection}/{self.names['name']}"


LATER = "_later"
"""In place of a reply: what makes it. It is called without the lock, since it takes long."""

Handler = Callable[[Call], Resource]
Route = tuple[str, str, str, Handler]
"""Method of HTTP, pattern of the path behind the project, permission, what to do."""


class Routes:
    """A table of calls."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = [
            (method, re.compile(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern)), permission, handler)
            for method, pattern, permission, handler in routes
        ]

    def find(self, request: Request) -> tuple[Call, str, Handler]:
        """The call, the permission it needs, and what does it. Raises ApiError if there is no such call."""
        project, path = _taken_apart(request)
        for method, pattern, permission, handler in self._routes:
            match = pattern.fullmatch(path) if method == request.method else None
            if match is not None:
                call = Call(request, project, path, match.groupdict(), request.json())
                return call, permission, handler
        raise ApiError(404, "notFound", f"The requested URL {request.path} was not found on this server.")


def _taken_apart(request: Request) -> tuple[str, str]:
    match = re.fullmatch(r"compute/v1/projects/([^/]+)/?(.*)", "/".join(request.parts))
    if match is None:
        raise ApiError(404, "notFound", f"The requested URL {request.path} was not found on this server.")
    return match[1], match[2]
