"""Small real studies for the commands that look at one; and a bucket for some of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.cli import main
from tests.stories.command import STOKER, stoker

TEXT = """\
template:
  train: 'echo "epoch 1 acc 0.{n}"; echo {n} > {_output}/model.pt; [ {n} != 2 ]'
  test: 'echo tested {n}'
metrics: {acc: 'acc ([\\d.]+)'}
objective: {metric: acc, goal: max}
resource: [0, 1]
---
n: [1, 2, 3]
"""
"""Trial 2 fails in its first stage; trial 3 is the best."""

SLOW = """\
template: 'echo begun {n}; touch {_output}/begun; while [ ! -e go ]; do sleep 0.05; done; echo over'
resource: [0]
---
n: [1, 2]
"""
"""Runs until there is a file `go`."""


def write(text: str) -> None:
    Path("params.yaml").write_text(text, encoding="utf-8")


def make(text: str = TEXT, *words: str) -> None:
    """Run a study to its end."""
    write(text)
    done = stoker("run", *words)
    assert done.returncode in (0, 1), done.stderr


@contextmanager
def running(text: str = SLOW, begun: str = "output/N_1/begun") -> Iterator[subprocess.Popen[bytes]]:
    """A study while it runs; it is over when the block is."""
    write(text)
    process = subprocess.Popen([STOKER, "run"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(Path(begun).exists)
        yield process
    finally:
        Path("go").touch()
        process.wait(timeout=30)


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says to words that cannot be meant, without showing anything else. In this process."""
    assert main(words) == 2, words
    shown = capsys.readouterr()
    assert shown.out == ""
    return shown.err


def until(holds: Callable[[], bool], most: float = 20) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + most
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
