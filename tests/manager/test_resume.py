"""Killed at any point and started again, a training ends as if nothing had been."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.manager.running import Forker, Trial, forker

TORCH = """\
import os
import random

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

from stoker import EarlyStopping, Manager

torch.manual_seed(3), random.seed(3), numpy.random.seed(3)


class Numbers(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, place):
        noise = torch.randn(4) + random.random()
        return torch.full((4,), place / 24) + noise, torch.tensor([place / 24])


manager = Manager.create_manager()
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=manager.get_hyparams()["lr"])
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, epochs=EPOCHS, steps_per_epoch=4)
order = torch.Generator().manual_seed(5)
loader = DataLoader(Numbers(), batch_size=6, shuffle=True, num_workers=2, generator=order)
early = EarlyStopping(patience=1000)
manager.track(model=model, optimizer=optimizer, scheduler=scheduler, order=order, early=early)


def train(x, y):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y) + numpy.random.rand()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss


print("ready", os.environ["STOKER_ATTEMPT"], flush=True)
for epoch in manager.epochs(EPOCHS):
    shift = random.random() + torch.rand(1, generator=order)
    LOOP
    manager.add_progress("lr", scheduler.get_last_lr()[0], step=epoch * 4)
    manager.add_progress("shift", shift)
    early.stop(total)
    manager.add_progress("waited", early.waited)
    for name, value in model.state_dict().items():
        manager.add_progress(name, value.sum())
"""
WHOLE_EPOCHS = """
    total = 0.0
    for x, y in loader:
        loss = train(x + shift, y)
        manager.add_progress("loss", loss)
        total += loss.item()
    manager.add_progress("total", total)
"""
BATCHES = """
    for x, y in manager.batches(loader):
        loss = train(x + shift, y)
        manager.add_progress("loss", loss)
        manager.notes["total"] = manager.notes.get("total", 0.0) + loss.item()
    total = manager.notes.pop("total")
    manager.add_progress("total", total)
    with torch.no_grad():
        for x, y in manager.batches(loader):  # the second loop of an epoch
            manager.add_progress("check", model(x).sum())
"""
SKLEARN = """\
import os

import numpy
from sklearn.linear_model import SGDRegressor

from stoker import Manager

numbers = numpy.random.default_rng(7)
numpy.random.seed(3)
manager = Manager.create_manager()
model = SGDRegressor(random_state=None, shuffle=True)
weights = {}
manager.track(numbers=numbers, weights=weights)
if manager.is_resumed:
    for name, value in weights.items():
        setattr(model, name, value)
print("ready", os.environ["STOKER_ATTEMPT"], flush=True)
for epoch in manager.epochs(EPOCHS):
    for batch in manager.batches(range(6)):
        x = numbers.normal(size=(4, 3))
        model.partial_fit(x, x.sum(axis=1))
        weights.update({name: getattr(model, name) for name in ("coef_", "intercept_", "t_", "n_iter_")})
        weights["n_features_in_"] = 3
        manager.add_progress("coefficient", model.coef_[0])
    manager.add_progress("intercept", model.intercept_)
"""
PLAIN = """\
import os
import random
import time

from stoker import Manager

random.seed(3)
own = random.Random(4)
manager = Manager.create_manager()
weights = {"w": 0.5}
manager.track(own=own, weights=weights)
print("ready", os.environ["STOKER_ATTEMPT"], flush=True)
for epoch in manager.epochs(EPOCHS):
    begin = random.random()
    for batch in manager.batches(own.sample(range(100), 6)):
        weights["w"] += begin * random.gauss(0, 1) + own.random() * batch
        manager.add_progress("w", weights["w"])
        time.sleep(0.001)
    manager.add_progress("begin", begin)
"""


class Trials:
    """One that runs straight, and one that is stopped at random points."""

    def __init__(self, forker: Forker, text: str, place: Path) -> None:
        self.forker, self.script = forker, place / "train.py"
        self.script.write_text(text)
        self.straight = Trial(place / "straight", STOKER_SAVE_EVERY=1000)
        self.stopped = Trial(place / "stopped", STOKER_SAVE_EVERY=1)
        self.numbers = random.Random(11)
        assert forker.run(self.script, self.straight) == 0

    def stop(self, most: float, number: signal.Signals = signal.SIGKILL) -> int:
        """Most signals come while it trains, some before."""
        least = -most / 8
        return self.forker.run(self.script, self.stopped, self.numbers.uniform(least, most), number)

    def compare(self) -> None:
        """Let it run to its end, which must be that of the other."""
        assert self.forker.run(self.script, self.stopped) == 0
        assert self.stopped.progress() == self.straight.progress()
        ends = [trial.told("finished.train.json") for trial in (self.stopped, self.straight)]
        assert ends[0]["last"] == ends[1]["last"]
        assert not self.stopped.files(".tmp")

    def attempts_that_trained(self) -> int:
        return len(list(self.stopped.directory.glob("progress.*")))


@pytest.fixture(scope="module")
def with_torch() -> Iterator[Forker]:
    with forker("torch", "torch._dynamo", "torch.utils.data") as started:
        yield started


@pytest.mark.parametrize(("loop", "epochs"), [(WHOLE_EPOCHS, 8), (BATCHES, 5)], ids=["epochs", "batches"])
def test_a_training_that_is_killed_ends_the_same_bit_for_bit(
    with_torch: Forker, tmp_path: Path, loop: str, epochs: int
) -> None:
    text = TORCH.replace("LOOP", loop.strip()).replace("EPOCHS", str(epochs))
    trials = Trials(with_torch, text, tmp_path)
    assert [trials.stop(most=0.25) for _ in range(30)].count(-signal.SIGKILL) > 15
    trials.compare()
    assert trials.attempts_that_trained() > 1


def test_so_does_one_that_is_asked_to_stop_with_all_its_workers(with_torch: Forker, tmp_path: Path) -> None:
    loop = BATCHES.partition("    with torch.no_grad")[0]
    text = TORCH.replace("LOOP", loop.strip()).replace("EPOCHS", "8")
    trials = Trials(with_torch, text, tmp_path)
    trials.stopped.settings["STOKER_SAVE_EVERY"] = "1h"
    codes = [trials.stop(0.15, signal.SIGTERM) for _ in range(6)]
    assert set(codes) <= {0, 75, -signal.SIGTERM}  # without a manager, or after its end, nobody hears it
    assert codes.count(75) > 1
    trials.compare()
    assert trials.attempts_that_trained() > 1


@pytest.mark.parametrize(
    ("text", "modules"), [(SKLEARN, ("sklearn.linear_model",)), (PLAIN, ())], ids=["sklearn", "plain"]
)
def test_without_torch_too(tmp_path: Path, text: str, modules: tuple[str, ...]) -> None:
    with forker(*modules) as started:
        trials = Trials(started, text.replace("EPOCHS", "30"), tmp_path)
        assert [trials.stop(most=0.1) for _ in range(12)].count(-signal.SIGKILL) > 6
        trials.compare()
