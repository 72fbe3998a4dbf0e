"""What a mirror sends, and what it does not."""

from __future__ import annotations

import os
import socket
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from stoker.agent.mirror import Mirror
from stoker.store.directory import DirectoryStore
from stoker.store.interface import StoreError, check_key
from stoker.store.memory import MemoryStore
from stoker.study.files import PART, Select, fetch, key_name, keys, read_file, restore, trial_prefix
from tests.files.trees import TRIAL, Watched, attempt, objects, put, tree

ODD_NAMES = [
    ".hidden",
    "-rf",
    "a b",
    "ünïcode",
    "line\nbreak",
    "=3D",
    "a=part-00000",
    "=bundle-00000.tar",
    os.fsdecode(b"not \xff utf-8"),
    "x" * 255,
    "ä" * 127,
    "back\\slash",
    "quote'\"",
    "#~",
]


@pytest.fixture(params=["memory", "directory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Watched:
    return Watched(MemoryStore() if request.param == "memory" else DirectoryStore(tmp_path / "store"))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The trial's directory on another machine."""
    return tmp_path / "there"


def stored(store: Watched, below: str = "") -> set[str]:
    return {entry.key for entry in store.list(trial_prefix(TRIAL) + below)}


def test_everything_comes_back(store: Watched, here: Path, there: Path, tmp_path: Path) -> None:
    for number, name in enumerate(ODD_NAMES):
        put(here / name, b"%d" % number)
        put(here / "in" / name / name, b"in %d" % number)
    put(here / "run.sh", b"#!/bin/sh\n")
    (here / "run.sh").chmod(0o755)
    put(here / "empty", b"")
    put(here / "parts", os.urandom(250))
    (here / "empty directory" / "another").mkdir(parents=True)
    put(here / "closed" / "file", b"closed")
    (here / "closed").chmod(0o555)
    put(tmp_path / "outside" / "secret", b"secret")
    (here / "link").symlink_to("run.sh")
    (here / "dangling").symlink_to("nowhere/at all")
    (here / "out").symlink_to(tmp_path / "outside")
    expected = tree(here)

    os.mkfifo(here / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(here / "socket"))
    put(here / ".tmp-123", b"in the making")
    put(here / ".tmp-dir" / "file", b"in the making")

    saved = Mirror(store, attempt(1), here, part=100).save()
    assert [part.size for part in saved.files["parts"].parts] == [100, 100, 50]
    assert restore(store, attempt(2), there) == saved
    assert tree(there) == expected
    (here / "closed").chmod(0o755)
    (there / "closed").chmod(0o755)


def test_a_person_finds_files_by_their_names(store: Watched, here: Path) -> None:
    for name in ("log.train.1", "ckpt/epoch 1.pt", ".hidden"):
        put(here / name, name.encode())
    put(here / "big", bytes(range(150)))
    Mirror(store, attempt(2), here, part=100).save()
    assert stored(store) == {
        f"files/0001/000000005/{name}"
        for name in (
            "001.002/000001/=2Ehidden",
            "001.002/000001/big=part-00000",
            "001.002/000001/big=part-00001",
            "001.002/000001/ckpt/epoch=201.pt",
            "001.002/000001/log.train.1",
            "manifests/001.002.000001",
        )
    }


@pytest.mark.parametrize("name", [*ODD_NAMES, "/".join(["deep"] * 800), "a/-b/.c"])
def test_every_name_makes_a_key(name: str) -> None:
    key = check_key(key_name(name))
    assert len(key) <= 600
    assert max(map(len, key.split("/"))) <= 200
    assert key != key_name(name + "_")


def test_what_did_not_change_costs_no_request(store: Watched, here: Path) -> None:
    put(here / "a", b"a")
    put(here / "sub" / "b", b"b")
    (here / "link").symlink_to("a")
    mirror = Mirror(store, attempt(1), here)
    first = mirror.save()
    store.clear()
    assert mirror.save() is first
    assert mirror.save(thorough=True) is first
    assert store.calls == []

    (here / "a").chmod(0o700)
    assert mirror.save().files["a"].mode == 0o700
    assert (store.count("create"), store.count("write")) == (1, 0)


def test_ten_thousand_small_files(store: Watched, here: Path, there: Path) -> None:
    for number in range(10_000):
        path = here / f"{number % 10}" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"%d" % number)
    mirror = Mirror(store, attempt(1), here)
    saved = mirror.save()
    assert len(store.calls) <= 3
    store.clear()
    base = restore(store, attempt(2), there)
    assert len(store.calls) <= 8
    assert base == saved
    assert sorted(path.name for path in there.glob("*/*")) == sorted(map(str, range(10_000)))
    assert (there / "3" / "1233").read_bytes() == b"1233"

    put(there / "3" / "1233", b"changed")
    store.clear()
    Mirror(store, attempt(2), there, base=base).save()
    assert [key.removeprefix(trial_prefix(TRIAL)) for _, key in store.calls] == [
        "001.002/000001/3/1233",
        "manifests/001.002.000001",
    ]


def test_a_bundle_is_an_ordinary_archive(store: Watched, here: Path) -> None:
    names = [*ODD_NAMES, *(f"dir/{number}" for number in range(50))]
    for name in names:
        put(here / name, os.fsencode(name))
    (key,) = objects(Mirror(store, attempt(1), here).save())
    with tarfile.open(fileobj=BytesIO(store.read(key) or b"")) as archive:
        assert sorted(archive.getnames()) == sorted(names)
        for name in names:
            member = archive.extractfile(name)
            assert member is not None
            assert member.read() == os.fsencode(name)


def read_bytes() -> int:
    """How much this process has read."""
    told = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(told["rchar"])


def test_a_large_log_that_grows(here: Path, there: Path) -> None:
    store = Watched(MemoryStore())
    line = b"epoch 1, loss 0.123\n"
    log = here / "log.train"
    put(log, line * (5 * PART // len(line)))
    mirror = Mirror(store, attempt(1), here)
    mirror.save()
    assert store.sent > 4 * PART
    for growth in range(1, 4):
        with log.open("ab") as file:
            file.write(line * 1000)
        store.clear()
        before = read_bytes()
        saved = mirror.save()
        assert store.sent <= PART + 1000 * len(line)
        if growth > 1:  # by now it is known as a log
            assert read_bytes() - before < 3 * PART
    store.clear()
    assert mirror.save(thorough=True).files == saved.files
    assert store.sent == 0
    fetch(store, saved, there)
    assert (there / "log.train").read_bytes() == log.read_bytes()


@pytest.mark.parametrize("thorough", [False, True])
def test_a_log_that_is_written_anew(store: Watched, here: Path, thorough: bool) -> None:
    log = here / "log"
    put(log, b"0123456789" * 50, age=900)
    mirror = Mirror(store, attempt(1), here, part=100)
    mirror.save()
    put(log, b"0123456789" * 60, age=800)
    mirror.save()
    put(log, b"abcdefghij" * 70, age=700)
    saved = mirror.save(thorough)
    assert b"".join(read_file(store, saved.files["log"])) == log.read_bytes()


def test_a_change_inside_a_growing_file_is_found_when_its_stage_ends(store: Watched, here: Path) -> None:
    """What is believed of a log is a belief; and one that is the same size is none."""
    log = here / "log"
    contents = bytearray(bytes(range(1, 251)) * 2)
    mirror = Mirror(store, attempt(1), here, part=100)
    for age in (900, 800, 700):
        put(log, contents, age)
        mirror.save()
        contents += b"more"
    contents[250] = 0
    put(log, contents, 600)
    mirror.save()
    saved = mirror.save(thorough=True)
    assert b"".join(read_file(store, saved.files["log"])) == contents
    contents[150] = 0
    put(log, contents, 500)
    saved = mirror.save()
    assert b"".join(read_file(store, saved.files["log"])) == contents


def test_a_large_file_changed_in_place(store: Watched, here: Path) -> None:
    contents = bytearray(os.urandom(1000))
    put(here / "state", contents, age=900)
    mirror = Mirror(store, attempt(1), here, part=100)
    mirror.save()
    store.clear()
    contents[555] ^= 1
    put(here / "state", contents, age=800)
    mirror.save()
    assert [key.rpartition("/")[2] for method, key in store.calls if method == "write"] == [
        "state=part-00005"
    ]


def test_a_second_write_within_the_same_tick_of_the_clock(store: Watched, here: Path) -> None:
    path = here / "state"
    path.write_bytes(b"one")
    mirror = Mirror(store, attempt(1), here)
    first = mirror.save()
    then = path.stat().st_mtime_ns
    path.write_bytes(b"two")
    os.utime(path, ns=(then, then))
    assert mirror.save().files["state"] != first.files["state"]


def test_a_file_that_is_renamed_or_copied_is_not_sent_again(store: Watched, here: Path, there: Path) -> None:
    put(here / "last.pt", os.urandom(350))
    mirror = Mirror(store, attempt(1), here, part=100)
    mirror.save()
    store.clear()
    put(here / "best.pt", (here / "last.pt").read_bytes())
    mirror.save()
    (here / "last.pt").rename(here / "epoch1.pt")
    mirror.save()
    assert store.sent == 0
    base = restore(store, attempt(2), there)
    assert tree(there) == tree(here)
    store.clear()
    saved = Mirror(store, attempt(2), there, base=base).save()
    assert store.sent == 0
    assert saved.version.attempt == 2


def test_contents_that_come_again(store: Watched, here: Path, there: Path) -> None:
    """What was deleted meanwhile must be sent again."""
    mirror = Mirror(store, attempt(1), here)
    for step, data in enumerate([b"one", b"two", b"three", b"one"]):
        put(here / "state", data, age=900 - step)
        mirror.save()
    restore(store, attempt(2), there)
    assert (there / "state").read_bytes() == b"one"


def test_what_becomes_a_link_meanwhile_is_not_followed(store: Watched, here: Path, tmp_path: Path) -> None:
    put(tmp_path / "outside" / "file", b"secret")
    for name in [*"0123456789", "file", "sub/file"]:
        put(here / name, name.encode())

    def replace(method: str, key: str) -> None:
        if key.endswith("/0"):
            (here / "file").unlink()
            (here / "file").symlink_to(tmp_path / "outside" / "file")
            (here / "sub").rename(here / "old")
            (here / "sub").symlink_to(tmp_path / "outside")

    store.after = replace
    assert sorted(Mirror(store, attempt(1), here).save().files) == list("0123456789")
    assert b"secret" not in [store.read(key) for key in stored(store)]


@pytest.mark.parametrize("is_new", [True, False])
def test_a_file_that_changes_while_it_is_copied(store: Watched, here: Path, is_new: bool) -> None:
    """Half a checkpoint must not take the place of a whole one."""
    mirror = Mirror(store, attempt(1), here, part=10)
    path = here / "last.pt"
    if not is_new:
        put(path, b"\0one" * 50, age=900)
    put(here / "other", b"x")
    known = mirror.save().files.get("last.pt")

    def overwrite(method: str, key: str) -> None:
        if key.endswith("last.pt=part-00000"):
            with path.open("ab") as file:
                file.write(b"\0three")

    put(path, b"\0two" * 50)
    store.after = overwrite
    assert mirror.save().files.get("last.pt") == known
    store.after = lambda method, key: None
    saved = mirror.save()
    assert saved.files["last.pt"].size == 206
    assert objects(saved) | {key for key in stored(store) if "/manifests/" in key} <= stored(store)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_log_that_grows_all_the_time_gets_through(store: Watched, here: Path, is_new: bool) -> None:
    lines = b"".join(b"line %3d\n" % number for number in range(40))
    mirror = Mirror(store, attempt(1), here, part=10)
    log = here / "log"
    if not is_new:
        put(log, lines[:180], age=900)
        mirror.save()

    def append(method: str, key: str) -> None:
        if "log=part" in key:
            with log.open("ab") as file:
                file.write(os.urandom(8).hex().encode())

    put(log, lines)
    store.after = append
    assert mirror.save().files["log"].size == len(lines)
    assert log.stat().st_size > len(lines)
    grown = mirror.save().files["log"]
    assert grown.size > len(lines)
    assert log.read_bytes().startswith(b"".join(read_file(store, grown)))


def test_only_what_is_selected(store: Watched, here: Path) -> None:
    for name in ("a.tmp", "a.pt", "sub/b.tmp", "sub/b.pt", "cache/c", "sub/cache/c", "ckpt/d", "deep/ckpt/d"):
        put(here / name, name.encode())
    (here / "cache" / "empty").mkdir()

    def saved(include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()) -> set[str]:
        mirror = Mirror(Watched(MemoryStore()), attempt(1), here, Select(include, exclude))
        manifest = mirror.save()
        assert all(not directory.startswith("cache") for directory in manifest.directories) or not exclude
        return set(manifest.files)

    everything = saved()
    assert len(everything) == 8
    assert saved(exclude=("*.tmp", "cache/")) == {"a.pt", "sub/b.pt", "ckpt/d", "deep/ckpt/d"}
    assert saved(include=("ckpt/*",)) == {"ckpt/d"}
    assert saved(include=("ckpt", "*.pt"), exclude=("/a.*", "cache")) == {"sub/b.pt", "ckpt/d", "deep/ckpt/d"}


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("*.tmp", "a.tmp", True),
        ("*.tmp", "a/b/c.tmp", True),
        ("*.tmp", "a.tmp/b", True),
        ("*.tmp", "a.tmpx", False),
        ("ckpt/*", "ckpt/a", True),
        ("ckpt/*", "ckpt/a/b", True),
        ("ckpt/*", "x/ckpt/a", False),
        ("/log", "log", True),
        ("./log", "log", True),
        ("/log", "a/log", False),
        ("**/log", "a/b/log", True),
        ("**/log", "log", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**", "b/a/c", False),
        ("cache/", "cache", False),
        ("cache/", "x/cache/y", True),
        ("[ab].pt", "b.pt", True),
        ("[!ab].pt", "b.pt", False),
        ("?.pt", "ab.pt", False),
        ("A.pt", "a.pt", False),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:
    assert Select(include=(pattern,)).takes(path) is expected
    assert Select(exclude=(pattern,)).takes(path) is not expected


def test_two_manifests_are_kept_and_nothing_else(store: Watched, here: Path, there: Path) -> None:
    mirror = Mirror(store, attempt(1), here)
    put(here / "same.pt", b"same")
    saved = []
    for step in range(6):
        put(here / "last.pt", b"%d" % step, age=900 - step)
        saved.append(mirror.save())
    previous, last = saved[-2:]
    assert stored(store) == keys(last) | keys(previous)
    store.delete(last.files["last.pt"].parts[0].key)
    assert restore(store, attempt(2), there) == previous
    assert (there / "last.pt").read_bytes() == b"4"


def test_an_attempt_that_was_given_up_deletes_nothing(store: Watched, here: Path, there: Path) -> None:
    """It lives, and does not know that another one goes on from its files."""
    given_up = Mirror(store, attempt(1), here)
    put(here / "model", b"one")
    given_up.save()
    base = restore(store, attempt(2), there)
    other = Mirror(store, attempt(2), there, base=base)
    for step in range(5):
        put(here / "model", b"given up %d" % step, age=800 - step)
        given_up.save()
    put(there / "log", b"log")
    saved = other.save()
    assert objects(saved) <= stored(store)
    assert restore(store, attempt(3), here) == saved
    assert (here / "model").read_bytes() == b"one"


def test_a_store_that_is_away_in_the_middle(store: Watched, here: Path, there: Path) -> None:
    for number in range(20):
        put(here / f"{number:02}", os.urandom(100))
    mirror = Mirror(store, attempt(1), here)

    def away(method: str, key: str) -> None:
        if key.endswith("/10"):
            raise StoreError("away")

    store.before = away
    with pytest.raises(StoreError, match="away"):
        mirror.save()
    assert restore(store, attempt(2), there) is None
    landed = store.sent
    assert 0 < landed < 2000
    store.before = lambda method, key: None
    saved = mirror.save()
    assert store.sent == 2000
    assert stored(store) == keys(saved) | {key for key in stored(store) if "/taken/" in key}
    assert restore(store, attempt(2), there) == saved
    assert tree(there) == tree(here)


def test_what_was_sent_in_vain_is_deleted(store: Watched, here: Path) -> None:
    mirror = Mirror(store, attempt(1), here)

    def away(method: str, key: str) -> None:
        if key.endswith("/second"):
            raise StoreError("away")

    put(here / "first", b"in vain", age=900)
    put(here / "second", b"refused", age=900)
    store.before = away
    with pytest.raises(StoreError):
        mirror.save()
    store.before = lambda method, key: None
    assert [store.read(key) for key in stored(store)] == [b"in vain"]
    put(here / "first", b"better", age=800)
    saved = mirror.save()
    assert stored(store) == keys(saved)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_manifest_that_is_answered_with_an_error(
    store: Watched, here: Path, there: Path, moment: str
) -> None:
    """It may have landed. If so it is one of the two that are kept."""
    put(here / "model", b"one", age=900)
    mirror = Mirror(store, attempt(1), here)
    mirror.save()
    put(here / "model", b"two", age=800)
    away = False

    def fail(method: str, key: str) -> None:
        nonlocal away
        away = away or "manifests" in key
        if away:
            raise StoreError("away")

    setattr(store, moment, fail)
    if moment == "after":  # and nothing can be asked any more
        store.before = lambda method, key: fail(method, key) if away else None
    with pytest.raises(StoreError):
        mirror.save()
    store.before = store.after = lambda method, key: None
    before = restore(store, attempt(9), there)
    assert (there / "model").read_bytes() == (b"one" if moment == "before" else b"two")
    put(here / "model", b"three", age=700)
    saved = mirror.save()
    assert before is not None
    assert saved.version.number == before.version.number + 1
    assert restore(store, attempt(9), there) == saved


def test_killed_between_the_files_and_their_manifest(store: Watched, here: Path, there: Path) -> None:
    class KilledError(BaseException):
        pass

    def kill(method: str, key: str) -> None:
        if method == "create":
            raise KilledError

    put(here / "model", b"one", age=900)
    mirror = Mirror(store, attempt(1), here)
    saved = mirror.save()
    expected = tree(here)
    put(here / "model", b"two", age=800)
    store.before = kill
    with pytest.raises(KilledError):
        mirror.save()
    store.before = lambda method, key: None
    assert restore(store, attempt(2), there) == saved
    assert tree(there) == expected


def test_deletions_that_fail_are_made_up_for(store: Watched, here: Path) -> None:
    mirror = Mirror(store, attempt(1), here)

    def refuse(method: str, key: str) -> None:
        if method == "delete":
            raise StoreError("away")

    store.before = refuse
    for step in range(5):
        put(here / "model", b"%d" % step, age=900 - step)
        mirror.save()
    assert len(stored(store)) == 10
    store.before = lambda method, key: None
    put(here / "model", b"last", age=100)
    mirror.save()
    assert len(stored(store)) == 4


def test_a_directory_that_is_gone_is_not_an_empty_one(store: Watched, here: Path) -> None:
    put(here / "model", b"one")
    mirror = Mirror(store, attempt(1), here)
    mirror.save()
    (here / "model").unlink()
    here.rmdir()
    store.clear()
    with pytest.raises(FileNotFoundError):
        mirror.save()
    assert store.calls == []
