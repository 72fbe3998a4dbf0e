"""Policies of IAM, as all APIs of Google tell and take them."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from stoker.emulator.errors import ApiError, invalid
from stoker.emulator.identity import Caller, Identity, Policy

_NONE = "ACAB"  # the etag of a policy that was never set


def told(policy: Policy) -> dict[str, Any]:
    """With its etag."""
    return {**policy, "etag": _etag(policy)}


def replaced(old: Policy, body: Mapping[str, Any]) -> dict[str, Any]:
    """The policy that a call of setIamPolicy puts in the place of `old`. Raises ApiError."""
    new = body.get("policy")
    if not isinstance(new, dict):
        raise invalid("Field [policy] is required.")
    if _plain(new.get("etag") or _etag(old)) != _plain(_etag(old)):
        message = "There were concurrent policy changes. Please retry the whole read-modify-write."
        raise ApiError(409, "aborted", message)
    bindings = new.get("bindings", [])
    if not isinstance(bindings, list) or not all(map(_is_binding, bindings)):
        raise invalid("Invalid JSON payload received. A binding is a role and its members.")
    kept = [binding for binding in bindings if binding["members"]]
    return {"version": 1, "bindings": kept} if kept else {}


def tested(identity: Identity, caller: Caller, body: Mapping[str, Any], *policies: Policy) -> dict[str, Any]:
    """Which of the permissions that a call of testIamPermissions names the caller has."""
    asked = body.get("permissions", [])
    if not isinstance(asked, list) or not all(isinstance(name, str) for name in asked):
        raise invalid("Invalid value at 'permissions': a list of names is expected.")
    names = [name for name in asked if identity.may(caller, name, *policies)]
    return {"permissions": names} if names else {}


def _is_binding(given: object) -> bool:
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        return False
    members = given.setdefault("members", [])
    return isinstance(members, list) and all(
        (isinstance(member, str) and ":" in member) or member in _ALL for member in members
    )


_ALL = ("allUsers", "allAuthenticatedUsers")


def _plain(etag: object) -> str:
    """Some clients write base 64 as it stands in addresses."""
    return str(etag).replace("-", "+").replace("_", "/").rstrip("=")


def _etag(policy: Policy) -> str:
    if not policy:
        return _NONE
    whole = json.dumps({key: policy[key] for key in policy if key != "etag"}, sort_keys=True)
    return base64.b64encode(b"\x07" + hashlib.sha256(whole.encode()).digest()[:8]).decode()
