"""A process that runs scripts as trials, and what became of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.manager import progress

ROOT = Path(__file__).parent.parent.parent


class Trials:
    """Runs scripts, each in the directory of a trial, which it may find as an earlier run left it."""

    def __init__(self, process: subprocess.Popen[str], place: Path) -> None:
        self._process, self._place = process, place
        self._attempts: dict[str, int] = {}

    def run(self, trial: str, script: str, signal: str = "", count: int = 0) -> int:
        """Run the next attempt; returns its exit code. A signal comes with a value of progress."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        attempt = self._attempts[trial] = self._attempts.get(trial, 0) + 1
        directory = self._place / trial
        directory.mkdir(exist_ok=True)
        path = directory / "train.py"
        path.write_text(script, encoding="utf-8")
        asked = {
            "script": str(path),
            "directory": str(directory),
            "environment": {
                "STOKER_STAGE": "train",
                "STOKER_DIRECTORY": str(directory),
                "STOKER_ATTEMPT": str(attempt),
                "STOKER_SAVE_EVERY": "1",
            },
            "signal": signal,
            "count": count,
        }
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        self.log = (directory / "log").read_text("utf-8")
        return code

    def progress(self, trial: str) -> dict[str, list[float]]:
        """What a trial told, as its last attempt has it."""
        found = progress.read(str(self._place / trial), "train")
        return {name: list(series.values) for name, series in found.items()}

    def told(self, trial: str) -> int:
        """How many values the last attempt itself told."""
        path = self._place / trial / f"progress.train.1-{self._attempts[trial]}.jsonl"
        return sum(len(json.loads(line).get("values", ())) for line in path.read_text("utf-8").splitlines())


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    with subprocess.Popen(
        [sys.executable, "-m", "tests.callbacks.runner"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=environment,
    ) as running:
        yield running


@pytest.fixture
def trials(process: subprocess.Popen[str], workplace: Path) -> Trials:
    return Trials(process, workplace)
