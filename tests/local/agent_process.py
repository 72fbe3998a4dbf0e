"""An agent as a process of its own: `python agent_process.py OUTPUT SLOTS`."""

from __future__ import annotations

import sys

from stoker.agent import guardian

if __name__ == "__main__":
    guard = guardian.enter()

    from stoker.agent.keeper import Keeper
    from stoker.agent.local import run_agent
    from stoker.agent.world import Settings
    from stoker.study.place import open_place

    place = open_place(sys.argv[1])
    keeper = Keeper(("",) * int(sys.argv[2]), place.url)
    settings = Settings(lease=20, beat=0.5, back_off=0.1)
    run_agent(place, keeper, settings, guard)
