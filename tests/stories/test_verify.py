"""A person checks that a trial which is interrupted goes on exactly where it was."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.store.needs import need
from tests.stories.command import STOKER, stoker
from tests.stories.studies import Here, refusal, until, write

TORCH = """\
import argparse, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from stoker import Manager

parser = argparse.ArgumentParser()
parser.add_argument("--forget")
forget = parser.parse_args().forget
manager = Manager.create_manager()
torch.set_num_threads(1)
if forget != "seed":
    torch.manual_seed(1)
points = torch.randn(48, 4)
labels = (points.sum(1) > 0).float()
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)
if forget == "scheduler":  # a StepLR that begins anew at the right epoch makes no difference
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
things = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
data = TensorDataset(points, labels)
if forget == "generator":
    loader = DataLoader(data, batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(2))
else:
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2 if forget == "nothing" else 0)
manager.track(**{name: thing for name, thing in things.items() if name != forget})
for epoch in manager.epochs(8) if forget != "epochs" else range(8):
    for x, y in loader:
        loss = nn.functional.binary_cross_entropy_with_logits(model(x)[:, 0], y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scheduler.step()
    manager.add_progress("loss", loss)
    if forget == "epochs":
        manager.save_progress()
    time.sleep(0.05)
"""

FORGOTTEN = ["nothing", "model", "optimizer", "scheduler", "generator", "seed", "epochs"]
STUDY = f"template: python train.py --forget {{forget}}\n---\nforget: [{', '.join(FORGOTTEN)}]\n"

PLAIN = """\
import random, sys, time
from stoker import Manager

manager = Manager.create_manager()
random.seed(manager.get_hyparams()["seed"])
weights = {"sum": 0.0}
manager.track(model=weights)
START
for epoch in manager.epochs(6):
    weights["sum"] += random.random()
    manager.add_progress("sum", weights["sum"])
    time.sleep(0.1)
"""
"""A script that needs no torch, and so is quick."""


def study(start: str = "", script: str = PLAIN) -> None:
    Path("train.py").write_text(script.replace("START", start), encoding="utf-8")
    write("template: python train.py\n---\nseed: [1, 2]\n")


# With torch

CAUSES = {
    "model": "the model starts afresh after resuming: manager.track(model=...)",
    "optimizer": "the optimizer starts afresh after resuming (torch.optim.Adam at train.py:17): "
    "manager.track(optimizer=...)",
    "scheduler": "the scheduler starts afresh after resuming (torch.optim.lr_scheduler.StepLR at "
    "train.py:18): manager.track(scheduler=...)",
    "generator": "the order of batches differs after resuming: torch.Generator at train.py:24 is not "
    "tracked; track the sampler or its generator: manager.track(generator=...)",
    "epochs": "epochs begin again after resuming, and are recorded twice: for epoch in manager.epochs(n), "
    "or range(manager.start_epoch(), n)",
}


def test_what_a_training_script_forgets(workplace: Path) -> None:
    """One test, as torch is imported once for all of it."""
    told = _verify_with_torch()
    code, out, err = told["nothing"]
    same = r"verified: 2 series, 16 values, the same bit for bit after [1-4] interruptions?\n"
    assert code == 0, out + err
    assert re.fullmatch(same, out)
    for forgotten, cause in CAUSES.items():
        code, out, err = told[forgotten]
        lines = out.splitlines()
        assert code == 1, f"{forgotten}: {out}{err}"
        assert lines[0].startswith("loss parts at step "), forgotten
        assert lines[0].endswith("after resuming"), forgotten
        assert lines[-1] == f"likely cause: {cause}"
    code, out, err = told["seed"]
    assert code == 1, err
    assert "loss parts at step 0: " in out
    assert "two straight runs differ already: seed it" in out


def _verify_with_torch() -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors, by what the script forgets."""
    need("torch")
    study(script=TORCH)
    write(STUDY)
    asked = [[number, 4 if word == "nothing" else 1, 3] for number, word in enumerate(FORGOTTEN, 1)]
    helper = Path(__file__).parent.parent / "verify" / "forking.py"
    done = subprocess.run(
        [sys.executable, helper, json.dumps(asked)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(FORGOTTEN, map(json.loads, done.stdout.splitlines()), strict=True))


# As a person runs it


def test_the_command(workplace: Path) -> None:
    study()
    done = stoker("verify", "--kills", "2", "--seed", "1", "--trial", "Seed_2")
    assert (done.returncode, done.stdout) == (
        0,
        "verified: 2 series, 12 values, the same bit for bit after 2 interruptions\n",
    ), done.stderr
    shown = done.stderr.splitlines()
    assert shown[0] == "trial 2 Seed_2"
    assert shown[1].startswith("train, straight: ")
    assert shown[2].startswith("interruption 1 of 2: killed after ")
    assert shown[3].startswith("interruption 2 of 2: stopped politely after ")
    assert shown[4].startswith("train, resumed: ")
    assert not Path("output").exists()


def test_a_script_that_cannot_be_resumed(workplace: Path) -> None:
    study("if manager.is_resumed: raise ValueError('cannot go on')")
    done = stoker("verify", "--kills", "1", "--seed", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "  | ValueError: cannot go on\n" in done.stderr
    assert done.stderr.endswith("train fails when it is resumed after interruption 1: exit code 1\n")


def test_a_random_number_generator_of_its_own(workplace: Path) -> None:
    study("random = random.Random(3)")
    done = stoker("verify", "--kills", "1", "--seed", "1")
    assert done.returncode == 1
    assert "likely cause: " in done.stdout
    assert "random.Random at train.py:8 is not tracked" in done.stdout


def test_a_series_of_times(workplace: Path) -> None:
    study("manager.add_progress('start', time.time())")
    done = stoker("verify", "--kills", "1", "--seed", "1")
    assert done.returncode == 1
    assert "start parts at step 0" in done.stdout
    assert "--ignore SERIES" in done.stdout
    done = stoker("verify", "--kills", "1", "--seed", "1", "--ignore", "start")
    assert (done.returncode, done.stdout[:28]) == (0, "verified: 2 series, 12 value"), done.stdout


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            "print('hello')",
            "train: no progress is recorded, so there is nothing to compare; let the script use",
        ),
        ("import sys; print('oh'); sys.exit(3)", "train fails without any interruption: exit code 3"),
        (
            "from stoker import Manager\nManager.create_manager().add_progress('a', 1)",
            "no checkpoint is saved",
        ),
        (
            "from stoker import Manager\nm = Manager.create_manager()\nm.add_progress('a', 1)\nm.finished()",
            "train is too quick to be interrupted: ",
        ),
    ],
    ids=["no manager", "fails", "no checkpoint", "too quick"],
)
def test_what_cannot_be_verified(workplace: Path, script: str, said: str) -> None:
    study(script=script)
    done = stoker("verify")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert said in done.stderr


def test_stages_before_it(workplace: Path) -> None:
    study("weights['sum'] += float(open(manager.directory + '/data').read())")
    write(
        "template:\n  prepare: 'echo 5 > {_output}/data'\n  train: python train.py\n  test: 'false'\n"
        "---\nseed: 1\n"
    )
    done = stoker("verify", "--kills", "1", "--seed", "1")
    assert done.returncode == 1  # it is added again at each start, as is the model's last value
    assert "prepare, straight: " in done.stderr
    assert "test" not in done.stderr
    assert "part" in done.stdout


def test_nothing_is_left_of_it(workplace: Path) -> None:
    study("open('pid', 'w').write(str(__import__('os').getpid()))")
    process = subprocess.Popen([STOKER, "verify"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: Path("pid").exists() and Path("pid").read_text() != "")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) == 130
    pid = int(Path("pid").read_text())
    assert not Path(f"/proc/{pid}").exists()
    assert not Path("output").exists()


def test_words_that_cannot_be_meant(workplace: Path, here: Here) -> None:
    study()
    assert "--kills 0: expected a number above 0" in refusal(here, "verify", "--kills", "0")
    assert "--trial 3: there is no such trial" in refusal(here, "verify", "--trial", "3")
    assert "part of several names: Seed_1 and Seed_2" in refusal(here, "verify", "--trial", "Seed")
    assert "did you mean 'Seed_2'" in refusal(here, "verify", "--trial", "sed_2")
    assert "--stage trian: the trial has no such stage" in refusal(here, "verify", "--stage", "trian")
    assert not Path("output").exists()
