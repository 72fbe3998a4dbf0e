"""Hypothesis profiles, and a temporary directory that tests the quoting of everything that uses it."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in a job in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "stoker", deadline=None, max_examples=int(os.environ.get("STOKER_TEST_EXAMPLES", "150")), print_blob=True
)
settings.load_profile("stoker")


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory whose name has a space and both quotes."""
    directory = tmp_path / 'it\'s a "place"'
    directory.mkdir()
    monkeypatch.chdir(directory)
    for variable in ("STOKER_FILE", "STOKER_OUTPUT", "STOKER_DEBUG"):
        monkeypatch.delenv(variable, raising=False)
    return directory
