"""Two stores behind one directory, each of which lists it as it was some seconds ago: NFS and its caches.

As a program (`python -m tests.store.test_stale_views OUTPUT DELAY LEASE`) this is an agent with such a view.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock

import pytest

from stoker.store.directory import DirectoryStore
from stoker.store.interface import Entry
from tests.store.contract import StoreContract, keys, versions

DELAY = 5.0


class StaleStore(DirectoryStore):
    """Once it has listed a directory, it shows that again for `delay` seconds, and besides only what it wrote
    itself. Reads and creates go to the directory, as they do on NFS."""

    def __init__(self, root: Path, delay: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(root)
        self._delay, self._clock = delay, clock
        self._seen: dict[str, tuple[float, dict[str, Entry]]] = {}
        self._own: set[str] = set()
        self._lock = Lock()

    def create(self, key: str, data: bytes) -> bool:
        created = super().create(key, data)
        if created:
            self._own.add(key)
        return created

    def write(self, key: str, data: bytes) -> None:
        super().write(key, data)
        self._own.add(key)

    def upload(self, key: str, path: Path) -> None:
        super().upload(key, path)
        self._own.add(key)

    def list(self, prefix: str, after: str = "") -> Iterator[Entry]:
        now = super().list(prefix)  # which first tells a wrong prefix
        return self._shown(prefix, after, now)

    def _shown(self, prefix: str, after: str, now: Iterator[Entry]) -> Iterator[Entry]:
        with self._lock:
            there = {entry.key: entry for entry in now}
            when, before = self._seen.get(prefix, (-self._delay, {}))
            if self._clock() - when >= self._delay:
                before = there
                self._seen[prefix] = self._clock(), there
        for key, entry in there.items():
            if key > after and (key in before or key in self._own):
                yield entry if key in self._own else before[key]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


class TestStale(StoreContract):
    """To whoever uses it alone, such a store is like any other."""

    races = 100

    @pytest.fixture
    def store(self, root: Path) -> StaleStore:
        return StaleStore(root, DELAY)


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def views(root: Path, clock: Time) -> tuple[StaleStore, StaleStore]:
    """Two views that have both just seen an empty store."""
    both = StaleStore(root, DELAY, clock), StaleStore(root, DELAY, clock)
    assert [keys(view) for view in both] == [[], []]
    return both


def test_listings_are_late_and_then_right(views: tuple[StaleStore, StaleStore], clock: Time) -> None:
    one, other = views
    one.create("a", b"1")
    one.write("beat", b"1")
    assert keys(one) == ["a", "beat"]
    assert keys(other) == []
    clock.now = DELAY
    assert keys(other) == ["a", "beat"]
    before = versions(other)
    one.write("beat", b"22")
    assert versions(other) == before
    assert versions(one)["beat"] != before["beat"]
    clock.now = 2 * DELAY
    assert versions(other)["beat"] == versions(one)["beat"]


def test_creates_and_reads_are_not(views: tuple[StaleStore, StaleStore]) -> None:
    one, other = views
    assert one.create("a", b"1")
    assert not other.create("a", b"2")
    assert other.read("a") == b"1"
    other.write("beat", b"new")
    assert one.read("beat") == b"new"
    assert keys(one, after="a") == []
    assert keys(other, after="a") == ["beat"]


def test_whoever_creates_at_once_has_one_winner(views: tuple[StaleStore, StaleStore]) -> None:
    def race(view: StaleStore) -> list[bool]:
        return [view.create(f"race/{key:03}", str(id(view)).encode()) for key in range(300)]

    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(race, views)
    for key, won in enumerate(zip(ours, theirs, strict=True)):
        assert sum(won) == 1
        winner = views[won.index(True)]
        assert {view.read(f"race/{key:03}") for view in views} == {str(id(winner)).encode()}


# Agents


def start(output: Path, delay: float, lease: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.test_stale_views", str(output), str(delay), str(lease)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the guardian needs Linux")
@pytest.mark.parametrize(
    ("command", "trials", "delay", "lease"),
    [("true", 60, 2.0, 20.0), ("sleep 4", 4, 5.0, 3.0)],
    ids=["late", "later than the lease"],
)
def test_no_trial_runs_twice(tmp_path: Path, command: str, trials: int, delay: float, lease: float) -> None:
    from tests.local.test_agents import prepare, records, results

    numbers = ", ".join(map(str, range(trials)))
    template = f"echo $$ >> {tmp_path}/trace.{{n}}; {command}"
    prepare(tmp_path, f"template: '{template}'\n---\nn: [{numbers}]\n")
    agents = [start(tmp_path, delay, lease) for _ in range(2)]
    try:
        assert [agent.wait(timeout=60) for agent in agents] == [0, 0]
    finally:
        for agent in agents:
            with suppress(ProcessLookupError):
                agent.terminate()
    assert results(tmp_path) == dict.fromkeys(range(1, trials + 1), "finished")
    traces = {path.name: len(path.read_text().split()) for path in tmp_path.glob("trace.*")}
    assert traces == {f"trace.{number}": 1 for number in range(trials)}
    kinds = Counter(key.rpartition(".")[2] for key in records(tmp_path))
    assert kinds == {"claim": trials, "result": trials, "finished": trials}
    holders = Counter(path.read_text().partition('"agent"')[2][:40] for path in tmp_path.rglob("*.claim"))
    assert len(holders) == 2, "one of them did it all"


def main(output: str, delay: str, lease: str) -> None:
    from stoker.agent import guardian

    guard = guardian.enter()

    from stoker.agent.keeper import Keeper
    from stoker.agent.local import run_agent
    from stoker.agent.world import Settings
    from stoker.study.place import RECORDS, open_place

    view = StaleStore(Path(output) / RECORDS, float(delay))
    place = replace(open_place(output), store=view, is_shared=True)
    settings = Settings(lease=float(lease), beat=0.25, back_off=0.1)
    run_agent(place, Keeper(("",), place.url), settings, guard)


if __name__ == "__main__":
    main(*sys.argv[1:])
