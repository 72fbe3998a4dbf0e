"""Who takes care of SIGTERM itself keeps its workers for that."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from stoker.agent.guardian import LINUX
from stoker.agent.processes import Ended, Processes, Spec

pytestmark = pytest.mark.skipif(not LINUX, reason="elsewhere all processes of a stage are asked")
SAVER = """\
import multiprocessing, signal, sys, time

def work(pipe):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    while True:
        pipe.send(pipe.recv() + 1)

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
ours, theirs = multiprocessing.get_context("fork").Pipe()
worker = multiprocessing.get_context("fork").Process(target=work, args=(theirs,), daemon=True)
worker.start()
theirs.close()
print("ready", flush=True)
while not asked:
    time.sleep(0.01)
ours.send(41)
print("worker says", ours.recv(), flush=True)
sys.exit(75)
"""


@pytest.mark.parametrize("command", ["{python} saver.py", "{python} saver.py; exit $?"])
def test_workers_of_a_program_that_saves_live_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saver.py").write_text(SAVER)
    log = tmp_path / "log"
    with Processes() as processes:
        stage = processes.start(Spec(command.format(python=sys.executable), log))
        until = time.monotonic() + 20
        while not (log.exists() and "ready" in log.read_text()):
            assert time.monotonic() < until
            processes.poll(0.01)
        processes.terminate(stage, grace=10)
        ended: list[Ended] = []
        while not ended:
            ended = processes.poll(10)
    assert "worker says 42" in log.read_text()
    assert ended[0].code == 75 or ";" in command
