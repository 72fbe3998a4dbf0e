"""Let this machine join a study, until nothing is left to do.

The agent takes the slots of this machine (its GPUs, or shares of its cores), claims trials, runs them and
records what came of them. Any number of machines may join and leave at any time. Ctrl-C gives everything
back: other agents, or a later one, go on where it stopped.
"""

from __future__ import annotations

import argparse

from stoker.cli.study_options import slots_of

USAGE = "STORE"
EXAMPLES = """\
  stoker agent output                  help with the study in this directory
  stoker agent gs://bucket/study       help with a study in a bucket
  stoker agent output -r 0 1           with GPUs 0 and 1 only
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker agent`."""
    parser.add_argument("store", metavar="STORE", help="the output directory of the study, or its URL")
    parser.add_argument(
        "-r", "--resource", metavar="GPUS", nargs="+", action="extend", help="the slots: 0 1 2,3 is three"
    )
    parser.add_argument("--events", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--only", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--control", type=int, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Be an agent."""
    slots = slots_of(options.resource)
    from stoker.agent import guardian

    guard = guardian.enter()  # before anything starts a thread

    from stoker.agent.process import Control, Events, join

    return join(options.store, slots, guard, Events(options.events), Control(options.control), options.only)
