"""Who asks, and what they may: service accounts, tokens, scopes, roles.

Who brings no token is the user at home, who may do everything. A VM has tokens of its service account, from
its metadata server: they can do what the account's roles *and* the VM's scopes allow.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.emulator.errors import ApiError

LASTS = 3599
"""Seconds that a token is good for."""
_PURGE_AFTER = 60.0  # seconds between two looks for tokens that are too old

_SCOPE = "https://www.googleapis.com/auth/"
_EVERY = _SCOPE + "cloud-platform"
_SCOPES: Mapping[
    str, tuple[str, ...]
] = {  # what a scope admits: permissions, or all that begin so and end in a dot
    _SCOPE + "compute": ("compute.",),
    _SCOPE + "compute.readonly": ("compute.*.get", "compute.*.list"),
    _SCOPE + "devstorage.full_control": ("storage.",),
    _SCOPE + "devstorage.read_write": ("storage.objects.", "storage.buckets.get", "storage.buckets.list"),
    _SCOPE + "devstorage.read_only": ("storage.*.get", "storage.*.list"),
}
_ROLES: Mapping[str, tuple[str, ...]] = {  # what a role admits, in the same way
    "roles/owner": ("",),
    "roles/editor": (
        "compute.",
        "storage.buckets.",
        "storage.objects.",
        "secretmanager.*.get",
        "secretmanager.*.list",
        "secretmanager.secrets.create",
        "secretmanager.secrets.delete",
        "secretmanager.versions.add",
        "iam.serviceAccounts.actAs",
    ),
    "roles/viewer": ("compute.*.get", "compute.*.list", "storage.buckets.list", "secretmanager.*.list"),
    "roles/compute.admin": ("compute.",),
    "roles/compute.instanceAdmin.v1": ("compute.",),
    "roles/compute.viewer": ("compute.*.get", "compute.*.list"),
    "roles/storage.admin": ("storage.",),
    "roles/storage.objectAdmin": ("storage.objects.",),
    "roles/storage.objectUser": ("storage.objects.",),
    "roles/storage.objectCreator": ("storage.objects.create",),
    "roles/storage.objectViewer": ("storage.objects.get", "storage.objects.list"),
    "roles/storage.legacyBucketReader": ("storage.buckets.get", "storage.objects.list"),
    "roles/secretmanager.admin": ("secretmanager.",),
    "roles/secretmanager.secretVersionAdder": ("secretmanager.versions.add",),
    "roles/secretmanager.secretAccessor": ("secretmanager.versions.access",),
    "roles/secretmanager.viewer": ("secretmanager.*.get", "secretmanager.*.list"),
    "roles/iam.serviceAccountUser": ("iam.serviceAccounts.actAs",),
}

Policy = Mapping[str, Any]
"""`{"bindings": [{"role": …, "members": ["serviceAccount:…"]}]}`, as everywhere in Google's cloud."""


@dataclass(frozen=True)
class Caller:
    """Who asks. Without an account: the user at home."""

    account: str = ""
    scopes: tuple[str, ...] = (_EVERY,)

    @property
    def member(self) -> str:
        """As policies name it."""
        return f"serviceAccount:{self.account}" if self.account else "user:you@example.com"


@dataclass(frozen=True)
class _Token:
    caller: Caller
    until: float  # of the monotonic clock


@dataclass
class Identity:
    """Accounts, the policy of the project, and the tokens that were given out."""

    project: str
    policy: dict[str, Any] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic
    _tokens: dict[str, _Token] = field(default_factory=dict)
    _purged: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if not self.policy:
            member = f"serviceAccount:{self.default_account}"
            self.policy = {"version": 1, "bindings": [{"role": "roles/editor", "members": [member]}]}

    @property
    def number(self) -> str:
        """The project's number, always the same for one name."""
        return str(100_000_000_000 + sum(ord(c) * 131**n for n, c in enumerate(self.project)) % 10**11)

    @property
    def default_account(self) -> str:
        """The account that a VM has if nothing else is said."""
        return f"{self.number}-compute@developer.gserviceaccount.com"

    def token(self, caller: Caller) -> dict[str, Any]:
        """A new token, as a metadata server tells it."""
        word = f"ya29.emulated.{secrets.token_urlsafe(32)}"
        with self._lock:
            now = self.now()
            if now > self._purged + _PURGE_AFTER:
                self._tokens = {name: one for name, one in self._tokens.items() if one.until > now}
                self._purged = now
            self._tokens[word] = _Token(caller, now + LASTS)
        return {"access_token": word, "expires_in": LASTS, "token_type": "Bearer"}

    def caller(self, headers: Mapping[str, str]) -> Caller:
        """Who sends these headers. Raises ApiError for a token that is unknown or too old."""
        word = headers.get("authorization", "")
        if not word.lower().startswith("bearer "):
            return Caller()
        word = word[7:].strip()
        if not word.startswith("ya29.emulated."):  # the user's own, which somebody else gave out
            return Caller()
        with self._lock:
            found = self._tokens.get(word)
        if found is None or found.until < self.now():
            raise ApiError(401, "authError", "Request had invalid authentication credentials.")
        return found.caller

    def may(self, caller: Caller, permission: str, *policies: Policy) -> bool:
        """Whether they have a permission: by the project's policy, or by one of these."""
        if not caller.account:
            return True
        if not _admits(caller.scopes, permission):
            return False
        return any(_grants(policy, caller.member, permission) for policy in (self.policy, *policies))

    def require(self, caller: Caller, permission: str, what: str, *policies: Policy) -> None:
        """Raise ApiError if they have not."""
        if self.may(caller, permission, *policies):
            return
        if not _admits(caller.scopes, permission):
            raise ApiError(403, "insufficientPermissions", "Request had insufficient authentication scopes.")
        message = f"{caller.account} does not have {permission} access to {what}."
        raise ApiError(403, "forbidden", message)


def _admits(scopes: Iterable[str], permission: str) -> bool:
    return any(scope == _EVERY or _matches(_SCOPES.get(scope, ()), permission) for scope in scopes)


def _grants(policy: Policy, member: str, permission: str) -> bool:
    return any(
        not {member, "allUsers", "allAuthenticatedUsers"}.isdisjoint(binding.get("members", ()))
        and _matches(_ROLES.get(str(binding.get("role")), ()), permission)
        for binding in policy.get("bindings", ())
    )


def _matches(patterns: Iterable[str], permission: str) -> bool:
    service, verb = permission.partition(".")[0], permission.rpartition(".")[2]
    return any(
        pattern in ("", permission, f"{service}.*.{verb}")
        or (pattern.endswith(".") and permission.startswith(pattern))
        for pattern in patterns
    )
