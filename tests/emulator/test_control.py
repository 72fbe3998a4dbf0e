"""The emulator's own calls; and whom it answers at all."""

from __future__ import annotations

import json
import os
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from stoker.core.errors import StokerError
from stoker.emulator.cloud import Emulator
from stoker.emulator.http import LARGE
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch


def call(cloud: Emulator, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
    with closing(HTTPConnection("127.0.0.1", cloud.port, timeout=20)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())


def test_what_runs(cloud: Emulator) -> None:
    status, told = call(cloud, "GET", "/emulator")
    assert (status, told["project"], told["vms"], told["faults"]) == (200, "home-project", [], 0)
    assert told["mode"] == cloud.compute.mode.value


def test_faults_come_and_go(cloud: Emulator) -> None:
    first = call(
        cloud,
        "POST",
        "/emulator/faults",
        {"kind": "error", "api": "secretmanager", "status": 429, "times": 2},
    )
    assert first[1]["faults"][0]["id"]
    call(
        cloud,
        "POST",
        "/emulator/faults",
        [{"kind": "drop", "api": "storage", "id": "a b"}, {"kind": "quota"}],
    )
    path = "/v1/projects/home-project/secrets"
    assert [call(cloud, "GET", path)[0] for _ in range(3)] == [429, 429, 200]
    found = call(cloud, "GET", "/emulator/faults")[1]["faults"]
    assert [(fault["kind"], fault["done"]) for fault in found] == [("error", 2), ("drop", 0), ("quota", 0)]
    assert call(cloud, "DELETE", "/emulator/faults/a%20b") == (200, {})
    assert call(cloud, "DELETE", "/emulator/faults/a%20b")[0] == 404
    assert len(call(cloud, "GET", "/emulator/faults")[1]["faults"]) == 2
    assert call(cloud, "DELETE", "/emulator/faults") == (200, {})
    assert call(cloud, "GET", "/emulator/faults") == (200, {"faults": []})


def test_an_effect_without_its_answer(cloud: Emulator) -> None:
    """What happened after the effect did happen; what came before did not."""
    path = "/v1/projects/home-project/secrets"
    body: dict[str, object] = {"replication": {"automatic": {}}}
    for number, (kind, there) in enumerate(
        {"error": 404, "error-after": 200, "drop": 404, "drop-after": 200}.items()
    ):
        call(
            cloud,
            "POST",
            "/emulator/faults",
            {"kind": kind, "method": "POST", "api": "secretmanager", "times": 1},
        )
        try:
            assert call(cloud, "POST", f"{path}?secretId=s{number}", body)[0] == 503
        except (ConnectionError, OSError):
            assert kind.startswith("drop")
        assert call(cloud, "GET", f"{path}/s{number}")[0] == there


def test_faults_are_not_in_the_way_of_their_removal(cloud: Emulator) -> None:
    call(cloud, "POST", "/emulator/faults", {"kind": "drop"})
    assert call(cloud, "DELETE", "/emulator/faults") == (200, {})


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/emulator/faults", {"kind": "flood"}, 400),
        ("POST", "/emulator/faults", {"kind": "error", "colour": "red"}, 400),
        ("POST", "/emulator/faults", [{"kind": "error"}, 5], 400),
        ("POST", "/emulator/faults", None, 400),
        ("POST", "/emulator/preempt", {"name": "nobody"}, 404),
        ("POST", "/emulator/preempt", {"colour": "red"}, 400),
        ("POST", "/emulator/preempt", {"count": -1}, 400),
        ("POST", "/emulator/preempt", {"count": "all"}, 400),
        ("POST", "/emulator/policy", {"bindings": 5}, 400),
        ("GET", "/emulator/moons", None, 404),
        ("GET", "/emulator/faults/1", None, 404),
        ("PUT", "/emulator/faults", {"kind": "error"}, 404),
    ],
)
def test_what_makes_no_sense(method: str, path: str, body: object, status: int, cloud: Emulator) -> None:
    assert call(cloud, method, path, body)[0] == status
    assert call(cloud, "GET", "/emulator/faults") == (200, {"faults": []})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/emulator/faults"),
        ("POST", "/emulator/policy"),
        ("POST", "/compute/v1/projects/home-project/zones/us-central1-a/instances"),
        ("POST", "/batch/compute/v1"),
        ("POST", "/v1/projects/home-project/secrets?secretId=one"),
        ("POST", "/storage/v1/b?project=home-project"),
        ("POST", "/batch/storage/v1"),
    ],
)
def test_a_body_that_is_too_large(method: str, path: str, cloud: Emulator, watch: Watch) -> None:
    kind = {"Content-Type": "multipart/mixed; boundary=x"}
    status, told = call(cloud, method, path, "x" * LARGE, **kind)
    assert (status, told["error"]["errors"][0]["reason"]) == (413, "requestTooLarge")
    watch.problems.clear()


@pytest.mark.parametrize(
    "path", ["/emulator/faults", "/emulator/policy", "/storage/v1/b?project=home-project"]
)
def test_json_that_is_too_deep(path: str, cloud: Emulator, watch: Watch) -> None:
    with closing(HTTPConnection("127.0.0.1", cloud.port, timeout=20)) as connection:
        connection.request("POST", path, "[" * 100_000 + "]" * 100_000)
        assert connection.getresponse().status == 400
    watch.problems.clear()


@pytest.mark.parametrize("name", ["emulator", "compute", "storage", "batch", "upload", "download", "v1"])
def test_a_bucket_whose_paths_belong_to_others(name: str, cloud: Emulator) -> None:
    path = "/storage/v1/b?project=home-project"
    assert call(cloud, "POST", path, {"name": name})[0] == 400
    assert call(cloud, "POST", path, {"name": f"{name}-1"})[0] == 200


def test_nobody_to_preempt(cloud: Emulator) -> None:
    bodies: list[dict[str, object]] = [{}, {"count": 5}, {"zone": "us-central1-a"}]
    for body in bodies:
        assert call(cloud, "POST", "/emulator/preempt", body) == (200, {"preempted": []})
    assert call(cloud, "GET", "/emulator/meter") == (200, {"uses": [], "seconds": 0})


def test_the_policy(cloud: Emulator) -> None:
    policy = call(cloud, "GET", "/emulator/policy")[1]
    assert policy["bindings"][0]["role"] == "roles/editor"
    policy["bindings"].append({"role": "roles/viewer", "members": ["user:a@example.com"]})
    assert call(cloud, "POST", "/emulator/policy", policy)[0] == 200
    assert call(cloud, "POST", "/emulator/policy", policy)[0] == 409
    assert cloud.identity.policy["bindings"][1]["role"] == "roles/viewer"


# Whom it answers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1:1", "localhost:1", "", "10.0.0.1"]
)
def test_an_unknown_host_is_refused(host: str, cloud: Emulator) -> None:
    for path in ("/emulator", "/storage/v1/b?project=p", "/bucket/object"):
        assert call(cloud, "GET", path, host=host)[0] == 421


def test_known_hosts(cloud: Emulator) -> None:
    for host in (f"127.0.0.1:{cloud.port}", f"LOCALHOST:{cloud.port}", "localhost", "compute.googleapis.com"):
        assert call(cloud, "GET", "/emulator", host=host)[0] == 200


def test_a_page_in_a_browser_is_refused(cloud: Emulator) -> None:
    """Any page may send requests to loopback; a startup script must not come from there."""
    assert call(cloud, "POST", "/emulator/faults", {"kind": "drop"}, origin="https://evil.example")[0] == 421
    assert call(cloud, "GET", "/emulator/faults") == (200, {"faults": []})


def test_nothing_listens_beyond_loopback(cloud: Emulator) -> None:
    mine = {os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()}  # noqa: PTH115
    rows = [
        line.split()
        for family in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{family}").read_text(encoding="ascii").splitlines()[1:]
    ]
    found = [row[1].split(":") for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in mine]
    assert cloud.port in [int(port, 16) for _, port in found]
    assert {address for address, _ in found} == {"0100007F"}


# A directory


def test_a_directory_has_one_emulator(watch: Watch, tmp_path: Path) -> None:
    with Emulator(tmp_path, pace=FAST, observe=watch), pytest.raises(StokerError, match="another emulator"):
        Emulator(tmp_path)
    with Emulator(tmp_path, pace=FAST, observe=watch) as cloud:
        assert call(cloud, "GET", "/emulator")[0] == 200


def test_a_damaged_state_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"secrets": {', encoding="utf-8")
    with pytest.raises(StokerError, match="damaged"):
        Emulator(tmp_path)
    assert (tmp_path / "state.json").read_text(encoding="utf-8") == '{"secrets": {'


def test_the_last_change_before_the_end_is_kept(watch: Watch, tmp_path: Path) -> None:
    for number in range(5):
        with Emulator(tmp_path, pace=FAST, observe=watch) as cloud:
            policy = call(cloud, "GET", "/emulator/policy")[1]
            assert len(policy["bindings"]) == 1 + 2 * number
            for role in ("roles/viewer", "roles/owner"):
                policy["bindings"].append({"role": role, "members": [f"user:{number}@example.com"]})
                policy = call(cloud, "POST", "/emulator/policy", policy)[1]
