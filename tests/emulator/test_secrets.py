"""Secret Manager, by Google's own client; and the little of IAM around it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import secretmanager_v1 as sm
from google.iam.v1 import iam_policy_pb2, policy_pb2  # type: ignore[import-untyped]
from google.oauth2.credentials import Credentials
from google.protobuf.field_mask_pb2 import FieldMask  # type: ignore[import-untyped]

from stoker.emulator.cloud import Emulator
from stoker.emulator.identity import Caller
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
AUTOMATIC: dict[str, Any] = {"replication": {"automatic": {}}}
Client = Any  # it takes dictionaries, too, which its types do not say


def client_of(cloud: Emulator, account: str = "", scopes: tuple[str, ...] = (SCOPE,)) -> Client:
    """Of the user at home, or of a VM with this service account."""
    credentials: Any = AnonymousCredentials()  # type: ignore[no-untyped-call]
    if account:
        token = cloud.identity.token(Caller(account, scopes))["access_token"]
        credentials = Credentials(token)  # type: ignore[no-untyped-call]
    endpoint = {"api_endpoint": cloud.url}
    return sm.SecretManagerServiceClient(transport="rest", client_options=endpoint, credentials=credentials)


@pytest.fixture
def client(cloud: Emulator) -> Client:
    return client_of(cloud)


def parent(cloud: Emulator) -> str:
    return f"projects/{cloud.project}"


def made(client: Client, cloud: Emulator, name: str = "key", payload: bytes = b"") -> str:
    """A secret, with a version if there is a payload; its name."""
    secret = client.create_secret(parent=parent(cloud), secret_id=name, secret=AUTOMATIC)
    if payload:
        client.add_secret_version(parent=secret.name, payload={"data": payload})
    return str(secret.name)


def refused(call: Callable[[], object], kind: type[exceptions.GoogleAPICallError], told: str) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert told in str(raised.value.message)


# Secrets


def test_a_secret_and_its_versions(client: Client, cloud: Emulator) -> None:
    labelled = {**AUTOMATIC, "labels": {"study": "one"}}
    secret = client.create_secret(parent=parent(cloud), secret_id="api-key", secret=labelled)  # noqa: S106
    assert secret.name == f"projects/{cloud.identity.number}/secrets/api-key"
    assert dict(secret.labels) == {"study": "one"}
    assert secret.create_time.timestamp() > 0
    for number, payload in enumerate((b"first", b"\x00\xff second", b"x" * 65536), 1):
        checksum = google_crc32c.value(payload)
        version = client.add_secret_version(
            parent=f"{parent(cloud)}/secrets/api-key", payload={"data": payload, "data_crc32c": checksum}
        )
        assert version.name == f"{secret.name}/versions/{number}"
        assert version.state == sm.SecretVersion.State.ENABLED
        assert version.client_specified_payload_checksum
        for which in ("latest", number):
            found = client.access_secret_version(name=f"{parent(cloud)}/secrets/api-key/versions/{which}")
            assert found.name == version.name
            assert (found.payload.data, found.payload.data_crc32c) == (payload, checksum)
    assert client.get_secret(name=secret.name) == secret
    client.delete_secret(name=secret.name)
    refused(lambda: client.get_secret(name=secret.name), exceptions.NotFound, "not found")


def test_states_of_a_version(client: Client, cloud: Emulator) -> None:
    name = f"{made(client, cloud, payload=b'secret')}/versions/1"
    state = sm.SecretVersion.State
    assert client.disable_secret_version(name=name).state == state.DISABLED
    refused(lambda: client.access_secret_version(name=name), exceptions.BadRequest, "is in DISABLED state")
    assert client.enable_secret_version(name=name).state == state.ENABLED
    assert client.access_secret_version(name=name).payload.data == b"secret"
    gone = client.destroy_secret_version(name=name)
    assert (gone.state, gone.destroy_time.timestamp() > 0) == (state.DESTROYED, True)
    assert client.get_secret_version(name=name) == gone
    for call in (client.access_secret_version, client.enable_secret_version, client.destroy_secret_version):
        refused(lambda call=call: call(name=name), exceptions.BadRequest, "is in DESTROYED state")  # type: ignore[misc]
    assert "c2VjcmV0" not in json.dumps(cloud.secrets.dump())


def test_what_is_not_there(client: Client, cloud: Emulator) -> None:
    name = made(client, cloud)
    refused(
        lambda: client.access_secret_version(name=f"{name}/versions/latest"),
        exceptions.NotFound,
        "has no versions",
    )
    refused(
        lambda: client.get_secret_version(name=f"{name}/versions/1"), exceptions.NotFound, "Secret Version ["
    )
    refused(lambda: client.get_secret(name=f"{parent(cloud)}/secrets/no"), exceptions.NotFound, "not found")
    refused(lambda: client.get_secret(name="projects/other/secrets/no"), exceptions.Forbidden, "other")
    refused(lambda: made(client, cloud), exceptions.Conflict, "already exists")


def test_what_is_wrong(client: Client, cloud: Emulator) -> None:
    name, bad = made(client, cloud), exceptions.BadRequest
    refused(lambda: made(client, cloud, "a.b"), bad, "must match")
    bare = {"parent": parent(cloud), "secret_id": "x", "secret": {}}
    refused(lambda: client.create_secret(request=bare), bad, "replication must be provided")
    add = client.add_secret_version
    refused(lambda: add(parent=name), bad, "required")
    refused(lambda: add(parent=name, payload={"data": b""}), bad, "1 to 65536 bytes")
    refused(lambda: add(parent=name, payload={"data": b"x" * 65537}), bad, "1 to 65536 bytes")
    refused(lambda: add(parent=name, payload={"data": b"x", "data_crc32c": 1}), bad, "checksum")
    assert list(client.list_secret_versions(parent=name)) == []


def test_labels_are_changed(client: Client, cloud: Emulator) -> None:
    secret = client.get_secret(name=made(client, cloud))
    secret.labels["a"] = "b"
    changed = client.update_secret(secret=secret, update_mask=FieldMask(paths=["labels"]))
    assert dict(changed.labels) == {"a": "b"}
    assert changed.etag != secret.etag
    refused(
        lambda: client.update_secret(secret=secret, update_mask=FieldMask(paths=["labels"])),
        exceptions.BadRequest,
        "etag",
    )
    changed.labels.clear()
    assert dict(client.update_secret(secret=changed, update_mask=FieldMask(paths=["labels"])).labels) == {}
    refused(
        lambda: client.update_secret(
            secret={"name": secret.name}, update_mask=FieldMask(paths=["replication"])
        ),
        exceptions.BadRequest,
        "cannot be updated",
    )


def test_etags_guard(client: Client, cloud: Emulator) -> None:
    name = made(client, cloud, payload=b"x")
    old = client.get_secret_version(name=f"{name}/versions/1").etag
    client.disable_secret_version(request={"name": f"{name}/versions/1", "etag": old})
    refused(
        lambda: client.enable_secret_version(request={"name": f"{name}/versions/1", "etag": old}),
        exceptions.BadRequest,
        "etag",
    )
    refused(
        lambda: client.delete_secret(request={"name": name, "etag": '"no"'}), exceptions.BadRequest, "etag"
    )
    client.delete_secret(request={"name": name, "etag": client.get_secret(name=name).etag})


def test_lists_have_pages_and_filters(client: Client, cloud: Emulator) -> None:
    for number in range(7):
        labels = {"odd": str(number % 2)}
        client.create_secret(
            parent=parent(cloud), secret_id=f"secret-{number}", secret={**AUTOMATIC, "labels": labels}
        )

    def names(**asked: object) -> list[str]:
        found = client.list_secrets(request={"parent": parent(cloud), **asked})
        return [secret.name.rpartition("-")[2] for secret in found]

    assert names() == list("6543210")
    assert names(page_size=3) == list("6543210")
    first = next(client.list_secrets(request={"parent": parent(cloud), "page_size": 3}).pages)
    assert (len(first.secrets), first.total_size) == (3, 7)
    assert names(filter="labels.odd=1") == list("531")
    assert names(filter="labels.odd=1 AND name:secret-3") == ["3"]
    assert names(filter="secret-4") == ["4"]
    refused(lambda: names(filter="labels.odd=1 OR name:3"), exceptions.BadRequest, "filter")
    name = f"{parent(cloud)}/secrets/secret-1"
    for _ in range(3):
        client.add_secret_version(parent=name, payload={"data": b"x"})
    client.disable_secret_version(name=f"{name}/versions/2")
    found = client.list_secret_versions(request={"parent": name, "filter": "state:ENABLED", "page_size": 1})
    assert [version.name.rpartition("/")[2] for version in found] == ["3", "1"]


# Who may what

ACCOUNT = "worker@home-project.iam.gserviceaccount.com"


def grant(client: Client, resource: str, role: str, member: str) -> policy_pb2.Policy:
    policy = client.get_iam_policy(request=iam_policy_pb2.GetIamPolicyRequest(resource=resource))
    policy.bindings.add(role=role, members=[member])
    return client.set_iam_policy(request=iam_policy_pb2.SetIamPolicyRequest(resource=resource, policy=policy))


def test_a_service_account_reads_what_it_was_given(client: Client, cloud: Emulator) -> None:
    mine, other = made(client, cloud, "mine", b"for me"), made(client, cloud, "other", b"for you")
    worker = client_of(cloud, ACCOUNT)
    for name in (mine, other):
        refused(
            lambda name=name: worker.access_secret_version(name=f"{name}/versions/latest"),  # type: ignore[misc]
            exceptions.Forbidden,
            "secretmanager.versions.access",
        )
    granted = grant(client, mine, "roles/secretmanager.secretAccessor", f"serviceAccount:{ACCOUNT}")
    assert granted.bindings[0].role == "roles/secretmanager.secretAccessor"
    assert worker.access_secret_version(name=f"{mine}/versions/latest").payload.data == b"for me"
    for call in (
        lambda: worker.access_secret_version(name=f"{other}/versions/latest"),
        lambda: worker.get_secret(name=mine),
        lambda: worker.add_secret_version(parent=mine, payload={"data": b"x"}),
        lambda: worker.delete_secret(name=mine),
        lambda: made(worker, cloud, "new"),
        lambda: grant(worker, mine, "roles/owner", f"serviceAccount:{ACCOUNT}"),
        lambda: worker.access_secret_version(name=f"{parent(cloud)}/secrets/none/versions/1"),
    ):
        refused(call, exceptions.Forbidden, ACCOUNT)


def test_scopes_limit_it_too(client: Client, cloud: Emulator) -> None:
    name = made(client, cloud, payload=b"x")
    grant(client, name, "roles/secretmanager.admin", f"serviceAccount:{ACCOUNT}")
    narrow = client_of(cloud, ACCOUNT, ("https://www.googleapis.com/auth/devstorage.read_only",))
    refused(lambda: narrow.access_secret_version(name=f"{name}/versions/1"), exceptions.Forbidden, "scopes")
    assert client_of(cloud, ACCOUNT).access_secret_version(name=f"{name}/versions/1").payload.data == b"x"


def test_a_wrong_token_is_nobody(client: Client, cloud: Emulator) -> None:
    path = f"/v1/{made(client, cloud, payload=b'x')}/versions/1:access"
    assert call(cloud, "GET", path)[0] == 200
    status, told = call(cloud, "GET", path, authorization="Bearer ya29.emulated.forged")
    assert (status, told["error"]["status"]) == (401, "UNAUTHENTICATED")


def test_permissions_are_told(client: Client, cloud: Emulator) -> None:
    name = made(client, cloud)
    grant(client, name, "roles/secretmanager.secretAccessor", f"serviceAccount:{ACCOUNT}")
    asked = ["secretmanager.versions.access", "secretmanager.secrets.delete"]
    for who, wanted in ((client, asked), (client_of(cloud, ACCOUNT), asked[:1])):
        request = iam_policy_pb2.TestIamPermissionsRequest(resource=name, permissions=asked)
        assert list(who.test_iam_permissions(request=request).permissions) == wanted


def test_two_who_change_a_policy_at_once(client: Client, cloud: Emulator) -> None:
    name = made(client, cloud)
    old = client.get_iam_policy(request=iam_policy_pb2.GetIamPolicyRequest(resource=name))
    grant(client, name, "roles/viewer", "user:a@example.com")
    old.bindings.add(role="roles/viewer", members=["user:b@example.com"])
    request = iam_policy_pb2.SetIamPolicyRequest(resource=name, policy=old)
    refused(lambda: client.set_iam_policy(request=request), exceptions.Conflict, "concurrent")


# The project and its accounts


def call(
    cloud: Emulator, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, dict[str, Any]]:
    with closing(HTTPConnection("127.0.0.1", cloud.port, timeout=20)) as connection:
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def test_a_role_of_the_whole_project(client: Client, cloud: Emulator) -> None:
    name, worker = made(client, cloud, payload=b"x"), client_of(cloud, ACCOUNT)
    path = f"/v1/projects/{cloud.project}"
    assert call(cloud, "GET", path)[1]["projectNumber"] == cloud.identity.number
    policy = call(cloud, "POST", f"{path}:getIamPolicy", {})[1]
    role = {"role": "roles/secretmanager.secretAccessor", "members": [f"serviceAccount:{ACCOUNT}"]}
    policy["bindings"].append(role)
    status, new = call(cloud, "POST", f"{path}:setIamPolicy", {"policy": policy})
    assert (status, role in new["bindings"]) == (200, True)
    assert worker.access_secret_version(name=f"{name}/versions/1").payload.data == b"x"
    assert call(cloud, "POST", f"{path}:setIamPolicy", {"policy": policy})[0] == 409
    asked = {"permissions": ["compute.instances.list"]}
    assert call(cloud, "POST", f"{path}:testIamPermissions", asked) == (200, asked)
    several: list[dict[str, Any]] = [{}, {"policy": []}, {"policy": {"bindings": [{"members": []}]}}]
    for wrong in [*several, {"policy": {"bindings": 1}}]:
        assert call(cloud, "POST", f"{path}:setIamPolicy", wrong)[0] == 400


def test_service_accounts(cloud: Emulator) -> None:
    path = f"/v1/projects/{cloud.project}/serviceAccounts"
    assert call(cloud, "GET", path) == (200, {})
    body = {"accountId": "worker", "serviceAccount": {"displayName": "Works"}}
    status, account = call(cloud, "POST", path, body)
    assert (status, account["email"], account["displayName"]) == (200, ACCOUNT, "Works")
    assert call(cloud, "POST", path, body)[0] == 409
    assert call(cloud, "POST", path, {"accountId": "No"})[0] == 400
    assert call(cloud, "GET", f"{path}/{ACCOUNT}") == (200, account)
    assert call(cloud, "GET", f"/v1/projects/-/serviceAccounts/{account['uniqueId']}") == (200, account)
    assert call(cloud, "GET", path) == (200, {"accounts": [account]})
    assert call(cloud, "DELETE", f"{path}/{ACCOUNT}") == (200, {})
    assert call(cloud, "GET", f"{path}/{ACCOUNT}")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/projects", 403),
        ("GET", "/v1/projects/home-project/moons", 404),
        ("PUT", "/v1/projects/home-project/secrets/x", 404),
        ("GET", "/v1/projects/home-project/secrets/x/moons", 404),
        ("GET", "/v1/projects/home-project/secrets/x/versions/1/2", 404),
        ("POST", "/v1/projects/home-project/secrets/x:sing", 404),
    ],
)
def test_what_nobody_offers(method: str, path: str, status: int, cloud: Emulator) -> None:
    assert call(cloud, method, path)[0] == status


def test_an_unknown_field_is_refused(cloud: Emulator) -> None:
    path = f"/v1/projects/{cloud.project}/secrets?secretId=x"
    status, told = call(cloud, "POST", path, {**AUTOMATIC, "colour": "red"})
    assert (status, told["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert set(told["error"]) == {"code", "message", "status"}
    assert call(cloud, "POST", path, {**AUTOMATIC, "labels": {"a": 1}})[0] == 400


# What stays


def test_secrets_survive_a_restart_in_a_file_for_us_alone(watch: Watch, tmp_path: Path) -> None:
    with Emulator(tmp_path, pace=FAST, observe=watch) as cloud:
        client = client_of(cloud)
        name = made(client, cloud, payload=b"first")
        client.add_secret_version(parent=name, payload={"data": b"second"})
        grant(client, name, "roles/secretmanager.secretAccessor", f"serviceAccount:{ACCOUNT}")
        call(cloud, "POST", f"/v1/projects/{cloud.project}/serviceAccounts", {"accountId": "worker"})
    assert (tmp_path / "state.json").stat().st_mode & 0o077 == 0
    with Emulator(tmp_path, pace=FAST, observe=watch) as cloud:
        assert (
            client_of(cloud, ACCOUNT).access_secret_version(name=f"{name}/versions/latest").payload.data
            == b"second"
        )
        assert client_of(cloud).add_secret_version(parent=name, payload={"data": b"x"}).name.endswith("/3")
        assert call(cloud, "GET", f"/v1/projects/{cloud.project}/serviceAccounts/{ACCOUNT}")[0] == 200


# gcloud


@pytest.mark.skipif(not shutil.which("gcloud"), reason="gcloud is not installed")
def test_gcloud(cloud: Emulator, tmp_path: Path) -> None:
    def gcloud(*words: str, given: str = "") -> str:
        environment = {**os.environ, **cloud.environment(), "CLOUDSDK_CONFIG": str(tmp_path)}
        done = subprocess.run(
            ["gcloud", *words, "--quiet"],
            input=given,
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    gcloud("secrets", "create", "key", "--data-file=-", given="hidden")
    assert gcloud("secrets", "versions", "access", "latest", "--secret=key") == "hidden"
    assert gcloud("secrets", "list", "--format=value(name)").split() == ["key"]
    gcloud("iam", "service-accounts", "create", "worker")
    member = f"serviceAccount:{ACCOUNT}"
    role = "roles/secretmanager.secretAccessor"
    gcloud("projects", "add-iam-policy-binding", cloud.project, f"--member={member}", f"--role={role}")
    assert any(one["role"] == role and member in one["members"] for one in cloud.identity.policy["bindings"])
    gcloud("secrets", "delete", "key")
