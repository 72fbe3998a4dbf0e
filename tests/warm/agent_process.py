"""An agent as a process of its own, which prints what it tells: `python agent_process.py OUTPUT SLOTS`."""

from __future__ import annotations

import json
import sys

from stoker.agent import guardian

if __name__ == "__main__":
    guard = guardian.enter()

    from stoker.agent.keeper import Keeper
    from stoker.agent.local import Contact, run_agent
    from stoker.agent.world import Settings
    from stoker.study.place import open_place

    place = open_place(sys.argv[1])
    keeper = Keeper(("",) * int(sys.argv[2]), place.url)
    settings = Settings(lease=20, beat=0.5, back_off=0.1)
    contact = Contact(tell=lambda event: print(json.dumps(event), flush=True))  # noqa: T201
    run_agent(place, keeper, settings, guard, contact)
