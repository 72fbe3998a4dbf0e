"""`stoker run --debug`: the first trial alone, in this terminal, as if its commands had been typed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from stoker.agent.gpus import read
from stoker.agent.slots import child_environment, plan_slots, usable_cores, with_manager
from stoker.cli.study_options import Chosen, commands_of
from stoker.manager import trial as managed
from stoker.spec.problems import printable


def run_first(chosen: Chosen) -> int:
    """Run its stages one after the other; the exit code is that of the first that fails."""
    trial = next(chosen.trials)
    slots = plan_slots(
        chosen.slots, read().gpus, os.environ.get("CUDA_VISIBLE_DEVICES"), usable_cores()
    ).slots
    asked = chosen.study.settings.get("env")
    words = {str(name): str(value) for name, value in asked.items()} if isinstance(asked, dict) else {}
    environment = child_environment(slots[0], os.environ, words) if slots else {**os.environ, **words}
    environment = with_manager(environment)
    chosen = replace(chosen, output=f"{chosen.output}/.debug")  # a finished trial's files stay as they are
    shutil.rmtree(Path(chosen.output, trial.name), ignore_errors=True)  # each time from the beginning
    Path(chosen.output, trial.name).mkdir(parents=True)
    place = os.path.abspath(f"{chosen.output}/{trial.name}")  # noqa: PTH100
    for stage, command in commands_of(chosen, trial, slots[0].devices if slots else "").items():
        told = managed.Trial(trial.params, place, stage, objective=chosen.study.objective)
        environment.update(managed.to_environment(told, f"1.{trial.number}"))
        sys.stderr.write(f"\n{stage}: {printable(command)}\n")
        sys.stderr.flush()
        code = subprocess.run(["bash", "-c", "--", command], env=environment, check=False).returncode
        if code != 0:
            sys.stderr.write(f"\n{stage} ended with exit code {code}\n")
            return 1
    return 0
