"""What comes back from a store: the newest that is good, and nothing outside the directory."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.mirror import Mirror, prune
from stoker.store.interface import Entry
from stoker.store.memory import MemoryStore
from stoker.study.files import (
    DamagedError,
    File,
    Manifest,
    Part,
    Select,
    Version,
    attempt_prefix,
    decode,
    digest,
    encode,
    fetch,
    key_name,
    manifest_key,
    newest,
    pull,
    read_file,
    restore,
    trial_prefix,
)
from tests.files.trees import TRIAL, Watched, attempt, objects, put, tree

V = Version(1, 1, 1)
KEY = attempt_prefix(TRIAL, 1, 1) + "000001/x"


@pytest.fixture
def store() -> Watched:
    return Watched(MemoryStore())


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture
def there(tmp_path: Path) -> Path:
    return tmp_path / "there"


def a_file(data: bytes = b"x", key: str = KEY, **changes: Any) -> File:
    part = Part(key, 0, len(data), digest(data))
    return File(0o644, 10**18, (replace(part, **changes),))


def manifest(
    files: dict[str, File] | None = None,
    links: dict[str, Any] | None = None,
    directories: dict[str, Any] | None = None,
) -> Manifest:
    return Manifest(TRIAL, V, directories or {}, links or {}, files or {})


def test_a_manifest_there_and_back() -> None:
    name = os.fsdecode(b"\xff\n ")
    whole = manifest({f"{name}/b": a_file(), "c": a_file()}, {"d": "/any\nwhere"}, {name: 0o755})
    assert decode(TRIAL, V, encode(whole)) == whole


@pytest.mark.parametrize(
    "hostile",
    [
        manifest({"/etc/passwd": a_file()}),
        manifest({"../x": a_file()}),
        manifest({"..": a_file()}),
        manifest({".": a_file()}),
        manifest({"": a_file()}),
        manifest({"a/../../x": a_file()}, directories={"a": 0o755, "a/..": 0o755, "a/../..": 0o755}),
        manifest({"a//x": a_file()}, directories={"a": 0o755, "a/": 0o755}),
        manifest({"a/x": a_file()}, directories={"a": 0o755, "a/x": 0o755}),
        manifest({"a/x": a_file()}, links={"a": "/etc"}),
        manifest({"a/x": a_file()}, links={"a": "/etc"}, directories={"a": 0o755}),
        manifest({"a": a_file(), "a/x": a_file()}),
        manifest({"a/x": a_file()}),
        manifest({"x\0y": a_file()}),
        manifest({".tmp-1": a_file()}),
        manifest({"\ud800": a_file()}),
        manifest(links={"a": "x\0y"}),
        manifest(links={"a": ""}),
        manifest(links={"a": 5}),
        manifest(links={"../a": "x"}),
        manifest(directories={"../a": 0o755}),
        manifest(directories={"a": 0o4755}),
        manifest(directories={"a": "x"}),
        manifest({"x": replace(a_file(), mode=0o4755)}),
        manifest({"x": replace(a_file(), mtime=2**70)}),
        manifest({"x": a_file(size=-1)}),
        manifest({"x": a_file(size=2**40)}),
        manifest({"x": a_file(start=-1)}),
        manifest({"x": a_file(key=trial_prefix(TRIAL) + "../../../plan/0001")}),
        manifest({"x": a_file(key=trial_prefix(TRIAL) + "/x")}),
    ],
    ids=str,
)
def test_hostile_manifests(store: Watched, there: Path, tmp_path: Path, hostile: Manifest) -> None:
    store.write(KEY, b"x")
    store.write(manifest_key(TRIAL, V), encode(hostile))
    assert decode(TRIAL, V, encode(hostile)) is None
    assert restore(store, attempt(2), there) is None
    assert pull(store, TRIAL, there) is None
    assert list(tmp_path.iterdir()) == []


def signed(body: dict[str, Any]) -> bytes:
    return json.dumps({**body, "check": digest(json.dumps(body).encode())}).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff",
        b"null",
        b"[" * 100_000,
        b'{"v": 1}',
        signed({"v": 2, "files": {}, "links": {}, "directories": {}}),
        signed({"v": 1, "files": [], "links": {}, "directories": {}}),
        signed({"v": 1, "files": {"a": 1}, "links": {}, "directories": {}}),
        signed({"v": 1, "files": {"a": [1, 2]}, "links": {}, "directories": {}}),
        signed({"v": 1, "files": {"a": [1, 2, [[1, 2, 3, 4]]]}, "links": {}, "directories": {}}),
        signed({"v": 1, "files": {"a": [1e999, 2, []]}, "links": {}, "directories": {}}),
        signed({"v": 1, "files": {}, "links": [], "directories": {}}),
        signed({"v": 1, "files": {}, "links": {}, "directories": {"a": 1e999}}),
    ],
    ids=lambda data: repr(data[:70]),
)
def test_torn_manifests(data: bytes) -> None:
    assert decode(TRIAL, V, data) is None


def test_a_changed_bit_is_noticed() -> None:
    whole = encode(manifest({"abc": a_file()}, {"link": "target"}, {"sub": 0o755}))
    for place in range(len(whole) - 1):  # the line break at the end says nothing
        damaged = bytearray(whole)
        damaged[place] ^= 1
        assert decode(TRIAL, V, bytes(damaged)) is None


def damage(key: str, store: Watched) -> None:
    store.write(key, (store.read(key) or b"")[:-2] + b"??")


def cut(key: str, store: Watched) -> None:
    store.write(key, (store.read(key) or b"")[:-2])


def remove(key: str, store: Watched) -> None:
    store.delete(key)


@pytest.mark.parametrize("harm", [damage, cut, remove])
@pytest.mark.parametrize("what", ["manifest", "object"])
def test_what_is_damaged_is_passed_over(
    store: Watched, here: Path, there: Path, harm: Callable[[str, Watched], None], what: str
) -> None:
    mirror = Mirror(store, attempt(1), here)
    put(here / "a", b"first", age=900)
    put(here / "old", b"old")
    first, expected = mirror.save(), tree(here)
    put(here / "a", b"second", age=800)
    put(here / "new", b"new")
    (here / "old").unlink()
    second = mirror.save()
    harm(manifest_key(TRIAL, second.version) if what == "manifest" else max(objects(second)), store)
    assert restore(store, attempt(2), there) == first
    assert tree(there) == expected
    for key in objects(first):
        harm(key, store)
    put(there / "junk", b"junk")
    (there / "a").unlink()
    assert restore(store, attempt(2), there) is None
    assert tree(there) == {}


def test_the_newest_of_all_attempts(store: Watched, here: Path, there: Path) -> None:
    saved = {}
    for place in ((1, 1), (1, 2), (2, 1), (2, 3)):
        put(here / "where", str(place).encode())
        saved[place] = Mirror(store, attempt(place[1], round_=place[0]), here).save()
    assert newest(store, TRIAL) == saved[2, 3]
    assert newest(store, TRIAL, before=Version(2, 1)) == saved[1, 2]
    for round_, number, expected in ((2, 4, (2, 3)), (2, 3, (2, 1)), (2, 1, (1, 2)), (1, 2, (1, 1))):
        assert restore(store, attempt(number, round_), there) == saved[expected]
        assert (there / "where").read_text() == str(expected)
    assert restore(store, attempt(1, round_=2), there, oldest_round=2) is None
    assert restore(store, attempt(1), there) is None
    assert tree(there) == {}


def test_a_listing_that_is_late(here: Path, there: Path) -> None:
    class Late(MemoryStore):
        hidden = ""

        def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
            return (entry for entry in super().list(prefix, after) if entry.key != self.hidden)

    store = Late()
    mirror = Mirror(store, attempt(1), here)
    put(here / "a", b"1", age=900)
    mirror.save()
    put(here / "a", b"2", age=800)
    saved = mirror.save()
    store.hidden = manifest_key(TRIAL, saved.version)
    assert restore(store, attempt(2), there) == saved


def test_a_restored_directory_is_as_on_a_fresh_machine(store: Watched, here: Path, there: Path) -> None:
    put(here / "dir" / "a", b"a")
    put(here / "file", b"b")
    put(here / "was link", b"c")
    (here / "link").symlink_to("file")
    Mirror(store, attempt(1), here).save()
    outside = there.parent / "outside"
    put(outside / "a", b"do not touch")
    there.mkdir()
    (there / "dir").symlink_to(outside)
    put(there / "file" / "deep" / "x", b"in the way")
    (there / "file" / "deep").chmod(0)
    (there / "was link").symlink_to(outside / "a")
    put(there / "link" / "x", b"in the way")
    put(there / "more", b"left over")
    restore(store, attempt(2), there)
    assert tree(there) == tree(here)
    assert (outside / "a").read_bytes() == b"do not touch"


def test_links_that_a_store_made_are_not_followed(store: Watched, there: Path, tmp_path: Path) -> None:
    """Not even in the next round of a hostile store."""
    outside = tmp_path / "outside"
    put(outside / "x", b"do not touch")
    store.write(KEY, b"evil")
    there.mkdir()
    fetch(store, manifest(links={"a": str(outside), "b": str(outside / "x")}), there)
    evil = a_file(b"evil")
    fetch(store, manifest({"a/x": evil, "b": evil}, directories={"a": 0o755}), there)
    assert (outside / "x").read_bytes() == b"do not touch"
    assert (there / "a" / "x").read_bytes() == (there / "b").read_bytes() == b"evil"


def test_a_pull_that_is_repeated_gets_what_changed(store: Watched, here: Path, there: Path) -> None:
    for number in range(10):
        put(here / f"{number}.pt", b"model %d" % number)
    put(here / "log", b"x" * 1000)
    mirror = Mirror(store, attempt(1), here)
    mirror.save()
    put(there / "notes", b"my own")
    pulled = pull(store, TRIAL, there)
    assert pulled is not None
    store.clear()
    pull(store, TRIAL, there)
    assert not [key for method, key in store.calls if method == "read" and "manifests" not in key]

    (there / "0.pt").touch()  # the same contents at another time
    put(there / "1.pt", b"MODEL 1", age=50)  # and other contents of the same size
    (there / "2.pt").unlink()
    put(here / "log", b"y" * 1000)
    mirror.save()
    store.clear()
    pull(store, TRIAL, there)
    got = [
        key.rpartition("/")[2] for method, key in store.calls if method == "read" and "manifests" not in key
    ]
    assert sorted(got) == ["1.pt", "2.pt", "log"]
    assert tree(there) == {**tree(here), "notes": tree(there)["notes"]}


def test_a_pull_that_was_interrupted_goes_on(store: Watched, here: Path, there: Path) -> None:
    for number in range(40):
        put(here / f"{number:02}", b"model %d" % number)
    put(here / "00.big", os.urandom(2_000_000))
    manifest = Mirror(store, attempt(1), here, part=100_000).save()

    def interrupt(method: str, key: str) -> None:
        if "part-00015" in key:
            raise InterruptedError

    store.before = interrupt
    with pytest.raises(InterruptedError):
        fetch(store, manifest, there)
    assert not list(there.rglob(".tmp-*"))
    store.before = lambda method, key: None
    fetch(store, manifest, there)
    assert tree(there) == tree(here)


def test_some_files_of_a_trial(store: Watched, here: Path, there: Path) -> None:
    for name in ("log.train", "ckpt/1.pt", "ckpt/old/0.pt", "tb/events"):
        put(here / name, name.encode())
    (here / "empty").mkdir()
    Mirror(store, attempt(1), here).save()
    pull(store, TRIAL, there, Select(include=("log.*", "*.pt"), exclude=("old/",)))
    assert sorted(tree(there)) == ["ckpt", "ckpt/1.pt", "log.train"]


def test_the_end_of_a_log(store: Watched, here: Path) -> None:
    contents = os.urandom(1050)
    put(here / "log", contents)
    put(here / "empty", b"")
    Mirror(store, attempt(1), here, part=100).save()
    manifest = newest(store, TRIAL)
    assert manifest is not None
    log = manifest.files["log"]
    for start in (0, 1, 99, 100, 101, 1049, 1050, 2000):
        assert b"".join(read_file(store, log, start)) == contents[start:]
    assert list(read_file(store, manifest.files["empty"])) == []
    store.clear()
    list(read_file(store, log, 1020))
    assert len(store.calls) == 1
    store.delete(log.parts[3].key)
    with pytest.raises(DamagedError, match=r"log=part-00003 is missing"):
        list(read_file(store, log))


def test_pruning_a_trial_that_is_over(store: Watched, here: Path, there: Path) -> None:
    put(here / "same", b"same")
    base = None
    for number in range(1, 5):
        mirror = Mirror(store, attempt(number), here, base=base)
        for step in range(3):
            put(here / "model", b"%d %d" % (number, step), age=900 - 10 * number - step)
            mirror.save()
        base = restore(store, attempt(number + 1), there)
        put(here / "lost", b"%d" % number)
        store.before = _fail_to_create
        with pytest.raises(InterruptedError):
            mirror.save()
        store.before = lambda method, key: None
        (here / "lost").unlink()
    assert base is not None
    damaged = replace(base, version=Version(1, 4, 4), files={"x": a_file(key=KEY + "gone")})
    store.write(manifest_key(TRIAL, damaged.version), encode(damaged))

    assert prune(store, TRIAL) > 0
    left = {entry.key for entry in store.list(trial_prefix(TRIAL)) if "/taken/" not in entry.key}
    assert len(left) == 5  # two manifests, two models, and what is the same in all
    assert prune(store, TRIAL) == 0
    assert restore(store, attempt(9), there) == base
    assert (there / "model").read_bytes() == b"4 2"


def _fail_to_create(method: str, key: str) -> None:
    if method == "create":
        raise InterruptedError


def test_nothing_good_nothing_pruned(store: Watched) -> None:
    store.write(KEY, b"x")
    store.write(manifest_key(TRIAL, V), b"torn")
    assert prune(store, TRIAL) == 0


def test_no_two_names_share_a_key() -> None:
    names = ["a b", "a=20b", "a=b", "a%b", ".a", "=2Ea", "a/b", "a=2Fb", "ä", "=C3=A4", "-", "=2D"]
    assert len({key_name(name) for name in names}) == len(names)
