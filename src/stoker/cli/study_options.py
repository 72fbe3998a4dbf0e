"""Options that say which study, and which part of it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from stoker.cli.frame import environment
from stoker.core.errors import UsageError
from stoker.plan.sweep import Sweep
from stoker.plan.trials import Plan
from stoker.spec.keys import slot
from stoker.spec.load import DEFAULT_FILE, load_file, select
from stoker.spec.outputs import owner_in
from stoker.spec.study import Study

DEFAULT_OUTPUT = "output"


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add them to a command's parser."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the study file (default: params.yaml)")
    parser.add_argument("-y", "--yaml", metavar="FILE", help="the same, as an option")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="where trials have their directories (default: output)"
    )
    parser.add_argument(
        "-t", "--title", metavar="TITLE", nargs="+", default=[], help="only the sweeps with these titles"
    )
    parser.add_argument("-c", "--command", metavar="STAGE", nargs="+", default=[], help="only these stages")
    parser.add_argument(
        "-r", "--resource", metavar="GPUS", nargs="+", help="the slots: 0 1 2,3 is three of them"
    )
    parser.add_argument("--sample", metavar="N", type=_count, help="only N random trials of each sweep")


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) < 1:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got '{word}'")
    return int(word)


@dataclass(frozen=True)
class Chosen:
    """The study that the options name, and the part of it that they select."""

    study: Study
    plan: Plan
    sweeps: tuple[Sweep, ...]
    output: str
    slots: tuple[str, ...] | None
    indices: range | list[int]  # of the trials in the plan


def choose(options: argparse.Namespace) -> Chosen:
    """Read the study and select; raises StudyFileError or UsageError."""
    if options.file and options.yaml:
        raise UsageError(f"the study file is given twice, as {options.file} and as -y {options.yaml}")
    study = load_file(
        options.file or options.yaml or environment("STOKER_FILE", DEFAULT_FILE), options.command
    )
    sweeps = select(study, options.title, options.command)
    output = options.output or environment("STOKER_OUTPUT", DEFAULT_OUTPUT)
    plan = Plan(sweeps, [stage.name for stage in study.stages], owner_in(Path(output)))
    indices = range(plan.size) if options.sample is None else plan.sample(options.sample, study.seed)
    return Chosen(study, plan, sweeps, output, _slots(options.resource) or study.slots, indices)


def _slots(words: list[str] | None) -> tuple[str, ...] | None:
    for word in words or ():
        if slot(word) is None:
            raise UsageError(f"-r '{word}': expected GPU indices like 0 or 0,1")
    return tuple(slot(word) or "" for word in words) if words else None
