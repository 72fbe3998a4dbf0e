"""Options that name a study that is there, and trials of it; and the question before something grave."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker.agent.host import is_gone
from stoker.cli.frame import environment
from stoker.cli.study_options import DEFAULT_OUTPUT
from stoker.core.errors import UsageError
from stoker.spec.problems import printable
from stoker.study.logs import read_again
from stoker.study.opened import Opened, open_study
from stoker.study.place import RECORDS

if TYPE_CHECKING:
    from stoker.report.origin import Origin

KINDS = "a number (2.7: trial 7 of iteration 2), a name, a part of one, or a pattern"
"""How trials are named on the command line."""


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the study is."""
    parser.add_argument(
        "-o", "--output", metavar="STORE", help="the study's output directory, or its URL (default: output)"
    )
    parser.set_defaults(place=None)


def add_place(parser: argparse.ArgumentParser, has_file: bool = False) -> None:
    """Add both ways to say where the study is, for commands that are about no trials.

    Of those that write a file, -o is where to, as of other tools that do.
    """
    parser.add_argument(
        "place", metavar="STORE", nargs="?", help="the study's output directory, or its URL (default: output)"
    )
    if has_file:
        parser.set_defaults(output=None)
    else:
        parser.add_argument("-o", "--output", metavar="STORE", help="the same")


def add_study_file(parser: argparse.ArgumentParser) -> None:
    """Add the option that tells of a directory without records what the study was after."""
    told = "the study file of a directory without records"
    parser.add_argument("--file", dest="study_file", metavar="FILE", help=told)


def origin_of(options: argparse.Namespace) -> Origin:
    """The study that a user names, or a directory that has trials but no records."""
    from stoker.report.legacy import Unrecorded, is_legacy
    from stoker.report.recorded import Recorded

    store, file = store_of(options), getattr(options, "study_file", None)
    if is_legacy(store):
        return Unrecorded(store, file)
    if file is not None:
        raise UsageError(f"{store} is no directory of trials without records: leave out --file")
    return Recorded(open_at(store))


def add_trials(parser: argparse.ArgumentParser, told: str, kinds: str = KINDS) -> None:
    """Add the trials that a command is about; none are many commands' way to mean all.

    The study may stand before them, as in `stoker status STORE`.
    """
    parser.add_argument("trials", metavar="TRIAL", nargs="*", action=_Words, help=f"{told}: {kinds}")


class _Words(argparse.Action):
    """Sorts a study from the trials behind it."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        words = list(values)
        namespace.place = words.pop(0) if words and is_store(words[0]) else None
        namespace.trials = words


def is_store(word: str) -> bool:
    """Whether a word names a study rather than a trial: a URL, a path, or a directory that has one.

    Any other directory may have the name of a trial: its own, most likely.
    """
    return "/" in word or Path(word, RECORDS).is_dir()


def store_of(options: argparse.Namespace) -> str:
    """Where the study is, as the user says it: by -o, or before the trials."""
    word: str | None = options.output
    if word == "":
        raise UsageError("-o needs the name of a directory, or the URL of a bucket")
    if word is not None and options.place is not None:
        raise UsageError(f"the study is given twice, as {options.place} and as -o {word}")
    given = options.place if word is None else word
    return environment("STOKER_OUTPUT", DEFAULT_OUTPUT) if given is None else str(given)


def open_at(word: str) -> Opened:
    """The study at a place, with what this machine knows of its own agents and logs."""
    return open_study(word, is_gone, read_again)


def confirm(question: str) -> bool:
    """Ask the person at the terminal; anything but yes is no."""
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def can_ask() -> bool:
    """Whether there is a person to ask."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def say(line: str) -> None:
    """Tell the person something that is not the output itself."""
    sys.stderr.write(f"{printable(line)}\n")
    sys.stderr.flush()
