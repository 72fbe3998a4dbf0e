"""What an agent has of its machine: a loop, processes and parents, driven by hand."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

from stoker import manager
from stoker.agent import guardian
from stoker.agent.loop import Loop
from stoker.agent.preload import Parents
from stoker.agent.processes import Ended, Processes, Spec, Stage
from stoker.agent.warm import Serving

T = TypeVar("T")
ENVIRONMENT = {"PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": manager.PATH}


class Machine:
    """One slot, `cpu 0`, unless told otherwise."""

    def __init__(self, *modules: str) -> None:
        self.modules = modules
        self.loop = Loop(time.monotonic)
        self.processes = Processes()
        self.notes: list[str] = []
        self.parents = Parents(self.loop, self.processes, self.notes.append)
        self.serving = Serving(self.processes, self.notes.append)
        self._ended: dict[Stage, Ended] = {}

    def wait_for(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = self.loop.spawn(coroutine)
        while not task.ended.done:
            if not self.loop.step():
                self._poll()
        try:
            task.ended.wait().send(None)
        except StopIteration as ended:
            return cast(T, ended.value)
        raise AssertionError("it ended, so there is nothing to wait for")

    def _poll(self) -> None:
        due = self.loop.next_timer()
        wait = 0.2 if due is None else max(0.0, min(due - self.loop.now(), 0.2))
        self._ended.update((ended.stage, ended) for ended in self.processes.poll(wait))

    def fork(self, command: str, log: Path, slot: str = "cpu 0", **more: Any) -> Stage | None:
        """A stage from a parent; None if there is a reason against it."""
        return self.wait_for(self.parents.start(slot, self.modules, spec_of(command, log, **more)))

    def forked(self, command: str, log: Path, slot: str = "cpu 0", **more: Any) -> Stage:
        stage = self.fork(command, log, slot, **more)
        assert stage is not None, self.notes
        return stage

    def finish(self, stage: Stage, seconds: float = 20.0) -> Ended:
        until = time.monotonic() + seconds
        while stage not in self._ended:
            assert time.monotonic() < until, f"still running: {stage.spec.command}"
            self.loop.step()
            self._poll()
        return self._ended.pop(stage)

    def run(self, command: str, log: Path, **more: Any) -> Ended:
        return self.finish(self.forked(command, log, **more))

    def run_cold(self, command: str, log: Path, **more: Any) -> Ended:
        return self.finish(self.processes.start(spec_of(command, log, **more)))

    def serve(self, command: str, log: Path, slot: str = "cpu 0", name: str = "train", **more: Any) -> Stage:
        """A stage in a process that waits, or in a new one that may serve others later."""
        spec = spec_of(command, log, **more)
        started = self.serving.start(slot, name, spec)
        if started is None:
            spec = replace(spec, about={**spec.about, "STOKER_WARM": self.serving.address()})
            started = self.wait_for(self.parents.start(slot, self.modules, spec)) if self.modules else None
            started = started or self.processes.start(spec)
            self.serving.expect(slot, name, started)
        return started

    def parent_pids(self) -> list[int]:
        return [pid for pid in self.processes._helpers if guardian.read(pid)]

    def close(self) -> None:
        self.serving.close()
        self.parents.close()
        self.processes.close()


def spec_of(
    command: str,
    log: Path,
    environment: Mapping[str, str] = ENVIRONMENT,
    about: Mapping[str, str] | None = None,
    **more: Any,
) -> Spec:
    # the interpreter that runs the tests, whatever the PATH says
    command = re.sub(r"\bpython\b", lambda _: sys.executable, command, count=1)
    return Spec(command, log, environment, about or {}, **more)


@contextmanager
def machine(*modules: str) -> Iterator[Machine]:
    made = Machine(*modules)
    try:
        yield made
    finally:
        made.close()


def write(name: str, text: str) -> None:
    """A script; written as a new file, as editors do."""
    Path(name + ".new").write_text(text, encoding="utf-8")
    Path(name + ".new").replace(name)
