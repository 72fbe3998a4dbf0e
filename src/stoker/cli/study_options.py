"""Options that say which study, and which part of it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stoker.cli.frame import environment
from stoker.core.errors import UsageError
from stoker.core.values import Value
from stoker.plan.sweep import Sweep
from stoker.plan.trials import Plan, Trial
from stoker.spec.keys import slot
from stoker.spec.load import DEFAULT_FILE, load_file, select
from stoker.spec.outputs import owner_in
from stoker.spec.problems import listing
from stoker.spec.study import Study
from stoker.store import REMOTE

DEFAULT_OUTPUT = "output"


def add_study_options(parser: argparse.ArgumentParser) -> None:
    """Add them to a command's parser."""
    parser.add_argument("file", metavar="FILE", nargs="?", help="the study file (default: params.yaml)")
    parser.add_argument("-y", "--yaml", metavar="FILE", help="the same, as an option")
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="where trials have their directories (default: output)"
    )
    parser.add_argument(
        "-t",
        "--title",
        metavar="TITLE",
        nargs="+",
        action="extend",
        default=[],
        help="only the sweeps with these titles",
    )
    parser.add_argument(
        "-c", "--command", metavar="STAGE", nargs="+", action="extend", default=[], help="only these stages"
    )
    parser.add_argument(
        "-r",
        "--resource",
        metavar="GPUS",
        nargs="+",
        action="extend",
        help="the slots: 0 1 2,3 is three of them; auto is one per GPU",
    )
    parser.add_argument("--sample", metavar="N", type=_count, help="only N random trials of each sweep")
    parser.add_argument(
        "--no-subdir",
        action="store_true",
        help="no directory for each trial: all logs side by side, with the trial's name at the end",
    )


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
    sample: list[int] | None  # indices of the trials, if not all of the plan
    is_flat: bool = False  # trials have no directories of their own

    @property
    def count(self) -> int:
        """How many trials are chosen. May exceed what `len` can return."""
        return self.plan.size if self.sample is None else len(self.sample)

    @property
    def trials(self) -> Iterator[Trial]:
        """The chosen trials, in order."""
        return (
            self.plan.trial(index)
            for index in (range(self.plan.size) if self.sample is None else self.sample)
        )


def choose(options: argparse.Namespace) -> Chosen:
    """Read the study and select; raises StudyFileError or UsageError."""
    if options.file is not None and options.yaml is not None:
        raise UsageError(f"the study file is given twice, as {options.file} and as -y {options.yaml}")
    _check_swallowed_file(options)
    given = options.yaml if options.file is None else options.file
    if given == "":
        raise UsageError("the name of the study file is empty")
    study = load_file(environment("STOKER_FILE", DEFAULT_FILE) if given is None else given, options.command)
    sweeps = select(study, options.title, options.command)
    output = environment("STOKER_OUTPUT", DEFAULT_OUTPUT) if options.output is None else options.output
    if not output:
        raise UsageError("-o needs the name of a directory")
    if options.no_subdir and is_bucket(output):
        raise UsageError(
            "--no-subdir is for a directory: in a bucket each trial has its own files; leave it out"
        )
    plan = Plan(sweeps, [stage.name for stage in study.stages], owner_in(Path(output)))
    sample = None if options.sample is None else plan.sample(options.sample, study.seed)
    asked = slots_of(options.resource)
    slots = study.slots if asked is None else asked or None
    return Chosen(study, plan, sweeps, output, slots, sample, options.no_subdir)


def is_bucket(output: str) -> bool:
    """Whether a study's output is in a bucket."""
    scheme, mark, _ = output.partition("://")
    return bool(mark) and scheme in REMOTE


def asked_oddly(chosen: Chosen) -> list[str]:
    """What may surprise in how the study is asked for, a line each."""
    uses = {
        stage.name for stage in chosen.study.stages for hole in stage.template.holes if hole.name == "_output"
    }
    users = [stage.name for stage in chosen.study.stages if stage.name in uses]
    if not chosen.is_flat or not users or chosen.count < 2:
        return []
    where = f"{{_output}} of stage{'s' * (len(users) > 1)} {listing(users, last='and')}"
    return [f"--no-subdir: {where} is {chosen.output} for all trials, which may overwrite each other's files"]


def check_slots(chosen: Chosen) -> tuple[str, ...]:
    """What is odd about the slots on this machine; raises UsageError for those that it does not have."""
    from stoker.agent.gpus import read
    from stoker.agent.slots import plan_slots, usable_cores

    inherited = os.environ.get("CUDA_VISIBLE_DEVICES")
    return plan_slots(chosen.slots, read().gpus, inherited, usable_cores()).notes


def commands_of(chosen: Chosen, trial: Trial, slot: str | None = None) -> dict[str, str]:
    """The commands of a trial, stage by stage, as its first attempt would run them now."""
    reserved: dict[str, Value] = {
        "_output": chosen.output if chosen.is_flat else f"{chosen.output}/{trial.name}",
        "_name": trial.name,
        "_time": datetime.now().astimezone().strftime("%Y%m%d.%H%M%S"),
        "_trial": trial.number,
        "_attempt": 1,
        "_slot": slot if slot is not None else chosen.slots[0] if chosen.slots else "0",
        "_study": chosen.study.name,
    }
    return chosen.study.commands(trial, reserved)


def check_commands(chosen: Chosen) -> None:
    """Raise UsageError for a command that is no bash, if there is a bash to ask."""
    bash, commands = shutil.which("bash"), commands_of(chosen, next(chosen.trials))
    for stage in chosen.study.stages:
        if bash and stage.name in commands:
            read = [bash, "-n", "-c", commands[stage.name]]
            done = subprocess.run(read, capture_output=True, text=True, check=False, env={"LC_ALL": "C"})
            if done.returncode != 0:
                told = re.sub(r"^.*?line \d+: ", "", done.stderr.partition("\n")[0])
                where = f"{chosen.study.source.name}:{stage.line}: template.{stage.name}"
                raise UsageError(f"{where}: bash cannot read it: {told}")


def _check_swallowed_file(options: argparse.Namespace) -> None:
    """`-t rates params.yaml`: the option takes every word behind it, the file too."""
    for flag, words in (("-t", options.title), ("-c", options.command), ("-r", options.resource or [])):
        for word in words:
            if word.endswith((".yaml", ".yml")):
                raise UsageError(f"{flag} took '{word}' for one of its words; put the file before {flag}")


def slots_of(words: list[str] | None) -> tuple[str, ...] | None:
    """What `-r` asks for: nothing in particular for `auto`, None if it is not given."""
    if words == ["auto"]:
        return ()
    for word in words or ():
        if slot(word) is None:
            alone = "; auto stands alone" * (word == "auto")
            raise UsageError(f"-r '{word}': expected GPU indices like 0 or 0,1, or auto{alone}")
    return tuple(slot(word) or "" for word in words) if words else None
