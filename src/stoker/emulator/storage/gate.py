"""Who may do what with a bucket and its objects: by the project's policy, or by the bucket's own."""

from __future__ import annotations

from typing import Any

from stoker.emulator.http import Request
from stoker.emulator.identity import Identity
from stoker.emulator.service import caller_of
from stoker.emulator.storage.conditions import Conditions
from stoker.emulator.storage.objects import Guard, Object, Objects

_REPLACE = "storage.objects.delete"  # without it, nobody can write over what is there


class Gate:
    """Asked by both interfaces before they do anything."""

    def __init__(self, identity: Identity, objects: Objects) -> None:
        self._identity, self._objects = identity, objects

    def project(self, request: Request, permission: str) -> None:
        """Raise ApiError unless they may do this in the project."""
        what = f"the Google Cloud project {self._identity.project}"
        self._identity.require(caller_of(request), permission, what)

    def check(self, request: Request, permission: str, bucket: str, name: str = "") -> None:
        """Raise ApiError unless there is such a bucket, and they may do this."""
        what = "the Google Cloud Storage object" if name else "the Google Cloud Storage bucket"
        policy = self._objects.policy(bucket)
        self._identity.require(caller_of(request), permission, what, policy)

    def having(self, request: Request, permissions: list[str], bucket: str) -> list[str]:
        """Those that they have."""
        policy, caller = self._objects.policy(bucket), caller_of(request)
        return [one for one in permissions if self._identity.may(caller, one, policy)]

    def writing(self, request: Request, bucket: str, name: str, conditions: Conditions) -> Guard:
        """For a new generation. Raises ApiError at once if it is in vain."""
        self.check(request, "storage.objects.create", bucket, name)
        may_replace = _REPLACE in self.having(request, [_REPLACE], bucket)

        def guard(found: Object | None) -> None:
            conditions.check(found)
            if found is not None and not may_replace:
                self.check(request, _REPLACE, bucket, name)

        self._objects.check(bucket, name, guard)
        return guard


def default_policy(project: str) -> dict[str, Any]:
    """Of a bucket that nobody has given a policy."""
    owners = [f"projectEditor:{project}", f"projectOwner:{project}"]
    return {
        "version": 1,
        "bindings": [
            {"role": "roles/storage.legacyBucketOwner", "members": owners},
            {"role": "roles/storage.legacyBucketReader", "members": [f"projectViewer:{project}"]},
        ],
    }
