"""The gcloud CLI, the strictest reader of replies, works with VMs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from stoker.emulator.cloud import Emulator
from stoker.emulator.pace import FAST
from tests.emulator.gce import ZONE, until

pytestmark = pytest.mark.skipif(shutil.which("gcloud") is None, reason="the gcloud CLI is not installed")


def test_gcloud_creates_lists_describes_preempts_and_deletes(tmp_path: Path) -> None:
    with Emulator(pace=FAST) as cloud:
        private = {"CLOUDSDK_CONFIG": str(tmp_path), "CLOUDSDK_CORE_DISABLE_PROMPTS": "1"}
        environment = {**os.environ, **cloud.environment(), **private}

        def gcloud(*words: str) -> str:
            done = subprocess.run(
                ["gcloud", "compute", *words], env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        where = f"--zone={ZONE}"
        spot = ("--provisioning-model=SPOT", "--instance-termination-action=STOP", "--machine-type=e2-small")
        image = ("--image-family=debian-12", "--image-project=debian-cloud")
        script = "--metadata=startup-script=#!/bin/bash\nsleep 1000"
        made = gcloud("instances", "create", "by-hand", where, *spot, *image, script, "--format=value(name)")
        assert made == "by-hand"
        told = gcloud(
            "instances", "describe", "by-hand", where, "--format=value(status,machineType.basename())"
        )
        assert told.split() == ["RUNNING", "e2-small"]
        gcloud("instances", "simulate-maintenance-event", "by-hand", where)
        until(lambda: cloud.compute.instances()[0]["status"] == "TERMINATED")
        taken = ("--filter=operationType=compute.instances.preempted", "--format=value(status,user)")
        assert gcloud("operations", "list", *taken).split() == ["DONE", "system"]
        filtered = ("--filter=name~^by AND status=TERMINATED", "--format=value(name)")
        assert gcloud("instances", "list", *filtered) == "by-hand"
        gcloud("instances", "delete", "by-hand", where)
        assert gcloud("instances", "list", "--format=value(name)") == ""
