"""Stop trials, or without any the whole study: agents give back what they run, and claim nothing more.

Agents look every few seconds; this waits until they have let go. Nothing that is finished is lost: `stoker
run` goes on with a study that was stopped, and tries trials again that were.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from stoker.cli.placed import remove_all, run_again
from stoker.cli.store_options import add_store, add_trials, can_ask, confirm, open_at, say, store_of
from stoker.cli.told import called, many
from stoker.study import orders
from stoker.study.fleet import Life
from stoker.study.opened import Opened
from stoker.study.ranges import State

USAGE = "[STORE] [TRIAL…]"
EXAMPLES = """\
  stoker stop                  the whole study, on all machines
  stoker stop 17 Norm_new-*    these trials only; others go on
"""

PATIENCE = 15.0
"""Seconds to wait for agents to let go: they look every five, and stages have a grace."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker stop`."""
    add_trials(parser, "which (default: the whole study)")
    add_store(parser)
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")


def run(options: argparse.Namespace) -> int:
    """Give the order, and wait until it is obeyed."""
    opened = open_at(store_of(options))
    return _stop_trials(opened, options) if options.trials else _stop_study(opened, options)


def _stop_study(opened: Opened, options: argparse.Namespace) -> int:
    state, counts = opened.state, opened.state.counts()
    at_work = [agent for agent in state.agents() if agent.life is Life.ALIVE]
    if not counts.running and not counts.waiting and not at_work:
        say("nothing is left to stop: all trials are done")
        return int(not _remove(opened))
    running = f"{many(counts.running, 'running trial')} on {many(len(at_work), 'agent')}"
    question = f"stop {opened.name} in {store_of(options)}, with {running}?"
    if not options.yes and can_ask() and not confirm(question):
        say("nothing was stopped")
        return 1
    given = orders.stop_study(state)
    say(f"stopping {running}" if given.number else "the study is stopped already")
    _remove(opened, waiting_only=True)

    def is_over() -> bool:
        busy = any(agent.life is Life.ALIVE for agent in state.agents())
        return not busy and not state.counts().running

    code = _wait(opened, is_over, f"stopped; {run_again(opened)} goes on with it")
    if code == 0 and not _remove(opened):  # if it is not 0, some still save
        say("jobs may be left; `stoker stop` again cancels them")
        return 1
    return code


def _remove(opened: Opened, waiting_only: bool = False) -> bool:
    """Take back what engines placed: first what waits, in the end what is still there. Whether it could."""
    answers = list(remove_all(opened, waiting_only))
    for _, told in answers:
        say(told)
    return all(is_done for is_done, _ in answers)


def _stop_trials(opened: Opened, options: argparse.Namespace) -> int:
    given = orders.stop_trials(opened.state, opened.find(options.trials))
    for now in given.others:
        say(f"{called(opened, now.trial)} is {now.state.value} already")
    for now in given.trials:
        say(f"{called(opened, now.trial)} {'stops' if now.state is State.RUNNING else 'will not run'}")
    if not given.trials:
        return 1
    concerned = [now.trial for now in given.trials]

    def is_over() -> bool:
        found = (opened.state.trial(trial) for trial in concerned)
        return not any(now is not None and now.state is State.RUNNING for now in found)

    told = f"{many(len(concerned), 'trial')} stopped; `stoker retry` or `stoker run` runs "
    return _wait(opened, is_over, f"{told}{'it' if len(concerned) == 1 else 'them'} again")


def _wait(opened: Opened, is_over: Callable[[], bool], told: str) -> int:
    patience = time.monotonic() + PATIENCE
    while not is_over():
        if time.monotonic() > patience:
            say("not yet: some agents have not let go; they do when they see it (stoker status --watch)")
            return 1
        time.sleep(0.5)
        opened.refresh()
    say(told)
    return 0
