"""Every call that Google's own client makes, against the emulated Cloud Storage."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request as WebRequest
from urllib.request import urlopen

import pytest

from tests.emulator.discovery import Watch
from tests.emulator.storages import PROJECT, Home, home, wrong_replies
from tests.store.needs import need

need("google.cloud.storage")

from google.api_core import exceptions  # noqa: E402  (after what may skip all of it)

_names = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    watch = Watch()
    with home(tmp_path_factory.mktemp("cloud"), watch) as found:
        found.storage.rate.each_second = 0
        yield found
    assert wrong_replies(watch.problems) == []


@pytest.fixture
def client(server: Home) -> Iterator[Any]:
    found = server.client()
    yield found
    found.close()


@pytest.fixture
def bucket(client: Any) -> Any:
    """One of its own for each test."""
    return client.create_bucket(f"bucket-{next(_names)}")


# Buckets


def test_a_bucket_is_made_told_changed_and_deleted(client: Any) -> None:
    made = client.bucket("a-bucket")
    made.labels = {"team": "red", "cost": "none"}
    made.iam_configuration.uniform_bucket_level_access_enabled = True
    made.versioning_enabled = True
    made.create(location="europe-west4")
    found = client.get_bucket("a-bucket")
    assert (found.location, found.location_type) == ("EUROPE-WEST4", "region")
    assert found.labels == {"team": "red", "cost": "none"}
    assert found.iam_configuration.uniform_bucket_level_access_enabled
    assert found.iam_configuration.uniform_bucket_level_access_locked_time is not None
    assert found.time_created <= datetime.now(timezone.utc)
    assert found.metageneration == 1

    found.labels = {"team": "blue"}
    found.patch(if_metageneration_match=1)
    seen = client.get_bucket("a-bucket")
    assert (seen.labels, seen.metageneration, seen.versioning_enabled) == ({"team": "blue"}, 2, True)
    with pytest.raises(exceptions.PreconditionFailed):
        seen.patch(if_metageneration_match=1)
    seen.storage_class = "NEARLINE"
    seen.update()
    assert client.get_bucket("a-bucket").storage_class == "NEARLINE"
    seen.delete()
    assert client.lookup_bucket("a-bucket") is None
    with pytest.raises(exceptions.NotFound, match="The specified bucket does not exist"):
        seen.delete()


def test_buckets_are_listed_in_pages(client: Any) -> None:
    for number in range(5):
        client.create_bucket(f"listed-{number}")
    found = client.list_buckets(prefix="listed-", page_size=2)
    assert [[one.name for one in page] for page in found.pages] == [
        ["listed-0", "listed-1"],
        ["listed-2", "listed-3"],
        ["listed-4"],
    ]


def test_a_bucket_that_exists_or_is_not_empty(client: Any, bucket: Any) -> None:
    with pytest.raises(exceptions.Conflict, match="you already own it"):
        client.create_bucket(bucket.name)
    bucket.blob("a").upload_from_string(b"x")
    with pytest.raises(exceptions.Conflict, match="is not empty"):
        bucket.delete()
    bucket.delete(force=True)
    with pytest.raises(exceptions.BadRequest, match="Invalid bucket name"):
        client.create_bucket("No")


def test_the_policy_of_a_bucket(bucket: Any) -> None:
    policy = bucket.get_iam_policy(requested_policy_version=3)
    member = "serviceAccount:me@example.com"
    policy.bindings.append({"role": "roles/storage.objectViewer", "members": {member}})
    stale = bucket.get_iam_policy(requested_policy_version=3)
    bucket.set_iam_policy(policy)
    found = bucket.get_iam_policy(requested_policy_version=3)
    assert [one["role"] for one in found.bindings if member in one["members"]] == [
        "roles/storage.objectViewer"
    ]
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.set_iam_policy(stale)
    asked = ["storage.objects.get", "storage.buckets.delete"]
    assert bucket.test_iam_permissions(asked) == asked


def test_the_account_of_the_service(client: Any) -> None:
    assert client.get_service_account_email().endswith(".iam.gserviceaccount.com")


# Objects


@pytest.mark.parametrize("size", [0, 1, 1000, 3_000_000, 10_000_000])
def test_contents_go_there_and_back(bucket: Any, tmp_path: Path, size: int) -> None:
    data = random.Random(size).randbytes(size)
    (tmp_path / "file").write_bytes(data)
    blob = bucket.blob("folder/file.bin")
    blob.upload_from_filename(tmp_path / "file")  # resumable, if it is large
    assert blob.md5_hash == base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
    assert blob.size == size
    found = bucket.get_blob("folder/file.bin")
    assert (found.generation, found.etag, found.crc32c) == (blob.generation, blob.etag, blob.crc32c)
    assert found.download_as_bytes() == data
    assert found.download_as_bytes(checksum="md5") == found.download_as_bytes(checksum="crc32c") == data
    found.download_to_filename(tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == data
    if size:
        assert found.download_as_bytes(start=size // 2) == data[size // 2 :]
        assert found.download_as_bytes(start=0, end=0) == data[:1]
    with bucket.blob("folder/file.bin", chunk_size=1 << 20).open("rb") as file:
        assert file.read() == data


def test_what_is_said_of_an_object(bucket: Any) -> None:
    blob = bucket.blob("told")
    blob.metadata = {"colour": "grün", "shape": "round"}
    blob.content_disposition, blob.cache_control = "inline", "no-store"
    blob.upload_from_string("text", content_type="text/x-poem")
    found = bucket.get_blob("told")
    assert (found.metadata, found.content_type) == ({"colour": "grün", "shape": "round"}, "text/x-poem")
    assert (found.content_disposition, found.cache_control) == ("inline", "no-store")
    assert (found.generation, found.metageneration) == (blob.generation, 1)

    found.metadata = {"colour": "red", "shape": None}
    found.content_language = "en"
    found.patch(if_metageneration_match=1)
    seen = bucket.get_blob("told")
    assert (seen.metadata, seen.content_language, seen.cache_control) == ({"colour": "red"}, "en", "no-store")
    assert (seen.generation, seen.metageneration) == (blob.generation, 2)
    assert seen.etag != blob.etag
    seen.update()
    assert bucket.get_blob("told").metadata == {"colour": "red"}
    seen.custom_time = datetime.now(timezone.utc) + timedelta(days=1)
    seen.patch()
    assert seen.custom_time > datetime.now(timezone.utc)


def refused(call: Callable[..., Any], **conditions: int) -> bool:
    """Whether a call fails by its preconditions."""
    try:
        call(**conditions)
    except exceptions.PreconditionFailed as error:
        return "did not hold" in str(error)
    return False


def test_preconditions_of_writers(bucket: Any) -> None:
    def write(**conditions: int) -> None:
        bucket.blob("a").upload_from_string(b"x", **conditions)

    assert refused(write, if_generation_match=7)
    assert refused(write, if_generation_not_match=0)
    assert refused(write, if_metageneration_match=1)
    assert not refused(write, if_generation_match=0)
    assert refused(write, if_generation_match=0)
    first = bucket.get_blob("a").generation
    assert refused(write, if_generation_match=first - 1)
    assert refused(write, if_generation_not_match=first)
    assert not refused(write, if_generation_not_match=0)
    second = bucket.get_blob("a").generation
    assert second > first
    assert not refused(write, if_generation_match=second, if_metageneration_match=1)

    blob = bucket.get_blob("a")
    assert refused(blob.delete, if_generation_match=second)
    assert refused(blob.delete, if_metageneration_not_match=1)
    assert refused(blob.patch, if_metageneration_match=2)
    assert not refused(blob.delete, if_generation_match=blob.generation)
    with pytest.raises(exceptions.NotFound):
        blob.delete()


def test_preconditions_of_readers(bucket: Any) -> None:
    blob = bucket.blob("a")
    blob.upload_from_string(b"x")
    generation = blob.generation
    assert blob.exists(if_generation_match=generation)
    assert refused(blob.reload, if_generation_match=generation + 1)
    assert refused(blob.download_as_bytes, if_generation_match=generation + 1)
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_generation_not_match=generation)
    with pytest.raises(exceptions.NotModified):
        blob.reload(if_etag_not_match=blob.etag)
    assert blob.download_as_bytes(if_etag_match=blob.etag) == b"x"
    assert bucket.get_blob("a", generation=generation).generation == generation
    assert bucket.get_blob("a", generation=generation + 1) is None
    with pytest.raises(exceptions.ClientError, match="416"):
        blob.download_as_bytes(start=1)
    with pytest.raises(exceptions.NotFound, match="No such object"):
        bucket.blob("b").download_as_bytes()


def test_generations_only_grow(bucket: Any) -> None:
    blob, seen = bucket.blob("a"), []
    for number in range(20):
        blob.upload_from_string(str(number))
        seen.append(blob.generation)
        if number % 3 == 0:
            blob.delete()
    assert seen == sorted(set(seen))


def test_wrong_hashes_are_told(bucket: Any) -> None:
    blob = bucket.blob("a")
    blob.md5_hash = base64.b64encode(bytes(16)).decode()
    with pytest.raises(exceptions.BadRequest, match="md5 hash"):
        blob.upload_from_string(b"x", checksum=None)
    assert not bucket.blob("a").exists()


def test_objects_of_others(client: Any, bucket: Any) -> None:
    other = client.create_bucket(f"{bucket.name}-other")
    parts = [bucket.blob(f"part/{number}") for number in range(3)]
    for number, part in enumerate(parts):
        part.upload_from_string(str(number) * 10, content_type="text/plain")
    whole = bucket.blob("whole")
    whole.content_type = "text/plain"
    whole.compose(parts, if_generation_match=0)
    assert whole.download_as_bytes() == b"0" * 10 + b"1" * 10 + b"2" * 10
    assert (whole.component_count, whole.md5_hash, whole.size) == (3, None, 30)
    assert refused(lambda **conditions: whole.compose(parts, **conditions), if_generation_match=0)
    wrong = [part.generation + (number == 1) for number, part in enumerate(parts)]
    with pytest.raises((exceptions.PreconditionFailed, exceptions.NotFound)):
        whole.compose(parts, if_source_generation_match=wrong)
    with pytest.raises(exceptions.NotFound):
        whole.compose([bucket.blob("absent")])

    copied = bucket.copy_blob(whole, other, "copied", if_generation_match=0)
    assert copied.download_as_bytes() == whole.download_as_bytes()
    assert copied.content_type == "text/plain"
    assert copied.generation > whole.generation
    with pytest.raises(exceptions.PreconditionFailed):
        bucket.copy_blob(whole, other, "copied", if_source_generation_match=whole.generation + 1)
    again = other.blob("again", chunk_size=None)
    again.metadata = {"of": "copied"}
    assert again.rewrite(copied) == (None, 30, 30)
    whole.delete()
    assert again.download_as_bytes() == copied.download_as_bytes()
    assert other.get_blob("again").metadata == {"of": "copied"}
    assert other.rename_blob(again, "renamed").name == "renamed"
    assert [blob.name for blob in other.list_blobs()] == ["copied", "renamed"]
    assert other.move_blob(other.blob("renamed"), "moved").download_as_bytes() == copied.download_as_bytes()
    assert [blob.name for blob in other.list_blobs()] == ["copied", "moved"]


def test_several_calls_in_one_request(client: Any, bucket: Any) -> None:
    blobs = [bucket.blob(f"ünd/{number}") for number in range(5)]
    for blob in blobs:
        blob.upload_from_string(b"x")
    with client.batch():
        for blob in blobs[:4]:
            blob.metadata = {"batch": "yes"}
            blob.patch()
    assert {blob.metadata["batch"] for blob in bucket.list_blobs() if blob.metadata} == {"yes"}
    with pytest.raises(exceptions.NotFound), client.batch():  # noqa: PT012  (it is the end that raises)
        for blob in (*blobs[:4], bucket.blob("absent")):
            blob.delete()
    assert [blob.name for blob in bucket.list_blobs()] == ["ünd/4"]


def test_listings(bucket: Any) -> None:
    for name in ("a", "a/b", "a/c/d", "a/c/e", "b/", "b/x", "c"):
        bucket.blob(name).upload_from_string(b"x")

    def names(**options: Any) -> list[str]:
        return [blob.name for blob in bucket.list_blobs(**options)]

    def prefixes(**options: Any) -> tuple[list[str], list[str]]:
        found = bucket.list_blobs(**options)
        return [blob.name for blob in found], sorted(found.prefixes)

    assert names() == ["a", "a/b", "a/c/d", "a/c/e", "b/", "b/x", "c"]
    assert names(prefix="a/", page_size=1) == ["a/b", "a/c/d", "a/c/e"]
    assert names(start_offset="a/c/d", end_offset="b/x") == ["a/c/d", "a/c/e", "b/"]
    assert names(max_results=2) == ["a", "a/b"]
    assert prefixes(delimiter="/") == (["a", "c"], ["a/", "b/"])
    assert prefixes(delimiter="/", prefix="a/", page_size=1) == (["a/b"], ["a/c/"])
    assert prefixes(delimiter="/", include_trailing_delimiter=True) == (["a", "b/", "c"], ["a/", "b/"])
    assert names(match_glob="a/*") == ["a/b"]
    assert names(match_glob="a/**") == ["a/b", "a/c/d", "a/c/e"]
    assert names(match_glob="{a,c}") == ["a", "c"]
    assert names(match_glob="a/[!b]/?") == ["a/c/d", "a/c/e"]


def test_names_that_cannot_be(bucket: Any) -> None:
    for name in ("a\nb", "x" * 1025, "ü" * 513, ".."):
        with pytest.raises(exceptions.BadRequest, match="Invalid object name"):
            bucket.blob(name).upload_from_string(b"x")
    bucket.blob("ü" * 512).upload_from_string(b"x")
    assert len(list(bucket.list_blobs())) == 1


def test_many_parts_at_once(bucket: Any, tmp_path: Path) -> None:
    from google.cloud.storage import transfer_manager  # type: ignore[import-untyped]

    data = random.Random(9).randbytes(11_000_000)
    (tmp_path / "file").write_bytes(data)
    options: Any = {"worker_type": transfer_manager.THREAD, "max_workers": 3}
    transfer_manager.upload_chunks_concurrently(
        str(tmp_path / "file"), bucket.blob("large"), chunk_size=5 * 1024 * 1024, **options
    )
    transfer_manager.download_chunks_concurrently(
        bucket.blob("large"), str(tmp_path / "got"), chunk_size=4_000_000, **options
    )
    assert (tmp_path / "got").read_bytes() == data


def test_an_error_has_a_reason(server: Home, bucket: Any) -> None:
    def reason(path: str, **headers: str) -> tuple[int, str]:
        with pytest.raises(HTTPError) as caught:
            urlopen(WebRequest(server.url + path, headers=headers))  # noqa: S310  (ours)
        with caught.value as error:
            return error.code, json.loads(error.read())["error"]["errors"][0]["reason"]

    place = f"/storage/v1/b/{bucket.name}"
    assert reason(f"{place}/o/absent") == (404, "notFound")
    assert reason(f"{place}?ifMetagenerationMatch=7") == (412, "conditionNotMet")
    assert reason(f"{place}/o?pageToken=!") == (400, "invalid")
    assert reason(place, Authorization="Bearer ya29.emulated.nobody") == (401, "authError")


def test_a_name_is_written_too_often(server: Home, bucket: Any) -> None:
    rate, server.now = server.storage.rate, 5000.0
    rate.each_second = 1
    try:
        for _ in range(int(rate.burst)):
            bucket.blob("a").upload_from_string(b"x")
        with pytest.raises(exceptions.TooManyRequests, match="exceeded the rate limit") as caught:
            bucket.blob("a").upload_from_string(b"x", retry=None)
        assert '"reason": "rateLimitExceeded"' in str(caught.value)
        server.now += 0.9
        with pytest.raises(exceptions.TooManyRequests) as refused_delete:
            bucket.blob("a").delete(retry=None)
        assert refused_delete.value.errors[0]["domain"] == "usageLimits"
        server.now += 0.2
        bucket.blob("a").delete()
    finally:
        rate.each_second, server.now = 0, 0.0


# Who may do what


def test_a_vm_can_do_what_its_account_and_its_scopes_allow(server: Home, client: Any, bucket: Any) -> None:
    bucket.blob("a").upload_from_string(b"x")
    account = "worker@home-project.iam.gserviceaccount.com"

    def seen(token: str) -> Any:
        return server.client(token).bucket(bucket.name)

    stranger = seen(server.token(account, "cloud-platform"))
    with pytest.raises(exceptions.Forbidden, match=r"does not have storage.objects.get access"):
        stranger.blob("a").download_as_bytes()
    grant(bucket, "roles/storage.objectCreator", account)
    stranger.blob("b").upload_from_string(b"y")
    with pytest.raises(exceptions.Forbidden, match=r"storage.objects.delete"):
        stranger.blob("b").upload_from_string(b"z")
    with pytest.raises(exceptions.Forbidden, match=r"storage.objects.list"):
        list(stranger.list_blobs())
    assert stranger.test_iam_permissions(["storage.objects.create", "storage.objects.get"]) == [
        "storage.objects.create"
    ]
    grant(bucket, "roles/storage.objectAdmin", account)
    stranger.blob("b").upload_from_string(b"z")
    stranger.blob("b").delete()
    with pytest.raises(exceptions.Forbidden, match=r"storage.buckets.delete"):
        stranger.delete()

    reader = seen(server.token(account, "devstorage.read_only"))
    assert reader.blob("a").download_as_bytes() == b"x"
    with pytest.raises(exceptions.Forbidden, match="insufficient authentication scopes"):
        reader.blob("c").upload_from_string(b"y")
    with pytest.raises(exceptions.Forbidden):
        server.client(server.token(account, "cloud-platform")).create_bucket("of-a-stranger")


def test_the_default_account_of_vms_can_write(server: Home, bucket: Any) -> None:
    token = server.token(server.identity.default_account, "cloud-platform")
    blob = server.client(token).bucket(bucket.name).blob("a")
    blob.upload_from_file(io.BytesIO(b"one"))
    blob.upload_from_string(b"two")
    assert blob.download_as_bytes() == b"two"
    assert PROJECT in str(server.identity.project)


def grant(bucket: Any, role: str, account: str) -> None:
    policy = bucket.get_iam_policy(requested_policy_version=3)
    policy.bindings.append({"role": role, "members": {f"serviceAccount:{account}"}})
    bucket.set_iam_policy(policy)
