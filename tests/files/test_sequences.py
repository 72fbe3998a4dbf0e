"""Random lives of a trial: edits, saves, failing stores, crashes, other machines, attempts that come back."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from stoker.agent.mirror import Mirror, prune
from stoker.store.directory import DirectoryStore
from stoker.store.interface import StoreError
from stoker.store.memory import MemoryStore
from stoker.study.files import keys, newest, restore, trial_prefix
from tests.files.trees import TRIAL, Watched, attempt, tree

SEEDS = int(os.environ.get("STOKER_TEST_SEEDS", "60"))
NAMES = ["a", "b", "sub/a", "sub/deep/b", "sub", "log", "sub/log", "ü n"]
PART = 50


@dataclass
class Machine:
    """One attempt, where it runs, and what may come back of it."""

    number: int
    directory: Path
    mirror: Mirror
    saved: bool = False
    trees: list[dict[str, object]] = field(default_factory=list)
    """At the last save that was answered, and at later ones that may have landed all the same."""


class Life:
    def __init__(self, seed: int, place: Path) -> None:
        self.dice = Random(seed)
        self.place = place
        self.store = Watched(DirectoryStore(place / "store") if seed % 3 == 0 else MemoryStore())
        self.machines: list[Machine] = []
        self.trouble = 0.0
        self.seed, self.step = seed, 0

    def run(self, steps: int) -> None:
        self.begin()
        self.store.before = self.store.after = self.weather
        for self.step in range(steps):
            machine = self.machines[-1]
            if len(self.machines) > 1 and self.dice.random() < 0.2:
                machine = self.machines[-2]  # given up, but does not know
            act = self.dice.choice([self.edit, self.edit, self.save, self.save, self.lose])
            act(machine)
            self.check_newest()

    def weather(self, method: str, key: str) -> None:
        """By what is asked, as several things are asked at once in an order that nobody knows."""
        if self.trouble and Random(f"{self.seed} {self.step} {method} {key}").random() < self.trouble:
            raise StoreError("away")

    def begin(self) -> None:
        """An attempt on a machine where this trial was or was not before."""
        number = len(self.machines) + 1
        directory = self.place / f"machine {self.dice.randrange(3)} {self.dice.randrange(2) or number}"
        if any(machine.directory == directory for machine in self.machines[-2:]):
            directory = self.place / f"machine {number}"
        base = restore(self.store, attempt(number), directory)
        directory.mkdir(exist_ok=True)
        assert tree(directory) in self.possible()
        mirror = Mirror(self.store, attempt(number), directory, base=base, part=PART)
        self.machines.append(Machine(number, directory, mirror))

    def possible(self) -> list[dict[str, object]]:
        """What the newest manifest may say."""
        found: list[dict[str, object]] = []
        for machine in reversed(self.machines):
            found += machine.trees
            if machine.saved:
                return found
        return [*found, {}]

    def save(self, machine: Machine) -> None:
        self.trouble = self.dice.choice([0.0, 0.0, 0.03, 0.3])
        now = tree(machine.directory)
        try:
            machine.mirror.save(thorough=self.dice.random() < 0.3)
        except StoreError:
            machine.trees.append(now)
        else:
            machine.saved, machine.trees = True, [now]
        finally:
            self.trouble = 0.0

    def lose(self, machine: Machine) -> None:
        if self.dice.random() < 0.5:
            self.begin()

    def check_newest(self) -> None:
        """Whatever happens, the newest manifest has all that it needs."""
        manifest = newest(self.store, TRIAL)
        there = {entry.key for entry in self.store.list(trial_prefix(TRIAL))}
        assert manifest is None or keys(manifest) <= there

    def edit(self, machine: Machine) -> None:
        path = machine.directory / self.dice.choice(NAMES)
        act = self.dice.choice([self.write, self.write, self.append, self.change, self.remove, self.link])
        try:
            act(path)
        except OSError:  # something else stands there
            self.remove(machine.directory / path.relative_to(machine.directory).parts[0])

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink():
            path.unlink()
        path.write_bytes(self.dice.randbytes(self.dice.choice([0, 1, 10, 130, 260])))
        path.chmod(self.dice.choice([0o644, 0o755]))

    def append(self, path: Path) -> None:
        path = path.with_name("log")
        with path.open("ab") as file:
            file.write(self.dice.randbytes(self.dice.randrange(80)))

    def change(self, path: Path) -> None:
        """In place, mostly at the same size, and often within the same tick of the clock. Not a log: when it
        grows as well, only a thorough save is sure to notice."""
        if path.name == "log":
            return
        with path.open("r+b") as file:
            file.seek(self.dice.randrange(path.stat().st_size + 1))
            file.write(b"!")

    def remove(self, path: Path) -> None:
        if path.is_symlink() or not path.is_dir():
            path.unlink(missing_ok=True)
        else:
            shutil.rmtree(path)

    def link(self, path: Path) -> None:
        if path.name == "log":
            return
        path.symlink_to(self.dice.choice(["a", "..", "nowhere", str(self.place)]))


@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_was_saved_comes_back(seed: int, tmp_path: Path) -> None:
    life = Life(seed, tmp_path)
    life.run(steps=40)
    life.begin()
    before = tree(life.machines[-1].directory)
    prune(life.store, TRIAL)
    (tmp_path / "last").mkdir()
    restore(life.store, attempt(len(life.machines) + 1), tmp_path / "last")
    assert tree(tmp_path / "last") == before
