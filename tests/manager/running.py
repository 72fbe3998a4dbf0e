"""Runs training scripts as an agent does, and reads what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from stoker.manager import PATH, progress

Told = dict[str, dict[str, list[str]]]


class Trial:
    """A trial's directory, and what is done in it."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory, self.attempt = directory, 0
        self.settings = {
            "STOKER_TRIAL": "lr=0.1",
            "STOKER_STAGE": "train",
            "STOKER_ROUND": "1",
            "STOKER_SINCE": "1",
            "STOKER_PARAMS": '{"lr": 0.1}',
            "STOKER_DIRECTORY": str(directory),
            **{name: str(value) for name, value in settings.items()},
        }
        directory.mkdir(exist_ok=True)

    def environment(self) -> dict[str, str]:
        """For the next attempt."""
        self.attempt += 1
        return {**self.settings, "STOKER_ATTEMPT": str(self.attempt)}

    def start(self, script: str, *enter: str, **more: str) -> subprocess.Popen[str]:
        """A script as a process of its own, which imports the manager as it does from an agent."""
        return subprocess.Popen(
            [*enter, sys.executable, "-c", script],
            env={**bare(), "PYTHONPATH": PATH, **self.environment(), **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
        )

    def run(self, script: str, *enter: str, code: int = 0, **more: str) -> tuple[str, str]:
        """Run a script to its end; what it tells."""
        with self.start(script, *enter, **more) as process:
            out, errors = process.communicate(timeout=60)
        assert process.returncode == code, errors
        return out, errors

    def progress(self) -> Told:
        """All series with steps, bit for bit."""
        series = progress.read(str(self.directory), "train")
        return {
            name: {"values": [v.hex() for v in one.values], "steps": [s.hex() for s in one.steps]}
            for name, one in series.items()
        }

    def values(self) -> dict[str, list[float]]:
        return {name: list(one.values) for name, one in progress.read(str(self.directory), "train").items()}

    def files(self, ending: str = "") -> list[str]:
        """The names of checkpoints."""
        return sorted(path.name for path in self.directory.glob(f"checkpoints/*{ending}"))

    def told(self, name: str) -> dict[str, Any]:
        body: dict[str, Any] = json.loads((self.directory / name).read_text())
        return body


def bare() -> dict[str, str]:
    """This environment, with nothing in it that tells of a trial."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("STOKER_", "RANK"))}


def log_lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


def is_alive(process: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{process}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


class Forker:
    """Runs scripts in children of a process that has imported what they import."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(
        self, script: Path, trial: Trial, after: float | None = None, number: signal.Signals = signal.SIGKILL
    ) -> int:
        """One attempt; its exit code. A while after it is ready, it and its workers get a signal."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        log = trial.directory / "log"
        order = {**trial.environment(), "script": str(script), "log": str(log)}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        child = int(self._process.stdout.readline())
        if after is not None:
            while after >= 0 and log_lines(log).count(f"ready {trial.attempt}") == 0 and is_alive(child):
                time.sleep(0.005)
            time.sleep(abs(after))
            with suppress(ProcessLookupError):
                os.killpg(child, number)
        code = int(self._process.stdout.readline())
        assert code != 1, log.read_text()
        return code


@contextmanager
def forker(*modules: str, **more: str) -> Iterator[Forker]:
    command = [sys.executable, str(Path(__file__).with_name("forker.py")), *modules]
    environment: Mapping[str, str] = {**bare(), "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH, **more}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield Forker(process)
        assert process.stdin is not None
        process.stdin.close()
