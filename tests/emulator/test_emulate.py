"""`stoker emulate`, as a person starts it: with the variables it prints, Google's own clients find it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from stoker.emulator.news import look, news
from tests.emulator import traces

ZONE = "us-central1-a"

STORAGE = """
import sys
from google.cloud import storage
bucket = storage.Client().bucket("it's mine".replace("'", "").replace(" ", "-"))
if not bucket.exists():
    bucket.create()
    bucket.blob("dir/one").upload_from_string("hello")
print([(blob.name, blob.download_as_text()) for blob in bucket.list_blobs()])
"""

VM = f"""
import os
from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1 as c
home = dict(credentials=AnonymousCredentials(), client_options={{"api_endpoint": os.environ["STOKER_CLOUD"]}})
image = "projects/debian-cloud/global/images/family/debian-12"
c.InstancesClient(**home).insert_unary(
    project=os.environ["GOOGLE_CLOUD_PROJECT"],
    zone="{ZONE}",
    instance_resource=c.Instance(
        name="worker",
        machine_type="zones/{ZONE}/machineTypes/n2-standard-2",
        disks=[c.AttachedDisk(boot=True, auto_delete=True, initialize_params={{"source_image": image}})],
        network_interfaces=[c.NetworkInterface()],
        scheduling=c.Scheduling(provisioning_model="SPOT", instance_termination_action="DELETE"),
        metadata=c.Metadata(items=[c.Items(key="startup-script", value="#!/bin/sh\\nexec sleep 98765")]),
    ),
)
"""


EMULATE = [sys.executable, "-m", "stoker", "emulate"]


def emulate(*words: str) -> subprocess.CompletedProcess[str]:
    """For commands that are refused."""
    return subprocess.run([*EMULATE, *words], capture_output=True, text=True, timeout=60, check=False)


class Cloud:
    """One that runs as a process, with its output in files."""

    def __init__(self, place: Path, *words: str) -> None:
        self._log, self._errors = place / "log", place / "errors"
        with self._log.open("wb") as log, self._errors.open("wb") as errors:
            self.process = subprocess.Popen([*EMULATE, *words], stdout=log, stderr=errors)
        self.wait_for("# project ")

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return self._errors.read_text(encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """What a shell makes of the lines."""
        lines = "".join(f"{line}\n" for line in self.log.splitlines() if line.startswith("export "))
        shown = subprocess.run(
            ["sh", "-c", f"{lines}env -0"], capture_output=True, check=True
        ).stdout.decode()
        return dict(line.split("=", 1) for line in shown.split("\0") if line)

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.log or self.process.poll() is not None)
        assert text in self.log, self.log + self.errors

    def python(self, program: str) -> str:
        """Run a program of somebody who set the variables."""
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, env=self.environment, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def ask(self, method: str, path: str, body: object = None) -> Any:
        url = self.environment["STOKER_CLOUD"] + path
        request = Request(url, json.dumps(body).encode() if body is not None else None, method=method)  # noqa: S310
        with urlopen(request, timeout=20) as reply:  # noqa: S310
            return json.loads(reply.read())

    def interrupt(self) -> int:
        """Ctrl-C; its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it never happened")


@contextmanager
def running(place: Path, *words: str) -> Iterator[Cloud]:
    cloud = Cloud(place, *words)
    try:
        yield cloud
    finally:
        if cloud.process.poll() is None:
            cloud.process.kill()
            cloud.process.wait()


def test_a_day_with_a_cloud_at_home(workplace: Path, tmp_path: Path) -> None:
    directory = workplace / "my cloud"
    with running(tmp_path, "--directory", str(directory)) as cloud:
        assert cloud.python(STORAGE) == "[('dir/one', 'hello')]\n"
        assert "CALL" not in cloud.log
        variables = re.findall(r"^export .*", cloud.log, re.MULTILINE)
        assert cloud.interrupt() == 130
        assert cloud.errors == ""
    with running(tmp_path, "--directory", str(directory), "--verbose") as cloud:
        assert re.findall(r"^export .*", cloud.log, re.MULTILINE) == variables
        assert cloud.python(STORAGE) == "[('dir/one', 'hello')]\n"
        assert re.search(r"^\d\d:\d\d:\d\d CALL  GET /storage/v1/b/\S+ 200$", cloud.log, re.MULTILINE)
        assert cloud.interrupt() == 130
        assert cloud.errors == ""


def test_vms_are_told_of_and_end_with_it(workplace: Path, tmp_path: Path) -> None:
    with running(tmp_path, "--directory", "cloud", "--speed", "50") as cloud:
        cloud.python(VM)
        cloud.wait_for(f"VM    worker is created: n2-standard-2, spot, {ZONE}\n")
        cloud.wait_for("VM    worker runs\n")
        assert cloud.ask("GET", "/emulator")["vms"][0]["status"] == "RUNNING"
        assert cloud.ask("POST", "/emulator/preempt", {}) == {"preempted": ["worker"]}
        cloud.wait_for("VM    worker is preempted\n")
        cloud.wait_for("VM    worker is deleted\n")
        (use,) = cloud.ask("GET", "/emulator/meter")["uses"]
        assert (use["name"], use["model"], use["stop"] > use["start"]) == ("worker", "SPOT", True)
        cloud.python(VM)
        wait_until(lambda: cloud.log.count("worker runs") == 2)
        wait_until(lambda: bool(traces.descendants(cloud.process.pid)))
        vms = traces.descendants(cloud.process.pid)
        assert cloud.interrupt() == 130
        assert cloud.errors == ""
        assert cloud.log.endswith("END   all VMs are ended; `stoker emulate --directory cloud` goes on\n")
    assert [pid for pid in vms if Path(f"/proc/{pid}").exists()] == []
    assert traces.of_directory(workplace / "cloud") == []


def test_preemptions_by_rate(workplace: Path, tmp_path: Path) -> None:
    with running(tmp_path, "--speed", "50", "--preempt", "100000") as cloud:
        cloud.python(VM)
        cloud.wait_for("VM    worker is preempted\n")
        assert cloud.interrupt() == 130


def test_faults_from_a_file(workplace: Path, tmp_path: Path) -> None:
    Path("faults.yaml").write_text("- {kind: exhausted, zone: us-central1, times: 3}\n", encoding="utf-8")
    with running(tmp_path, "--faults", "faults.yaml", "--project", "another") as cloud:
        assert cloud.environment["GOOGLE_CLOUD_PROJECT"] == "another"
        (fault,) = cloud.ask("GET", "/emulator/faults")["faults"]
        assert (fault["kind"], fault["zone"], fault["times"]) == ("exhausted", "us-central1", 3)
        cloud.process.terminate()
        assert cloud.process.wait(60) == 130


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["--faults", "faults.yaml"],
            "faults.yaml: number 1: fault: unknown key 'colour'; known are kind, api",
        ),
        (["--faults", "none.yaml"], "none.yaml: No such file or directory"),
        (["--port", "70000"], "--port 70000"),
        (["--speed", "0"], "--speed 0"),
        (["--preempt", "-1"], "--preempt -1"),
        (["--preempt", "nan"], "--preempt nan"),
        (["--mode", "clouds"], "--mode"),
        (["--colour"], "--colour"),
    ],
)
def test_wrong_words_start_nothing(words: list[str], told: str, workplace: Path) -> None:
    Path("faults.yaml").write_text("- {kind: error, colour: red}\n", encoding="utf-8")
    done = emulate("--directory", "cloud", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("cloud").exists()


def test_a_port_in_use(workplace: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        done = emulate("--port", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"stoker: port {port}: Address already in use; --port 0 takes one that is free\n"


def test_a_directory_in_use(workplace: Path, tmp_path: Path) -> None:
    with running(tmp_path, "--directory", "cloud") as cloud:
        done = emulate("--directory", "cloud")
        assert (done.returncode, "another emulator runs there" in done.stderr) == (1, True)
        assert cloud.interrupt() == 130


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_that_cannot_be(workplace: Path) -> None:
    done = emulate("--directory", "/proc/cloud")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_news() -> None:
    made = {"id": "1", "name": "a", "status": "STAGING", "machineType": "…/n2", "zone": "…/z"}
    runs = {**made, "status": "RUNNING", "scheduling": {"provisioningModel": "SPOT"}}
    taken = {"id": "7", "operationType": "compute.instances.preempted", "targetLink": "…/a"}
    asked = {"id": "8", "operationType": "insert", "targetLink": "…/b"}
    failed = {**asked, "error": {"errors": [{"code": "ZONE_RESOURCE_POOL_EXHAUSTED"}]}}
    steps: list[tuple[list[dict[str, Any]], list[dict[str, Any]]]] = [
        ([], []),
        ([made], []),
        ([runs], [asked]),
        ([runs], [asked]),
        ([{**runs, "status": "STOPPING"}], [failed, taken]),
        ([{**runs, "id": "2"}], [failed, taken]),
        ([], [failed, taken, {**taken, "id": "9"}]),
    ]
    told = [list(news(look(*old), look(*new))) for old, new in pairwise(steps)]
    assert told == [
        ["a is created: n2, z"],
        ["a runs"],
        [],
        ["b: insert failed: ZONE_RESOURCE_POOL_EXHAUSTED", "a is preempted", "a shuts down"],
        ["a is created: n2, spot, z", "a is deleted", "a runs"],
        ["a is preempted", "a is deleted"],
    ]
