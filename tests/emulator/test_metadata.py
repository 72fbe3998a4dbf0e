"""The metadata server, as Google's own client and plain requests see it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.emulator.http import LARGE, Server, listen_on_loopback
from stoker.emulator.machines.interface import Mode
from tests.emulator.vms import EMAIL, LONG, SCOPE, Vm, eventually

FLAVOR = {"Metadata-Flavor": "Google"}
V1 = "/computeMetadata/v1/"


class Client:
    """Speaks to the server of one VM, which is never booted."""

    def __init__(self, vm: Vm, port: int) -> None:
        self.vm, self.port = vm, port

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, headers: dict[str, str] = FLAVOR
    ) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        try:
            connection.request(method, path, body, headers)
            found = connection.getresponse()
            found.text = found.read().decode()  # type: ignore[attr-defined]
            return found
        finally:
            connection.close()

    def text(self, path: str) -> str:
        found = self.ask(V1 + path)
        assert found.status == 200
        return str(found.text)  # type: ignore[attr-defined]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    server, listening = Server(), listen_on_loopback()
    vm = Vm(tmp_path, Mode.PROCESSES, server)
    server.listen(listening, vm.metadata.app)
    yield Client(vm, listening.getsockname()[1])
    vm.metadata.disconnect()
    server.close()


def test_values_are_plain_text(client: Client) -> None:
    client.vm.attributes["key with / slash"] = "ä\n"
    found = client.ask(V1 + "instance/name")
    assert (found.status, found.headers["Metadata-Flavor"]) == (200, "Google")
    assert found.headers["ETag"]
    assert client.text("instance/name") == "vm-1"
    assert client.text("instance/id") == "4711"
    assert client.text("instance/tags") == '["web"]'
    assert client.text("instance/preempted") == "FALSE"
    assert client.text("project/project-id") == "home"
    assert client.text("instance/attributes/key%20with%20%2F%20slash") == "ä\n"
    assert client.text("instance/service-accounts/default/scopes") == f"{SCOPE}\n"
    assert client.text("instance/network-interfaces/0/ip") == "10.0.0.2"


def test_directories_are_lists_of_names(client: Client) -> None:
    assert client.text("") == "instance/\nproject/\n"
    assert client.text("project/") == "attributes/\nnumeric-project-id\nproject-id\n"
    assert client.text("instance/service-accounts/") == f"{EMAIL}/\ndefault/\n"
    assert client.text("instance/service-accounts/default/") == "aliases\nemail\nscopes\ntoken\n"
    assert client.text("instance/network-interfaces/") == "0/\n"


def test_a_directory_without_its_slash_is_elsewhere(client: Client) -> None:
    found = client.ask(V1 + "instance/attributes?recursive=true")
    assert found.status == 301
    assert (
        found.headers["Location"] == f"http://127.0.0.1:{client.port}{V1}instance/attributes/?recursive=true"
    )


def test_all_at_once_is_json_with_other_names(client: Client) -> None:
    client.vm.attributes["my-key"] = "value"
    found = json.loads(client.text("?recursive=true"))
    assert found["instance"]["maintenanceEvent"] == "NONE"
    assert found["instance"]["attributes"] == {"my-key": "value"}
    assert found["instance"]["serviceAccounts"][EMAIL] == {"aliases": [], "email": EMAIL, "scopes": [SCOPE]}
    assert found["instance"]["networkInterfaces"] == [{"ip": "10.0.0.2", "accessConfigs": []}]
    assert found["project"] == {"projectId": "home", "numericProjectId": 7, "attributes": {"team": "us"}}
    assert json.loads(client.text("instance/attributes/?recursive=true")) == {"my-key": "value"}


def test_other_forms(client: Client) -> None:
    client.vm.attributes["a"] = "1"
    assert client.text("instance/name?alt=json") == '"vm-1"'
    assert (
        client.text("project/?recursive=true&alt=text")
        == "attributes/team us\nnumeric-project-id 7\nproject-id home\n"
    )


@pytest.mark.parametrize(
    "headers",
    [{}, {"Metadata-Flavor": "Amazon"}, {"Metadata-Flavor": "Google", "X-Forwarded-For": "10.0.0.1"}],
)
def test_who_does_not_mean_it_gets_nothing(client: Client, headers: dict[str, str]) -> None:
    found = client.ask(V1 + "instance/service-accounts/default/token", headers=headers)
    assert found.status == 403
    assert "for " not in found.text  # type: ignore[attr-defined]


def test_what_is_not_there(client: Client) -> None:
    for path in (
        "instance/nothing",
        "instance/attributes/nothing",
        "instance/name/more",
        "nothing/",
        "instance/network-interfaces/7/",
    ):
        assert client.ask(V1 + path).status == 404
    assert client.ask("/elsewhere").status == 404
    assert client.ask("/computeMetadata/v1foo/instance/name").status == 404
    assert client.ask(V1 + "instance/name", "POST", "x").status == 405


def test_tokens(client: Client) -> None:
    for account in ("default", EMAIL):
        found = json.loads(client.text(f"instance/service-accounts/{account}/token"))
        assert found == {"access_token": f"for {EMAIL} 1", "expires_in": 3599, "token_type": "Bearer"}
    several = client.text("instance/service-accounts/default/token?scopes=https://a,https://b")
    assert json.loads(several)["access_token"] == f"for {EMAIL} 2"
    assert client.ask(V1 + "instance/service-accounts/nobody/token").status == 404


def test_waiting_for_a_change(client: Client) -> None:
    client.vm.attributes["a"] = "1"
    etag = client.ask(V1 + "instance/attributes/a").headers["ETag"]
    heard: list[str] = []
    query = f"?wait_for_change=true&last_etag={etag}"
    waiting = threading.Thread(target=lambda: heard.append(client.text(f"instance/attributes/a{query}")))
    waiting.start()
    client.vm.attributes["b"] = "other"
    client.vm.metadata.changed()  # of something else
    waiting.join(0.2)
    assert heard == []
    client.vm.attributes["a"] = "2"
    client.vm.metadata.changed()
    waiting.join(LONG)
    assert heard == ["2"]
    assert client.text(f"instance/attributes/a{query}") == "2"  # it has changed since then


def test_waiting_ends_when_time_is_up_and_with_the_power(client: Client) -> None:
    assert client.text("instance/preempted?wait_for_change=true&timeout_sec=0") == "FALSE"
    heard: list[str] = []
    waiting = threading.Thread(
        target=lambda: heard.append(client.text("instance/preempted?wait_for_change=true")), daemon=True
    )
    waiting.start()
    assert eventually(lambda: client.vm.metadata.disconnect() or bool(heard))  # type: ignore[func-returns-value]


def test_guest_attributes(client: Client) -> None:
    path = V1 + "instance/guest-attributes/mine/key"
    assert client.ask(path, "PUT", "value").status == 403
    client.vm.attributes["enable-guest-attributes"] = "TRUE"
    assert client.ask(path, "PUT", "value").status == 200
    assert client.vm.guest_attributes == {"mine": {"key": "value"}}
    assert client.text("instance/guest-attributes/mine/key") == "value"
    assert client.ask(path, "PUT", "x" * 300_000).status == 400
    assert client.ask(path, "DELETE").status == 200
    assert client.ask(path).status == 404
    assert client.ask(V1 + "instance/attributes/key", "PUT", "value").status == 405


def test_google_auth_finds_it(client: Client) -> None:
    code = """
import google.auth, google.auth.compute_engine, google.auth.transport.requests as r
from google.auth.compute_engine import _metadata
request = r.Request()
assert _metadata.ping(request)
assert _metadata.get(request, "instance/service-accounts/default/", recursive=True)["aliases"] == ["default"]
found, project = google.auth.default()
assert isinstance(found, google.auth.compute_engine.Credentials)
found.refresh(request)
print(project, found.token, found.service_account_email)
"""
    where = f"127.0.0.1:{client.port}"
    environment = {
        "GCE_METADATA_HOST": where,
        "GCE_METADATA_IP": where,
        "HOME": "/nowhere",
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == f"home for {EMAIL} 1 {EMAIL}\n", done.stderr


def test_a_guest_attribute_that_is_larger_than_all_is_refused(client: Client) -> None:
    client.vm.attributes["enable-guest-attributes"] = "TRUE"
    path = V1 + "instance/guest-attributes/space/key"
    assert client.ask(path, "PUT", "x" * LARGE).status == 400
    assert client.vm.guest_attributes == {}
