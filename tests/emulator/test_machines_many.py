"""Many VMs at once leave nothing: no process, mount, port, descriptor, thread or file.

And so no namespace, which lives only as long as a process, a mount or a descriptor holds it.
"""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from stoker.emulator.http import Server
from stoker.emulator.machines.choose import best_mode
from stoker.emulator.machines.interface import Mode
from tests.emulator import traces
from tests.emulator.vms import Vm, eventually, is_running

_STARTUP = """
for n in 1 2 3; do (setsid sleep "$STOKER_WORD" >/dev/null 2>&1 &); done
echo ready; sleep "$STOKER_WORD"
"""


def _traces() -> dict[str, object]:
    return {
        "children": traces.descendants(),
        "mounts": Path("/proc/self/mountinfo").read_text(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "listening": _listening(),
    }


def _listening() -> set[str]:
    """Our own sockets that listen: by their inodes."""
    ours = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            ours.add(os.readlink(entry))  # noqa: PTH115  (no file)
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in ours}


@pytest.mark.parametrize("mode", [best_mode(), Mode.PROCESSES], ids=lambda mode: mode.name.lower())
def test_thirty_vms_come_and_go(tmp_path: Path, mode: Mode) -> None:
    before, chance = _traces(), random.Random(7)
    server = Server()
    vms = [Vm(tmp_path / f"vm-{n}", mode, server, f"vm-{n}") for n in range(30)]

    def live(vm: Vm) -> None:
        for times in (1, 2):
            vm.boot(_STARTUP)
            vm.says("startup-script: ready", times)
            if chance.random() < 0.5:
                vm.machine.shut_down()
            else:
                vm.machine.cut()
            vm.ends()
        assert not is_running(vm.word)
        vm.remove()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(live, vms))
    server.close()
    assert list(tmp_path.iterdir()) == []
    assert eventually(lambda: _traces() == before), (_traces(), before)
    assert traces.of_directory(tmp_path) == []
