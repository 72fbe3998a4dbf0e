"""The same against a real server of the S3 protocol, which now and then is out of order."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from stoker.agent.mirror import Mirror, prune
from stoker.store.interface import StoreError
from stoker.store.remote import RemoteStore
from stoker.study.files import keys, pull, restore, trial_prefix
from tests.files.trees import TRIAL, attempt, put, tree
from tests.store.needs import need
from tests.store.server import BUCKET, Fault, Weather, proxy, s3_server


@pytest.fixture
def weather() -> Weather:
    return Weather()


@pytest.fixture
def store(weather: Weather, monkeypatch: pytest.MonkeyPatch) -> Iterator[RemoteStore]:
    need("obstore", "moto", "flask", "flask_cors")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with s3_server() as server, proxy(server, weather) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        yield RemoteStore(f"s3://{BUCKET}/study", wait=2)


def test_a_trial_moves_from_machine_to_machine(store: RemoteStore, weather: Weather, tmp_path: Path) -> None:
    dice = Random(1)
    here, there, pulled = tmp_path / "here", tmp_path / "there", tmp_path / "pulled"
    for number in range(100):
        put(here / "samples" / f"{number}.png", dice.randbytes(300))
    put(here / "ünï code" / "log", b"line\n" * 100)
    put(here / "model.pt", dice.randbytes(20_000_000))
    (here / "last").symlink_to("model.pt")
    mirror = Mirror(store, attempt(1), here)
    mirror.save()

    put(here / "model.pt", dice.randbytes(20_000_000), age=50)
    weather.forecast = lambda request: (
        Fault(lands=False, status=403) if "part-00001" in request.path else None
    )
    with pytest.raises(StoreError):
        mirror.save()
    weather.clear()
    faults = [None, None, None, Fault(status=503), Fault(lands=False, status=503)]
    weather.forecast = lambda request: dice.choice(faults)
    saved = None
    while saved is None:
        try:
            saved = mirror.save()
        except StoreError:
            continue
    weather.clear()

    base = restore(store, attempt(2), there)
    assert base == saved
    assert tree(there) == tree(here)
    put(there / "more", os.urandom(10))
    last = Mirror(store, attempt(2), there, base=base).save()
    assert [r.path.rpartition("/")[2] for r in weather.seen if r.method == "PUT"][1:] == [
        "more",
        "001.002.000001",
    ]
    prune(store, TRIAL)
    left = {entry.key for entry in store.list(trial_prefix(TRIAL)) if "/taken/" not in entry.key}
    assert left == keys(last) | keys(base)
    assert pull(store, TRIAL, pulled) == last
    assert tree(pulled) == tree(there)
