"""What every store promises. A new one subclasses StoreContract and gives it a `store`."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path
from threading import Barrier, Event
from typing import TypeVar

import pytest

from stoker.store.interface import Store

T = TypeVar("T")

NO_KEYS = [
    "",
    "/",
    "a/",
    "/a",
    "a//b",
    ".",
    "..",
    "a/../b",
    ".a",
    "a/.b",
    "-a",
    "a b",
    "a\n",
    "ä",
    "a\0",
    "a*",
    "a~",
]
NO_PREFIXES = ["a", "/", "a//", "../", ".a/", "a /", "a\n/"]
# A slash sorts behind - and ., and before digits and letters: a directory at a time would be wrong.
TRICKY = [
    "a-b",
    "a-b.c/d",
    "a.b",
    "a/b",
    "a/c/d",
    "a/c.d",
    "a/c0",
    "a0",
    "a=1/x",
    "aa/b",
    "A/b",
    "_/b",
    "a_/b",
    "0/1",
]
NEARBY = [
    "",
    "a",
    "a/",
    "a/b",
    "a/c",
    "a/c/",
    "a/c/~",
    "a//",
    "a.",
    "a~",
    "~",
    "/",
    " ",
    "ä",
    "a/c/d/e",
    "a-",
    "a\x7f",
]


def keys(store: Store, prefix: str = "", after: str = "") -> list[str]:
    return [entry.key for entry in store.list(prefix, after)]


def versions(store: Store, prefix: str = "") -> dict[str, str]:
    return {entry.key: entry.version for entry in store.list(prefix)}


def at_once(number: int, work: Callable[[int], T]) -> list[T]:
    """The results of so many threads that begin together."""
    barrier = Barrier(number)

    def begin(index: int) -> T:
        barrier.wait(timeout=10)
        return work(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(begin, range(number)))


class StoreContract:
    """The tests. Differences between stores are told by these attributes."""

    reads_empty = True
    """Whether an empty object can be told from none."""
    races = 60
    """On how many keys threads race."""

    def test_what_is_created_is_read(self, store: Store) -> None:
        assert store.create("a/b", b"one")
        assert store.read("a/b") == b"one"
        assert store.read("a/c") is None
        assert store.read("b") is None
        assert store.read("a/b/c") is None

    def test_only_the_first_creates(self, store: Store) -> None:
        assert store.create("a", b"one")
        assert not store.create("a", b"two")
        assert not store.create("a", b"one")
        assert store.read("a") == b"one"

    def test_threads_that_create_at_once_have_one_winner(self, store: Store) -> None:
        def race(index: int) -> list[bool]:
            return [store.create(f"race/{key}", b"%d" % index) for key in range(self.races)]

        outcomes = at_once(8, race)
        for key in range(self.races):
            winners = [index for index, outcome in enumerate(outcomes) if outcome[key]]
            assert len(winners) == 1
            assert store.read(f"race/{key}") == b"%d" % winners[0]

    def test_what_is_written_replaces(self, store: Store) -> None:
        store.write("beats/x", b"one")
        store.write("beats/x", b"two")
        assert store.read("beats/x") == b"two"
        assert not store.create("beats/x", b"three")
        assert store.create("beats/y", b"one")
        store.write("beats/y", b"two")
        assert store.read("beats/y") == b"two"

    def test_what_is_deleted_is_gone(self, store: Store) -> None:
        store.delete("a/b")
        store.create("a/b", b"one")
        store.delete("a/b")
        store.delete("a/b")
        assert store.read("a/b") is None
        assert keys(store) == []
        assert store.create("a/b", b"two")

    def test_any_bytes_go_through(self, store: Store) -> None:
        data = bytes(range(256)) + b"\r\n\n\0 \xff"
        store.create("created", data)
        store.write("written", data)
        assert store.read("created") == store.read("written") == data

    def test_empty_objects(self, store: Store) -> None:
        assert store.create("created", b"")
        assert not store.create("created", b"")
        store.write("written", b"")
        assert keys(store) == ["created", "written"]
        expected = b"" if self.reads_empty else None
        assert store.read("created") == store.read("written") == expected

    def test_large_objects(self, store: Store) -> None:
        data = random.Random(1).randbytes(6_000_000)
        assert store.create("created", data)
        assert not store.create("created", data)
        store.write("written", data)
        assert store.read("created") == store.read("written") == data

    def test_listings_are_in_order_of_keys(self, store: Store) -> None:
        for key in random.Random(2).sample(TRICKY, len(TRICKY)):
            store.create(key, b"x")
        assert keys(store) == sorted(TRICKY)
        assert keys(store, "a/") == ["a/b", "a/c.d", "a/c/d", "a/c0"]
        assert keys(store, "a/c/") == ["a/c/d"]

    def test_a_prefix_is_of_whole_words(self, store: Store) -> None:
        for key in ("ab/x", "a/x", "a.b/x", "b/a/x"):
            store.create(key, b"x")
        assert keys(store, "a/") == ["a/x"]
        assert keys(store, "a/x/") == keys(store, "b/a/x/") == keys(store, "c/") == []

    def test_listings_begin_behind_any_text(self, store: Store) -> None:
        for key in TRICKY:
            store.create(key, b"x")
        for after in [*TRICKY, *NEARBY]:
            assert keys(store, "", after) == sorted(key for key in TRICKY if key > after), after
            within = sorted(key for key in TRICKY if key > after and key.startswith("a/"))
            assert keys(store, "a/", after) == within, after

    def test_listings_go_on_while_objects_go(self, store: Store) -> None:
        for number in range(30):
            store.create(f"a/{number % 3}/{number:02}", b"x")
        for entry in store.list(""):
            store.delete(entry.key)
        assert keys(store) == []

    def test_an_empty_store_lists_nothing(self, store: Store) -> None:
        assert keys(store) == keys(store, "a/") == []

    def test_a_version_tells_a_write(self, store: Store) -> None:
        store.create("a", b"1")
        store.create("b", b"1")
        before = versions(store)
        assert versions(store) == before
        store.write("a", b"2")
        after = versions(store)
        assert after["a"] != before["a"]
        assert after["b"] == before["b"]
        for number in range(5):
            store.write("a", b"%d" % number)
            before, after = after, versions(store)
            assert after["a"] != before["a"]

    def test_a_reader_never_sees_a_part_of_a_write(self, store: Store) -> None:
        sizes = (1, 100_000, 7_000)
        store.write("beat", b"0")
        done = Event()

        def write() -> None:
            for number in range(45):
                store.write("beat", b"%d" % (number % 10) * sizes[number % 3])
            done.set()

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            while not done.is_set() and not writing.done():
                data = store.read("beat")
                assert data is not None
                assert len(data) in sizes
                assert len(set(data)) == 1
            writing.result()

    def test_a_reader_never_sees_a_part_of_a_creation(self, store: Store) -> None:
        data = b"x" * 20_000
        waiting = [f"claims/{number:03}" for number in range(self.races)]

        def create() -> None:
            for key in waiting:
                assert store.create(key, data)

        with ThreadPoolExecutor(1) as pool:
            creating = pool.submit(create)
            for key in waiting:
                while (seen := store.read(key)) is None:
                    assert not creating.done() or store.read(key) == data
                assert seen == data
            creating.result()

    def test_a_wrong_key_is_our_mistake(self, store: Store, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"x")
        calls: list[Callable[[str], object]] = [
            lambda key: store.create(key, b"x"),
            store.read,
            lambda key: store.write(key, b"x"),
            store.delete,
            lambda key: store.upload(key, tmp_path / "file"),
            lambda key: store.download(key, tmp_path / "got"),
        ]
        for call, key in product(calls, NO_KEYS):
            with pytest.raises(ValueError, match="not a key"):
                call(key)

    def test_a_wrong_prefix_is_our_mistake(self, store: Store) -> None:
        for prefix in NO_PREFIXES:
            with pytest.raises(ValueError, match="not a"):
                store.list(prefix)

    @pytest.mark.parametrize("size", [0, 1, 20_000_000], ids=["empty", "small", "large"])
    def test_files_go_there_and_back(self, store: Store, tmp_path: Path, size: int) -> None:
        data = random.Random(3).randbytes(size)
        (tmp_path / "model").write_bytes(data)
        store.upload("files/model", tmp_path / "model")
        assert keys(store) == ["files/model"]
        got = tmp_path / "new" / "place" / "got"
        assert store.download("files/model", got)
        assert got.read_bytes() == data
        assert list(got.parent.iterdir()) == [got]
        if size:
            assert store.read("files/model") == data

    def test_files_replace(self, store: Store, tmp_path: Path) -> None:
        file, got = tmp_path / "file", tmp_path / "got"
        got.write_bytes(b"before")
        assert not store.download("file", got)
        assert got.read_bytes() == b"before"
        for data in (b"one, longer", b"two"):
            file.write_bytes(data)
            store.upload("file", file)
            assert store.download("file", got)
            assert got.read_bytes() == data

    def test_there_is_nothing_to_download(self, store: Store, tmp_path: Path) -> None:
        store.create("a/b", b"x")
        for key in ("c", "a", "a/b/c"):
            assert not store.download(key, tmp_path / "got")
        assert list(tmp_path.glob("*got*")) == []

    def test_a_file_that_is_gone_is_not_the_stores_failure(self, store: Store, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            store.upload("file", tmp_path / "gone")
        assert store.read("file") is None

    def test_a_relative_path_will_do(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "here").mkdir()
        monkeypatch.chdir(tmp_path / "here")
        Path("file").write_bytes(b"x")
        store.upload("file", Path("file"))
        assert store.download("file", Path("got"))
        assert sorted(path.name for path in Path().iterdir()) == ["file", "got"]


class SharedStoreContract(StoreContract):
    """More, for stores that several objects, processes and machines open by their URL."""

    def test_all_who_open_it_see_the_same(self, store: Store, other: Store) -> None:
        assert store.create("a/b", b"one")
        assert not other.create("a/b", b"two")
        assert other.read("a/b") == b"one"
        other.write("a/c", b"three")
        assert store.read("a/c") == b"three"
        assert versions(store) == versions(other)
        other.delete("a/b")
        assert store.read("a/b") is None
        assert store.create("a/b", b"four")

    def test_its_url_names_it(self, store: Store, other: Store) -> None:
        assert store.url == other.url
