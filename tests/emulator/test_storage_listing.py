"""Listings against a slow and obvious model; checksums against Google's own."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.emulator.storage.crc32c import crc32c
from stoker.emulator.storage.listing import Query, page, start_of
from tests.emulator.storages import Home, home
from tests.store.needs import need

LETTERS = "ab/-\U0010ffff\ud7ffü"
words = st.text(LETTERS, min_size=1, max_size=5)
queries = st.builds(
    Query,
    prefix=st.text(LETTERS, max_size=2),
    delimiter=st.sampled_from(["", "/", "-", "b/", "ü", "\U0010ffff", "\ud7ff"]),
    start=st.text(LETTERS, max_size=3),
    end=st.sampled_from(["", "", "b", "b/a", "ü"]),
    most=st.integers(1, 5),
    with_folders=st.booleans(),
)


def obvious(names: set[str], query: Query) -> list[tuple[str, bool]]:
    """All that is told, in order: a name, or (True) a prefix."""
    found: set[tuple[str, bool]] = set()
    for name in names:
        if not name.startswith(query.prefix) or name < query.start or (query.end and name >= query.end):
            continue
        rest = name[len(query.prefix) :]
        if not query.delimiter or query.delimiter not in rest:
            found.add((name, False))
            continue
        folder = query.prefix + rest.split(query.delimiter)[0] + query.delimiter
        found.add((folder, True))
        if query.with_folders and name == folder:
            found.add((name, False))
    return sorted(found)


def pages(names: list[str], query: Query) -> Iterator[Any]:
    while True:
        found = page(names, query)
        yield found
        if not found.token:
            return
        query = Query(**{**vars(query), "start": start_of(found.token)})


@given(st.sets(words, max_size=25), queries)
def test_pages_are_those_of_the_model(names: set[str], query: Query) -> None:
    seen = list(pages(sorted(names), query))
    told = [(name, False) for one in seen for name in one.names]
    told += [(prefix, True) for one in seen for prefix in one.prefixes]
    assert sorted(told) == obvious(names, query)
    for one in seen[:-1]:
        assert len({*one.names, *one.prefixes}) == query.most
    assert len({*seen[-1].names, *seen[-1].prefixes}) <= query.most


@given(st.sets(words, max_size=15), st.sets(words, max_size=5), queries)
def test_what_is_written_behind_a_page_is_on_the_next(names: set[str], new: set[str], query: Query) -> None:
    first = page(sorted(names), query)
    if not first.token:
        return
    start = start_of(first.token)
    rest = Query(**{**vars(query), "start": start, "most": 1000})
    found = page(sorted(names | new), rest)
    last = max(first.names + first.prefixes)
    seen = {*first.names, *first.prefixes}
    expected = [one for one in obvious(names | new, query) if one[0] > last and one[0] not in seen]
    told = [(name, False) for name in found.names] + [(prefix, True) for prefix in found.prefixes]
    assert sorted(told) == expected


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    need("obstore", "google.cloud.storage")
    with home(tmp_path_factory.mktemp("cloud"), lambda request, reply: None) as found:
        found.storage.rate.each_second = 0
        yield found


def test_objects_come_and_go_under_both_interfaces(server: Home) -> None:
    """A random walk: writes, deletions and listings by both, and a model of what must be there."""
    import obstore

    dice, client = random.Random(12), server.client()
    bucket, store = client.create_bucket("walk"), server.obstore("walk")
    there: dict[str, bytes] = {}
    names = ["a", "a/b", "a/b/c", "a-b", "b", "b/c", "b/d/e", "c/d", "ä/x", "a/ü", "zz"]
    for step in range(250):
        name, by_xml = dice.choice(names), dice.random() < 0.5
        if dice.random() < 0.5:
            data = b"%d" % step
            if by_xml:
                obstore.put(store, name, data)
            else:
                bucket.blob(name).upload_from_string(data)
            there[name] = data
        elif name in there:
            if by_xml:
                obstore.delete(store, name)
            else:
                bucket.blob(name).delete()
            del there[name]
        if step % 5 == 0:
            check(dice, there, bucket, store)
    client.close()


def check(dice: random.Random, there: dict[str, bytes], bucket: Any, store: Any) -> None:
    import obstore

    folder = dice.choice(["", "a", "a/b", "b", "q"])
    prefix = folder and folder + "/"
    query = Query(prefix, "/", dice.choice(["", "a/b", "b"]))
    found = bucket.list_blobs(prefix=prefix, delimiter="/", start_offset=query.start, page_size=2)
    told = [(blob.name, False) for blob in found]
    assert sorted(told + [(name, True) for name in found.prefixes]) == obvious(set(there), query)

    within = sorted(name for name in there if name.startswith(prefix))
    offset = dice.choice([None, "a", "a/b", "b/c"])
    listed = obstore.list(store, folder or None, offset=offset, chunk_size=2)
    assert [one["path"] for part in listed for one in part] == [
        name for name in within if name > (offset or "")
    ]
    level = obstore.list_with_delimiter(store, folder or None)
    whole = obvious(set(there), Query(prefix, "/"))
    assert [one["path"] for one in level["objects"]] == [name for name, is_folder in whole if not is_folder]
    assert sorted(level["common_prefixes"]) == sorted(name[:-1] for name, is_folder in whole if is_folder)
    for name, data in there.items():
        if dice.random() < 0.1:
            assert bytes(obstore.get(store, name).bytes()) == data


def test_pages_of_the_xml_interface(server: Home) -> None:
    import xml.etree.ElementTree as Tree

    client = server.client()
    bucket = client.create_bucket("pages")
    names = [f"n/{number:02}" for number in range(7)] + ["o<&>'\"", "p/ä b"]
    for name in names:
        bucket.blob(name).upload_from_string(b"x")
    client.close()

    def texts(root: Any, tag: str) -> list[str]:
        return [found.text or "" for found in root.iter() if found.tag.rpartition("}")[2] == tag]

    def listed(marker: str, following: str, **query: str) -> list[str]:
        seen: list[str] = []
        while True:
            with urlopen(Request(f"{server.url}/pages?{urlencode(query)}")) as reply:  # noqa: S310  (ours)
                root = Tree.fromstring(reply.read())  # noqa: S314
            seen += texts(root, "Key")
            assert len(texts(root, "Key")) <= 2
            if texts(root, "IsTruncated") == ["false"]:
                return seen
            query[marker] = texts(root, following)[0]

    tokens = ("continuation-token", "NextContinuationToken")
    assert listed(*tokens, **{"list-type": "2", "max-keys": "2"}) == names
    assert listed(*tokens, **{"list-type": "2", "max-keys": "2", "start-after": "n/04"}) == names[5:]
    assert listed("marker", "NextMarker", **{"max-keys": "2"}) == names


def test_checksums_are_googles() -> None:
    google_crc32c = pytest.importorskip("google_crc32c")
    dice = random.Random(8)
    sizes = [0, 1, 3, 4, 847, 848, 849, 1694, 1695, 1696, 6777, 50_000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1]
    for size in [*sizes, *(dice.randrange(200_000) for _ in range(20))]:
        data, before = dice.randbytes(size), dice.getrandbits(32)
        assert crc32c(data) == google_crc32c.value(data), size
        assert crc32c(memoryview(data), before) == google_crc32c.extend(before, data), size
    assert crc32c(b"123456789") == 0xE3069283  # as the standard has it


def test_the_files_have_no_names_of_objects(tmp_path: Path) -> None:
    with home(tmp_path, lambda request, reply: None) as server:
        client = server.client()
        bucket = client.create_bucket("files")
        for name in ("../../escape", "/etc/passwd", "a/../../b", "..a"):
            bucket.blob(name).upload_from_string(name)
            assert bucket.blob(name).download_as_bytes() == name.encode()
        client.close()
        assert len(list((tmp_path / "storage").iterdir())) == 4
        assert [path.name for path in tmp_path.iterdir()] == ["storage"]
