"""Uploads that are cut and go on, and a cloud that is stopped and goes on."""

from __future__ import annotations

import http.client
import io
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.discovery import Watch
from tests.emulator.storages import Home, home, wrong_replies
from tests.store.needs import need

need("google.cloud.storage")

GRAIN = 256 * 1024
DATA = random.Random(10).randbytes(5 * GRAIN + 1234)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Home]:
    watch = Watch()
    with home(tmp_path / "cloud", watch) as found:
        found.client().create_bucket("bucket")
        yield found
    assert wrong_replies(watch.problems) == []


class Talk:
    """Requests, one by one, with nothing in between."""

    def __init__(self, url: str) -> None:
        self._host = url.removeprefix("http://")

    def ask(
        self, method: str, path: str, body: bytes = b"", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._host)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, named)
        reply = connection.getresponse()
        found = reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        connection.close()
        return found

    def cut(self, method: str, path: str, body: bytes, length: int, **headers: str) -> None:
        """Promise more than is sent, and go away."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self._host}", f"Content-Length: {length}"]
        lines += [f"{name}: {value}" for name, value in named.items()]
        host, _, port = self._host.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall("\r\n".join([*lines, "", ""]).encode() + body)
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(100) == b""  # no answer

    def begin(self, name: str, query: str = "") -> str:
        """The path of a new resumable upload."""
        body = json.dumps({"name": name, "metadata": {"a": "b"}}).encode()
        status, headers, _ = self.ask(
            "POST",
            f"/upload/storage/v1/b/bucket/o?uploadType=resumable{query}",
            body,
            X_Upload_Content_Type="text/x",
        )
        assert status == 200
        return "/" + headers["location"].partition("://")[2].partition("/")[2]


def span(start: int, end: int, total: int | str = "*") -> str:
    return f"bytes {start}-{end - 1}/{total}"


def test_an_upload_that_is_cut_goes_on(server: Home) -> None:
    talk, total = Talk(server.url), len(DATA)
    path = talk.begin("cut")
    assert talk.ask("PUT", path, Content_Range=f"bytes */{total}")[:2][0] == 308
    first = talk.ask("PUT", path, DATA[: 2 * GRAIN], Content_Range=span(0, 2 * GRAIN, total))
    assert (first[0], first[1]["range"]) == (308, f"bytes=0-{2 * GRAIN - 1}")
    talk.cut(
        "PUT",
        path,
        DATA[2 * GRAIN : 3 * GRAIN],
        total - 2 * GRAIN,
        Content_Range=span(2 * GRAIN, total, total),
    )
    status, headers, _ = talk.ask("PUT", path, Content_Range=f"bytes */{total}")
    assert status == 308
    have = int(headers["range"].rpartition("-")[2]) + 1
    assert have >= 2 * GRAIN
    again = have - GRAIN  # some of it is sent twice
    status, _, body = talk.ask("PUT", path, DATA[again:], Content_Range=span(again, total, total))
    assert status == 200
    made = json.loads(body)
    assert (made["name"], made["size"], made["contentType"]) == ("cut", str(total), "text/x")
    assert (
        talk.ask("PUT", path, Content_Range=f"bytes */{total}")[2] == body
    )  # who did not hear it asks again
    assert server.client().bucket("bucket").blob("cut").download_as_bytes() == DATA


def test_parts_of_an_upload_that_do_not_fit(server: Home) -> None:
    talk = Talk(server.url)
    path = talk.begin("odd")
    assert talk.ask("PUT", path, DATA[:100], Content_Range=span(0, 100))[0] == 400
    assert talk.ask("PUT", path, DATA[:GRAIN], Content_Range=span(GRAIN, 2 * GRAIN))[0] == 503
    assert talk.ask("PUT", path, DATA[:100], Content_Range=span(0, 50, 50))[0] == 400
    assert talk.ask("PUT", path, DATA[:100], Content_Range="nonsense")[0] == 400
    kept = talk.ask("PUT", path, DATA[: GRAIN + 77], Content_Range=span(0, GRAIN + 77))
    assert (kept[0], kept[1]["range"]) == (308, f"bytes=0-{GRAIN - 1}")
    assert talk.ask("DELETE", path)[0] == 499
    assert talk.ask("PUT", path, Content_Range="bytes */*")[0] == 404
    assert not server.client().bucket("bucket").blob("odd").exists()


def test_a_resumable_upload_keeps_its_precondition(server: Home) -> None:
    talk = Talk(server.url)
    slow = talk.begin("claim", "&ifGenerationMatch=0")
    fast = talk.begin("claim", "&ifGenerationMatch=0")
    assert talk.ask("PUT", fast, b"fast", Content_Range=span(0, 4, 4))[0] == 200
    assert talk.ask("PUT", slow, b"slow", Content_Range=span(0, 4, 4))[0] == 412
    late = "/upload/storage/v1/b/bucket/o?uploadType=resumable&name=claim&ifGenerationMatch=0"
    assert talk.ask("POST", late)[0] == 412  # before anything is sent
    assert server.client().bucket("bucket").blob("claim").download_as_bytes() == b"fast"


def test_the_end_of_an_upload_too_soon_is_sent_again(server: Home) -> None:
    talk, server.now = Talk(server.url), 3000.0
    server.storage.rate.burst = 1
    path = talk.begin("often")
    server.client().bucket("bucket").blob("often").upload_from_string(b"x")
    assert talk.ask("PUT", path, b"data", Content_Range=span(0, 4, 4))[0] == 429
    server.now += 1
    assert talk.ask("PUT", path, Content_Range="bytes */4")[0] == 200
    assert server.client().bucket("bucket").blob("often").download_as_bytes() == b"data"


def test_a_body_that_was_cut_is_no_object(server: Home) -> None:
    talk = Talk(server.url)
    talk.cut("PUT", "/bucket/half", b"half of", 100)
    talk.cut("POST", "/upload/storage/v1/b/bucket/o?uploadType=media&name=half", b"half of", 20_000_000)
    assert list(server.client().bucket("bucket").list_blobs()) == []


class Unsteady(io.BytesIO):
    """Breaks off once, in the middle."""

    broken = False

    def read(self, size: int | None = -1) -> bytes:
        if self.tell() >= 3 * GRAIN and not self.broken:
            self.broken = True
            raise ConnectionError("the line is gone")
        return super().read(size)


def test_googles_client_recovers(server: Home) -> None:
    blob = server.client().bucket("bucket").blob("recovered", chunk_size=GRAIN)
    blob.upload_from_file(Unsteady(DATA), size=len(DATA))
    assert blob.download_as_bytes() == DATA
    unknown = server.client().bucket("bucket").blob("unknown-length", chunk_size=GRAIN)
    unknown.upload_from_file(io.BytesIO(DATA))
    assert unknown.download_as_bytes() == DATA
    with server.client().bucket("bucket").blob("written").open("wb", chunk_size=GRAIN) as file:
        file.write(DATA)
    assert server.client().bucket("bucket").blob("written").download_as_bytes() == DATA


def test_parts_in_the_wrong_order_or_too_small(server: Home) -> None:
    talk = Talk(server.url)
    _, _, body = talk.ask("POST", "/bucket/parts?uploads")
    name = body.partition(b"<UploadId>")[2].partition(b"</UploadId>")[0].decode()
    path = f"/bucket/parts?uploadId={name}"
    tags = [talk.ask("PUT", f"{path}&partNumber={number}", b"part")[1]["etag"] for number in (1, 2)]

    def complete(*parts: tuple[int, str]) -> tuple[int, bytes]:
        each = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{tag}</ETag></Part>" for n, tag in parts)
        whole = f"<CompleteMultipartUpload>{each}</CompleteMultipartUpload>"
        status, _, body = talk.ask("POST", path, whole.encode())
        return status, body.partition(b"<Code>")[2].partition(b"</Code>")[0]

    assert complete((2, tags[1]), (1, tags[0])) == (400, b"InvalidPartOrder")
    assert complete((1, tags[0]), (3, tags[0])) == (400, b"InvalidPart")
    assert complete((1, '"other"')) == (400, b"InvalidPart")
    assert complete((1, tags[0]), (2, tags[1])) == (400, b"EntityTooSmall")
    assert complete() == (400, b"MalformedCompleteMultipartUploadRequest")
    assert b"<PartNumber>2</PartNumber>" in talk.ask("GET", path)[2]
    assert name.encode() in talk.ask("GET", "/bucket?uploads")[2]
    assert complete((2, tags[1])) == (200, b"")
    assert complete((2, tags[1])) == (404, b"NoSuchUpload")
    assert talk.ask("GET", "/bucket/parts")[2] == b"part"


def test_errors_of_the_xml_interface(server: Home) -> None:
    talk = Talk(server.url)

    def code(method: str, path: str, **headers: str) -> tuple[int, bytes]:
        status, told, body = talk.ask(method, path, b"", **headers)
        assert told["content-type"].startswith("application/xml")
        return status, body.partition(b"<Code>")[2].partition(b"</Code>")[0]

    talk.ask("PUT", "/bucket/a", b"x")
    assert code("GET", "/bucket/absent") == (404, b"NoSuchKey")
    assert code("GET", "/nowhere/absent") == (404, b"NoSuchBucket")
    assert code("PUT", "/bucket/a", X_Goog_If_Generation_Match="0") == (412, b"PreconditionFailed")
    assert code("PUT", "/bucket/a", X_Goog_If_Generation_Match="x") == (400, b"InvalidArgument")
    assert code("GET", "/bucket/a", Range="bytes=5-") == (416, b"InvalidRange")
    assert code("PUT", "/bucket/b", Content_MD5="AAAA") == (400, b"BadDigest")
    assert code("PUT", "/bucket/b", X_Goog_Hash="crc32c=AAAAAQ==") == (400, b"CrcMismatch")
    assert code("PUT", "/bucket/a%FFb") == (400, b"InvalidURI")
    for name in ("a%0Ab", "..", "x" * 1025):
        assert code("PUT", f"/bucket/{name}") == (400, b"InvalidObjectName")
    assert code("POST", "/bucket/a") == (405, b"MethodNotAllowed")
    account = "nobody@home-project.iam.gserviceaccount.com"
    token = f"Bearer {server.token(account, 'cloud-platform')}"
    assert code("GET", "/bucket/a", Authorization=token) == (403, b"AccessDenied")
    assert code("PUT", "/bucket/a", Authorization=token) == (403, b"AccessDenied")
    assert code("GET", "/bucket", Authorization=token) == (403, b"AccessDenied")
    tag = talk.ask("GET", "/bucket/a")[1]["etag"]
    assert talk.ask("GET", "/bucket/a", If_None_Match=tag)[0] == 304
    assert talk.ask("GET", "/bucket/a", If_None_Match='"other"')[0] == 200


def test_generations_grow_though_the_clock_does_not(tmp_path: Path) -> None:
    with home(tmp_path, lambda request, reply: None) as server:
        server.client().create_bucket("bucket")
        kept = server.storage.dump()
    ahead = kept["objects"]["last"] + 10**12
    with home(
        tmp_path, lambda request, reply: None, {"objects": {**kept["objects"], "last": ahead}}
    ) as server:
        talk = Talk(server.url)
        seen = [int(talk.ask("PUT", f"/bucket/{name}")[1]["x-goog-generation"]) for name in "abcd"]
        assert seen == [ahead + number for number in range(1, 5)]


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    """Objects, policies, generations, and uploads that were under way."""

    def state(bucket: Any) -> Any:
        bucket.reload()
        policy = bucket.get_iam_policy(requested_policy_version=3)
        blobs = [(one.name, one.generation, one.etag, one.metadata) for one in bucket.list_blobs()]
        return bucket.labels, bucket.location, bucket.metageneration, policy.bindings, blobs

    with home(tmp_path, lambda request, reply: None) as server:
        bucket = server.client().bucket("bucket")
        bucket.labels = {"a": "b"}
        bucket.create(location="us-east1")
        policy = bucket.get_iam_policy(requested_policy_version=3)
        policy.bindings.append({"role": "roles/storage.objectViewer", "members": {"serviceAccount:me@x.com"}})
        bucket.set_iam_policy(policy)
        for name in ("a", "ü/b", "gone"):
            blob = bucket.blob(name)
            blob.metadata = {"name": name}
            blob.upload_from_string(name)
        bucket.blob("gone").delete()
        talk = Talk(server.url)
        path = talk.begin("later")
        talk.ask("PUT", path, DATA[: 2 * GRAIN], Content_Range=span(0, 2 * GRAIN))
        upload = talk.ask("POST", "/bucket/parts?uploads")[2]
        name = upload.partition(b"<UploadId>")[2].partition(b"</UploadId>")[0].decode()
        tag = talk.ask("PUT", f"/bucket/parts?uploadId={name}&partNumber=1", b"part")[1]["etag"]
        before, kept = state(bucket), server.storage.dump()
        newest = bucket.get_blob("ü/b").generation

    (tmp_path / "storage" / "left-over").write_bytes(b"of a crash")
    with home(tmp_path, lambda request, reply: None, kept) as server:
        bucket, talk = server.client().bucket("bucket"), Talk(server.url)
        assert state(bucket) == before
        assert [bucket.blob(name).download_as_bytes().decode() for name in ("a", "ü/b")] == ["a", "ü/b"]
        status, headers, _ = talk.ask("PUT", path, Content_Range="bytes */*")
        assert (status, headers["range"]) == (308, f"bytes=0-{2 * GRAIN - 1}")
        total = len(DATA)
        assert talk.ask("PUT", path, DATA[2 * GRAIN :], Content_Range=span(2 * GRAIN, total, total))[0] == 200
        assert bucket.blob("later").download_as_bytes() == DATA  # checks the sums
        part = f"<X><Part><PartNumber>1</PartNumber><ETag>{tag}</ETag></Part></X>".encode()
        assert talk.ask("POST", f"/bucket/parts?uploadId={name}", part)[0] == 200
        assert bucket.get_blob("parts").generation > newest
        assert len(list((tmp_path / "storage").iterdir())) == 4
