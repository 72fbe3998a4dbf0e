"""Where machines are and of what kind: regions and zones, machine types, GPUs, public images. Plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stoker.emulator.errors import ApiError, invalid

REGIONS = {
    "asia-east1": "abc",
    "europe-west1": "bcd",
    "europe-west4": "abc",
    "us-central1": "abcf",
    "us-east1": "bcd",
    "us-west1": "abc",
}
"""Each with the letters of its zones."""
ZONES = tuple(f"{region}-{letter}" for region, letters in REGIONS.items() for letter in letters)

GPUS = {  # where each kind is
    "nvidia-tesla-t4": {
        "asia-east1": "ac",
        "europe-west1": "bcd",
        "europe-west4": "abc",
        "us-central1": "abcf",
        "us-east1": "cd",
        "us-west1": "ab",
    },
    "nvidia-tesla-v100": {
        "asia-east1": "c",
        "europe-west4": "abc",
        "us-central1": "abcf",
        "us-east1": "c",
        "us-west1": "ab",
    },
    "nvidia-tesla-p100": {
        "asia-east1": "ac",
        "europe-west1": "bd",
        "europe-west4": "a",
        "us-central1": "cf",
        "us-east1": "bc",
        "us-west1": "ab",
    },
    "nvidia-tesla-p4": {"europe-west4": "bc", "us-central1": "ac"},
    "nvidia-l4": {
        "asia-east1": "abc",
        "europe-west1": "bc",
        "europe-west4": "abc",
        "us-central1": "abc",
        "us-east1": "bcd",
        "us-west1": "abc",
    },
    "nvidia-tesla-a100": {"europe-west4": "ab", "us-central1": "abcf", "us-east1": "b", "us-west1": "b"},
    "nvidia-a100-80gb": {"europe-west4": "a", "us-central1": "ac"},
    "nvidia-h100-80gb": {"europe-west4": "bc", "us-central1": "ac", "us-west1": "a"},
}
GPU_NAMES = {
    "nvidia-tesla-t4": "NVIDIA T4",
    "nvidia-tesla-v100": "NVIDIA V100",
    "nvidia-tesla-p100": "NVIDIA Tesla P100",
    "nvidia-tesla-p4": "NVIDIA Tesla P4",
    "nvidia-l4": "NVIDIA L4",
    "nvidia-tesla-a100": "NVIDIA A100 40GB",
    "nvidia-a100-80gb": "NVIDIA A100 80GB",
    "nvidia-h100-80gb": "NVIDIA H100 80GB",
}
ATTACHED = {"nvidia-tesla-t4": 4, "nvidia-tesla-v100": 8, "nvidia-tesla-p100": 4, "nvidia-tesla-p4": 4}
"""GPUs that go with any type of the N1 family, and how many at most; the others have types of their own."""

QUOTA_NAMES = {
    gpu: gpu.removeprefix("nvidia-").removeprefix("tesla-").replace("-", "_").upper() for gpu in GPUS
} | {"nvidia-h100-80gb": "H100"}
"""What quotas call a GPU."""


def gpus_at(zone: str) -> list[str]:
    """The GPUs that a zone has."""
    region, _, letter = zone.rpartition("-")
    return [gpu for gpu, places in GPUS.items() if letter in places.get(region, "")]


@dataclass(frozen=True)
class MachineType:
    """A kind of machine."""

    name: str
    cpus: int
    memory: int  # MB
    gpu: str = ""  # what it has built in
    gpus: int = 0
    is_shared: bool = False

    @property
    def family(self) -> str:
        """Such as n1."""
        return "n1" if self.name.startswith("custom-") else self.name.partition("-")[0]

    @property
    def description(self) -> str:
        """As Google's console says it."""
        words = f"{self.cpus} vCPUs, {self.memory / 1024:g} GB RAM"
        return f"{words}, {self.gpus} {GPU_NAMES[self.gpu]} GPUs" if self.gpu else words


_SIZES = {  # family and class → GB of a vCPU, numbers of vCPUs
    "e2-standard": (4.0, (2, 4, 8, 16, 32)),
    "e2-highmem": (8.0, (2, 4, 8, 16)),
    "e2-highcpu": (1.0, (2, 4, 8, 16, 32)),
    "n1-standard": (3.75, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n1-highmem": (6.5, (2, 4, 8, 16, 32, 64, 96)),
    "n1-highcpu": (0.9, (2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4.0, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highmem": (8.0, (2, 4, 8, 16, 32, 48, 64, 80)),
    "n2-highcpu": (1.0, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2d-standard": (4.0, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)),
    "n2d-highmem": (8.0, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n2d-highcpu": (1.0, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)),
    "c2-standard": (4.0, (4, 8, 16, 30, 60)),
    "c3-standard": (4.0, (4, 8, 22, 44, 88, 176)),
    "c3-highcpu": (2.0, (4, 8, 22, 44, 88, 176)),
    "t2d-standard": (4.0, (1, 2, 4, 8, 16, 32, 48, 60)),
}
_WITH_GPUS = (
    *(
        MachineType(f"g2-standard-{cpus}", cpus, cpus * 4096, "nvidia-l4", gpus)
        for cpus, gpus in ((4, 1), (8, 1), (12, 1), (16, 1), (24, 2), (32, 1), (48, 4), (96, 8))
    ),
    *(
        MachineType(f"a2-highgpu-{gpus}g", 12 * gpus, 85 * 1024 * gpus, "nvidia-tesla-a100", gpus)
        for gpus in (1, 2, 4, 8)
    ),
    MachineType("a2-megagpu-16g", 96, 1360 * 1024, "nvidia-tesla-a100", 16),
    *(
        MachineType(f"a2-ultragpu-{gpus}g", 12 * gpus, 170 * 1024 * gpus, "nvidia-a100-80gb", gpus)
        for gpus in (1, 2, 4, 8)
    ),
    MachineType("a3-highgpu-8g", 208, 1872 * 1024, "nvidia-h100-80gb", 8),
)
_SHARED = (
    MachineType("e2-micro", 2, 1024, is_shared=True),
    MachineType("e2-small", 2, 2048, is_shared=True),
    MachineType("e2-medium", 2, 4096, is_shared=True),
    MachineType("f1-micro", 1, 614, is_shared=True),
    MachineType("g1-small", 1, 1740, is_shared=True),
)
TYPES = {
    one.name: one
    for one in (
        *_SHARED,
        *(
            MachineType(f"{kind}-{cpus}", cpus, int(cpus * memory * 1024))
            for kind, (memory, sizes) in _SIZES.items()
            for cpus in sizes
        ),
        *_WITH_GPUS,
    )
}


def types_at(zone: str) -> Iterator[MachineType]:
    """The types that a zone has, but for custom ones."""
    gpus = gpus_at(zone)
    return (one for one in TYPES.values() if not one.gpu or one.gpu in gpus)


# Custom types

_CUSTOM = re.compile(r"(?:(n1|n2|n2d|e2)-)?custom-(\d+)-(\d+)(-ext)?")


@dataclass(frozen=True)
class _Rules:
    cpus: frozenset[int]
    least: float  # GB of a vCPU
    most: float
    extended: int  # GB in all, with extended memory; 0: it has none


_RULES = {
    "n1": _Rules(frozenset([1, *range(2, 97, 2)]), 0.9, 6.5, 624),
    "n2": _Rules(frozenset([*range(2, 33, 2), *range(36, 81, 4), *range(96, 129, 16)]), 0.5, 8.0, 864),
    "n2d": _Rules(frozenset([2, 4, 8, *range(16, 97, 16)]), 0.5, 8.0, 768),
    "e2": _Rules(frozenset(range(2, 33, 2)), 0.5, 8.0, 0),
}


def custom(name: str) -> MachineType | None:
    """`custom-4-8192`, `n2-custom-8-81920-ext`; None if it is no such name. Raises ApiError if it is bad."""
    match = _CUSTOM.fullmatch(name)
    if match is None:
        return None
    family, cpus, memory, is_extended = match[1] or "n1", int(match[2]), int(match[3]), bool(match[4])
    rules = _RULES[family]
    if cpus not in rules.cpus:
        raise _bad(name, f"Number of CPUs is not allowed for {family.upper()}: {cpus}.")
    if memory % 256:
        raise _bad(name, f"Memory size for a custom type must be a multiple of 256MiB; {memory}MiB is not.")
    if is_extended and not rules.extended:
        raise _bad(name, f"Extended memory is not supported for {family.upper()}.")
    most = rules.extended if is_extended else min(cpus * rules.most, 128 if family == "e2" else 10**6)
    if not cpus * rules.least * 1024 <= memory + 255 or memory > most * 1024:
        raise _bad(
            name, f"Memory should be between {cpus * rules.least:g}GB and {most:g}GB for {cpus} vCPUs."
        )
    return MachineType(name, cpus, memory)


def _bad(name: str, why: str) -> ApiError:
    return invalid(f"Invalid value for field 'resource.machineType': '{name}'. {why}")


def machine_type(zone: str, name: str) -> MachineType | None:
    """The type of that name, if the zone has it."""
    made = custom(name)
    if made is not None:
        return made
    found = TYPES.get(name)
    return found if found is not None and (not found.gpu or found.gpu in gpus_at(zone)) else None


# Images that everybody has

PUBLIC_IMAGES = {  # project → name → family, GB
    "debian-cloud": {
        "debian-11-bullseye-v20260915": ("debian-11", 10),
        "debian-12-bookworm-v20260915": ("debian-12", 10),
        "debian-13-trixie-v20260915": ("debian-13", 10),
    },
    "ubuntu-os-cloud": {
        "ubuntu-2204-jammy-v20260910": ("ubuntu-2204-lts", 10),
        "ubuntu-2404-noble-amd64-v20260911": ("ubuntu-2404-lts-amd64", 10),
        "ubuntu-minimal-2404-noble-amd64-v20260911": ("ubuntu-minimal-2404-lts-amd64", 10),
    },
    "deeplearning-platform-release": {
        "common-cpu-v20260901-debian-11": ("common-cpu", 50),
        "common-cu128-ubuntu-2204-nvidia-570-v20260901": ("common-cu128-ubuntu-2204-nvidia-570", 50),
        "pytorch-2-7-cu128-ubuntu-2204-nvidia-570-v20260901": (
            "pytorch-2-7-cu128-ubuntu-2204-nvidia-570",
            50,
        ),
        "pytorch-latest-gpu-v20260901": ("pytorch-latest-gpu", 50),
    },
    "cos-cloud": {"cos-stable-121-18867-199-4": ("cos-stable", 10)},
    "rocky-linux-cloud": {"rocky-linux-9-v20260910": ("rocky-linux-9", 20)},
}
DISK_TYPES = {  # name → GB at most, and by default
    "pd-standard": (65536, 500),
    "pd-balanced": (65536, 100),
    "pd-ssd": (65536, 100),
    "pd-extreme": (65536, 1000),
    "hyperdisk-balanced": (65536, 100),
    "local-ssd": (375, 375),
}
