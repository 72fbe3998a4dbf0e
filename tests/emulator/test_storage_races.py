"""Many clients that want the same names at the same moment: one of them wins, each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.emulator.storages import Home, home
from tests.store.needs import need

CLIENTS = 16
ROUNDS = 2000


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Home]:
    need("obstore", "google.cloud.storage")
    with home(tmp_path, lambda request, reply: None) as found:
        found.client().create_bucket("races")
        yield found


def race(rounds: int, tries: list[Callable[[int], bool]]) -> list[list[int]]:
    """Who won each round. All begin together, and meet again from time to time."""
    barrier = Barrier(len(tries))

    def run(attempt: Callable[[int], bool]) -> list[bool]:
        heard = []
        for number in range(rounds):
            if number % 50 == 0:
                barrier.wait(timeout=60)
            heard.append(attempt(number))
        return heard

    with ThreadPoolExecutor(len(tries)) as pool:
        outcomes = list(pool.map(run, tries))
    return [[index for index, heard in enumerate(outcomes) if heard[number]] for number in range(rounds)]


def test_one_of_sixteen_creates(server: Home) -> None:
    import obstore

    def attempt(client: Any, index: int) -> Callable[[int], bool]:
        def create(number: int) -> bool:
            try:
                obstore.put(client, f"claims/{number}", b"%d" % index, mode="create")
            except obstore.exceptions.AlreadyExistsError:
                return False
            return True

        return create

    winners = race(ROUNDS, [attempt(server.obstore("races"), index) for index in range(CLIENTS)])
    assert [len(won) for won in winners] == [1] * ROUNDS
    assert len({won[0] for won in winners}) > 1  # or it was no race
    store = server.obstore("races")
    for number in range(0, ROUNDS, 20):
        assert bytes(obstore.get(store, f"claims/{number}").bytes()) == b"%d" % winners[number][0]


def test_both_interfaces_race(server: Home) -> None:
    import obstore
    from google.api_core.exceptions import PreconditionFailed

    store = server.obstore("races")

    def by_xml(number: int) -> bool:
        try:
            obstore.put(store, f"both/{number}", b"xml", mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return False
        return True

    def by_json(bucket: Any) -> Callable[[int], bool]:
        def create(number: int) -> bool:
            try:
                bucket.blob(f"both/{number}").upload_from_string(b"json", if_generation_match=0)
            except PreconditionFailed:
                return False
            return True

        return create

    clients = [server.client() for _ in range(8)]
    winners = race(100, [*(by_json(client.bucket("races")) for client in clients), *[by_xml] * 8])
    for client in clients:
        client.close()
    assert [len(won) for won in winners] == [1] * 100
    for number, (won,) in enumerate(winners):
        assert bytes(obstore.get(store, f"both/{number}").bytes()) == (b"json" if won < 8 else b"xml")


def test_no_update_is_lost(server: Home) -> None:
    import obstore

    server.storage.rate.each_second = 0
    obstore.put(server.obstore("races"), "counter", b"0")

    def count(client: Any) -> Callable[[int], bool]:
        def add(number: int) -> bool:
            while True:
                found = obstore.get(client, "counter")
                next_one = b"%d" % (int(bytes(found.bytes())) + 1)
                seen: Any = {"e_tag": found.meta["e_tag"], "version": found.meta["version"]}
                try:
                    obstore.put(client, "counter", next_one, mode=seen)
                except obstore.exceptions.PreconditionError:
                    continue
                return True

        return add

    race(20, [count(server.obstore("races")) for _ in range(6)])
    assert bytes(obstore.get(server.obstore("races"), "counter").bytes()) == b"120"


def test_one_of_several_composes_copies_or_deletes(server: Home) -> None:
    from google.api_core.exceptions import NotFound, PreconditionFailed

    server.storage.rate.each_second = 0
    client = server.client()
    bucket = client.bucket("races")
    blob = bucket.blob("source")
    blob.upload_from_string(b"x")

    def tried(call: Callable[[], object]) -> bool:
        try:
            call()
        except (NotFound, PreconditionFailed):
            return False
        return True

    def copy(number: int) -> bool:
        return tried(lambda: bucket.copy_blob(blob, bucket, f"made/{number}", if_generation_match=0))

    def compose(number: int) -> bool:
        made = bucket.blob(f"made/{number}")
        return tried(lambda: made.compose([blob, blob], if_generation_match=0))

    winners = race(30, [copy, copy, compose, compose])
    assert [len(won) for won in winners] == [1] * 30
    made = {one.name: one.generation for one in bucket.list_blobs(prefix="made/")}

    def delete(number: int) -> bool:
        name = f"made/{number}"
        return tried(lambda: bucket.blob(name).delete(if_generation_match=made[name]))

    assert [len(won) for won in race(30, [delete] * 4)] == [1] * 30
    assert list(bucket.list_blobs(prefix="made/")) == []
    client.close()
