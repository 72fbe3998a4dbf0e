from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.store import directory
from stoker.store.directory import DirectoryStore
from stoker.store.interface import StoreError
from tests.store.contract import SharedStoreContract, keys
from tests.store.race import directory_store, race

EITHER = pytest.mark.parametrize("links", [True, False], ids=["links", "no-links"])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / 'it\'s a "store"'


@pytest.fixture
def store(root: Path) -> DirectoryStore:
    return DirectoryStore(root)


class TestDirectory(SharedStoreContract):
    races = 100

    @pytest.fixture
    def other(self, root: Path) -> DirectoryStore:
        return DirectoryStore(root)


class TestDirectoryWithoutLinks(SharedStoreContract):
    races = 100
    reads_empty = False

    @pytest.fixture
    def store(self, root: Path) -> DirectoryStore:
        return directory_store(root, links=False)

    @pytest.fixture
    def other(self, root: Path) -> DirectoryStore:
        return directory_store(root, links=False)


@pytest.fixture
def _small_files() -> Iterator[None]:
    """Files end at 64 kB, as on a full disk: a write is cut short, and the next one fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def leftovers(root: Path) -> list[Path]:
    return list(root.rglob(".*"))


@EITHER
def test_processes_that_create_at_once_have_one_winner(root: Path, links: bool) -> None:
    outcomes = race(root, links, processes=8, keys=200)
    store = directory_store(root, links)
    for key in range(200):
        winners = [index for index, outcome in enumerate(outcomes) if outcome[key]]
        assert len(winners) == 1
        assert store.read(f"claims/{key // 50}/{key:04}") == b"%d" % winners[0] * 100
    assert leftovers(root) == []


def test_machines_with_and_without_links_exclude_each_other(root: Path) -> None:
    with_links, without = directory_store(root, links=True), directory_store(root, links=False)
    assert with_links.create("a", b"1")
    assert not without.create("a", b"2")
    assert without.create("b", b"1")
    assert not with_links.create("b", b"2")
    assert with_links.read("b") == without.read("b") == b"1"


@EITHER
def test_whoever_is_killed_leaves_nothing_torn(root: Path, links: bool) -> None:
    command = [sys.executable, "-m", "tests.store.race", str(root), str(links)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2]) as process:
        while not (root / "a" / "0000300").exists():
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    store = directory_store(root, links)
    read = [store.read(key) for key in keys(store)]
    assert set(read[:-1]) == {b"x" * 5000}
    assert read[-1] in (b"x" * 5000, None)
    assert len(leftovers(root)) <= 1


def test_a_link_whose_answer_was_lost_is_ours(root: Path) -> None:
    """A network file system sends it again, and is told that the file exists: by itself."""

    def link_twice(source: str, target: str) -> None:
        os.link(source, target)
        os.link(source, target)

    store = DirectoryStore(root, link=link_twice)
    assert store.create("a", b"1")
    assert not store.create("a", b"2")
    assert store.read("a") == b"1"


def test_a_name_reserved_by_the_dead_is_told(root: Path) -> None:
    store = directory_store(root, links=False)
    store.create("a/whole", b"x")
    empty = root / "a" / "b"
    empty.touch()
    assert not store.create("a/b", b"1")
    assert store.read("a/b") is None
    past = time.time() - 2 * directory.ABANDONED
    os.utime(empty, (past, past))
    assert not store.create("a/b", b"")
    with pytest.raises(StoreError, match=r"a/b: it is empty, as its writer was cut off; remove it"):
        store.create("a/b", b"1")
    store.delete("a/b")
    assert store.create("a/b", b"1")


def test_one_who_only_reads_finds_out_about_links(root: Path) -> None:
    root.mkdir()
    (root / "a").touch()
    assert directory_store(root, links=True).read("a") == b""
    assert directory_store(root, links=False).read("a") is None
    assert leftovers(root) == []


def test_what_is_no_object_is_passed_over(store: DirectoryStore, root: Path) -> None:
    store.create("a/b", b"x")
    for name in ("log train.txt", ".hidden", "-x", "a~", "näh", "a\nb", "a:b"):
        (root / name).write_bytes(b"foreign")
        (root / "a" / name).write_bytes(b"foreign")
    Path(os.fsdecode(os.fsencode(root) + b"/\xff\xfe")).write_bytes(b"foreign")
    (root / ".dir").mkdir()
    (root / ".dir" / "x").touch()
    (root / "loop").symlink_to(".")
    (root / "dangling").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    assert keys(store) == ["a/b"]
    assert store.read("pipe") is None
    assert store.read("dangling") is None


def test_torn_files_are_read_as_they_are(store: DirectoryStore, root: Path) -> None:
    store.create("a/b", b"x")
    (root / "a" / "empty").touch()
    assert keys(store) == ["a/b", "a/empty"]
    assert store.read("a/empty") == b""
    assert not store.create("a/empty", b"x")


@EITHER
def test_a_directory_in_the_way(root: Path, tmp_path: Path, links: bool) -> None:
    store = directory_store(root, links)
    store.create("a/b/c", b"x")
    (tmp_path / "file").touch()
    for call in (
        lambda: store.create("a/b", b"x"),
        lambda: store.write("a/b", b"x"),
        lambda: store.upload("a/b", tmp_path / "file"),
    ):
        with pytest.raises(StoreError, match=r"cannot \w+ .*/a/b: Is a directory"):
            call()
    store.delete("a/b")
    assert store.read("a/b") is None
    assert not store.download("a/b", tmp_path / "got")
    assert keys(store) == ["a/b/c"]
    assert leftovers(root) == []


@EITHER
def test_a_file_in_the_way(root: Path, links: bool) -> None:
    store = directory_store(root, links)
    store.create("a/b", b"x")
    for call in (lambda: store.create("a/b/c/d", b"x"), lambda: store.write("a/b/c", b"x")):
        with pytest.raises(StoreError, match=r"a/b/c\S*: Not a directory"):
            call()
    store.delete("a/b/c")
    assert keys(store, "a/b/") == []
    assert keys(store) == ["a/b"]


def test_directories_deeper_than_the_stack(store: DirectoryStore, root: Path) -> None:
    levels = [root, *(root / "/".join(["d"] * depth) for depth in range(1, 1050))]
    for level in levels:
        level.mkdir()
    try:
        assert keys(store) == []
        assert keys(store, "d/d/", "d/d/d") == []
    finally:
        for level in reversed(levels):  # what removes temporary directories would not manage
            level.rmdir()


def test_listings_outlive_what_they_list(store: DirectoryStore, root: Path) -> None:
    for key in ("a/1", "a/2", "a/3/x", "b/1"):
        store.create(key, b"x")
    listing = store.list("")
    assert next(listing).key == "a/1"
    store.delete("a/2")
    store.delete("a/3/x")
    (root / "a" / "3").rmdir()
    assert [entry.key for entry in listing] == ["b/1"]


def test_a_store_that_was_removed_is_empty_and_can_be_filled(store: DirectoryStore, root: Path) -> None:
    store.create("a/b", b"x")
    (root / "a" / "b").unlink()
    (root / "a").rmdir()
    root.rmdir()
    assert store.read("a/b") is None
    assert keys(store) == []
    assert store.create("a/b", b"y")


def test_errors_tell_where_and_why(store: DirectoryStore, root: Path) -> None:
    long = "x" * 300
    with pytest.raises(StoreError) as told:
        store.create(f"a/{long}", b"x")
    assert str(told.value) == f"cannot create {root}/a/{long}: File name too long"
    with pytest.raises(StoreError, match=r"cannot read .*: File name too long"):
        store.read(long)


@pytest.mark.usefixtures("_small_files")
def test_a_full_disk_leaves_nothing(store: DirectoryStore, root: Path, tmp_path: Path) -> None:
    data = b"x" * 100_000
    for call in (lambda: store.create("a", data), lambda: store.write("a", data)):
        with pytest.raises(StoreError, match=rf"cannot \w+ {root}/a: File too large"):
            call()
    assert store.read("a") is None
    assert leftovers(root) == []
    assert store.create("a", b"x")


def test_a_full_disk_fails_copies(store: DirectoryStore, root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    store.upload("file", tmp_path / "file")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, before[1]))
    try:
        with pytest.raises(StoreError, match="File too large"):
            store.upload("again", tmp_path / "file")
        with pytest.raises(StoreError, match="File too large"):
            store.download("file", tmp_path / "got")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert keys(store) == ["file"]
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]


def test_a_relative_root_stays_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = DirectoryStore(Path("here"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.create("a", b"x")
    assert (tmp_path / "here" / "a").read_bytes() == b"x"
    assert store.url == str(tmp_path / "here")


def test_records_obey_the_umask(store: DirectoryStore, root: Path) -> None:
    """The others of a group must be able to read and replace them."""
    before = os.umask(0o002)
    try:
        store.create("a/b", b"x")
    finally:
        os.umask(before)
    assert (root / "a" / "b").stat().st_mode & 0o777 == 0o664
    assert (root / "a").stat().st_mode & 0o777 == 0o775


@pytest.mark.timing
def test_a_record_costs_a_few_system_calls(tmp_path: Path) -> None:
    """About ten microseconds on tmpfs, three of which are what writing a new file takes at all."""
    store, data = DirectoryStore(tmp_path / "store"), b"x" * 300

    def plain(number: int) -> None:
        file = os.open(tmp_path / f"plain{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(file, data)
        os.close(file)

    def taken(work: object) -> float:
        times = []
        for number in range(2000):
            start = time.perf_counter()
            work(number)  # type: ignore[operator]
            times.append(time.perf_counter() - start)
        return sorted(times)[200]  # a quiet moment: the machine may be busy with other things

    floor = taken(plain)
    assert taken(lambda number: store.create(f"claims/{number:07}", data)) <= 12 * floor
