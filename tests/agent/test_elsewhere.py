"""What is left of it where there is no Linux."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ELSEWHERE = """
import sys; sys.platform = "darwin"
from pathlib import Path
from stoker.agent import guardian
from stoker.agent.processes import Processes, Spec
with Processes(guardian.enter(), pidfds=False) as processes:
    log = Path("log")
    for command in ("true", "false", "trap '' TERM; sleep 60 & wait; wait", "sleep 60"):
        stage = processes.start(Spec(command, log, timeout=0.3, grace=0.1))
        while not (ended := processes.poll()):
            pass
        print(ended[0].code, ended[0].signal, ended[0].why.value)
    processes.start(Spec("sleep 60", log))
    processes.wakeup()
    print(processes.poll(20), processes.usage(stage))
"""


def test_without_linux_groups_are_still_run_and_ended(workplace: Path) -> None:
    """As far as that can be told here, by a Python that believes to be on macOS."""
    told = subprocess.run([sys.executable, "-c", ELSEWHERE], capture_output=True, text=True, check=True)
    assert told.stdout.splitlines() == [
        "0 None exited",
        "1 None exited",
        "None 9 timeout",
        "None 15 timeout",
        "[] Usage(cpu=0.0, memory=0, processes=0)",
    ]
