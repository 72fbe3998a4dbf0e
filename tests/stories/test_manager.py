"""Training scripts with a manager, run by a study: stopped or killed, and resumed, they tell the same."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.store.needs import need
from tests.stories.command import STOKER, stoker

STUDY = """\
template: "PYTHON train.py"
objective: {metric: accuracy, goal: max}
resource: ["", ""]
---
lr: [0.1, 0.01]
"""
TORCH = """\
import time
import torch
from stoker import Manager

manager = Manager.create_manager(save_every=1)
torch.manual_seed(1)
data = torch.randn(64, 8)
labels = (data.sum(1) > 0).long()
from torch.nn import Dropout, Linear, ReLU, Sequential
model = Sequential(Linear(8, 16), ReLU(), Dropout(0.3), Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=manager.get_hyparams()["lr"])
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3)
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(data, labels), batch_size=16, shuffle=True)
manager.track(model=model, optimizer=optimizer, scheduler=scheduler)
for epoch in manager.epochs(12):
    for some, wanted in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(some), wanted)
        loss.backward()
        optimizer.step()
    scheduler.step()
    manager.add_progress("loss", loss)
    manager.add_progress("accuracy", (model(data).argmax(1) == labels).float().mean())
    time.sleep(0.15)
"""
SKLEARN = """\
import time
import numpy as np
from sklearn.linear_model import SGDClassifier
from stoker import Manager

manager = Manager.create_manager(save_every=1)

def run(manager, params_path, best_params_path):
    np.random.seed(1)
    data = np.random.randn(200, 5)
    labels = (data.sum(1) > 0).astype(int)
    model = SGDClassifier(learning_rate="constant", eta0=manager.get_hyparams()["lr"], random_state=0)
    model.partial_fit(data[:20], labels[:20], classes=[0, 1])
    if params_path:
        saved = manager.load(params_path)
        model.coef_[:], model.intercept_[:], model.t_ = saved["coef"], saved["intercept"], saved["t"]
    for epoch in range(manager.start_epoch(), 12):
        order = np.random.permutation(200)
        model.partial_fit(data[order], labels[order])
        manager.add_progress("accuracy", model.score(data, labels))
        manager.add_progress("weight", model.coef_[0, 0])
        manager.add_progress("epochs", epoch)
        manager.save_progress({"coef": model.coef_, "intercept": model.intercept_, "t": model.t_})
        time.sleep(0.15)

manager.hyparam_search(run)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(STUDY.replace("PYTHON", sys.executable))


def series(output: str) -> dict[str, list[str]]:
    """All values of all trials, to the last bit."""
    from stoker.manager.progress import read

    found = {}
    for trial in ("Lr_0.1", "Lr_0.01"):
        for name, one in read(f"{output}/{trial}", "train").items():
            found[f"{trial} {name}"] = [value.hex() for value in one.values]
    return found


def interrupt(how: str) -> None:
    """Run until both trials have a checkpoint and a bit more, and end it in the middle of something."""
    with subprocess.Popen([STOKER, "run"], stdout=subprocess.DEVNULL, start_new_session=True) as running:
        until = time.monotonic() + 40
        while len({path.parent for path in Path("output").glob("*/checkpoints/*[1-9].state")}) < 2:
            assert time.monotonic() < until, "no checkpoints appeared"
            assert running.poll() is None, "it was too quick to be interrupted"
            time.sleep(0.02)
        if how == "stop":
            running.send_signal(signal.SIGINT)
        else:
            os.killpg(running.pid, signal.SIGKILL)


@pytest.mark.parametrize("library", ["torch", "sklearn"])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_interrupted_study_reports_the_same_numbers(library: str, how: str) -> None:
    need(library)
    Path("train.py").write_text(TORCH if library == "torch" else SKLEARN)
    straight = stoker("run", "-o", "straight")
    assert straight.returncode == 0, straight.stdout
    interrupt(how)
    assert stoker("run").returncode == 0
    assert series("output") == series("straight")
    assert len(series("output")["Lr_0.1 accuracy"]) == 12
    assert len(list(Path("output").glob("*/progress.*"))) > 2, "nothing was interrupted"
    shown = [
        json.loads(stoker("status", where, "--all", "--json").stdout)["trials"]
        for where in ("output", "straight")
    ]
    assert [trial["metrics"] for trial in shown[0]] == [trial["metrics"] for trial in shown[1]]
    best = max(float.fromhex(value) for value in series("output")["Lr_0.1 accuracy"])
    assert shown[0][0]["metrics"]["accuracy"] == best


def test_forced_trials_start_afresh() -> None:
    need("torch")
    Path("train.py").write_text(TORCH.replace("time.sleep(0.15)", "pass"))
    assert stoker("run").returncode == 0
    before = series("output")
    assert stoker("run", "-f").returncode == 0
    assert series("output") == before
    first = json.loads(Path("output/Lr_0.1/progress.train.2-1.jsonl").read_text().split("\n")[0])
    assert (first["attempt"], first["after"]) == ([2, 1], None)


def test_an_exception_is_recorded() -> None:
    Path("train.py").write_text(
        "from stoker import Manager\n"
        "def run(manager, params_path, best_params_path):\n"
        "    manager.add_progress('loss', 2)\n"
        "    raise RuntimeError('out of luck')\n"
        "Manager.create_manager().hyparam_search(run)\n"
    )
    ran = stoker("run")
    assert ran.returncode == 1
    assert "RuntimeError: out of luck" in ran.stdout
    told = json.loads(Path("output/Lr_0.1/error.train.1-1.json").read_text())
    assert (told["error"], told["message"]) == ("RuntimeError", "out of luck")
    assert (told["hyparams"], told["progress"]) == ({"lr": 0.1}, {"loss": 2.0})
    assert "line 4, in run" in told["traceback"]
