"""Options that name a study that is there, and trials of it; and the question before something grave."""

from __future__ import annotations

import argparse
import sys

from stoker.agent.host import is_gone
from stoker.cli.frame import environment
from stoker.cli.study_options import DEFAULT_OUTPUT
from stoker.core.errors import UsageError
from stoker.spec.problems import printable
from stoker.study.opened import Opened, open_study


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that says where the study is."""
    parser.add_argument(
        "-o", "--output", metavar="STORE", help="the study's output directory, or its URL (default: output)"
    )


def add_trials(parser: argparse.ArgumentParser, told: str) -> None:
    """Add the trials that a command is about; none are many commands' way to mean all."""
    parser.add_argument(
        "trials", metavar="TRIAL", nargs="*", help=f"{told}: a number, a name, a part of one, or a pattern"
    )


def store_of(options: argparse.Namespace) -> str:
    """Where the study is, as the user says it."""
    word: str | None = options.output
    if word == "":
        raise UsageError("-o needs the name of a directory, or the URL of a bucket")
    return environment("STOKER_OUTPUT", DEFAULT_OUTPUT) if word is None else word


def open_at(word: str) -> Opened:
    """The study at a place, with what this machine knows of its own agents."""
    return open_study(word, is_gone)


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
