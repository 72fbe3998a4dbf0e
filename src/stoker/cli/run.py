"""Run a study: all its trials, on all slots, until nothing is left. Here, or with --on elsewhere too.

What is finished is skipped, what failed is tried again, and what was interrupted goes on. Several people
may run the same study at once, on the same output: each trial runs once. Ctrl-C stops gracefully and
gives back what runs; a second one ends everything at once.

In a terminal it shows a live display (p pauses claiming, d shows more, q finishes what runs and
leaves, q again stops it); in a pipe, plain lines.
Exits with 0 if all trials finished, 1 if some failed, 2 for bad input, 130 if interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.cli.study_options import (
    DEFAULT_OUTPUT,
    Chosen,
    add_study_options,
    check_commands,
    choose,
    commands_of,
)
from stoker.core.errors import UsageError
from stoker.spec.problems import printable
from stoker.store.interface import StoreError
from stoker.study.opened import Opened

if TYPE_CHECKING:
    from stoker.cli.begin import Begun
    from stoker.engines.interface import Engine

USAGE = "[FILE]"
EXAMPLES = """\
  stoker run                            params.yaml, into output/
  stoker run norms.yaml -t rates        only the sweep titled rates
  stoker run -c test                    only the stage test, in the same directories
  stoker run -r 0 1                     on GPUs 0 and 1
  stoker run --dry-run                  print every command, run nothing
  stoker run --detach                   go on after logout; `stoker status` follows
  stoker run --on slurm                 by agents in Slurm jobs; returns when they are submitted
  stoker run --on local,slurm           here and there
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker run`."""
    add_study_options(parser)
    parser.add_argument(
        "-f", "--force", action="store_true", help="run finished trials again, from their first stage"
    )
    parser.add_argument(
        "-d",
        "--debug",
        action="store_true",
        help="run the first trial alone, here, its output on the terminal, its files in OUTPUT/.debug",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the exact commands, and run nothing")
    parser.add_argument(
        "--on", metavar="ENGINES", default="local", help="where: local, slurm, or both (default: local)"
    )
    parser.add_argument("--detach", action="store_true", help="start in the background, and return")
    parser.add_argument("--plain", action="store_true", help="plain lines, also in a terminal")


def run(options: argparse.Namespace) -> int:
    """Plan, start an agent, and watch it."""
    chosen = choose(options)
    check_commands(chosen)
    elsewhere = _engines(chosen, options)
    if options.dry_run:
        return _print_commands(chosen)
    if options.debug:
        from stoker.cli.debug import run_first

        return run_first(chosen)

    from stoker.cli.begin import begin

    for engine in elsewhere.values():
        engine.check()
    begun = begin(chosen, options)
    for line in begun.told:
        sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()
    if not begun.is_left:
        _cancel_what_waits(begun.opened)
        return 0
    _place(elsewhere, begun)
    if "local" not in _names(options):
        return _follow(chosen, "")
    if options.detach:
        return _detach(begun.agent_words, chosen, begun.opened)

    from stoker.cli.watch import watch

    code = watch(begun, plain=options.plain)
    if code == 130 and elsewhere:
        sys.stderr.write(f"agents on {', '.join(elsewhere)} go on; `stoker stop` ends them\n")
    elif code in (0, 1):
        _cancel_what_waits(begun.opened)
    return code


def _cancel_what_waits(opened: Opened) -> None:
    """Jobs of engines that have not begun, if nothing is left for them to do."""
    from stoker.cli.placed import remove_all

    opened.refresh()
    counts = opened.state.counts()
    if not counts.waiting + counts.running:
        sys.stderr.writelines(f"{printable(told)}\n" for _, told in remove_all(opened, waiting_only=True))


def _names(options: argparse.Namespace) -> list[str]:
    return [name for word in options.on.split(",") if (name := word.strip())]


def _engines(chosen: Chosen, options: argparse.Namespace) -> dict[str, Engine]:
    """The engines besides this machine, which are to place agents of this study."""
    from stoker.engines import make_engine
    from stoker.engines.sites import site_of

    if not _names(options):
        raise UsageError("--on names where to run: local, slurm, or local,slurm")
    if options.resource is not None and "local" not in _names(options):
        raise UsageError(
            f"-r names slots of this machine, and --on {options.on} does not use it; "
            "what jobs have stands in the study file, under engine.slurm: gpus, cpus, resource"
        )
    here = os.getcwd()  # noqa: PTH109  (as the user calls it)
    return {
        name: make_engine(name, site_of(chosen.study, chosen.output, here, chosen.study.name, name))
        for name in _names(options)
        if name != "local"
    }


def _place(elsewhere: Mapping[str, Engine], begun: Begun) -> None:
    from stoker.cli.begin import counts_of
    from stoker.engines.sites import note_engine

    left = counts_of(begun)["left"]
    for name, engine in elsewhere.items():
        note_engine(begun.opened, name)
        sys.stdout.writelines(f"{printable(line)}\n" for line in engine.place(left))
    sys.stdout.flush()


def _print_commands(chosen: Chosen) -> int:
    """Every command, so that `stoker run --dry-run | bash` does the same, one after the other."""
    for trial in chosen.trials:
        if trial.same_as is None:
            sys.stdout.write(f"# {trial.number} {printable(f'{chosen.output}/{trial.name}')}\n")
            for command in commands_of(chosen, trial).values():
                sys.stdout.write(f"{command}\n")
    return 0


def _wait_for_another(known: Set[str], opened: Opened, most: float = 10.0) -> None:
    """Until a new agent is seen in the study: whoever asks for the status next shall see it at work."""
    until = time.monotonic() + most
    while time.monotonic() < until and {agent.name for agent in opened.state.agents()} <= known:
        time.sleep(0.1)
        with suppress(StoreError):
            opened.refresh()


def _detach(words: list[str], chosen: Chosen, opened: Opened) -> int:
    from stoker.engines.local import start_detached

    log = Path(chosen.output) / ".stoker" / f"agent.{time.strftime('%Y%m%d.%H%M%S')}.log"
    if "://" in chosen.output:
        log = Path(f"stoker-agent.{time.strftime('%Y%m%d.%H%M%S')}.log")
    known = {agent.name for agent in opened.state.agents()}
    pid = start_detached(words, log)
    _wait_for_another(known, opened)
    return _follow(chosen, f"running in the background, process {pid}\n")


def _follow(chosen: Chosen, told: str) -> int:
    """Say how a study is followed that goes on without us."""
    which = "" if chosen.output == DEFAULT_OUTPUT else f" -o {shlex.quote(chosen.output)}"
    commands = {
        f"stoker status{which}": "how far it is; --watch follows",
        f"stoker logs{which} TRIAL -f": "what a trial says",
        f"stoker stop{which}": "end it; `stoker run` goes on later",
    }
    width = max(map(len, commands))
    sys.stdout.write(told)
    sys.stdout.writelines(f"  {command:<{width}}   {what}\n" for command, what in commands.items())
    return 0
