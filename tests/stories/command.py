"""The `stoker` command, run as a person runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

STOKER = str(Path(sys.executable).parent / "stoker")


def stoker(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it in the current directory, with a few more environment variables."""
    env = {**os.environ, "COLUMNS": "100", **environment}
    return subprocess.run([STOKER, *words], capture_output=True, text=True, env=env, timeout=60, check=False)
