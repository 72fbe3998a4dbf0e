"""Small studies for all commands that look at one, each made once: in a directory, and in a bucket."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.cli import main
from tests.store.needs import need
from tests.store.server import BUCKET, s3_server
from tests.stories.command import STOKER
from tests.stories.studies import TEXT, Here


def _make(place: Path, output: str, **environment: str) -> None:
    (place / "params.yaml").write_text(TEXT, encoding="utf-8")
    done = subprocess.run(
        [STOKER, "run", "-o", output],
        cwd=place,
        env={**os.environ, **environment},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr.decode()  # one trial fails


@pytest.fixture(scope="package")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("made") / "norms"
    place.mkdir()
    _make(place, "output")
    return place


@pytest.fixture
def study(made: Path, workplace: Path) -> Path:
    """A small study in `output`, run to its end."""
    shutil.copytree(made, workplace, dirs_exist_ok=True)
    return workplace / "output"


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        code = main(words)
        shown = capsys.readouterr()
        return subprocess.CompletedProcess(words, code, shown.out, shown.err)

    return run


@pytest.fixture(scope="package")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment in which a bucket can be reached."""
    need("obstore", "moto", "flask", "flask_cors")
    with s3_server() as address:
        yield {
            "AWS_ACCESS_KEY_ID": "me",
            "AWS_SECRET_ACCESS_KEY": "hush",
            "AWS_REGION": "us-east-1",
            "NO_PROXY": "127.0.0.1",
            "AWS_ENDPOINT_URL": address,
            "STOKER_SCRATCH": str(tmp_path_factory.mktemp("scratch")),
        }


@pytest.fixture(scope="package")
def made_in_a_bucket(s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"s3://{BUCKET}/stories/first"
    _make(tmp_path_factory.mktemp("bucket"), url, **s3)
    return url


@pytest.fixture
def bucket(s3: dict[str, str], made_in_a_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same study in a bucket, and an environment that reaches it. Others look at it, too."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return made_in_a_bucket
