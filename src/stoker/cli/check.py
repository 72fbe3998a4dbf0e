"""Read a study file and show exactly what it would run; nothing is started or changed.

Prints the number of trials of each sweep, trials that are asked for twice, parameters that no command
uses, the slots, what changed since the study was last run into the same output, and the commands of the
first trial. If the file is wrong, prints every problem with its line and what to do, and exits with 2.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import isfinite
from typing import Any

from stoker.cli.study_options import (
    Chosen,
    add_study_options,
    asked_oddly,
    check_commands,
    check_slots,
    choose,
    commands_of,
    is_bucket,
)
from stoker.core.errors import StokerError, UsageError
from stoker.core.values import Value, text
from stoker.plan.sweep import Axis, Order, Sweep
from stoker.plan.trials import Trial
from stoker.spec.changes import since_last_run
from stoker.spec.problems import Problem, StudyFileError, describe, printable, suggest
from stoker.study.place import open_place
from stoker.study.work import Planned, read_plans

USAGE = "[FILE]"
EXAMPLES = """\
  stoker check                         what params.yaml would run
  stoker check norms.yaml -t rates     only its sweep titled rates
  stoker check --list | less           every trial
  stoker check --json                  the same for programs
"""

ALIGNED = 2_000
"""So many trials are listed in columns; more than that one by one, as they are computed."""

COMPARED = 2_000
"""So many trials are compared with those of earlier runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker check`."""
    add_study_options(parser)
    parser.add_argument("-l", "--list", action="store_true", help="list every trial, one per line")
    parser.add_argument("--json", action="store_true", help="print JSON; with --list, one object per line")


def run(options: argparse.Namespace) -> int:
    """Check, and show."""
    try:
        chosen = choose(options)
    except StudyFileError as error:
        if not options.json:
            raise
        problems = [_problem_json(error.source.name, problem) for problem in error.problems]
        _print_json({"valid": False, "problems": problems})
        return error.exit_code
    check_commands(chosen)
    if options.list:
        _print_trials(chosen, as_json=options.json)
    elif options.json:
        _print_json(_summary(chosen))
    else:
        _show(chosen)
    return 0


# What the plan meets: earlier runs, and this machine


class _Earlier:
    """What was run before into the same output directory; nobody asks a bucket for it."""

    def __init__(self, chosen: Chosen) -> None:
        self._chosen, self._plans = chosen, [] if is_bucket(chosen.output) else _plans(chosen.output)

    @cached_property
    def changes(self) -> list[str]:
        """What changed since the last run."""
        if not self._plans:
            return []
        is_known = self._chosen.count <= COMPARED
        return since_last_run(
            self._plans[-1].study.source, self._chosen.study.source, len(self._added) if is_known else None
        )

    def told(self) -> Iterator[tuple[str, str]]:
        """The same for people; and how trials are called that a later run adds."""
        yield from (("changed", line) for line in self.changes)
        if self.changes and self._added:
            number, iteration = self._added[0].number, len(self._plans) + 1
            yield (
                "numbers",
                f"new trials have their iteration before them: {number} will be {iteration}.{number}",
            )

    @cached_property
    def _added(self) -> list[Trial]:
        """Trials that no earlier run asked for, unless there are too many to look."""
        if self._chosen.count > COMPARED:
            return []
        trials = (trial for trial in self._chosen.trials if trial.same_as is None)
        return [trial for trial in trials if not any(plan.with_params(trial) for plan in self._plans)]


def _plans(output: str) -> list[Planned]:
    try:
        return read_plans(open_place(output))
    except StokerError:  # a study that cannot be read: `run` says why
        return []


def _hints(chosen: Chosen) -> list[str]:
    """What is odd about the study on this machine, and about how it is asked for."""
    return [*_about_slots(chosen), *asked_oddly(chosen)]


def _about_slots(chosen: Chosen) -> Sequence[str]:
    """The driver is asked only for those who name GPUs; it may take a while."""
    if all(slot in ("", "-1") for slot in chosen.slots or ()):
        return ()
    try:
        return check_slots(chosen)
    except UsageError as error:
        return (f"{error} (on this machine `stoker run` would refuse it)",)


# The plan as data


def _trial_json(chosen: Chosen, trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "sweep": trial.sweep.place + 1,
        "title": trial.sweep.title,
        "name": trial.name,
        "output": chosen.output if chosen.is_flat else f"{chosen.output}/{trial.name}",
        "params": {name: _json_value(value) for name, value in trial.params.items()},
        "stages": trial.stages,
        "same_as": trial.same_as,
        "commands": commands_of(chosen, trial),
    }


def _json_value(value: Value) -> Value:
    """JSON has no numbers for infinity and the like."""
    return text(value) if isinstance(value, float) and not isfinite(value) else value


def _summary(chosen: Chosen) -> dict[str, Any]:
    duplicates = chosen.plan.duplicates()
    return {
        "valid": True,
        "file": chosen.study.source.name,
        "trials": chosen.plan.size,
        "duplicates": None if None in duplicates else sum(n or 0 for n in duplicates),
        "sweeps": [
            {
                "title": sweep.title,
                "line": sweep.line,
                "trials": sweep.size,
                "duplicates": doubled,
                "stages": sweep.stages,
                "keys": {
                    axis.name: {"order": axis.order.name.lower(), "size": axis.ladder.size}
                    for axis in sweep.axes
                },
            }
            for sweep, doubled in zip(chosen.sweeps, duplicates, strict=True)
        ],
        "orphans": chosen.study.orphans,
        "slots": chosen.slots or "auto",
        "waiting": chosen.study.waiting,
        "hints": [_problem_json(chosen.study.source.name, hint) for hint in chosen.study.hints],
        "warnings": _hints(chosen),
        "changes": _Earlier(chosen).changes,
        "first": _trial_json(chosen, next(chosen.trials)),
    }


def _problem_json(file: str, problem: Problem) -> dict[str, Any]:
    return {
        "file": file,
        "line": problem.line,
        "column": problem.column,
        "message": problem.message,
        "remedy": problem.remedy,
        "text": problem.text,
    }


# The plan as text


def _print_json(data: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _print_trials(chosen: Chosen, as_json: bool) -> None:
    if as_json:
        for trial in chosen.trials:
            sys.stdout.write(json.dumps(_trial_json(chosen, trial), ensure_ascii=False) + "\n")
        return
    trials = list(chosen.trials) if chosen.count <= ALIGNED else chosen.trials
    widest = max(len(trial.name) for trial in trials) if isinstance(trials, list) else 0
    for trial in trials:
        end = f"same as {trial.same_as}" if trial.same_as else " ".join(trial.stages)
        name = f"{chosen.output}/{printable(trial.name):<{widest}}"
        sys.stdout.write(f"{trial.number:>{len(str(chosen.plan.size))}}  {name}  {end}\n")


def _show(chosen: Chosen) -> None:
    from rich.text import Text

    from stoker.cli.display import console as make_console

    console = make_console()
    study, duplicates = chosen.study, chosen.plan.duplicates()
    console.print(Text.assemble((printable(study.source.name), "bold"), (" is valid", "green")))
    console.print()
    with console.capture() as drawn:
        console.print(_table(chosen.sweeps, duplicates))
    for line in drawn.get().splitlines():
        console.print(Text.from_ansi(line.rstrip()))
    console.print()
    for label, line in _facts(chosen, duplicates):
        console.print(Text.assemble((f"{label:<11}", "bold"), line))
    trial = next(chosen.trials)
    console.print()
    label = "first trial" if chosen.sample is None else f"trial {trial.number:<5}"
    console.print(Text.assemble((label, "bold"), f"  {printable(f'{chosen.output}/{trial.name}')}"))
    for stage, command in commands_of(chosen, trial).items():
        console.print(Text.assemble((f"  {stage:<9}", "cyan"), printable(command)))
    for hint in study.hints:
        console.print()
        told = describe(study.source, hint, console.width)
        console.print(Text.assemble(("hint: ", "yellow"), told))
    for told in _hints(chosen):
        console.print()
        console.print(Text.assemble(("hint: ", "yellow"), printable(told)))


def _table(sweeps: tuple[Sweep, ...], duplicates: list[int | None]) -> Any:
    from rich.table import Table
    from rich.text import Text

    numbers = ("line", "trials", "repeats")
    rows = [_row(place, *pair) for place, pair in enumerate(zip(sweeps, duplicates, strict=True), 1)]
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    shown = [heading for heading in rows[0] if any(row[heading] for row in rows)]
    for heading in shown:
        table.add_column(heading, justify="right" if heading in numbers else "left")
    for row in rows:
        table.add_row(*(Text(row[heading]) for heading in shown))
    return table


def _row(place: int, sweep: Sweep, doubled: int | None) -> dict[str, str]:
    return {
        "sweep": printable(sweep.title or (f"sweep {place}" if sweep.axes else "defaults")),
        "line": str(sweep.line or 1),
        "trials": f"{sweep.size:,}",
        "repeats": "?" if doubled is None else f"{doubled:,}" if doubled else "",
        "stages": " ".join(sweep.stages),
        "varies": ", ".join(f"{axis.name}\xa0{_axis_text(axis)}" for axis in sweep.axes) or "nothing",
    }


def _axis_text(axis: Axis) -> str:
    size = axis.ladder.size
    if axis.order is Order.DRAW:
        return "drawn"
    if axis.order is Order.SEQUENCE:
        return "in\xa0turn"
    return f"×{size}" if size > 1 else f"=\xa0{printable(axis.ladder.choice(0).part)}"


def _facts(chosen: Chosen, duplicates: list[int | None]) -> Iterator[tuple[str, str]]:
    size = chosen.plan.size
    again = sum(doubled or 0 for doubled in duplicates)
    yield (
        "trials",
        f"{size - again:,}" + (f" ({size:,} asked for, {again:,} of them repeats)" if again else ""),
    )
    if chosen.sample is not None:
        yield "sample", f"{chosen.count:,} of them"
    yield "slots", _slots_text(chosen.slots)
    if told := _on_slurm(chosen):
        yield "on slurm", told
    if chosen.study.orphans:
        used = {hole.name for stage in chosen.study.stages for hole in stage.template.holes}
        names = ", ".join(f"{name} {suggest(name, used)}".strip() for name in chosen.study.orphans)
        yield "orphans", f"{names} (used by no command; a manager may read them)"
    if chosen.study.waiting:
        them = "it" if len(chosen.study.waiting) == 1 else "them"
        yield "not yet", f"{', '.join(chosen.study.waiting)} (checked; this version does not act on {them})"
    yield from ((label, printable(line)) for label, line in _Earlier(chosen).told())


def _on_slurm(chosen: Chosen) -> str:
    """The jobs that `stoker run --on slurm` would place, if the file has settings for them."""
    settings: Any = chosen.study.settings.get("engine")
    if not isinstance(settings, dict) or "slurm" not in settings:
        return ""
    from stoker.engines.slurm.script import summary

    return summary(settings["slurm"])


def _slots_here() -> str:
    """What `auto` comes to on this machine."""
    from stoker.agent.gpus import read
    from stoker.agent.slots import plan_slots, usable_cores

    gpus, cores = read().gpus, usable_cores()
    count = len(plan_slots(None, gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), cores).slots)
    if gpus:
        return f"auto: here {count}, one per GPU"
    shares = "1 for all" if count == 1 else f"{count}, shares of the"
    return f'auto: no GPU here, so {shares} {cores} cores; `resource: ["", ""]` makes two'


def _slots_text(slots: tuple[str, ...] | None) -> str:
    if slots is None:
        return _slots_here()
    named = (f"GPU{'s' * (',' in slot)} {slot}" if slot not in ("", "-1") else "no GPU" for slot in slots)
    return f"{len(slots)}: {' · '.join(named)}"
