"""An agent as a process of its own: `python agent_process.py OUTPUT SLOTS RETRIES`."""

from __future__ import annotations

import sys
from pathlib import Path

from stoker.agent import guardian

if __name__ == "__main__":
    guard = guardian.enter()

    from stoker.agent.local import run_agent
    from stoker.agent.slots import Slot
    from stoker.agent.world import Settings

    slots = [Slot(number, f"cpu {number}", "", (), {}, {}) for number in range(int(sys.argv[2]))]
    run_agent(
        Path(sys.argv[1]), slots, Settings(retries=int(sys.argv[3]), lease=20, beat=0.5, back_off=0.1), guard
    )
