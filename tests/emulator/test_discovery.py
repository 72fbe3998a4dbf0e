"""The reader over the emulator's shoulder sees what is wrong, and says nothing of what is right."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from stoker.emulator.errors import ApiError, bug
from stoker.emulator.http import Reply, Request, json_reply
from tests.emulator.discovery import Discovery, Watch

INSTANCES = "/compute/v1/projects/home-project/zones/us-central1-a/instances"
DISK = {"boot": True, "initializeParams": {"sourceImage": "family/debian", "diskSizeGb": "10"}}
INSTANCE: dict[str, Any] = {
    "name": "one",
    "machineType": "zones/us-central1-a/machineTypes/n2-standard-2",
    "disks": [DISK],
    "networkInterfaces": [{}],
    "labels": {"a": "b"},
    "scheduling": {"provisioningModel": "SPOT", "maxRunDuration": {"seconds": "60"}},
    "metadata": {"fingerprint": "AAAA", "items": [{"key": "k", "value": "v"}]},
}
OPERATION: dict[str, Any] = {
    "kind": "compute#operation",
    "id": "123",
    "name": "operation-1",
    "status": "DONE",
    "progress": 100,
    "insertTime": "2026-01-02T03:04:05.678-08:00",
}
SECRETS = "/v1/projects/home-project/secrets"
SECRET = {
    "name": "projects/1/secrets/s",
    "replication": {"automatic": {}},
    "createTime": "2026-01-02T03:04:05.678Z",
}
BUCKETS = "/storage/v1/b"
OBJECT = {
    "kind": "storage#object",
    "name": "o",
    "size": "3",
    "generation": "12",
    "timeCreated": "2026-01-02T03:04:05Z",
}


def request(method: str, path: str, body: object = None, **query: str) -> Request:
    return Request(method, path, query, {}, b"" if body is None else json.dumps(body).encode())


def insert(**changes: Any) -> Request:
    return request("POST", INSTANCES, changed(INSTANCE, changes))


def changed(data: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """With other values at paths such as `scheduling.provisioningModel`."""
    copy: dict[str, Any] = json.loads(json.dumps(data))
    for path, value in changes.items():
        *parents, last = path.split("__")
        inner: Any = copy
        for name in parents:
            inner = inner[int(name) if name.isdigit() else name]
        inner[last] = value
    return copy


def done(**changes: Any) -> Reply:
    return json_reply(changed(OPERATION, changes))


CHECK = Discovery().check

RIGHT = {
    "insert": (insert(), done()),
    "an empty text is none": (insert(metadata__fingerprint=""), done()),
    "numbers where the service takes both": (insert(scheduling__maxRunDuration__seconds=60), done()),
    "list": (
        request("GET", INSTANCES, maxResults="5", filter="a"),
        json_reply({"kind": "compute#instanceList"}),
    ),
    "general parameters": (
        replace(
            request("GET", INSTANCES, prettyPrint="true"),
            query={"$alt": "json;enum-encoding=int", "alt": "json"},
        ),
        json_reply({"kind": "compute#instanceList", "items": []}),
    ),
    "no body": (request("POST", f"{INSTANCES}/one/stop"), done()),
    "refused": (
        request("POST", INSTANCES, {"nonsense": 1}),
        json_reply(ApiError(400, "invalid", "no").body(), 400),
    ),
    "unknown and refused": (
        request("POST", f"{INSTANCES}/one/dance"),
        json_reply(ApiError(404, "notFound", "no").body(), 404),
    ),
    "cut off": (insert(nonsense=1), Reply(0)),
    "secret": (
        request("POST", SECRETS, {"replication": {"automatic": {}}}, secretId="s"),
        json_reply(SECRET),
    ),
    "verb": (
        request("POST", f"{SECRETS}/s:addVersion", {"payload": {"data": "YQ==", "dataCrc32c": "3251651376"}}),
        json_reply({"name": "n", "state": "ENABLED"}),
    ),
    "an enum by its number": (
        replace(request("GET", f"{SECRETS}/s/versions/1"), query={"$alt": "json;enum-encoding=int"}),
        json_reply({"name": "n", "state": 1}),
    ),
    "object": (request("GET", f"{BUCKETS}/b/o/a%2Fb"), json_reply(OBJECT)),
    "download": (request("GET", f"/download{BUCKETS}/b/o/a", alt="media"), Reply(200, b"\xff\xfe")),
    "download of nothing": (
        request("GET", f"/download{BUCKETS}/b/o/a", alt="media"),
        Reply(404, b"No such object"),
    ),
    "deleted": (request("DELETE", f"{BUCKETS}/b/o/a"), Reply(204)),
    "upload": (
        Request("POST", f"/upload{BUCKETS}/b/o", {"uploadType": "media", "name": "o"}, {}, b"\0"),
        json_reply(OBJECT),
    ),
    "upload in parts": (
        Request(
            "POST",
            f"/upload{BUCKETS}/b/o",
            {"uploadType": "multipart"},
            {"content-type": 'multipart/related; boundary="==x=="'},
            b'--==x==\r\ncontent-type: application/json\r\n\r\n{"name": "o"}\r\n'
            b"--==x==\r\n\r\nabc\r\n--==x==--",
        ),
        json_reply(OBJECT),
    ),
    "start of a resumable upload": (
        request("POST", f"/upload{BUCKETS}/b/o", {"name": "o"}, uploadType="resumable"),
        Reply(200, b"", {"Location": "…"}),
    ),
    "chunk of a resumable upload": (
        request("PUT", f"/upload{BUCKETS}/b/o", uploadType="resumable", upload_id="x"),
        Reply(308),
    ),
    "XML": (request("PUT", "/bucket/object"), Reply(200)),
    "service accounts": (
        request("POST", "/v1/projects/p/serviceAccounts", {"accountId": "someone"}),
        json_reply({"name": "n", "email": "e"}),
    ),
    "policy of the project": (
        request("POST", "/v1/projects/p:getIamPolicy", {}),
        json_reply({"etag": "ACAB"}),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right(name: str) -> None:
    assert CHECK(*RIGHT[name]) == []


WRONG = {
    "no such method": (request("POST", f"{INSTANCES}/one/dance"), done()),
    "no such path": (request("GET", "/compute/v1/projects/p/moons"), json_reply({})),
    "wrong verb": (request("POST", f"{SECRETS}/s:sing", {}), json_reply({})),
    "unknown parameter": (
        request("GET", INSTANCES, colour="red"),
        json_reply({"kind": "compute#instanceList"}),
    ),
    "wrong number": (request("GET", INSTANCES, maxResults="many"), json_reply({})),
    "number too large": (request("GET", INSTANCES, maxResults=str(2**32)), json_reply({})),
    "wrong truth": (request("GET", INSTANCES, returnPartialSuccess="yes"), json_reply({})),
    "wrong enum of a parameter": (request("GET", f"{BUCKETS}/b", projection="all"), json_reply({})),
    "a parameter twice": (
        replace(request("GET", INSTANCES, filter="a"), pairs=(("filter", "a"), ("filter", "b"))),
        json_reply({}),
    ),
    "missing parameter": (request("GET", BUCKETS), json_reply({})),
    "a name that cannot be": (request("GET", f"{INSTANCES}/One"), json_reply({})),
    "unknown field": (insert(colour="red"), done()),
    "unknown field inside": (insert(scheduling__colour="red"), done()),
    "unknown field in a list": (insert(disks__0__colour="red"), done()),
    "wrong enum": (insert(scheduling__provisioningModel="CHEAP"), done()),
    "text for a truth": (insert(disks__0__boot="true"), done()),
    "number for a text": (insert(name=5), done()),
    "number for a label": (insert(labels={"a": 1}), done()),
    "object for a list": (insert(disks={}), done()),
    "list for an object": (insert(scheduling=[]), done()),
    "a size that is none": (insert(disks__0__initializeParams__diskSizeGb="ten"), done()),
    "a name against the pattern": (insert(name="One!"), done()),
    "no base 64": (insert(metadata__fingerprint="%%"), done()),
    "body that is no JSON": (Request("POST", INSTANCES, {}, {}, b"{"), done()),
    "body where none is": (request("POST", f"{INSTANCES}/one/stop", {"name": "one"}), done()),
    "a field in the query too much": (request("GET", INSTANCES, name="one"), json_reply({})),
    "unknown field in a reply": (insert(), done(colour="red")),
    "wrong enum in a reply": (insert(), done(status="FINISHED")),
    "number for a 64-bit number in a reply": (insert(), done(id=123)),
    "negative for unsigned": (insert(), done(id="-1")),
    "text for a number in a reply": (insert(), done(progress="100")),
    "truth for a number": (insert(), done(progress=True)),
    "a number of 33 bits": (insert(), done(progress=2**31)),
    "null in a reply": (insert(), done(name=None)),
    "wrong kind": (insert(), done(kind="compute#instance")),
    "a number for an enum nobody asked for": (
        request("GET", f"{SECRETS}/s/versions/1"),
        json_reply({"name": "n", "state": 1}),
    ),
    "a time that is none": (
        request("GET", f"{SECRETS}/s"),
        json_reply({**SECRET, "createTime": "yesterday"}),
    ),
    "another reply than JSON": (insert(), Reply(200, b"fine", {"Content-Type": "application/json"})),
    "another type than JSON": (insert(), replace(done(), headers={"Content-Type": "text/plain"})),
    "no reply at all": (insert(), Reply(200, b"", {"Content-Type": "application/json"})),
    "a reply where none is": (request("DELETE", f"{BUCKETS}/b/o/a"), json_reply(OBJECT)),
    "an error without a shape": (insert(), Reply(400, b"no")),
    "an error of another code": (insert(), json_reply(ApiError(403, "forbidden", "no").body(), 404)),
    "an error that says nothing": (insert(), json_reply({"error": {"code": 404, "message": ""}}, 404)),
    "a bug of ours": (insert(), json_reply(bug(KeyError("x")).body(), 500)),
    "an object that lacks its name": (
        request("POST", f"{BUCKETS}", {"location": "US"}, project="p"),
        json_reply({"kind": "storage#bucket"}),
    ),
    "parts without a boundary": (
        Request("POST", f"/upload{BUCKETS}/b/o", {"uploadType": "multipart"}, {}, b"x"),
        json_reply(OBJECT),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong(name: str) -> None:
    assert len(CHECK(*WRONG[name])) == 1, CHECK(*WRONG[name])


def test_a_problem_tells_where() -> None:
    (problem,) = CHECK(insert(disks__0__boot="true"), done())
    assert problem.startswith("request.disks[0].boot: 'true'")


def test_a_watch_keeps_each_problem_once() -> None:
    watch = Watch()
    for _ in range(3):
        watch(insert(), done())
        watch(insert(colour="red"), done())
    assert len(watch.problems) == 1
    assert "request.colour" in watch.problems[0]
    assert watch.seen == {"compute.instances.insert": 6}
