"""Read a study file and show exactly what it would run; nothing is started or changed.

Prints the number of trials of each sweep, trials that are asked for twice, parameters that no command
uses, the slots, and the commands of the first trial. If the file is wrong, prints every problem with
its line and what to do, and exits with 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from stoker.cli.study_options import Chosen, add_study_options, choose
from stoker.core.values import Value
from stoker.plan.sweep import Axis, Order, Sweep
from stoker.plan.trials import Trial
from stoker.spec.problems import Problem, StudyFileError, describe, printable

EXAMPLES = """\
  stoker check                         what params.yaml would run
  stoker check norms.yaml -t rates     only its sweep titled rates
  stoker check --list | less           every trial
  stoker check --json                  the same for programs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker check`."""
    add_study_options(parser)
    parser.add_argument("-l", "--list", action="store_true", help="list every trial, one a line")
    parser.add_argument("--json", action="store_true", help="print JSON; with --list, one object a line")


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
    if options.list:
        _print_trials(chosen, as_json=options.json)
    elif options.json:
        _print_json(_summary(chosen))
    else:
        _show(chosen)
    return 0


# The plan as data


def _trials(chosen: Chosen) -> Iterator[Trial]:
    return (chosen.plan.trial(index) for index in chosen.indices)


def _commands(chosen: Chosen, trial: Trial) -> dict[str, str]:
    reserved: dict[str, Value] = {
        "_output": f"{chosen.output}/{trial.name}",
        "_name": trial.name,
        "_time": datetime.now().astimezone().strftime("%Y%m%d.%H%M%S"),
        "_trial": trial.number,
        "_attempt": 1,
        "_slot": chosen.slots[0] if chosen.slots else "0",
        "_study": chosen.study.name,
    }
    return chosen.study.commands(trial, reserved)


def _trial_json(chosen: Chosen, trial: Trial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "sweep": trial.sweep + 1,
        "name": trial.name,
        "output": f"{chosen.output}/{trial.name}",
        "params": trial.params,
        "stages": trial.stages,
        "same_as": trial.same_as,
        "commands": _commands(chosen, trial),
    }


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
                "keys": {axis.name: _axis_text(axis) for axis in sweep.axes},
            }
            for sweep, doubled in zip(chosen.sweeps, duplicates, strict=True)
        ],
        "orphans": chosen.study.orphans,
        "slots": chosen.slots or "auto",
        "waiting": chosen.study.waiting,
        "hints": [_problem_json(chosen.study.source.name, hint) for hint in chosen.study.hints],
        "first": _trial_json(chosen, chosen.plan.trial(chosen.indices[0])),
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
    width = len(str(chosen.plan.size))
    for trial in _trials(chosen):
        if as_json:
            line = json.dumps(_trial_json(chosen, trial), ensure_ascii=False)
        else:
            end = f"same as {trial.same_as}" if trial.same_as else " ".join(trial.stages)
            line = f"{trial.number:>{width}}  {printable(f'{chosen.output}/{trial.name}')}  {end}"
        sys.stdout.write(line + "\n")


def _show(chosen: Chosen) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    study, duplicates = chosen.study, chosen.plan.duplicates()
    console.print(Text.assemble((printable(study.source.name), "bold"), (" is valid", "green")))
    console.print()
    console.print(_table(chosen.sweeps, duplicates))
    console.print()
    for label, line in _facts(chosen, duplicates):
        console.print(Text.assemble((f"{label:<11}", "bold"), line))
    trial = chosen.plan.trial(chosen.indices[0])
    console.print()
    console.print(Text.assemble(("first trial", "bold"), f"  {printable(f'{chosen.output}/{trial.name}')}"))
    for stage, command in _commands(chosen, trial).items():
        console.print(Text.assemble((f"  {stage:<9}", "cyan"), printable(command)))
    for hint in study.hints:
        console.print()
        console.print(Text(f"hint: {describe(study.source, hint)}", "yellow"))


def _table(sweeps: tuple[Sweep, ...], duplicates: list[int | None]) -> Any:
    from rich.table import Table
    from rich.text import Text

    numbers = ("line", "trials", "again")
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
        "again": "?" if doubled is None else f"{doubled:,}" if doubled else "",
        "stages": " ".join(sweep.stages),
        "varies": ", ".join(f"{axis.name} {_axis_text(axis)}" for axis in sweep.axes) or "nothing",
    }


def _axis_text(axis: Axis) -> str:
    size = axis.ladder.size
    if axis.order is Order.DRAW:
        return "drawn"
    if axis.order is Order.SEQUENCE:
        return "in turn"
    return f"×{size}" if size > 1 else f"= {printable(axis.ladder.choice(0).part)}"


def _facts(chosen: Chosen, duplicates: list[int | None]) -> Iterator[tuple[str, str]]:
    size = chosen.plan.size
    again = sum(doubled or 0 for doubled in duplicates)
    skipped = f", of which {again:,} are asked for twice and run once" if again else ""
    yield "trials", f"{size:,}{skipped}"
    if len(chosen.indices) != size:
        yield "sample", f"{len(chosen.indices):,} of them"
    yield "slots", _slots_text(chosen.slots)
    if chosen.study.orphans:
        names = ", ".join(chosen.study.orphans)
        yield "orphans", f"{names} (no command uses this: it only names directories)"
    if chosen.study.waiting:
        yield "not yet", f"{', '.join(chosen.study.waiting)} (checked, but this version does not act on it)"


def _slots_text(slots: tuple[str, ...] | None) -> str:
    if slots is None:
        return "auto: one a GPU of the machine, or shares of its cores"
    named = (f"GPU{'s' * (',' in slot)} {slot}" if slot not in ("", "-1") else "no GPU" for slot in slots)
    return f"{len(slots)}: {' · '.join(named)}"
