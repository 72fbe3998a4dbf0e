"""Let this machine join a study, until nothing is left to do.

The agent takes the slots of this machine (its GPUs, or shares of its cores), claims trials, runs them and
records what came of them. Any number of machines may join and leave at any time. Ctrl-C gives everything
back: other agents, or a later one, go on where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from base64 import b64decode
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any

from stoker.cli.study_options import slots_of
from stoker.core.errors import StokerError
from stoker.spec.problems import printable

if TYPE_CHECKING:
    from stoker.agent.local import Tell

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
        "-r",
        "--resource",
        metavar="GPUS",
        nargs="+",
        action="extend",
        help="the slots: 0 1 2,3 is three; auto is whatever there is",
    )
    for name in ("--events", "--only", "--control", "--renew", "--given"):  # for whoever starts it
        parser.add_argument(name, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--idle", type=float, default=inf, help=argparse.SUPPRESS)
    parser.add_argument("--grace", type=float, default=10.0, help=argparse.SUPPRESS)
    parser.add_argument("--placed", default="", help=argparse.SUPPRESS)
    parser.add_argument("--allotted", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Be an agent."""
    slots = slots_of(options.resource)
    given = _given(options.given)
    from stoker.agent import guardian

    guard = guardian.enter()  # before anything starts a thread

    from stoker.agent.local import Terms
    from stoker.agent.process import Control, Events, join
    from stoker.engines.leaving import Leaving

    events = Events(options.events)
    tell: Tell = events.send if options.events is not None else _print
    leaving = Leaving(options.store, options.placed, options.renew, given) if options.placed else None
    if leaving is not None:
        tell = leaving.listen(tell)
    terms = Terms(options.only, options.placed, options.idle, options.grace, options.allotted)
    code = join(options.store, slots, guard, tell, Control(options.control), terms)
    if leaving is not None:
        try:
            told = leaving.look_behind()
        except StokerError as error:  # its own work is done
            told = str(error)
        if told:
            _print({"event": "note", "text": told})
    return code


def _given(descriptor: int | None) -> dict[str, str] | None:
    """The environment that a job was given before its setup: /proc's, in base64. None if it is not known."""
    if descriptor is None:
        return None
    with os.fdopen(descriptor, "rb") as file:
        whole = b64decode(file.read())
    entries = [os.fsdecode(entry).partition("=") for entry in whole.split(b"\0") if entry]
    return {name: value for name, _, value in entries} or None


def _print(event: dict[str, Any]) -> None:
    """What happens, a line each, for a person or a log, which may be on a disk that is full."""
    with suppress(OSError):
        _print_line(event)


def _print_line(event: dict[str, Any]) -> None:
    when = time.strftime("%H:%M:%S")
    if event["event"] == "start":
        sys.stdout.write(f"{when} START {event['stage']} {event['trial']} {printable(event['name'])}\n")
    elif event["event"] == "end":
        took = f"{event['outcome']} after {event['seconds']:.1f} s"
        sys.stdout.write(
            f"{when} END   {event['stage']} {event['trial']} {printable(event['name'])} {took}\n"
        )
    elif event["event"] == "store":
        sys.stdout.write(
            f"{when} STORE {'away: ' + printable(event['why']) if event['away'] else 'is back'}\n"
        )
    elif event["event"] == "note":
        sys.stdout.write(f"{when} NOTE  {printable(event['text'])}\n")
    elif event["event"] == "slots":
        for slot in event["slots"]:
            told = f"held by {printable(slot['holder'])}" if slot["holder"] else "ready"
            sys.stdout.write(f"{when} SLOT  {slot['label']} {told}\n")
    sys.stdout.flush()
