"""The remote store against a real server of the S3 protocol, in fair and in foul weather."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from stoker.store import open_store
from stoker.store.interface import Store, StoreError
from stoker.store.remote import RemoteStore
from tests.store.contract import SharedStoreContract, at_once, keys
from tests.store.needs import need
from tests.store.server import BUCKET, Fault, Request, Weather, first, proxy, s3_server

_places = count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    need("obstore", "moto", "flask", "flask_cors")
    with s3_server() as address:
        yield address


@pytest.fixture
def _account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_REGION": "us-east-1",
        "NO_PROXY": "127.0.0.1",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def url(server: str, _account: None, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own for each test."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    return f"s3://{BUCKET}/some/place/{next(_places)}"


class TestS3(SharedStoreContract):
    races = 8

    @pytest.fixture
    def store(self, url: str) -> Store:
        return open_store(url)

    @pytest.fixture
    def other(self, url: str) -> Store:
        return open_store(url + "/")


@pytest.fixture
def calm(url: str) -> Store:
    """The store as others see it, who have no trouble."""
    return open_store(url)


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def address(server: str, weather: Weather) -> Iterator[str]:
    with proxy(server, weather) as address:
        yield address


@pytest.fixture
def store(url: str, calm: Store, address: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The same store, seen through the weather."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    return RemoteStore(url, wait=1)


def outcome(store: Store, key: str, data: bytes) -> bool | None:
    """What create said; None for StoreError."""
    try:
        return store.create(key, data)
    except StoreError:
        return None


@pytest.mark.parametrize("status", [0, 500, 503])
def test_a_creation_that_landed_but_was_answered_with_an_error(
    store: Store, calm: Store, weather: Weather, status: int
) -> None:
    weather.forecast = first(1, "PUT", Fault(status=status))
    assert not outcome(store, "a", b"mine")
    assert calm.read("a") == b"mine"
    assert [request.method for request in weather.seen].count("PUT") >= (2 if status else 1)


@pytest.mark.parametrize("status", [403, 404, 409, 412, 429, 503])
def test_a_creation_that_never_landed(store: Store, calm: Store, weather: Weather, status: int) -> None:
    weather.forecast = lambda request: Fault(lands=False, status=status)
    assert not outcome(store, "a", b"mine")
    assert calm.read("a") is None
    weather.clear()
    assert store.create("a", b"mine")


def test_a_creation_that_is_tried_again_underneath(store: Store, calm: Store, weather: Weather) -> None:
    weather.forecast = first(1, "PUT", Fault(lands=False, status=503))
    assert store.create("a", b"mine")
    assert calm.read("a") == b"mine"


def test_a_race_in_foul_weather_has_at_most_one_winner(store: Store, calm: Store, weather: Weather) -> None:
    dice = random.Random(4)
    faults = [
        None,
        None,
        Fault(status=503),
        Fault(lands=False, status=503),
        Fault(status=0),
        Fault(delay=0.02),
    ]
    weather.forecast = lambda request: dice.choice(faults)

    outcomes = at_once(4, lambda index: [outcome(store, f"{key}", b"%d" % index) for key in range(6)])
    for key in range(6):
        winners = [b"%d" % index for index, heard in enumerate(outcomes) if heard[key]]
        assert len(winners) <= 1
        assert not winners or calm.read(f"{key}") == winners[0]


def test_a_slow_store(store: Store, weather: Weather) -> None:
    weather.forecast = lambda request: Fault(delay=0.1)
    assert store.create("a", b"x")
    assert not store.create("a", b"x")
    assert store.read("a") == b"x"
    assert keys(store) == ["a"]


def test_a_store_that_does_not_answer(store: Store, calm: Store, weather: Weather) -> None:
    weather.forecast = lambda request: Fault(delay=4)
    start = time.monotonic()
    assert outcome(store, "a", b"mine") is None
    assert time.monotonic() - start < 3
    assert calm.read("a") == b"mine"


def test_all_methods_tell_that_the_store_is_away(store: Store, weather: Weather, tmp_path: Path) -> None:
    weather.forecast = lambda request: Fault(lands=False, status=403)
    (tmp_path / "file").write_bytes(b"x")
    for call in (
        lambda: store.create("a", b"x"),
        lambda: store.read("a"),
        lambda: store.write("a", b"x"),
        lambda: list(store.list("a/")),
        lambda: store.delete("a"),
        lambda: store.upload("a", tmp_path / "file"),
        lambda: store.download("a", tmp_path / "got"),
    ):
        with pytest.raises(StoreError) as told:
            call()
        message = str(told.value)
        assert message.startswith("cannot ")
        assert f"{store.url}/a" in message
        assert message.endswith("403 Forbidden: fault 403")
        assert "127.0.0.1" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("times", [1, 99])
def test_an_answer_that_breaks_off(
    store: Store, calm: Store, weather: Weather, tmp_path: Path, times: int
) -> None:
    data = random.Random(5).randbytes(300_000)
    calm.write("a", data)
    (tmp_path / "got").write_bytes(b"before")
    weather.forecast = first(times, "GET", Fault(part=100_000))
    try:
        assert store.read("a") == data
    except StoreError:
        assert times > 1
    weather.forecast = first(times, "GET", Fault(part=100_000))
    try:
        assert store.download("a", tmp_path / "got")
        assert (tmp_path / "got").read_bytes() == data
    except StoreError:
        assert times > 1
        assert (tmp_path / "got").read_bytes() == b"before"
    assert len(list(tmp_path.iterdir())) == 1


def _is_list(request: Request) -> bool:
    return "list-type" in request.path


def test_long_listings_come_in_pages(store: Store, calm: Store, weather: Weather) -> None:
    written = [f"a/{number:02}" for number in range(20)]
    for key in written:
        calm.write(key, b"x")
    weather.rewrite = lambda path: path + "&max-keys=7" if "list-type" in path else path
    assert keys(store, "a/") == written
    assert len(list(filter(_is_list, weather.seen))) == 3
    weather.seen.clear()
    assert keys(store, "a/", "a/15") == written[16:]
    assert len(list(filter(_is_list, weather.seen))) == 1

    pages = count()
    weather.forecast = lambda request: Fault(status=500) if _is_list(request) and next(pages) else None
    with pytest.raises(StoreError, match=r"cannot list .*/a/: 500 Internal Server Error"):
        keys(store, "a/")


def test_a_bucket_that_is_not_there(calm: Store, tmp_path: Path) -> None:
    store = open_store("s3://nowhere/x")
    for call in (
        lambda: store.create("a", b"x"),
        lambda: store.write("a", b"x"),
        lambda: list(store.list("")),
    ):
        with pytest.raises(StoreError, match="404 Not Found: The specified bucket does not exist"):
            call()


def test_names_that_are_no_keys_are_passed_over(calm: Store, url: str) -> None:
    import obstore
    from obstore.store import S3Store

    bucket = S3Store.from_url(url, client_options={"allow_http": True})
    for name in ("a b", "a/ä", ".hidden", "a/.hidden", "a/b~"):
        obstore.put(bucket, name, b"foreign")
    calm.write("a/b", b"x")
    assert keys(calm) == ["a/b"]


def test_no_credentials(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own are asked for at an address where there is nothing."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="found no credentials in the environment"):
        RemoteStore(url, wait=1).read("a")


def test_an_emulator_of_google_cloud_storage(
    address: str, weather: Weather, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked at the address that the environment names, without a token."""
    weather.forecast = lambda request: Fault(lands=False, status=412 if len(weather.seen) > 1 else 403)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", address.removeprefix("http://"))
    store = open_store("gs://bucket/place")
    with pytest.raises(StoreError, match="cannot create gs://bucket/place/a: 403 Forbidden"):
        store.create("a", b"x")
    assert not store.create("a", b"x")
    assert weather.seen == [Request("PUT", "/bucket/place%2Fa"), Request("PUT", "/bucket/place%2Fa")]
