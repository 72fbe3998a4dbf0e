"""Ask for trials again: those that failed, or any that are done. Agents at work pick them up.

Finished stages do not run again, unless --fresh asks for it. A trial that waits or runs is left alone.

A trial that a changed study file added later has the number of its iteration before its own: 2.7.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from stoker.cli.placed import run_again
from stoker.cli.store_options import add_store, add_trials, open_at, say, store_of
from stoker.cli.told import called, many
from stoker.core.errors import UsageError
from stoker.store.records import TrialId
from stoker.study import orders
from stoker.study.fleet import Life
from stoker.study.opened import Opened
from stoker.study.ranges import DONE, State

USAGE = "[STORE] [TRIAL…]"
EXAMPLES = """\
  stoker retry --failed          all that failed, from the stage that did
  stoker retry 17 --fresh        trial 17 from its first stage
  stoker retry runs 2.7          trial 7 of iteration 2, of the study in runs/
"""

_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker retry`."""
    add_trials(parser, "which")
    add_store(parser)
    parser.add_argument("--failed", action="store_true", help="all that failed")
    parser.add_argument("--fresh", action="store_true", help="run finished stages again, too")


def run(options: argparse.Namespace) -> int:
    """Open a round for each."""
    if not options.trials and not options.failed:
        raise UsageError("which trials? name some, or say --failed")
    opened = open_at(store_of(options))
    asked = opened.find(options.trials)
    left = list(_left(opened, asked, options.fresh))
    if options.failed:
        asked += [now.trial for now in opened.state.trials(State.FAILED)]
    given = orders.open_rounds(
        opened.state, [trial for trial in asked if trial not in dict(left)], options.fresh
    )
    for trial, why in left[:_SHOWN]:
        say(f"{called(opened, trial)} {why}")
    if len(left) > _SHOWN:
        say(f"and {len(left) - _SHOWN:,} more are left as they are")
    if not given.trials:
        say("nothing to try again" if options.trials else "no trial has failed")
        return 1 if options.trials else 0
    say(f"{many(len(given.trials), 'trial')} to run again: {_by_whom(opened)}")
    return 0


def _left(opened: Opened, trials: list[TrialId], fresh: bool) -> Iterator[tuple[TrialId, str]]:
    """Those for which there is nothing to do, and why."""
    for trial in trials:
        now = opened.state.trial(trial)
        if now is None or now.state not in DONE:
            yield trial, f"is {now.state.value if now else 'not there'}: left as it is"
        elif not opened.state.is_asked_for(trial):
            yield (
                trial,
                "is not asked for by the study file any more: `stoker run` it with the file that has it",
            )
        elif now.state is State.FINISHED and not fresh:
            yield trial, "is finished: --fresh runs it again"


def _by_whom(opened: Opened) -> str:
    if opened.state.is_stopped:
        return f"the study is stopped, and goes on with {run_again(opened)}"
    at_work = sum(agent.life is Life.ALIVE for agent in opened.state.agents())
    return f"{many(at_work, 'agent')} at work will see" if at_work else f"{run_again(opened)} does it"
