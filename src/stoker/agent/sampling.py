"""What stages use while they run: looked at every few seconds, and kept as one line of figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker.agent.gpus import Utilisation
from stoker.agent.processes import Usage

EVERY = 5.0
"""Seconds between two looks."""


@dataclass
class Figures:
    """What was seen of one stage so far."""

    memory: int = 0  # bytes: the most that all its processes had together
    processes: int = 0
    gpu_memory: int = 0
    gpu_percent: float = 0.0  # the sum of the looks
    gpu_looks: int = 0

    def add(self, usage: Usage, gpus: list[Utilisation]) -> None:
        """One more look."""
        self.memory = max(self.memory, usage.memory)
        self.processes = max(self.processes, usage.processes)
        percents = [gpu.percent for gpu in gpus if gpu.percent is not None]
        if percents:
            self.gpu_percent += sum(percents) / len(percents)
            self.gpu_looks += 1
        self.gpu_memory = max(self.gpu_memory, sum(gpu.memory or 0 for gpu in gpus))

    def told(self) -> dict[str, Any]:
        """As it stands in a record; nothing that was not seen."""
        told: dict[str, Any] = {"memory": self.memory, "processes": self.processes} if self.processes else {}
        if self.gpu_looks:
            told["gpu"] = round(self.gpu_percent / self.gpu_looks, 1)
        if self.gpu_memory:
            told["gpu_memory"] = self.gpu_memory
        return told


def look_at_gpus(identities: tuple[str, ...], ask: Callable[[str], Utilisation | None]) -> list[Utilisation]:
    """How busy the GPUs of a slot are; nothing for those that cannot be asked."""
    uuids = {identity.partition("#")[0] for identity in identities}
    found = (ask(uuid) for uuid in sorted(uuids) if uuid.startswith(("GPU-", "MIG-")))
    return [one for one in found if one is not None]
