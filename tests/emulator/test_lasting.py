"""What a directory keeps of a cloud that dies without a word, and of one that cannot save for a while.

A copy of the directory is what `kill -9` would have left of it at that moment.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from stoker.emulator.cloud import Emulator
from stoker.emulator.meter import Use
from stoker.emulator.pace import FAST
from tests.emulator.discovery import Watch
from tests.emulator.test_storage_in_the_cloud import client_of
from tests.emulator.vms import eventually


def state(directory: Path) -> Any:
    return json.loads((directory / "state.json").read_text(encoding="utf-8"))


def objects(directory: Path) -> set[str]:
    """That the last saved state knows."""
    if not (directory / "state.json").exists():
        return set()
    buckets = state(directory)["storage"]["objects"]["buckets"]
    return {one["name"] for bucket in buckets for one in bucket["objects"]}


def texts(cloud: Emulator) -> dict[str, str]:
    found = client_of(cloud).bucket("kept").list_blobs()
    return {blob.name: blob.download_as_text() for blob in found}


OLD = {"deleted": "1", "moved": "2", "replaced": "3", "under": "4"}
NEW = {"replaced": "new", "under": "2"}


def change_all(cloud: Emulator) -> None:
    bucket = client_of(cloud).bucket("kept")
    bucket.blob("deleted").delete()
    bucket.move_blob(bucket.blob("moved"), "under")
    bucket.blob("replaced").upload_from_string("new")


def test_what_is_removed_stays_until_that_is_saved(
    tmp_path: Path, watch: Watch, capfd: pytest.CaptureFixture[str]
) -> None:
    here, copy = tmp_path / "cloud", tmp_path / "copy"
    with Emulator(here, pace=FAST, observe=watch) as cloud:
        cloud.storage.rate.each_second = 0
        bucket = client_of(cloud).create_bucket("kept")
        for name, text in OLD.items():
            bucket.blob(name).upload_from_string(text)
        assert eventually(lambda: objects(here) == set(OLD))
        (here / "state.json.new").mkdir()  # nothing can be saved now
        change_all(cloud)
        assert texts(cloud) == NEW
        said: list[str] = []

        def is_told() -> bool:
            said.append(capfd.readouterr().err)
            return "could not be saved" in "".join(said)

        assert eventually(is_told)
        shutil.copytree(here, copy)
        (here / "state.json.new").rmdir()
        assert eventually(lambda: objects(here) == set(NEW))
        assert eventually(lambda: len(list((here / "storage").iterdir())) == len(NEW))
    assert "".join([*said, capfd.readouterr().err]).count("could not be saved") == 1
    (copy / "state.json.new").rmdir()
    with Emulator(copy, pace=FAST, observe=watch) as cloud:
        assert texts(cloud) == OLD
        assert len(list((copy / "storage").iterdir())) == len(OLD)
    with Emulator(here, pace=FAST, observe=watch) as cloud:
        assert texts(cloud) == NEW


def test_without_a_directory_nothing_waits(cloud: Emulator) -> None:
    cloud.storage.rate.each_second = 0
    bucket = client_of(cloud).create_bucket("kept")
    for name, text in OLD.items():
        bucket.blob(name).upload_from_string(text)
    change_all(cloud)
    assert len(list((cloud.directory / "storage").iterdir())) == len(NEW)


def test_the_end_comes_even_if_nothing_can_be_saved(
    tmp_path: Path, watch: Watch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Emulator(tmp_path, pace=FAST, observe=watch):
        (tmp_path / "state.json.new").mkdir()
    assert "could not be saved" in capfd.readouterr().err


def test_seconds_are_saved_while_they_pass(tmp_path: Path, watch: Watch) -> None:
    with Emulator(tmp_path, pace=FAST, observe=watch) as cloud:
        cloud.compute.meter.begin(Use("1", "vm-1", "us-central1-a", "e2-medium", "SPOT", (), time.time()))
        client_of(cloud).create_bucket("kept")  # the last change
        assert eventually((tmp_path / "state.json").exists)
        first = state(tmp_path)["compute"]["saved"]
        assert eventually(lambda: state(tmp_path)["compute"]["saved"] > first + 3)


def test_a_deep_directory_is_in_nobodys_way(watch: Watch) -> None:
    with Emulator(pace=FAST, observe=watch) as cloud:
        make_deep(cloud.directory / "deep")
    assert not cloud.directory.exists()


def make_deep(top: Path) -> None:
    """Deeper than the stack of Python; the paths are longer than any call takes."""
    top.mkdir()
    here = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("some-directory", dir_fd=here)
        below = os.open("some-directory", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
