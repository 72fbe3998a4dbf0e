"""Tests with VMs once more, as an ordinary user: machines in every way, a cloud with plain processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest

from stoker.emulator.machines.interface import Mode
from tests.emulator.vms import ROOT


def _python_of_all() -> str | None:
    """One of this version that every user can run."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    for path in (sys.executable, shutil.which(f"python{version}", path="/usr/bin:/usr/local/bin")):
        real = Path(path or "/nowhere").resolve()
        if real.exists() and all(parent.stat().st_mode & 0o005 == 0o005 for parent in real.parents):
            return path
    return None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize(
    ("files", "mode"),
    [
        (("test_machines.py",), ""),  # user namespaces as far as they are permitted, and processes
        (("test_emulate.py", "test_metadata.py", "test_fleet.py"), Mode.PROCESSES.value),
        (("test_compute_instances.py", "test_compute_preemption.py"), Mode.PROCESSES.value),
        (("test_groups_cloud.py", "test_storage_in_the_cloud.py"), Mode.PROCESSES.value),
    ],
    ids=["machines", "commands", "instances", "groups"],
)
def test_the_same_for_an_ordinary_user(files: tuple[str, ...], mode: str) -> None:
    python = _python_of_all()
    if python is None:
        pytest.skip("no Python here that every user can run")
    directory = Path(tempfile.mkdtemp(prefix="stoker-", dir="/var/tmp"))
    os.chown(directory, 65534, 65534)
    nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", python, "-B"]
    options = ["-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={directory}/pytest"]
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src", sysconfig.get_paths()["purelib"])))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, "HOME": str(directory)}
    environment |= {"STOKER_TEST_MODE": mode} if mode else {}
    words = [*nobody, *options, *(str(Path(__file__).with_name(name)) for name in files)]
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(directory)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d\d? passed", done.stdout)
