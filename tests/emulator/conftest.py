"""What tests of the emulator share.

    def test_something(cloud: Emulator) -> None:
        client = InstancesClient(client_options={"api_endpoint": cloud.url}, credentials=ANONYMOUS)

`cloud` is an emulator in which things take next to no time. When the test is over, every exchange must have
been what Google's discovery documents describe, and no process or mount may be left.

A test that starts emulators of its own takes `watch`, and starts them with `Emulator(observe=watch)`: the
exchanges are looked at in the same way. What it breaks on purpose, it takes out of `watch.problems`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from stoker.emulator.cloud import Emulator
from stoker.emulator.machines.interface import Mode
from stoker.emulator.pace import FAST
from tests.emulator import traces
from tests.emulator.discovery import Watch

MODE = Mode(os.environ["STOKER_TEST_MODE"]) if "STOKER_TEST_MODE" in os.environ else None
"""What VMs are: the best that is possible here, if nothing else is said."""


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Sees all exchanges; they must be right."""
    found = Watch()
    yield found
    assert found.problems == []


@pytest.fixture
def cloud(watch: Watch) -> Iterator[Emulator]:
    """A cloud in which everything passes fast, and of which nothing stays."""
    before = traces.descendants()
    with Emulator(pace=FAST, observe=watch, mode=MODE) as found:
        yield found
    assert not found.directory.exists()
    assert traces.of_directory(found.directory) == []
    assert traces.descendants() - before == set()
