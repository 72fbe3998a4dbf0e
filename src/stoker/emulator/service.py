"""What one API of the cloud is to the server that carries it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stoker.emulator.faults import Faults
from stoker.emulator.http import Reply, Request, Server
from stoker.emulator.identity import Caller, Identity
from stoker.emulator.pace import Pace


class Service(Protocol):
    """Called from many threads at once. `kept` is what `dump` gave, before the emulator was started again."""

    def handle(self, request: Request) -> Reply:
        """Answer one request. May raise ApiError."""

    def dump(self) -> dict[str, Any]:
        """All that has to survive a restart, as JSON; the contents of large things lie in files."""

    def close(self) -> None:
        """Stop whatever runs."""


@dataclass(frozen=True)
class Surroundings:
    """What all services share."""

    project: str
    directory: Path  # for files of their own, each in a folder with its name
    identity: Identity
    faults: Faults
    pace: Pace
    server: Server  # for sockets of their own, such as those of metadata servers
    changed: Callable[[], None]  # to be called after each change that has to survive a restart
    now: Callable[[], float]  # seconds of the monotonic clock, for faults
    root: Callable[[Request], Reply]  # the whole cloud as an app, for VMs that call it from inside
    url: Callable[[], str]  # where the cloud answers: http://127.0.0.1:PORT


_OVERRIDES = {"compute": "compute/v1/", "storage": "storage/v1/"}
_OVERRIDES |= dict.fromkeys(("secretmanager", "iam", "cloudresourcemanager"), "")


def variables(url: str, project: str) -> dict[str, str]:
    """What makes gcloud, Google's storage client and Stoker turn to a cloud, inside a VM or outside."""
    return {
        "STORAGE_EMULATOR_HOST": url,
        "STOKER_CLOUD": url,
        "GOOGLE_CLOUD_PROJECT": project,
        "CLOUDSDK_CORE_PROJECT": project,
        **{
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api.upper()}": f"{url}/{path}"
            for api, path in _OVERRIDES.items()
        },
    }


def caller_of(request: Request) -> Caller:
    """Who asks: the server found it out before it asked a service."""
    found = request.extra.get("caller")
    return found if isinstance(found, Caller) else Caller()


Kept = Mapping[str, Any]
