"""Who may what: a role and a scope are needed both."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stoker.emulator.errors import ApiError
from stoker.emulator.identity import LASTS, Caller, Identity

SCOPE = "https://www.googleapis.com/auth/"
ALL = (SCOPE + "cloud-platform",)
ACCOUNT = "worker@home-project.iam.gserviceaccount.com"
MEMBER = f"serviceAccount:{ACCOUNT}"


def project(*roles: str, members: tuple[str, ...] = (MEMBER,)) -> Identity:
    bindings = [{"role": role, "members": list(members)} for role in roles]
    return Identity("home-project", {"bindings": bindings})


ROLES = {
    "roles/owner": "compute.instances.insert storage.objects.delete secretmanager.versions.access",
    "roles/editor": "compute.instances.insert storage.objects.delete secretmanager.secrets.create",
    "roles/viewer": "compute.instances.list storage.buckets.list",
    "roles/compute.instanceAdmin.v1": "compute.instances.insert compute.instances.list",
    "roles/compute.admin": "compute.instances.insert compute.networks.create",
    "roles/compute.viewer": "compute.instances.list compute.zones.get",
    "roles/storage.admin": "storage.objects.delete storage.buckets.create storage.buckets.list",
    "roles/storage.objectAdmin": "storage.objects.delete storage.objects.list",
    "roles/storage.objectUser": "storage.objects.delete storage.objects.create",
    "roles/storage.objectCreator": "storage.objects.create",
    "roles/storage.objectViewer": "storage.objects.get storage.objects.list",
    "roles/storage.legacyBucketReader": "storage.buckets.get storage.objects.list",
    "roles/secretmanager.admin": "secretmanager.versions.access secretmanager.secrets.create",
    "roles/secretmanager.secretAccessor": "secretmanager.versions.access",
    "roles/secretmanager.secretVersionAdder": "secretmanager.versions.add",
    "roles/secretmanager.viewer": "secretmanager.secrets.list secretmanager.versions.get",
    "roles/iam.serviceAccountUser": "iam.serviceAccounts.actAs",
    "roles/unknown": "",
}
NOT = {
    "roles/editor": "secretmanager.versions.access",
    "roles/viewer": "compute.instances.insert storage.objects.get secretmanager.versions.access",
    "roles/compute.instanceAdmin.v1": "storage.objects.get iam.serviceAccounts.actAs",
    "roles/compute.viewer": "compute.instances.insert compute.instances.delete storage.objects.get",
    "roles/storage.admin": "compute.instances.list secretmanager.versions.access",
    "roles/storage.objectAdmin": "storage.buckets.list storage.buckets.create",
    "roles/storage.objectUser": "storage.buckets.get",
    "roles/storage.objectCreator": "storage.objects.get storage.objects.delete storage.objects.list",
    "roles/storage.objectViewer": "storage.objects.create storage.objects.delete storage.buckets.get",
    "roles/storage.legacyBucketReader": "storage.objects.get storage.buckets.getIamPolicy",
    "roles/secretmanager.admin": "storage.objects.get",
    "roles/secretmanager.secretAccessor": "secretmanager.versions.get secretmanager.versions.add",
    "roles/secretmanager.secretVersionAdder": "secretmanager.versions.access secretmanager.secrets.get",
    "roles/secretmanager.viewer": "secretmanager.versions.access secretmanager.versions.destroy",
    "roles/iam.serviceAccountUser": "compute.instances.insert",
    "roles/unknown": "compute.instances.list",
}


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_admits(role: str) -> None:
    caller, who = Caller(ACCOUNT, ALL), project(role)
    for permission in ROLES[role].split():
        assert who.may(caller, permission), permission
        assert not project().may(caller, permission)
    for permission in NOT.get(role, "").split():
        assert not who.may(caller, permission), permission


SCOPES = {
    "cloud-platform": "compute.instances.insert storage.objects.create secretmanager.versions.access",
    "compute": "compute.instances.insert compute.instances.list",
    "compute.readonly": "compute.instances.list compute.instances.get",
    "devstorage.full_control": "storage.objects.create storage.buckets.create storage.objects.setIamPolicy",
    "devstorage.read_write": "storage.objects.create storage.objects.get storage.buckets.get",
    "devstorage.read_only": "storage.objects.get storage.objects.list storage.buckets.get",
    "logging.write": "",
}
NOT_IN_SCOPE = {
    "compute": "storage.objects.get secretmanager.versions.access",
    "compute.readonly": "compute.instances.insert storage.objects.get",
    "devstorage.full_control": "compute.instances.list secretmanager.versions.access",
    "devstorage.read_write": "storage.buckets.create storage.buckets.getIamPolicy compute.instances.list",
    "devstorage.read_only": "storage.objects.create storage.objects.delete secretmanager.versions.access",
    "logging.write": "storage.objects.get compute.instances.list",
}


@pytest.mark.parametrize("scope", SCOPES)
def test_what_a_scope_admits(scope: str) -> None:
    caller, who = Caller(ACCOUNT, (SCOPE + scope,)), project("roles/owner")
    for permission in SCOPES[scope].split():
        assert who.may(caller, permission), permission
        assert not who.may(replace(caller, scopes=()), permission)
    for permission in NOT_IN_SCOPE.get(scope, "").split():
        assert not who.may(caller, permission), permission


def test_scopes_add_up_and_so_do_roles() -> None:
    caller = Caller(ACCOUNT, (SCOPE + "compute.readonly", SCOPE + "devstorage.read_only"))
    who = project("roles/compute.viewer", "roles/storage.objectViewer")
    assert who.may(caller, "compute.instances.list")
    assert who.may(caller, "storage.objects.get")
    assert not who.may(caller, "storage.objects.create")


def test_others_have_nothing_of_it() -> None:
    other = Caller("other@home-project.iam.gserviceaccount.com", ALL)
    assert not project("roles/owner").may(other, "compute.instances.list")
    for everybody in ("allUsers", "allAuthenticatedUsers"):
        assert project("roles/viewer", members=(everybody,)).may(other, "compute.instances.list")


def test_a_policy_of_a_thing_adds_to_that_of_the_project() -> None:
    caller, own = Caller(ACCOUNT, ALL), {"bindings": [{"role": "roles/owner", "members": [MEMBER]}]}
    assert project().may(caller, "storage.objects.get", own)
    assert not project().may(caller, "storage.objects.get", {})


def test_what_is_missing_is_told() -> None:
    for caller, told in (
        (Caller(ACCOUNT, ALL), f"{ACCOUNT} does not have storage.objects.get access to bucket b"),
        (Caller(ACCOUNT, ()), "insufficient authentication scopes"),
    ):
        with pytest.raises(ApiError, match=told) as raised:
            project().require(caller, "storage.objects.get", "bucket b")
        assert raised.value.code == 403
    project("roles/owner").require(Caller(ACCOUNT, ALL), "storage.objects.get", "bucket b")


def test_the_user_at_home_may_everything() -> None:
    for headers in ({}, {"authorization": "Bearer ya29.of-google"}, {"authorization": "Basic abc"}):
        caller = project().caller(headers)
        assert caller == Caller()
        assert project().may(caller, "anything.at.all")


def test_the_default_account_is_an_editor() -> None:
    who = Identity("home-project")
    assert who.may(Caller(who.default_account, ALL), "compute.instances.insert")
    assert not who.may(Caller(who.default_account, ALL), "secretmanager.versions.access")
    assert who.number == Identity("home-project").number != Identity("other-project").number
    assert len(who.number) == 12
    assert who.number.isdigit()


# Tokens


def headers(token: str, word: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{word} {token}"}


def test_a_token_says_who_it_was_given_to() -> None:
    who, one, two = project(), Caller(ACCOUNT, ALL), Caller("two@example.com", ())
    tokens = [who.token(caller)["access_token"] for caller in (one, two, one)]
    assert len(set(tokens)) == 3
    assert [who.caller(headers(token)) for token in tokens] == [one, two, one]
    assert who.caller(headers(tokens[0], "bearer")) == one


def test_a_token_that_nobody_gave_out_is_refused() -> None:
    who = project()
    token = who.token(Caller(ACCOUNT, ALL))["access_token"]
    for wrong in (token + "x", token[:-1], "ya29.emulated."):
        with pytest.raises(ApiError) as raised:
            who.caller(headers(wrong))
        assert (raised.value.code, raised.value.status) == (401, "UNAUTHENTICATED")
    with pytest.raises(ApiError):
        project().caller(headers(token))  # of another emulator


def test_a_token_expires() -> None:
    times = [1000.0]
    who, caller = Identity("home-project", now=lambda: times[-1]), Caller(ACCOUNT, ALL)
    told = who.token(caller)
    times.append(1000 + told["expires_in"] - 1)
    assert who.caller(headers(told["access_token"])) == caller
    times.append(1000 + told["expires_in"] + 1)
    with pytest.raises(ApiError) as raised:
        who.caller(headers(told["access_token"]))
    assert raised.value.code == 401
    who.token(caller)
    assert len(who._tokens) == 1  # old ones are forgotten


def test_tokens_that_are_too_old_are_forgotten() -> None:
    now = 0.0
    who = Identity("home-project", now=lambda: now)
    for _ in range(50):
        who.token(Caller(ACCOUNT))
    now = LASTS + 1.0
    who.token(Caller(ACCOUNT))
    assert len(who._tokens) == 1


def test_a_token_does_not_look_at_all_others() -> None:
    who = Identity("home-project", now=lambda: 1000.0)
    who.token(Caller(ACCOUNT))
    before = who._tokens
    who.token(Caller(ACCOUNT))
    assert who._tokens is before
    assert len(before) == 2
