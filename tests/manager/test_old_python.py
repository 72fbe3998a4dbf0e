"""The manager runs wherever a script runs: in any Python from 3.8 on, with nothing installed."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stoker
from stoker.manager import PATH
from tests.manager.running import Trial, bare

HERE = Path(PATH).parent
TOO_SLOW = (
    "typing",
    "dataclasses",
    "asyncio",
    "logging",
    "numpy",
    "torch",
    "yaml",
    "rich",
    "subprocess",
    "tempfile",
)


@pytest.mark.parametrize(
    "path", [Path(stoker.__file__), *sorted(HERE.rglob("*.py"))], ids=lambda path: path.name
)
def test_it_is_written_in_python_3_8(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 8))


def imported(script: str, python: str = sys.executable) -> set[str]:
    """The modules that a script has loaded in the end, on a Python with nothing else."""
    program = f"import sys; sys.path.insert(0, {PATH!r})\n{script}\nprint(*sys.modules)"
    ran = subprocess.run([python, "-S", "-E", "-c", program], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_importing_it_imports_little() -> None:
    script = "from stoker import Manager, TestManager, EarlyStopping, Stopped\nManager"
    found = imported(script)
    assert "stoker.manager.manager" in found
    assert not found & set(TOO_SLOW)
    assert not any(name.startswith("stoker.") and not name.startswith("stoker.manager") for name in found)


def test_the_agents_path_alone_imports_nothing_more() -> None:
    found = imported("from stoker.manager import PATH") - imported("import os")
    assert found == {"stoker", "stoker.manager", "__future__"}


def old_python() -> str:
    """Python 3.8, where somebody has it."""
    found = shutil.which("python3.8")
    for python in (found, *Path("~/.pyenv/versions").expanduser().glob("3.8.*/bin/python")):
        command = [str(python), "-c", "import sys; assert sys.version_info[:2] == (3, 8)"]
        if python and subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return str(python)
    pytest.skip("there is no Python 3.8")


SCRIPT = """\
import sys
assert sys.version_info[:2] == (3, 8)
from stoker import EarlyStopping, Manager

def run(manager, params, best):
    early = EarlyStopping(patience=2)
    weights = {"w": 0.0, "seen": b""}
    manager.track(early=early, weights=weights)
    for epoch in manager.epochs(4):
        for batch in manager.batches(range(3)):
            weights["w"] += batch
            manager.add_progress("w", weights["w"], step=epoch * 3 + batch)
            if epoch == 1 and batch == 1 and not manager.is_resumed:
                import os, signal
                os.kill(os.getpid(), signal.SIGTERM)
        manager.save_progress({"w": weights["w"]})
        early.stop(weights["w"])

manager = Manager.create_manager({"lr": 1})
manager.set_compare_goal("w", "max")
manager.hyparam_search(run)
"""


@pytest.mark.parametrize("is_in_study", [True, False])
def test_a_script_on_python_3_8(tmp_path: Path, is_in_study: bool) -> None:
    python, trial = old_python(), Trial(tmp_path / "stoker-trial")
    for code in (75, 0):
        told = trial.environment() if is_in_study else {}
        command = [python, "-W", "error", "-c", SCRIPT]
        environment = {"PATH": bare()["PATH"], "PYTHONPATH": PATH, "PYTHONDONTWRITEBYTECODE": "1", **told}
        ran = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == code, ran.stderr
    assert trial.values()["w"] == [0, 1, 3, 3, 4, 6, 6, 7, 9, 9, 10, 12]
    assert trial.told("finished.train.json")["best"]["value"] == 12
