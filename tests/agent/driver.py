"""A small agent for the tests: starts the stages it is given, tells who is who, and waits for them.

    python driver.py DIRECTORY COMMAND...

Exit codes: 0 all stages ended, 3 a watcher died, 5 SIGTERM came, 6 SIGINT came, 7 it came twice.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from stoker.agent import guardian
from stoker.agent.processes import Processes, Spec


def leave_at_once(number: int, frame: object) -> None:
    raise SystemExit(5)


def count_interrupts(number: int, frame: object) -> None:
    interrupts.append(number)


interrupts: list[int] = []


def main(directory: Path, commands: list[str]) -> int:
    guard = guardian.enter(leave=float(os.environ.get("LEAVE", "30")))
    signal.signal(signal.SIGTERM, leave_at_once)
    signal.signal(signal.SIGINT, count_interrupts)
    with Processes(guard) as processes:
        stages = [processes.start(Spec(command, directory / "log")) for command in commands]
        told = {
            "launcher": guard.launcher,
            "guardian": guard.guardian,
            "agent": os.getpid(),
            "stages": [stage.pid for stage in stages],
        }
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        if "HANG" in os.environ:
            time.sleep(60)
        left = len(stages)
        while left and processes.guarded and not interrupts:
            left -= len(processes.poll(0.1))
        if interrupts:
            time.sleep(0.1)
            return 5 + len(interrupts)
        if "STAY" in os.environ:
            time.sleep(60)
        return 0 if processes.guarded else 3


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
