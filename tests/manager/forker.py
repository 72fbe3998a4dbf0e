"""Imports libraries once and forks for each run of a script: importing torch thirty times takes a minute."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys


def run(order: dict[str, str]) -> None:
    """What a process does that was started for this script alone."""
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ.update({name: value for name, value in order.items() if name.isupper()})
    os.chdir(order["STOKER_DIRECTORY"])
    sys.argv = [order["script"]]
    runpy.run_path(order["script"], run_name="__main__")


def main() -> None:
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            run(json.loads(line))
            return
        os.setpgid(child, child)
        os.write(1, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(1, f"{os.waitstatus_to_exitcode(status)}\n".encode())


if __name__ == "__main__":
    main()
