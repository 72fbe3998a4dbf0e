import pytest

from stoker.store.memory import MemoryStore
from tests.store.contract import StoreContract, keys, versions


class TestMemory(StoreContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore()


def test_long_listings_have_several_pages() -> None:
    store = MemoryStore()
    for number in range(2500):
        store.write(f"a/{number:04}", b"x")
    store.write("b/1", b"x")
    assert keys(store, "a/", "a/0009") == [f"a/{number:04}" for number in range(10, 2500)]


def test_versions_are_the_same_in_every_run() -> None:
    store = MemoryStore()
    store.create("a", b"1")
    store.create("a", b"2")
    store.write("b", b"3")
    assert versions(store) == {"a": "1", "b": "2"}
