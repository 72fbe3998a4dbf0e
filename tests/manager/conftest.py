from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from stoker.manager.manager import Manager
from stoker.manager.stopping import signals
from stoker.manager.trial import Trial
from tests.manager.making import Make


@pytest.fixture(autouse=True)
def _nobody_listens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A manager listens to signals: afterwards nobody does."""
    for name in ("RANK", "STOKER_DIRECTORY", "STOKER_STAGE", "STOKER_SAVE_EVERY"):
        monkeypatch.delenv(name, raising=False)
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGTERM, before[0])
    signal.signal(signal.SIGCHLD, before[1])
    signals.asked = 0.0


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Manager] = []

    def make(trial: Trial, save_every: int | str = 1, allow_pickle: bool = False) -> Manager:
        made.append(Manager(trial, save_every, allow_pickle))
        return made[-1]

    yield make
    for manager in made:
        manager._close()
