"""What is refused: bodies of the wrong kind, and what a VM's own account may not do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import quote

import pytest
from google.cloud import compute_v1

from stoker.emulator.cloud import PROJECT, Emulator
from stoker.emulator.identity import Caller
from stoker.emulator.pace import FAST
from tests.emulator.gce import DEBIAN, EVERYTHING, ZONE, Gce, until, vm

ROOT = f"compute/v1/projects/{PROJECT}"
BODY: dict[str, Any] = {
    "name": "vm",
    "machineType": f"zones/{ZONE}/machineTypes/e2-small",
    "disks": [{"boot": True, "initializeParams": {"sourceImage": DEBIAN}}],
    "networkInterfaces": [{"network": "global/networks/default"}],
}


@pytest.fixture
def unseen() -> Iterator[Emulator]:
    """Nobody looks whether requests are right: these are not."""
    with Emulator(pace=FAST) as found:
        yield found


def ask(cloud: Emulator, method: str, path: str, body: object = None, token: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
    connection = HTTPConnection("127.0.0.1", cloud.port)
    try:
        connection.request(method, f"/{path}", data, headers | {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read() or b"{}")
    finally:
        connection.close()


@pytest.mark.parametrize(
    "bad",
    [
        {"metadata": None},
        {"metadata": {"items": "x"}},
        {"labels": None},
        {"labels": {"a": 1}},
        {"disks": "x"},
        {"disks": ["x"]},
        {"disks": [{"boot": True, "initializeParams": {"sourceImage": DEBIAN, "diskSizeGb": "x"}}]},
        {"scheduling": {"terminationTime": 5}},
        {"scheduling": {"maxRunDuration": {"seconds": "x"}}},
        {"tags": {"items": 5}},
        {"serviceAccounts": [{"email": 5}]},
        {"guestAccelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "x"}]},
        {"machineType": 5},
    ],
)
def test_values_of_the_wrong_kind(unseen: Emulator, bad: dict[str, Any]) -> None:
    status, told = ask(unseen, "POST", f"{ROOT}/zones/{ZONE}/instances", BODY | bad)
    assert (status, told["error"]["errors"][0]["reason"]) == (400, "invalid")
    mould = {"name": "mould", "properties": {**BODY, "machineType": "e2-small", **bad}}
    status, told = ask(unseen, "POST", f"{ROOT}/global/instanceTemplates", mould)
    assert (status, told["error"]["errors"][0]["reason"]) == (400, "invalid")


def test_filters_and_starts_that_are_none(unseen: Emulator) -> None:
    of_zone = f"{ROOT}/zones/{ZONE}/instances"
    assert ask(unseen, "POST", of_zone, BODY)[0] == 200
    for path in (
        f"{of_zone}?filter=" + quote('name eq "("'),
        f"{of_zone}/vm/serialPort?start=abc",
        f"{of_zone}?pageToken=abc",
        f"{of_zone}?pageToken=NQ==",
    ):
        status, told = ask(unseen, "GET", path)
        assert (status, told["error"]["errors"][0]["reason"]) == (400, "invalid"), path


def test_no_page_passes_over_one_because_others_are_gone(unseen: Emulator) -> None:
    disks = f"{ROOT}/zones/{ZONE}/disks"
    for place in (disks, disks.replace(ZONE, "us-central1-b")):
        for name in "abcd":
            assert ask(unseen, "POST", place, {"name": name, "sizeGb": "10"})[0] == 200
    _, first = ask(unseen, "GET", f"{disks}?maxResults=2")
    _, everywhere = ask(unseen, "GET", f"{ROOT}/aggregated/disks?maxResults=3")
    _, newest = ask(unseen, "GET", f"{disks}?maxResults=2&orderBy=creationTimestamp%20desc")
    assert [one["name"] for one in first["items"]] == ["a", "b"]
    assert [one["name"] for one in newest["items"]] == ["d", "c"]
    for name in "ad":
        assert ask(unseen, "DELETE", f"{disks}/{name}")[0] == 200
    until(lambda: len(ask(unseen, "GET", disks)[1]["items"]) == 2)
    _, rest = ask(unseen, "GET", f"{disks}?pageToken={first['nextPageToken']}")
    assert [one["name"] for one in rest["items"]] == ["c"]
    _, older = ask(
        unseen, "GET", f"{disks}?orderBy=creationTimestamp%20desc&pageToken={newest['nextPageToken']}"
    )
    assert [one["name"] for one in older["items"]] == ["b"]
    _, more = ask(unseen, "GET", f"{ROOT}/aggregated/disks?pageToken={everywhere['nextPageToken']}")
    found = [
        one["name"] + place[-1] for place, inside in more["items"].items() for one in inside.get("disks", ())
    ]
    assert sorted(found) == ["bb", "ca", "cb", "db"]


def test_a_template_needs_the_leave_to_use_its_account(unseen: Emulator) -> None:
    account = f"weak@{PROJECT}.iam.gserviceaccount.com"
    unseen.identity.policy["bindings"].append(
        {"role": "roles/compute.admin", "members": [f"serviceAccount:{account}"]}
    )
    token = unseen.identity.token(Caller(account))["access_token"]
    mould = {"name": "mould", "properties": BODY | {"machineType": "e2-small"}}
    strong = {"serviceAccounts": [{"email": "default", "scopes": [EVERYTHING]}]}
    path = f"{ROOT}/global/instanceTemplates"
    refused = {"name": "mould", "properties": mould["properties"] | strong}  # type: ignore[operator]
    assert ask(unseen, "POST", path, refused, token)[0] == 403
    assert ask(unseen, "POST", path, mould, token)[0] == 200


def test_a_vm_without_a_token_is_its_own_account(cloud: Emulator) -> None:
    assert ask(cloud, "POST", f"storage/v1/b?project={PROJECT}", {"name": "private"})[0] == 200
    upload = "upload/storage/v1/b/private/o?uploadType=media&name=word"
    assert ask(cloud, "POST", upload, b"secret")[0] == 200
    get = 'curl -s -o /dev/null -w "%{http_code}"'
    script = "\n".join(
        (
            f'echo "storage $({get} $STOKER_CLOUD/storage/v1/b/private/o/word?alt=media)"',
            f'echo "forged $({get} -H "Authorization: Bearer x" $STOKER_CLOUD/storage/v1/b/private/o/word)"',
            f'echo "control $({get} $STOKER_CLOUD/emulator/faults)"',
            "echo over",
        )
    )
    gce = Gce(cloud.url)
    accounts = {"none": "", "weak": f"weak@{PROJECT}.iam.gserviceaccount.com", "strong": "default"}
    for name, email in accounts.items():
        account = [compute_v1.ServiceAccount(email=email, scopes=[EVERYTHING])] if email else []
        gce.make(vm(name, script, service_accounts=account))
    for name in accounts:
        until(lambda: "script: over" in gce.console(name))  # noqa: B023  (called at once)
        said, status = gce.console(name), 200 if name == "strong" else 403
        for line in (f"storage {status}", f"forged {status}", "control 403"):
            assert line in said, (name, said)
