"""Runs scripts, each time in a process of its own, which is forked from this one.

Importing a framework takes seconds; here it is done once. For every line of JSON that comes in, a script runs
in a directory, with an environment, and may be sent a signal when it has told so much progress; a line with
its exit code goes out.
"""

from __future__ import annotations

import ast
import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from stoker.manager.progress import Progress


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        import_what_it_imports(asked["script"])
        child = os.fork()
        if child == 0:
            os._exit(run(asked))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def import_what_it_imports(script: str) -> None:
    """All but Stoker, which looks around when it is imported."""
    for node in ast.walk(ast.parse(Path(script).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("stoker"):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                getattr(module, alias.name)  # some import themselves only now
    gc.freeze()  # what is here is not looked at again, in any child


def run(asked: dict[str, Any]) -> int:
    """In the child: as Python runs a script, but modules are not taken apart in the end, which takes long."""
    os.chdir(asked["directory"])
    os.environ.update(asked["environment"])
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if asked["signal"]:
        send_a_signal_after(asked["count"], signal.Signals[asked["signal"]])
    code = 0
    try:
        runpy.run_path(asked["script"], run_name="__main__")
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        code = 1
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code


def send_a_signal_after(count: int, number: signal.Signals) -> None:
    """A preemption at a moment that is the same every time: as the script tells so many values."""
    add = Progress.add
    told = [0]

    def add_and_count(self: Progress, name: str, value: float, step: float | None) -> None:
        add(self, name, value, step)
        told[0] += 1
        if told[0] == count:
            wait_for_a_checkpoint()
            os.kill(os.getpid(), number)

    Progress.add = add_and_count  # type: ignore[method-assign]  # to count what scripts tell


def wait_for_a_checkpoint() -> None:
    """They are written while training goes on; a script that is killed before the first one begins again."""
    until = time.monotonic() + 60
    while not list(Path("checkpoints").glob("*.state")) and time.monotonic() < until:
        time.sleep(0.01)


if __name__ == "__main__":
    main()
