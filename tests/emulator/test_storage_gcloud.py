"""`gcloud storage`, where it is installed: the stricter reader of replies."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.emulator.discovery import Watch
from tests.emulator.storages import PROJECT, Home, home, wrong_replies

Gcloud = Callable[..., str]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Home]:
    if shutil.which("gcloud") is None:
        pytest.skip("not installed: gcloud")
    watch = Watch()
    with home(tmp_path / "cloud", watch) as found:
        yield found
    assert wrong_replies(watch.problems) == []


@pytest.fixture
def gcloud(server: Home, tmp_path: Path) -> Gcloud:
    environment = {
        **os.environ,
        "CLOUDSDK_CONFIG": str(tmp_path / "config"),
        "CLOUDSDK_CORE_PROJECT": PROJECT,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{server.url}/storage/v1/",
        "CLOUDSDK_STORAGE_PROCESS_COUNT": "1",
    }

    def run(*words: str) -> str:
        done = subprocess.run(
            ["gcloud", "storage", *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_files_go_there_and_back(server: Home, gcloud: Gcloud, tmp_path: Path) -> None:
    gcloud("buckets", "create", "gs://by-hand", "--location=us-central1")
    assert "gs://by-hand/" in gcloud("ls")
    folder = tmp_path / "a folder"
    folder.mkdir()
    for size in (0, 10, 9_000_000):
        (folder / f"ü {size}").write_bytes(random.Random(size).randbytes(size))
    gcloud("cp", "-r", str(folder), "gs://by-hand/there")
    listed = gcloud("ls", "-r", "gs://by-hand/**").split("\n")
    assert sorted(filter(None, listed)) == sorted(
        f"gs://by-hand/there/ü {size}" for size in (0, 10, 9_000_000)
    )
    (tmp_path / "back").mkdir()
    gcloud("cp", "-r", "gs://by-hand/there", str(tmp_path / "back"))
    for file in folder.iterdir():
        assert (tmp_path / "back" / "there" / file.name).read_bytes() == file.read_bytes()
    gcloud("cp", "gs://by-hand/there/ü 10", "gs://by-hand/copy")
    gcloud("rm", "-r", "gs://by-hand")
    assert list(server.client().list_buckets()) == []
