"""Slurm: whether it answers, what it has, and whether its nodes would find what is here."""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.checkup.finding import Answer, Check, Verdict, ask, ok, warning
from stoker.study.place import is_on_shared_disk

FORMAT = "%P|%a|%D|%l|%G|%t"
"""For `sinfo -o`: partition, up or down, nodes, time limit, GPUs, state. The same in every version."""
MOST = 20
"""So many partitions are told one by one."""
_MARKS = "*~#!%$@^+-"  # what sinfo puts behind a state; a star is a node that does not respond
_GONE = frozenset({"down", "drain", "drained", "drng", "fail", "failg", "unk", "unknown", "futr", "inval"})


def is_here() -> bool:
    """Whether this machine can submit jobs."""
    return shutil.which("sbatch") is not None


def look(directory: Path, is_asked: bool) -> Iterator[Check]:
    """The cluster. If nobody asked for it, a cluster that does not answer is only worth a warning."""
    grave = Verdict.BAD if is_asked else Verdict.WARNING
    if not is_here():
        yield Check("sbatch", grave, "not found on the PATH", "use Slurm from a login node of its cluster")
        return
    version = ask("sbatch", "--version")
    if version.code != 0:
        remedy = "use Slurm from a login node of its cluster; SLURM_CONF names the configuration of one"
        yield Check("version", grave, version.reason, remedy)
        return
    yield ok("version", parse_version(version.out))
    config = ask("scontrol", "show", "config")
    if config.code != 0:
        remedy = "slurmctld does not answer: try again, or ask whoever runs the cluster"
        yield Check("controller", grave, config.reason, remedy)
        return
    yield from judge_config(parse_config(config.out))
    listed = ask("sinfo", "-h", "-o", FORMAT)
    yield from judge_partitions(parse_partitions(listed.out), grave)
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


@dataclass(frozen=True)
class Partition:
    """A partition, as sinfo tells it."""

    name: str
    is_default: bool
    is_up: bool
    limit: str
    gres: tuple[str, ...]
    nodes: Mapping[str, int]  # by state

    @property
    def usable(self) -> int:
        """Nodes on which a job could run, now or later."""
        return sum(count for state, count in self.nodes.items() if state not in _GONE) if self.is_up else 0


def parse_partitions(text: str) -> list[Partition]:
    """What sinfo lists in FORMAT: a line for each kind of node. Lines of another form are passed over."""
    rows: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        name, *words = (word.strip() for word in line.split("|"))
        if len(words) == 5 and words[1].isdecimal():
            rows.setdefault(name, []).append(words)
    return [_partition(name, words) for name, words in rows.items()]


def _partition(name: str, rows: Sequence[Sequence[str]]) -> Partition:
    up, _, limit, _, _ = rows[0]
    nodes: Counter[str] = Counter()
    for _, count, _, _, state in rows:
        nodes[_state(state)] += int(count)
    gres = dict.fromkeys(part for row in rows for part in _gres(row[3]))
    return Partition(name.rstrip("*"), name.endswith("*"), up == "up", limit, tuple(gres), nodes)


def _state(word: str) -> str:
    plain = word.rstrip(_MARKS).lower()
    return "down" if "*" in word else plain


def _gres(word: str) -> list[str]:
    """`gpu:a100:4` of `gpu:a100:4(S:0-1)`; none of `(null)`."""
    plain = re.sub(r"\([^)]*\)", "", word)
    return [part for part in plain.split(",") if part and part != "N/A"]


# What follows


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
