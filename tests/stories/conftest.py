"""A study in a bucket, made once for all commands that look at one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.store.needs import need
from tests.store.server import BUCKET, s3_server
from tests.stories.command import STOKER
from tests.stories.studies import TEXT

_places = count()


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
def study_in_a_bucket(s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("bucket")
    (place / "params.yaml").write_text(TEXT, encoding="utf-8")
    url = f"s3://{BUCKET}/stories/{next(_places)}"
    command = [STOKER, "run", "-o", url]
    done = subprocess.run(
        command, cwd=place, env={**os.environ, **s3}, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 1, done.stderr.decode()  # one fails
    return url


@pytest.fixture
def bucket(s3: dict[str, str], study_in_a_bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the study is, in an environment that reaches it."""
    for name, value in s3.items():
        monkeypatch.setenv(name, value)
    return study_in_a_bucket


@pytest.fixture
def study(workplace: Path) -> Path:
    """A small study in `output`, run to its end."""
    from tests.stories.studies import make

    make()
    return workplace / "output"
