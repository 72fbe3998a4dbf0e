"""Verifies trials in one process that has imported torch, which takes seconds: scripts are forks of it.

    python forking.py '[[1, 2, 0], …]'

For each trial, number of kills and seed it prints a line of JSON: exit code, output and errors. All but the
start of a process is as in `stoker verify`, the signals included.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import os
import runpy
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import mkdtemp

from stoker.agent.processes import Ended, Spec, Stage, Why, argv_of
from stoker.cli.frame import parser
from stoker.cli.interrupting import Runs
from stoker.cli.resuming import Asked, verify
from stoker.cli.study_options import choose

torch = importlib.import_module("torch")


class Forks:
    """One process at a time, in a group of its own."""

    def __init__(self) -> None:
        self._stage: Stage | None = None

    def start(self, spec: Spec) -> Stage:
        pid = os.fork()
        if not pid:
            _be_script(spec)
        self._stage = Stage(spec, pid, "", time.monotonic())
        return self._stage

    def poll(self, timeout: float | None) -> list[Ended]:
        assert self._stage is not None
        time.sleep(timeout or 0)
        pid, status = os.waitpid(self._stage.pid, os.WNOHANG)
        if not pid:
            return []
        code = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - self._stage.started
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        return [Ended(self._stage, exit_code, number, Why.EXITED, wall, 0.0, 0)]

    def terminate(self, stage: Stage) -> None:
        os.killpg(stage.pid, signal.SIGTERM)

    def kill(self, stage: Stage) -> None:
        os.killpg(stage.pid, signal.SIGKILL)


def _be_script(spec: Spec) -> None:
    os.setpgid(0, 0)
    log = os.open(spec.log, os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
    os.environ.update({**spec.environment, **spec.about})
    torch.seed()  # a process of its own would have its own
    sys.argv = (argv_of(spec.command) or [])[1:]
    code: object = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as asked:
        code = asked.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        atexit._run_exitfuncs()
        os._exit(code if isinstance(code, int) else 1)


def main() -> None:
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # imports the rest of it
    for trial, kills, seed in json.loads(sys.argv[1]):
        options = parser("verify").parse_args([])
        chosen = choose(options)
        index = chosen.plan.index_of(trial)
        assert index is not None
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            runs = Runs(chosen, chosen.plan.trial(index), Forks(), Path(mkdtemp(dir=".")))
            code = verify(runs, Asked(kills=kills, seed=seed))
        sys.stdout.write(json.dumps([code, out.getvalue(), err.getvalue()]) + "\n")


if __name__ == "__main__":
    main()
