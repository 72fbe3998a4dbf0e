"""What is handed to sbatch: its options, and the script of a job. Plain functions of plain data."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker.core.errors import UsageError
from stoker.engines.interface import Site

NOTICE = 120
"""Seconds before the time limit at which an agent is told, so that its trials can be saved and given back."""
IDLE = 300
"""Seconds without a trial after which an agent leaves, though others are still at work: no GPU is idle."""
_JOB = "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
LOGS = "slurm"
"""Where the logs of the jobs are, in the directory of the study's records."""
_OURS = re.compile(
    r"--(array|job-name|wrap|parsable|test-only|help|usage|version|chdir|wait)\b|-[aJhVDW](?![a-z-])"
)
"""Options of sbatch that would break what is built on them, or submit nothing."""
_OPTIONS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "time",
    "gpus": "gpus",
    "cpus": "cpus-per-task",
    "memory": "mem",
    "constraint": "constraint",
    "exclude": "exclude",
}


def shapes(settings: Any) -> list[Mapping[str, Any]]:
    """The shapes of job that a study file asks for: one, or several."""
    found = settings if isinstance(settings, Sequence) else [settings or {}]
    return list(found) or [{}]


def options(site: Site, shape: Mapping[str, Any], tasks: str) -> list[str]:
    """The options of sbatch for an array with these tasks. Those of `extra` come last, and win."""
    return [
        "--parsable",
        f"--job-name={site.mark}",
        f"--array={tasks}",
        "--requeue",
        "--open-mode=append",
        "--nodes=1",
        "--ntasks=1",
        f"--signal=B:USR1@{notice(shape.get('time'))}",
        f"--chdir={site.directory}",
        f"--output={'/dev/null' if _opens_log(site) else log_of(site, '%A_%a', is_pattern=True)}",
        *(f"--{option}={shape[name]}" for name, option in _OPTIONS.items() if name in shape),
        *_extra(shape),
    ]


def notice(limit: str | None) -> int:
    """How many seconds before its time limit a job is told. A short one has less, but some time to work."""
    known = seconds(limit or "")
    return NOTICE if known is None else max(10, min(NOTICE, known // 4))


def seconds(limit: str) -> int | None:
    """A time as sbatch takes it: 90 (minutes), 90:00, 1:30:00, 1-12, 1-12:30, 1-12:30:00; None for others."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit.strip())
    if match is None:
        return None
    days, *found = match.groups()
    numbers = [int(number) for number in found if number is not None]
    if days is not None or len(numbers) == 3:  # hours come first
        hours, minutes, rest = [*numbers, 0, 0][:3]
    else:
        (minutes, rest), hours = [*numbers, 0][:2], 0
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + rest


def _extra(shape: Mapping[str, Any]) -> Iterator[str]:
    """`--gres=shard:1`, with or without #SBATCH before it."""
    for line in shape.get("extra") or ():
        try:
            words = shlex.split(line.removeprefix("#SBATCH"))
        except ValueError as error:
            raise UsageError(f"engine.slurm.extra: {line}: {error}") from None
        for word in words:
            if _OURS.match(word):
                raise UsageError(f"engine.slurm.extra: {word}: that is Stoker's; `agents` says how many jobs")
        yield from words


def log_of(site: Site, job: str, is_pattern: bool = False) -> str:
    """The log of a job; as sbatch takes it, if the job is a pattern."""
    if site.records is None:
        return f"stoker-{job}.log"
    place = str(site.records / LOGS)
    return f"{place.replace('%', '%%') if is_pattern else place}/{job}.log"


def _opens_log(site: Site) -> bool:
    """Whether the script itself opens its log: Slurm finds no file below a path with a backslash."""
    return "\\" in site.directory + log_of(site, "")


def script(site: Site, number: int, shape: Mapping[str, Any], python: str = sys.executable) -> str:
    """The script of a job: the user's own lines, and then the agent in place of the shell.

    So the agent itself is what Slurm sends its signals to. It runs with Stoker's own Python, and not in the
    environment that the lines make: that is for the stages. An agent that may submit another job also gets
    the environment from before the lines, as they would otherwise add to what they made before.
    """
    lines = shape.get("setup") or ()
    store = f"{site.name}: {site.directory}"
    missing = '{ echo "stoker: $(hostname) does not see "%s >&2; exit 72; }'
    agent = [python, "-E", "-m", "stoker", "agent", site.store, "--allotted", "--idle", str(IDLE)]
    agent += ["--grace", str(max(10, notice(shape.get("time")) - 15))]
    agent += ["--renew", str(number)] if shape.get("renew") else []
    placed = f'--placed "slurm:{_JOB}"'
    given = ' --given 3 3<<< "$(base64 -w 0 "/proc/$$/environ")"' if shape.get("renew") else ""
    return "\n".join(
        [
            "#!/bin/bash",
            f"# An agent of Stoker, for the study {printable_line(store)}",
            "trap '' USR1",  # until the agent hears it: it must not end a job that Slurm would bring back
            f"cd -- {shlex.quote(site.directory)} || {missing % shlex.quote(site.directory)}",
            *_log(site),
            *_setup(lines),
            f"[ -x {shlex.quote(python)} ] || {missing % shlex.quote(python)}",
            *_slots(shape.get("resource")),
            f'exec {shlex.join([*agent, *site.words])} -r "${{slots[@]}}" {placed}{given}',
            "",
        ]
    )


def _log(site: Site) -> Iterator[str]:
    """Open the log, where Slurm does not."""
    if _opens_log(site):
        before, after = log_of(site, "\n").split("\n")
        yield f'exec >> {shlex.quote(before)}"{_JOB}"{after} 2>&1'


def _setup(lines: Sequence[str]) -> Iterator[str]:
    """The user's lines; the first that fails ends the job, and is told."""
    for line in lines:
        yield from ("{", line, f"}} || {{ echo stoker: setup failed: {shlex.quote(line)} >&2; exit 73; }}")


def _slots(resource: Any) -> Iterator[str]:
    """The slots of a job: as the shape says, one for each GPU that Slurm gave it, or shares of its cores."""
    if isinstance(resource, tuple) and resource:
        yield f"slots=({shlex.join(resource)})"
        return
    yield 'IFS=, read -ra gpus <<< "${CUDA_VISIBLE_DEVICES:-}"'
    yield 'if ((${#gpus[@]})); then slots=("${!gpus[@]}"); else slots=(auto); fi'


def arrays(count: int, largest: int | None) -> list[str]:
    """The tasks of as few arrays as so many agents need, where an array may have only so many."""
    most = largest or count or 1
    return [f"0-{min(most, count - first) - 1}" for first in range(0, count, most)]


def described(shape: Mapping[str, Any]) -> str:
    """`partition gpu, gpus 2, time 12:00:00`: what each job of a shape has."""
    names = ("partition", "gpus", "cpus", "memory", "time")
    return ", ".join(f"{name} {shape[name]}" for name in names if name in shape)


def summary(settings: Any) -> str:
    """`2 arrays: 2 agents with gpus 2, renewed; 6 agents with cpus 4`: what would be placed."""
    parts = []
    for shape in shapes(settings):
        count, renewed = shape.get("agents", 1), "renewed" if shape.get("renew") else ""
        has = ", ".join(filter(None, (described(shape), renewed)))
        parts.append(f"{count:,} agent{'s' * (count > 1)}{f' with {has}' if has else ''}")
    return f"{f'{len(parts)} arrays: ' if len(parts) > 1 else ''}{'; '.join(parts)}"


def printable_line(text: str) -> str:
    """A text for a comment: whatever it is, it stays in its line."""
    return "".join(char if char.isprintable() else "?" for char in text)


def directory_of(site: Site) -> Path | None:
    """Where the logs of jobs go; sbatch does not make it."""
    return None if site.records is None else site.records / LOGS
