"""The other half, as the doctor talks to it: how it is started on some host, asked, and ended."""

from __future__ import annotations

import json
import queue
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

LATEST = 75.0
"""Seconds to wait for news: NFS may keep what it knows of a directory for a minute."""
_GRACE = 2.0  # seconds in which it may leave by itself, and after being asked to


class SilentError(Exception):
    """The other half did not answer; the text says why, as far as it is known."""


@dataclass(frozen=True)
class Way:
    """How the other half is started, and how it is spoken of."""

    words: Sequence[str]  # before those that start it
    where: str
    remedy: str  # if it does not answer
    patience: float = 30.0  # seconds until it must
    latest: float = LATEST
    is_shell: bool = False  # the words are joined and read by a shell there

    def command(self, place: Path) -> list[str]:
        """The whole command, for a directory."""
        other = [sys.executable, "-m", "stoker", "doctor", "--half", str(place)]
        return [*self.words, shlex.join(other)] if self.is_shell else [*self.words, *other]


def here() -> Way:
    """Another process of this host."""
    remedy = f"{shlex.quote(sys.executable)} -m stoker must start here"
    return Way((), "another process", remedy, latest=10.0)


def by_ssh(name: str) -> Way:
    """A process on another host."""
    options = ("-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    start = f"ssh -o BatchMode=yes {shlex.quote(name)} {shlex.quote(sys.executable)} -m stoker --version"
    return Way(("ssh", *options, name), name, f"this must work: {start}", is_shell=True)


def by_srun(patience: float = 120.0) -> Way:
    """A process on a node of this cluster, which may have to wait for one."""
    told = "try `srun -N1 -n1 hostname`; SLURM_PARTITION and SLURM_ACCOUNT say where, if that is needed"
    return Way(("srun", "-N1", "-n1", "--time=2", "--job-name=stoker-doctor"), "a node", told, patience)


class Other:
    """The other half. Every question waits for its answer; nothing of it is left after `close`."""

    def __init__(self, way: Way, place: Path) -> None:
        self._patience = way.patience
        self._lines: queue.SimpleQueue[tuple[float, dict[str, Any] | None]] = queue.SimpleQueue()
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                way.command(place),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._complaints,
            )
        except OSError as error:
            self._complaints.close()
            raise SilentError(f"{way.command(place)[0]}: {error.strerror}") from None
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        """Pass on what is said to us, with the time; shells may say other things before."""
        assert self._process.stdout is not None  # noqa: S101
        for line in self._process.stdout:
            with suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and "stoker" in said:
                    self._lines.put((time.monotonic(), said))
        self._lines.put((time.monotonic(), None))

    def greet(self) -> dict[str, Any]:
        """Who it is."""
        answer: dict[str, Any] = self._answer({})
        return answer

    def ask(self, do: str, *words: object) -> Any:
        """Have it do something, and wait."""
        self.tell(do, *words)
        return self._answer({})

    def tell(self, do: str, *words: object) -> None:
        """Have it do something."""
        assert self._process.stdin is not None  # noqa: S101
        try:
            self._process.stdin.write(json.dumps({"do": do, "with": words}).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise SilentError(self._why()) from None

    def finish(self) -> Any:
        """The answer to what it was told."""
        return self._answer({})

    def seen(self) -> dict[str, float]:
        """Each kind of news that it was told to watch for, and when we heard that it is there."""
        heard: dict[str, float] = {}
        self._answer(heard, more=LATEST)
        return heard

    def _answer(self, heard: dict[str, float], more: float = 0.0) -> Any:
        until = time.monotonic() + self._patience + more
        while True:
            try:
                when, said = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                raise SilentError(f"no answer in {self._patience + more:.0f} s") from None
            if said is None:
                raise SilentError(self._why())
            if "error" in said:
                raise SilentError(str(said["error"]))
            if "seen" in said:
                heard[str(said["seen"])] = when
            elif "answer" in said:
                return said["answer"]

    def _why(self) -> str:
        """The last thing it complained of."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(2.0)
        self._complaints.seek(0)
        lines = [line.strip() for line in self._complaints.read().decode(errors="replace").splitlines()]
        return next(filter(None, reversed(lines)), f"it ended with exit code {self._process.returncode}")

    def close(self, at_once: bool = False) -> None:
        """Let it go, by itself if it can."""
        assert self._process.stdin is not None  # noqa: S101
        with suppress(OSError):
            self._process.stdin.close()
        ends: list[Callable[[], object]] = [self._process.terminate, self._process.kill]
        for end in ends if at_once else [self._process.poll, *ends]:
            end()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
                break
        self._complaints.close()
        self._listener.join(2.0)
        if not self._listener.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()


@contextmanager
def started(way: Way, place: Path) -> Iterator[Other]:
    """The other half, for as long as the block runs."""
    other = Other(way, place)
    try:
        yield other
    except BaseException:
        other.close(at_once=True)
        raise
    other.close()
