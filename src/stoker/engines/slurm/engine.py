"""Slurm as an engine. Only here its commands are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from stoker.core.errors import UsageError
from stoker.engines.interface import Placed, Site, State
from stoker.engines.slurm import queue
from stoker.engines.slurm.script import directory_of, log_of, options, script, shapes

TRIES, FIRST_PAUSE, PATIENCE = 4, 1.0, 60.0
SOON = 10.0
"""Seconds for a question whose answer somebody waits for."""
Answer = subprocess.CompletedProcess  # of text


class Slurm:
    """Arrays of jobs, one for each shape in the study file. All of a study have the same name."""

    def __init__(self, site: Site, sleep: Callable[[float], None] = time.sleep) -> None:
        self._site, self._sleep = site, sleep
        for command in ("sbatch", "squeue", "scancel"):
            if not shutil.which(command):
                raise UsageError(f"there is no {command} here: use Slurm from a login node of its cluster")

    def check(self) -> None:
        """Ask sbatch about every shape, without submitting it."""
        for number, shape in enumerate(self._shapes()):
            tasks = f"0-{shape.get('agents', 1) - 1}"
            words = ["sbatch", "--test-only", *options(self._site, shape, tasks)]
            self._accepted(self._ask(words, script(self._site, number, shape)))

    def place(self, most: int) -> list[str]:
        """Submit an array for each shape, without as many agents as there are already."""
        self._make_room()
        there = sum(placed.state is not State.ENDED for placed in self.list())
        told = [f"slurm: {there:,} agent{'s' * (there > 1)} run or wait already"] if there else []
        most -= there
        for number, shape in enumerate(self._shapes()):
            wanted = shape.get("agents", 1)
            there, count = max(0, there - wanted), min(most, max(0, wanted - there))
            if count < 1:
                continue
            most -= count
            job = self._array(number, f"0-{count - 1}", told)
            told.append(f"slurm: job {job} with {count} agent{'s' * (count > 1)}{_described(shape)}")
        return told

    def renew(self, number: int) -> str:
        """Submit one more job of a shape, for an agent whose time is up; the job's number.

        Empty if the study file does not ask for that any more, or if somebody cancels this job meanwhile.
        """
        found = self._shapes()
        if number >= len(found) or not found[number].get("renew"):
            return ""
        mine = _run(["squeue", "-h", "-j", os.environ.get("SLURM_JOB_ID", ""), "-o", "%T"], "", SOON)
        if not mine.returncode and mine.stdout.strip() not in ("", "RUNNING"):
            return ""
        self._make_room()
        return self._array(number, "0-0")

    def list(self) -> Sequence[Placed]:
        """All jobs of the study in one question; those that ended are there for some minutes."""
        words = ["squeue", "-h", "-r", "-t", "all", f"--name={self._site.mark}", "-o", queue.FORMAT]
        answer = _run(words, "", SOON)
        if answer.returncode:
            raise UsageError(f"squeue: {queue.explain(answer.stderr)}")
        return [replace(job, log=log_of(self._site, job.id)) for job in queue.jobs(answer.stdout)]

    def remove(self, waiting_only: bool = False) -> None:
        """Cancel all jobs of the study; an agent that runs is asked to leave, and has Slurm's KillWait."""
        state = ["--state=PENDING"] if waiting_only else []
        answer = _run(["scancel", *state, f"--name={self._site.mark}"], "", SOON)
        if answer.returncode:
            raise UsageError(f"scancel: {queue.explain(answer.stderr)}")

    def _shapes(self) -> Sequence[Any]:
        return list(shapes(self._site.settings))

    def _make_room(self) -> None:
        if (place := directory_of(self._site)) is not None:
            try:
                place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UsageError(f"cannot make {place}: {error.strerror}") from None

    def _array(self, number: int, tasks: str, before: Sequence[str] = ()) -> str:
        """Submit, once: what was not answered may have been accepted, and another try would double it."""
        shape = self._shapes()[number]
        words = ["sbatch", *options(self._site, shape, tasks)]
        answer = _run(words, script(self._site, number, shape), PATIENCE)
        if answer.returncode and queue.is_busy(answer.stderr):
            raise UsageError(
                f"{queue.explain(answer.stderr)}; `stoker status` tells whether the job is there"
            )
        self._accepted(answer, before)
        job = queue.job_id(answer.stdout)
        if not job:
            raise UsageError(f"sbatch told no job's number: {answer.stdout.strip()}")
        return job

    def _accepted(self, answer: Answer[str], before: Sequence[str] = ()) -> None:
        if answer.returncode:
            known = queue.partitions(_run(["sinfo", "-h", "-o", "%R"], "", SOON).stdout)
            most = queue.largest_array(_run(["scontrol", "show", "config"], "", SOON).stdout)
            why = queue.explain(answer.stderr, known, most)
            told = f" (before that: {'; '.join(before)})" if before else ""
            raise UsageError(f"Slurm refuses the job: {why}{told}")

    def _ask(self, words: Sequence[str], given: str = "") -> Answer[str]:
        """Run a command; again if the controller is busy, with pauses that double."""
        pause = FIRST_PAUSE
        for left in reversed(range(TRIES)):
            answer = _run(words, given, PATIENCE)
            if not answer.returncode or not left or not queue.is_busy(answer.stderr):
                break
            self._sleep(pause)
            pause *= 2
        return answer


def _run(words: Sequence[str], given: str, patience: float) -> Answer[str]:
    environment = {key: value for key, value in os.environ.items() if not _is_of_job(key)}
    try:
        return subprocess.run(
            words,
            input=given,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Answer(words, 1, "", f"{words[0]}: timed out after {patience:g} s")
    except OSError as error:
        return Answer(words, 127, "", f"{words[0]}: {error.strerror}")


def _is_of_job(variable: str) -> bool:
    """Whether a job knows it of itself: that must not become part of the next one."""
    is_in_job = "SLURM_JOB_ID" in os.environ
    return is_in_job and variable.startswith(("SLURM_", "SLURMD_", "SBATCH_")) and variable != "SLURM_CONF"


def _described(shape: Any) -> str:
    words = [
        f"{name} {shape[name]}" for name in ("partition", "gpus", "cpus", "memory", "time") if name in shape
    ]
    return f", each with {', '.join(words)}" if words else ""
