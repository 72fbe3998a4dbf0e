"""What squeue, sinfo and sbatch answer, as plain data. Nothing here asks anybody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from stoker.engines.interface import Placed, State

FORMAT = "%i|%T|%r|%S|%N"
"""For `squeue -o`: job, state, reason, start, nodes. These letters mean the same in every version."""
_STANDING_STILL = frozenset({"SUSPENDED", "STOPPED"})
_WAITING = _STANDING_STILL | {
    *("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"),
}
_RUNNING = frozenset({"RUNNING", "CONFIGURING", "COMPLETING", "SIGNALING", "STAGE_OUT", "RESIZING"})
_NO_REASON = ("", "None", "(null)", "N/A", "Unknown")


def jobs(text: str) -> list[Placed]:
    """The jobs that squeue lists in FORMAT, one a line; a line that is something else is passed over.

    A state that is not known, or that is over, is an end: that its agent is at work is told by its beat.
    """
    return [placed for line in text.splitlines() for placed in _job(line)]


def _job(line: str) -> Iterator[Placed]:
    words = [word.strip() for word in line.split("|")]
    if len(words) < 5 or not re.fullmatch(r"[\d_+\[\]%,-]+", words[0]):
        return
    job, state, reason, starts, where = words[:5]
    name = state.split(" ")[0].rstrip("+").upper()  # sacct says `CANCELLED by 1000`
    known = State.WAITING if name in _WAITING else State.RUNNING if name in _RUNNING else State.ENDED
    why = "" if reason in _NO_REASON else reason
    if known is State.ENDED or name in _STANDING_STILL:
        why = name if not why else f"{name}, {why}"
    is_new = known is State.WAITING and name not in _STANDING_STILL
    begins = starts if is_new and starts not in _NO_REASON else ""
    yield Placed(job, known, "" if where in _NO_REASON else where, why, begins)


def partitions(text: str) -> list[str]:
    """What `sinfo -h -o %R` lists, without repeats."""
    return list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))


def largest_array(text: str) -> int | None:
    """MaxArraySize of `scontrol show config`: a task's number must be below it."""
    found = re.search(r"^MaxArraySize\s*=\s*(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else None


def is_preempted(text: str) -> bool:
    """Whether `scontrol show job` tells that Slurm takes a job's node away for others."""
    return bool(re.search(r"\bPreemptTime=\d", text))


def job_id(text: str) -> str:
    """What `sbatch --parsable` prints: `123`, or `123;cluster`. Sites let it say more, before and after."""
    for line in text.splitlines():
        if found := re.fullmatch(r"\s*(\d+)(;\S*)?\s*", line):
            return found[1]
    return ""


_REMEDIES = {
    r"invalid partition": "engine.slurm.partition names one of this cluster's: {partitions}",
    r"[Ii]nvalid account": "engine.slurm.account: `sacctmgr show assoc user=$USER` lists yours",
    r"[Ii]nvalid qos": "engine.slurm.qos: `sacctmgr show assoc user=$USER format=qos` lists yours",
    r"job array spec": "engine.slurm.agents: one array may have {most} tasks here",
    r"Invalid --time|Requested time limit": "engine.slurm.time is like 90 (minutes), 12:00:00 or 2-00:00",
    r"node configuration is not available|can not be satisfied|More processors requested": (
        "no node has that many gpus, cpus or memory; `sinfo -o '%P %G %c %m'` lists what they have"
    ),
    r"[Ii]nvalid feature": "engine.slurm.constraint: `sinfo -o '%P %f'` lists features",
    r"[Ii]nvalid node name": "engine.slurm.exclude: `sinfo -N` lists nodes",
    r"[Ii]nvalid generic resource|invalid gres": "engine.slurm.gpus: `sinfo -o '%P %G'` lists GPUs",
    r"configuration source": "this machine knows no cluster (slurm.conf): use a login node",
    r"[Uu]nable to contact|[Cc]onnection refused|timed out": "slurmctld does not answer: try again later",
    r"unrecognized option|invalid option": "engine.slurm.extra: `sbatch --help` lists options",
}


def explain(said: str, known: Iterable[str] = (), most: int | None = None) -> str:
    """What sbatch said in one line, and what to do about it."""
    lines = [re.sub(r"^sbatch: (error: |fatal: )?", "", line).strip() for line in said.splitlines()]
    lines = [line.removeprefix("Batch job submission failed: ") for line in lines if line]
    told = "; ".join(dict.fromkeys(lines)) or "no reason was given"
    for pattern, remedy in _REMEDIES.items():
        if re.search(pattern, told):
            names = ", ".join(known) or "see `sinfo`"
            return f"{told}; {remedy.format(partitions=names, most=most or 'not so many')}"
    return told


def is_about_nodes(said: str) -> bool:
    """Whether `sbatch --test-only` misses nodes: there are none, or all that would do are down for now."""
    words = r"node configuration is not available|nodes? not available|nodes are busy"
    return bool(re.search(words, said, re.IGNORECASE))


def is_busy(said: str) -> bool:
    """Whether Slurm may answer if it is asked again."""
    words = r"unable to contact|connection refused|timed out|temporarily unable|zero bytes|try again"
    return bool(re.search(words, said, re.IGNORECASE))
