"""Of Cloud Resource Manager and IAM, what gives roles away: the project's policy and service accounts."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from stoker.emulator.errors import ApiError, invalid
from stoker.emulator.http import Request
from stoker.emulator.policies import replaced, tested, told
from stoker.emulator.service import Kept, Surroundings, caller_of

_ACCOUNT = re.compile(r"[a-z][-a-z0-9]{4,28}[a-z0-9]")


class Projects:
    """One project, and its service accounts."""

    def __init__(self, around: Surroundings, kept: Kept) -> None:
        self._around = around
        self._lock = threading.Lock()
        self._accounts: dict[str, dict[str, Any]] = dict(kept)

    def answer(self, request: Request, where: list[str], verb: str) -> dict[str, Any] | None:
        """Of `/v1/projects/WHERE:VERB`; None if that is not one of ours. May raise ApiError."""
        found = self._call(request.method, where[1:], verb)
        if found is None:
            return None
        permission, call = found
        if permission:
            self._around.identity.require(caller_of(request), permission, f"projects/{self._around.project}")
        return call(request, where[-1])

    def dump(self) -> dict[str, Any]:
        """The service accounts."""
        with self._lock:
            return dict(self._accounts)

    def _call(self, method: str, inside: list[str], verb: str) -> tuple[str, _Call] | None:
        kind = "/".join(["projects", *inside[:1], *("*" for _ in inside[1:])])
        calls: Mapping[tuple[str, str, str], tuple[str, _Call]] = {
            ("GET", "projects", ""): ("resourcemanager.projects.get", self._get),
            ("POST", "projects", "getIamPolicy"): ("resourcemanager.projects.getIamPolicy", self._policy),
            ("POST", "projects", "setIamPolicy"): ("resourcemanager.projects.setIamPolicy", self._set_policy),
            ("POST", "projects", "testIamPermissions"): ("", self._test),
            ("GET", "projects/serviceAccounts", ""): ("iam.serviceAccounts.list", self._list),
            ("POST", "projects/serviceAccounts", ""): ("iam.serviceAccounts.create", self._create),
            ("GET", "projects/serviceAccounts/*", ""): ("iam.serviceAccounts.get", self._get_account),
            ("DELETE", "projects/serviceAccounts/*", ""): ("iam.serviceAccounts.delete", self._delete),
        }
        return calls.get((method, kind, verb))

    # The project

    def _get(self, request: Request, name: str) -> dict[str, Any]:
        project = self._around.project
        number = self._around.identity.number
        return {"projectId": project, "name": project, "projectNumber": number, "lifecycleState": "ACTIVE"}

    def _policy(self, request: Request, name: str) -> dict[str, Any]:
        return told(self._around.identity.policy)

    def _set_policy(self, request: Request, name: str) -> dict[str, Any]:
        with self._lock:
            self._around.identity.policy = replaced(self._around.identity.policy, request.json())
        self._around.changed()
        return told(self._around.identity.policy)

    def _test(self, request: Request, name: str) -> dict[str, Any]:
        return tested(self._around.identity, caller_of(request), request.json())

    # Service accounts

    def _list(self, request: Request, name: str) -> dict[str, Any]:
        with self._lock:
            return {"accounts": list(self._accounts.values())} if self._accounts else {}

    def _create(self, request: Request, name: str) -> dict[str, Any]:
        body = request.json()
        short, more = body.get("accountId"), body.get("serviceAccount") or {}
        if not isinstance(short, str) or not _ACCOUNT.fullmatch(short) or not isinstance(more, dict):
            raise invalid(
                "The account ID does not have a length between 6 and 30, or has a letter it may not."
            )
        made = {
            **self._account(short),
            **{key: more[key] for key in ("displayName", "description") if key in more},
        }
        with self._lock:
            if made["email"] in self._accounts:
                raise ApiError(409, "alreadyExists", f"Service account {short} already exists.")
            self._accounts[made["email"]] = made
        self._around.changed()
        return made

    def _account(self, short: str) -> dict[str, Any]:
        project = self._around.project
        email = f"{short}@{project}.iam.gserviceaccount.com"
        number = str(10**20 + zlib.crc32(email.encode()))
        name = f"projects/{project}/serviceAccounts/{email}"
        return {
            "name": name,
            "projectId": project,
            "uniqueId": number,
            "email": email,
            "oauth2ClientId": number,
        }

    def _get_account(self, request: Request, name: str) -> dict[str, Any]:
        with self._lock:
            return self._found(name)

    def _delete(self, request: Request, name: str) -> dict[str, Any]:
        with self._lock:
            del self._accounts[self._found(name)["email"]]
        self._around.changed()
        return {}

    def _found(self, name: str) -> dict[str, Any]:
        for account in self._accounts.values():
            if name in (account["email"], account["uniqueId"]):
                return account
        raise ApiError(404, "notFound", f"Unknown service account: {name}")


_Call = Callable[[Request, str], dict[str, Any]]
