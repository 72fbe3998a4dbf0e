"""Slurm as an engine. Only here its commands are run."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from stoker.core.errors import UsageError
from stoker.engines.interface import Placed, Site, State
from stoker.engines.slurm import queue
from stoker.engines.slurm.partitions import FORMAT, obstacle, parse_partitions
from stoker.engines.slurm.script import arrays, described, directory_of, log_of, options, script, shapes

TRIES, FIRST_PAUSE, PATIENCE = 4, 1.0, 60.0
SOON = 10.0
"""Seconds for a question whose answer somebody waits for."""
Answer = subprocess.CompletedProcess  # of text


class Slurm:
    """Arrays of jobs, one for each shape in the study file. All of a study have the same name."""

    def __init__(self, site: Site, sleep: Callable[[float], None] = time.sleep) -> None:
        self._site, self._sleep = site, sleep
        self._obstacles: dict[int, str] = {}  # shape → what its jobs will wait for, as `check` found it
        for command in ("sbatch", "squeue", "scancel"):
            if not shutil.which(command):
                raise UsageError(f"there is no {command} here: use Slurm from a login node of its cluster")

    def check(self) -> None:
        """Ask sbatch about a job of every shape, without submitting it.

        It refuses jobs, too, that would only wait for nodes to come back. These are submitted all the same,
        and `place` tells.
        """
        for number, shape in enumerate(self._shapes()):
            words = ["sbatch", "--test-only", *options(self._site, shape, "0-0")]
            answer = self._ask(words, script(self._site, number, shape))
            is_refused = bool(answer.returncode) and queue.is_about_nodes(answer.stderr)
            listed = parse_partitions(_run(["sinfo", "-h", "-o", FORMAT], "", SOON).stdout)
            self._obstacles[number] = obstacle(listed, shape.get("partition"), is_refused)
            if not is_refused or not self._obstacles[number]:
                self._accepted(answer)

    def place(self, most: int) -> list[str]:
        """Submit an array for each shape, without as many agents as there are already.

        Of a shape with more agents than an array may have, submit several.
        """
        self._make_room()
        with self._alone():
            return self._place(most)

    def _place(self, most: int) -> list[str]:
        there = sum(placed.state is not State.ENDED for placed in self.list())
        told = [f"slurm: {_agents(there)} run or wait already"] if there else []
        most, idle = most - there, 0
        for number, shape in enumerate(self._shapes()):
            wanted = shape.get("agents", 1)
            missing, there = max(0, wanted - there), max(0, there - wanted)
            count = max(0, min(most, missing))
            most, idle = most - count, idle + missing - count
            self._submit(number, count, told)
        if idle and told:
            told.append(f"slurm: {_agents(idle)} fewer than asked for, as no more trials are left")
        return told

    def _submit(self, number: int, count: int, told: list[str]) -> None:
        """Submit so many agents of a shape, and tell."""
        shape = self._shapes()[number]
        config = _run(["scontrol", "show", "config"], "", SOON).stdout if count > 1 else ""
        each = f", each with {described(shape)}" if described(shape) else ""
        for tasks in arrays(count, queue.largest_array(config)):
            job = self._array(number, tasks, told)
            told.append(f"slurm: job {job} with {_agents(int(tasks[2:]) + 1)}{each}")
        if count and self._obstacles.get(number):
            told.append(f"slurm: {self._obstacles[number]}")

    def renew(self, number: int, environment: Mapping[str, str] | None = None) -> str:
        """Submit one more job of a shape, for an agent whose time is up; the job's number.

        It has the environment that this job was given, if that is known. Empty if the study file does not
        ask for another job any more, or if somebody cancels this one meanwhile.
        """
        found = self._shapes()
        if number >= len(found) or not found[number].get("renew"):
            return ""
        mine = _run(["squeue", "-h", "-j", _this_job(), "-o", "%T"], "", SOON)
        if not mine.returncode and mine.stdout.strip() not in ("", "RUNNING"):
            return ""
        self._make_room()
        return self._array(number, "0-0", environment=environment)

    def list(self) -> Sequence[Placed]:
        """All jobs of the study in one question.

        Those that ended are known to Slurm for some minutes; when nothing stands any more, whatever left a
        log is listed too.
        """
        words = ["squeue", "-h", "-r", "-t", "all", f"--name={self._site.mark}", "-o", queue.FORMAT]
        answer = _run(words, "", SOON)
        if answer.returncode:
            raise UsageError(f"squeue: {queue.explain(answer.stderr)}")
        jobs = [replace(job, log=log_of(self._site, job.id)) for job in queue.jobs(answer.stdout)]
        are_standing = any(job.state is not State.ENDED for job in jobs)
        return jobs if are_standing else [*jobs, *self._forgotten({job.id for job in jobs})]

    def _forgotten(self, known: Set[str]) -> Iterator[Placed]:
        """Jobs that Slurm knows no more, by their logs. How they ended is not known."""
        place = directory_of(self._site)
        for path in sorted(place.glob("*_*.log")) if place is not None else ():
            if path.stem not in known:
                yield Placed(path.stem, State.ENDED, log=str(path))

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

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One at a time counts jobs and submits them, as far as the file system knows of locks."""
        place = directory_of(self._site)
        if place is None:
            yield
            return
        with place.with_suffix(".lock").open("ab") as file:
            with suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _array(
        self,
        number: int,
        tasks: str,
        before: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> str:
        """Submit, once: what was not answered may have been accepted, and another try would double it."""
        shape = self._shapes()[number]
        words = ["sbatch", *options(self._site, shape, tasks)]
        answer = _run(words, script(self._site, number, shape), PATIENCE, environment)
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


def come_back() -> bool:
    """Put this job back into the queue, if Slurm takes its node away for others (preemption).

    Slurm itself would do so only at the end of the grace time: a job that ends before counts as completed.
    False if it is not taken away, or if Slurm refuses.
    """
    shown = _run(["scontrol", "show", "job", _this_job()], "", SOON)
    return (
        queue.is_preempted(shown.stdout)
        and not _run(["scontrol", "requeue", _this_job()], "", SOON).returncode
    )


def _this_job() -> str:
    """The job that this process is in; by its task, as the last of an array has the number of the array."""
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    if task is None:
        return os.environ.get("SLURM_JOB_ID", "")
    return f"{os.environ.get('SLURM_ARRAY_JOB_ID', '')}_{task}"


def _run(
    words: Sequence[str], given: str, patience: float, environment: Mapping[str, str] | None = None
) -> Answer[str]:
    """Run a command of Slurm as it is found here, in this or another environment."""
    whole = os.environ if environment is None else environment
    try:
        return subprocess.run(
            [shutil.which(words[0]) or words[0], *words[1:]],
            input=given,
            env={key: value for key, value in whole.items() if not _is_of_job(key)},
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


def _agents(count: int) -> str:
    return f"{count:,} agent{'s' * (count > 1)}"
