"""The contract of Stoker's own stores, and what obstore can do besides, over the emulated Cloud Storage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from stoker.store import open_store
from stoker.store.interface import Store, StoreError
from stoker.store.remote import RemoteStore
from tests.emulator.discovery import Watch
from tests.emulator.storages import Home, home, wrong_replies
from tests.store.contract import SharedStoreContract
from tests.store.needs import need

BUCKET = "my-bucket"
_places = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    need("obstore", "google.cloud.storage")
    watch = Watch()
    with home(tmp_path_factory.mktemp("cloud"), watch) as found:
        found.client().create_bucket(BUCKET)
        yield found
    assert wrong_replies(watch.problems) == []


@pytest.fixture
def free(server: Home) -> Iterator[Home]:
    """Without the limit on writes of one name."""
    server.storage.rate.each_second = 0
    yield server
    server.storage.rate.each_second = 1


@pytest.fixture
def url(server: Home, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own for each test."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return f"gs://{BUCKET}/some/place/{next(_places)}"


class TestCloudStorage(SharedStoreContract):
    races = 20

    @pytest.fixture
    def store(self, free: Home, url: str) -> Store:
        return open_store(url)

    @pytest.fixture
    def other(self, free: Home, url: str) -> Store:
        return open_store(url + "/")


@pytest.fixture
def client(free: Home) -> Any:
    return free.obstore(BUCKET)


def test_who_writes_one_name_too_often_is_slowed_down(server: Home, url: str) -> None:
    import obstore

    store, server.now = server.obstore(BUCKET), 1000.0
    for _ in range(int(server.storage.rate.burst)):
        obstore.put(store, "beat", b"x")
    with pytest.raises(obstore.exceptions.GenericError, match=r"429.*<Code>SlowDown</Code>"):
        obstore.put(store, "beat", b"x")
    obstore.put(store, "other", b"x")
    server.now += 1
    obstore.put(store, "beat", b"x")
    with pytest.raises(obstore.exceptions.GenericError, match="rate limit for object mutation"):
        obstore.delete(store, "beat")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(store, "beat", b"x", mode="create")
    server.now = 0.0


def test_a_lost_race_may_count_as_a_write(server: Home) -> None:
    import obstore

    store, rate, server.now = server.obstore(BUCKET), server.storage.rate, 2000.0
    rate.counts_lost = True
    outcomes = []
    for _ in range(int(rate.burst) + 2):
        try:
            obstore.put(store, "claim", b"x", mode="create")
            outcomes.append(201)
        except obstore.exceptions.AlreadyExistsError:
            outcomes.append(412)
        except obstore.exceptions.GenericError:
            outcomes.append(429)
    rate.counts_lost, server.now = False, 0.0
    assert outcomes == [201, 412, 412, 412, 412, 429, 429]


def test_an_update_needs_the_generation_that_is_there(client: Any) -> None:
    import obstore

    first: Any = obstore.put(client, "state", b"one")
    second = obstore.put(client, "state", b"two", mode=first)
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.put(client, "state", b"three", mode=first)
    assert int(second["version"] or 0) > int(first["version"] or 0)
    assert bytes(obstore.get(client, "state").bytes()) == b"two"


def test_a_reader_has_seen_it_already(client: Any) -> None:
    import obstore

    tag = obstore.put(client, "seen", b"one")["e_tag"]
    with pytest.raises(obstore.exceptions.NotModifiedError):
        obstore.get(client, "seen", options={"if_none_match": tag})
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.get(client, "seen", options={"if_match": '"another"'})
    assert bytes(obstore.get(client, "seen", options={"if_match": tag}).bytes()) == b"one"
    modified = obstore.head(client, "seen")["last_modified"]
    with pytest.raises(obstore.exceptions.NotModifiedError):
        obstore.get(client, "seen", options={"if_modified_since": modified})
    assert bytes(obstore.get(client, "seen", options={"if_unmodified_since": modified}).bytes()) == b"one"


def test_copies_and_renames(client: Any) -> None:
    import obstore

    obstore.put(client, "from", b"contents", attributes={"Content-Type": "text/x", "colour": "green"})
    obstore.copy(client, "from", "to")
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.copy(client, "from", "to", overwrite=False)
    obstore.rename(client, "to", "there")
    obstore.delete(client, "from")
    found = obstore.get(client, "there")
    assert found.attributes == {"Content-Type": "text/x", "colour": "green"}
    assert bytes(found.bytes()) == b"contents"
    with pytest.raises(FileNotFoundError):
        obstore.head(client, "to")
    with pytest.raises(FileNotFoundError):
        obstore.copy(client, "from", "to")


def test_ranges(client: Any) -> None:
    import obstore

    data = random.Random(5).randbytes(3_000_000)
    obstore.put(client, "ranges", data)
    for start, end in ((0, 1), (10, 2_999_999), (2_999_999, 3_000_000), (5, 1_500_000)):
        assert bytes(obstore.get_range(client, "ranges", start=start, end=end)) == data[start:end]
    assert bytes(obstore.get(client, "ranges", options={"range": {"suffix": 7}}).bytes()) == data[-7:]
    assert bytes(obstore.get(client, "ranges", options={"range": {"offset": 7}}).bytes()) == data[7:]
    with pytest.raises(obstore.exceptions.BaseError, match="416"):
        obstore.get(client, "ranges", options={"range": {"offset": 3_000_000}})


def test_parts_of_an_upload_become_one_object(client: Any) -> None:
    import obstore

    data = random.Random(6).randbytes(12_000_000)
    made: Any = obstore.put(client, "parts", data, use_multipart=True, chunk_size=5 * 1024 * 1024)
    assert bytes(obstore.get(client, "parts").bytes()) == data
    head = obstore.head(client, "parts")
    assert (head["e_tag"], head["version"]) == (made["e_tag"], made["version"])
    assert made["e_tag"].startswith('"-')  # no MD5 of contents that came in parts


NAMES = ["a b", "ü/ö", "100%", "%2F", "a+b", "a&b=c?d#e", "...", "a/..b/c", "x'y\"z", "<tag>&amp;", "🙂", "~"]


def test_any_name_goes_through(free: Home) -> None:
    import obstore

    free.client().create_bucket("names")
    client, bucket = free.obstore("names"), free.client().bucket("names")
    for name in NAMES:
        obstore.put(client, name, name.encode())
        assert bytes(obstore.get(client, name).bytes()) == name.encode()
        assert bucket.blob(name).download_as_bytes() == name.encode()
    assert sorted(found["path"] for page in obstore.list(client) for found in page) == sorted(NAMES)
    for name in NAMES:
        obstore.delete(client, name)
    assert list(bucket.list_blobs()) == []


def test_there_is_no_such_bucket(free: Home, url: str) -> None:
    store = RemoteStore("gs://no-such-bucket/place", wait=2)
    assert store.read("a") is None
    with pytest.raises(StoreError, match="The specified bucket does not exist"):
        store.create("a", b"x")
    with pytest.raises(StoreError, match="The specified bucket does not exist"):
        list(store.list(""))


def test_no_contents_are_left_behind(tmp_path: Path) -> None:
    import obstore

    with home(tmp_path, lambda request, reply: None) as server:
        server.storage.rate.each_second = 0
        server.client().create_bucket(BUCKET)
        client = server.obstore(BUCKET)
        for size in (0, 10, 12_000_000, 11_000_000):
            obstore.put(client, "one", bytes(size), use_multipart=size > 10)
            obstore.copy(client, "one", "two")
        modes: list[Any] = ["create", {"e_tag": "x", "version": "7"}]
        for mode in modes:
            with pytest.raises(obstore.exceptions.BaseError):
                obstore.put(client, "one", b"x", mode=mode)
        assert len(list((tmp_path / "storage").iterdir())) == 2
        obstore.delete(client, ["one", "two"])
        assert list((tmp_path / "storage").iterdir()) == []
