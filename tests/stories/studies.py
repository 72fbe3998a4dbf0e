"""Small real studies for the commands that look at one; and a bucket for some of them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stoker import api
from stoker.store import open_store
from tests.stories.command import STOKER, stoker

Here = Callable[..., subprocess.CompletedProcess[str]]
"""Runs the command in this process, which is quicker; `stoker` runs it as a person does."""

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
    """Run a study to its end; with options, by the command, which takes a little longer."""
    write(text)
    if words:
        assert stoker("run", *words).returncode in (0, 1)
    else:
        api.run()


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


def refusal(here: Here, *words: str) -> str:
    """What the command says to words that cannot be meant, without showing anything else."""
    done = here(*words)
    assert (done.returncode, done.stdout) == (2, ""), words
    return done.stderr


def copy(source: str, target: str) -> None:
    """A study in a bucket, once more."""
    one, other = open_store(source), open_store(target)
    kinds = ("plan/", "trials/", "done/", "files/", "beats/")
    for entry in [entry for kind in kinds for entry in one.list(kind)]:
        other.write(entry.key, one.read(entry.key) or b"")


def until(holds: Callable[[], bool], most: float = 20) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + most
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)
