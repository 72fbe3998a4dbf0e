"""A cluster for all tests of a worker, and a study on it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurm.cluster import NODES, Cluster, is_here
from tests.stories.command import STOKER


@pytest.fixture(scope="session")
def running_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if not is_here():
        reason = "not installed: slurmctld, or this is not root"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    cluster = Cluster(tmp_path_factory.mktemp("slurm") / "cluster")
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(running_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster where nothing runs, all nodes are up, and nobody remembers the jobs of other tests."""
    yield running_cluster
    running_cluster.ask("scancel", "-u", "root")
    for name in NODES:
        running_cluster.start_node(name)
    wait_until(lambda: running_cluster.idle_nodes() == len(NODES), 60)


class Study:
    """A study in the current directory, on a cluster."""

    def __init__(self, place: Path, cluster: Cluster) -> None:
        self.place, self.cluster = place, cluster
        self.variables: dict[str, str] = {}

    def write(self, text: str) -> None:
        Path("params.yaml").write_text(text, encoding="utf-8")

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Stoker, as on a login node."""
        environment = {**self.cluster.environment, "COLUMNS": "100", **self.variables}
        return subprocess.run(
            [STOKER, *words], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    def done(self) -> int:
        return len(list(Path("output/.stoker/trials").rglob("*.result")))

    def runs(self) -> list[str]:
        """What trials wrote into the file `runs`, each a line."""
        path = Path("runs")
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def jobs(self) -> dict[str, str]:
        """The jobs that wait or run, and where they are."""
        listed = self.cluster.ask("squeue", "-h", "-r", "-o", "%i %T %N").splitlines()
        return {words[0]: " ".join(words[1:]) for line in listed if (words := line.split())}


@pytest.fixture
def study(workplace: Path, cluster: Cluster) -> Study:
    return Study(workplace, cluster)


def wait_until(is_so: Callable[[], bool], most: float = 30.0) -> None:
    until = time.monotonic() + most
    while not is_so():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.1)
