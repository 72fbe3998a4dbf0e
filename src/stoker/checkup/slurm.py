"""Slurm: whether it answers, what it has, and whether its nodes would find what is here."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from stoker.checkup.finding import Answer, Check, Verdict, ask, ok, warning
from stoker.engines.slurm.partitions import FORMAT, Partition, parse_partitions
from stoker.study.place import is_on_shared_disk

MOST = 20
"""So many partitions are told one by one."""
NEEDED, TELLING = ("sbatch", "squeue", "scancel"), ("scontrol", "sinfo")
"""Commands without which nothing can be placed, and those that only tell what there is."""


def is_here() -> bool:
    """Whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None


def look(directory: Path, is_asked: bool) -> Iterator[Check]:
    """The cluster. If nobody asked for it, a cluster that does not answer is only worth a warning."""
    grave = Verdict.BAD if is_asked else Verdict.WARNING
    missing = [command for command in (*NEEDED, *TELLING) if shutil.which(command) is None]
    if missing:
        yield judge_missing(missing, grave)
    if not set(missing).isdisjoint(NEEDED):
        return
    version = ask("sbatch", "--version")
    if version.code != 0:
        remedy = "use Slurm from a login node of its cluster; SLURM_CONF names the configuration of one"
        yield Check("version", grave, version.reason, remedy)
        return
    yield ok("version", parse_version(version.out))
    questions = {"scontrol": ("show", "config"), "sinfo": ("-h", "-o", FORMAT)}
    answers = {name: ask(name, *words) for name, words in questions.items() if name not in missing}
    for answer in answers.values():
        if answer.code != 0:
            remedy = "slurmctld does not answer: try again, or ask whoever runs the cluster"
            yield Check("controller", grave, answer.reason, remedy)
            return
    if "scontrol" in answers:
        yield from judge_config(parse_config(answers["scontrol"].out))
    if "sinfo" in answers:
        yield from judge_partitions(parse_partitions(answers["sinfo"].out), grave)
    yield judge_accounting(ask("sacct", "-n", "-X", "-o", "JobID"))
    yield judge_place("this Python", sys.prefix, is_on_shared_disk(Path(sys.prefix)))
    yield judge_place("directory", str(directory), is_on_shared_disk(directory))


# What its commands say


def parse_version(text: str) -> str:
    """`22.05.8`, from `slurm-wlm 22.05.8` or `slurm 24.05.2`."""
    found = re.search(r"\d+(\.\d+)+\S*", text)
    return found[0] if found else text.strip()


def parse_config(text: str) -> Mapping[str, str]:
    """What `scontrol show config` prints, by name. Of names that come twice the first counts: sections about
    other files follow."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, sign, value = line.partition("=")
        if sign:
            found.setdefault(name.strip(), value.strip())
    return found


# What follows


def judge_missing(missing: Sequence[str], grave: Verdict) -> Check:
    """Commands of Slurm that are not on the PATH: all of them, or some."""
    remedy = "use Slurm from a login node of its cluster, or add the directory of its commands to the PATH"
    if len(missing) == len(NEEDED) + len(TELLING):
        return Check("commands", grave, "none of Slurm's is on the PATH", remedy)
    names, are = ", ".join(missing), "are" if len(missing) > 1 else "is"
    if set(missing).isdisjoint(NEEDED):
        told = f"{names} {are} not on the PATH: jobs can be placed, but not all is told of the cluster"
        return warning("commands", told, remedy)
    return Check("commands", grave, f"{names} {are} not on the PATH, though others of Slurm's are", remedy)


def judge_config(config: Mapping[str, str]) -> Iterator[Check]:
    """What arrays may be, and whether jobs that lose their node come back."""
    most = config.get("MaxArraySize", "")
    if most == "0":
        yield warning("arrays", "not allowed (MaxArraySize = 0)", "ask whoever runs the cluster for more")
    elif most.isdecimal():
        yield ok("arrays", f"of {int(most):,} agents at most (MaxArraySize = {int(most):,})")
    else:
        yield ok("arrays", "MaxArraySize is not told")
    requeue = {"1": "on", "0": "off, but for jobs that ask for it, as agents do"}.get(
        config.get("JobRequeue", ""), "not told"
    )
    yield ok("requeue", f"{requeue} (JobRequeue)")


def judge_partitions(partitions: Sequence[Partition], grave: Verdict) -> Iterator[Check]:
    """What there is to run on."""
    for partition in partitions[:MOST]:
        yield ok(f"partition {partition.name}", _described(partition))
    if len(partitions) > MOST:
        yield ok("partitions", f"{len(partitions) - MOST} more")
    if not any(partition.usable for partition in partitions):
        remedy = "see `sinfo` and `sinfo -R`: jobs would wait until a node is back"
        yield Check("partitions", grave, "none with a node that could run a job", remedy)


def _described(partition: Partition) -> str:
    count = sum(partition.nodes.values())
    states = ", ".join(f"{number} {state}" for state, number in partition.nodes.items() if number)
    told = [
        "up" if partition.is_up else "down",
        f"{count} node{'s' * (count != 1)}{f' ({states})' if states else ''}",
        f"time limit {partition.limit}",
        ", ".join(partition.gres) or "no GPUs",
    ]
    return ", ".join(told) + ("; the default" if partition.is_default else "")


def judge_accounting(answer: Answer) -> Check:
    """Only told: what became of jobs is read from the study's own records."""
    return ok("accounting", "sacct answers" if answer.code == 0 else f"none ({answer.reason}); not needed")


def judge_place(name: str, place: str, is_shared: bool) -> Check:
    """Whether nodes see a directory of this machine."""
    if is_shared:
        return ok(name, f"{place} is on a shared file system")
    what = "install Stoker" if name == "this Python" else "put the study"
    remedy = f"{what} where all nodes see it, such as your home directory, unless they are this machine"
    return warning(name, f"{place} is on a disk of this machine", remedy)
