"""Cloud Storage as a part of the whole cloud: stopped and started again, and with faults on request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stoker.emulator.cloud import Emulator
from stoker.emulator.faults import Fault
from stoker.store import open_store
from stoker.store.interface import StoreError
from tests.emulator.discovery import Watch
from tests.store.needs import need


def client_of(cloud: Emulator) -> Any:
    need("google.cloud.storage")
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    options = {"api_endpoint": cloud.url}
    return storage.Client(
        project=cloud.project,
        credentials=AnonymousCredentials(),  # type: ignore[no-untyped-call]
        client_options=options,
    )


def test_a_directory_keeps_it(tmp_path: Path, watch: Watch) -> None:
    generations = []
    for start in range(3):
        with Emulator(tmp_path / "cloud", observe=watch) as cloud:
            client = client_of(cloud)
            bucket = client.bucket("kept") if start else client.create_bucket("kept")
            assert [blob.name for blob in bucket.list_blobs()] == [
                f"start/{number}" for number in range(start)
            ]
            for number in range(start):
                assert bucket.blob(f"start/{number}").download_as_bytes() == b"%d" % number
            blob = bucket.blob(f"start/{start}")
            blob.upload_from_string(b"%d" % start, if_generation_match=0)
            generations.append(blob.generation)
            client.close()
    assert generations == sorted(set(generations))


def test_a_store_in_foul_weather(cloud: Emulator, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    need("obstore")
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud.url)
    client = client_of(cloud)
    client.create_bucket("weather")
    client.close()
    store = open_store("gs://weather/place")

    def breaks(fault: Fault) -> None:
        cloud.faults.add(fault, 0.0)

    breaks(Fault("error", api="storage", method="PUT", times=1))
    assert store.create("a", b"mine")
    breaks(Fault("error-after", api="storage", method="PUT", times=1))
    assert not store.create("b", b"mine")  # it was ours, but nobody told us
    assert store.read("b") == b"mine"
    breaks(Fault("error", api="storage", status=403, reason="forbidden", times=1))
    with pytest.raises(StoreError, match="403"):
        store.create("c", b"mine")
    assert [entry.key for entry in store.list("")] == ["a", "b"]
