"""What the driver says, read through NVML's bindings and through nvidia-smi; both faked at their edge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stoker.agent.gpus import Gpu, Inventory, Utilisation, parse_gpus

MIB = 1024 * 1024
A = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
B = "GPU-11111111-2222-3333-4444-555555555555"
FAKE = Path(__file__).parent / "fake_nvml"


# nvidia-smi's words

TWO = f"""\
0, {A}, NVIDIA A100-SXM4-40GB, 40960, 3
1, {B}, NVIDIA A100-SXM4-40GB, 40960, 31415
"""
TREE = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: {A})
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {B})
"""
A100 = "NVIDIA A100-SXM4-40GB"


def test_two_gpus_and_their_processes() -> None:
    apps = f"{B}, 4242\n{B}, 4243\n"
    assert parse_gpus(TWO, apps, TREE) == (
        Gpu(0, A, A100, 40960 * MIB, 3 * MIB),
        Gpu(1, B, A100, 40960 * MIB, 31415 * MIB, (4242, 4243)),
    )


@pytest.mark.parametrize(
    "words", ["[N/A]", "[Not Supported]", "[Insufficient Permissions]", "[Unknown Error]", "N/A", ""]
)
def test_words_instead_of_numbers_are_unknown(words: str) -> None:
    listed = f"0, {A}, Tesla K80, {words}, {words}\n"
    assert parse_gpus(listed, f"{A}, {words}\n[N/A], 12\n", "") == (Gpu(0, A, "Tesla K80", None, None),)


def test_a_uuid_that_is_not_told() -> None:
    assert parse_gpus("0, [N/A], Tegra, [N/A], [N/A]\n", "", "") == (Gpu(0, "", "Tegra", None, None),)


def test_a_name_with_commas() -> None:
    assert parse_gpus(f"0, {A}, Brand, Model, 8192, 0\n", "", "")[0].name == "Brand, Model"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost, reboot, to, recover\n",
        "index, uuid, name, memory.total [MiB], memory.used [MiB]\n",
        "\x00,,,,\n",
    ],
)
def test_remarks_are_no_gpus(text: str) -> None:
    assert parse_gpus(text, text, text) == ()


def test_a_remark_between_gpus() -> None:
    lost = "Unable to determine the device handle for GPU1: 0000:81:00.0: Unknown Error"
    assert [gpu.index for gpu in parse_gpus(f"0, {A}, x, 1, 1\n{lost}\n2, {B}, x, 1, 1\n", "", "")] == [0, 2]


MIG = f"""\
GPU 0: NVIDIA A100-SXM4-40GB (UUID: {A})
  MIG 3g.20gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.5gb      Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA A100-SXM4-40GB (UUID: {B})
"""


def test_instances_of_a_divided_gpu() -> None:
    listed = TWO.replace("40960, 3\n", "[N/A], [Insufficient Permissions]\n")
    apps = "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d, 77\n"
    assert parse_gpus(listed, apps, MIG) == (
        Gpu(0, "MIG-c7384736-a75d-5afc-978f-d2f1294409fd", f"{A100} MIG 3g.20gb", None, None, (), 0),
        Gpu(0, "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d", f"{A100} MIG 1g.5gb", None, None, (77,), 1),
        Gpu(1, B, A100, 40960 * MIB, 31415 * MIB),
    )


def test_instances_of_older_drivers() -> None:
    tree = f"GPU 0: A100-SXM4-40GB (UUID: {A})\n  MIG 1c.3g.20gb Device 0: (UUID: MIG-{A}/1/0)\n"
    (gpu,) = parse_gpus(f"0, {A}, A100-SXM4-40GB, 40536, 0\n", f"{A}, 5\n", tree)
    assert (gpu.uuid, gpu.instance, gpu.processes) == (f"MIG-{A}/1/0", 0, (5,))


# The bindings, and nvidia-smi as a program


def _run(code: str, path: Path, nvml: Any = None, bindings: Path = FAKE) -> Any:
    """The value of an expression in a process of its own, which finds these bindings and programs."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path\n"
    program += f"from stoker.agent.gpus import *; from stoker.agent.gpus import read; print(repr({code}))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(bindings)],
        env={**os.environ, "PATH": str(path), "FAKE_NVML": json.dumps(nvml or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return eval(done.stdout, {c.__name__: c for c in (Gpu, Inventory, Utilisation)})  # noqa: S307


@pytest.fixture
def no_bindings(tmp_path: Path) -> Path:
    """A directory in which the bindings cannot be imported, whatever is installed."""
    place = tmp_path / "no bindings"
    place.mkdir()
    (place / "pynvml.py").write_text("raise ImportError\n")
    return place


def _smi(place: Path, body: str) -> Path:
    """A directory with an nvidia-smi."""
    place.mkdir()
    script = place / "nvidia-smi"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return place


def _gpu(uuid: str, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "name": "X", "total": 24 << 30, "used": 4 << 20, "pids": [], **more}


def test_nvml_tells_gpus_and_what_the_driver_keeps_is_not_in_use(tmp_path: Path) -> None:
    nvml = {"gpus": [_gpu(A), _gpu(B, used=9 << 30, pids=[7, 8])]}
    assert _run("read()", tmp_path, nvml) == Inventory(
        (Gpu(0, A, "X", 24 << 30, 4 << 20), Gpu(1, B, "X", 24 << 30, 9 << 30, (7, 8)))
    )


def test_nvml_tells_instances_and_leaves_out_what_is_missing(tmp_path: Path) -> None:
    part = {"uuid": "MIG-1", "name": "X MIG 1g.5gb", "total": 5 << 30, "used": 0, "pids": [3]}
    nvml = {"gpus": [_gpu(A, instances=[None, part]), {"lost": True}, {}]}
    assert _run("read()", tmp_path, nvml) == Inventory(
        (Gpu(0, "MIG-1", "X MIG 1g.5gb", 5 << 30, 0, (3,), 1), Gpu(2, "", "", None, None)),
        "GPU 1: GPU is lost",
    )


def test_samples(tmp_path: Path) -> None:
    part = {"uuid": "MIG-1", "total": 5 << 30, "used": 1 << 30}
    nvml = {"gpus": [_gpu(A, percent=83, instances=[part]), {"uuid": B}]}
    code = f"[utilisation(uuid) for uuid in ({A!r}, 'MIG-1', {B!r}, 'GPU-other')]"
    assert _run(code, tmp_path, nvml) == [
        Utilisation(83, 4 << 20),
        Utilisation(None, 1 << 30),  # the driver does not measure instances
        None,
        None,
    ]


def test_no_driver_is_no_gpu_and_the_reason_is_told(tmp_path: Path, no_bindings: Path) -> None:
    nvml = {"init": "NVML Shared Library Not Found"}
    reason = "NVML: NVML Shared Library Not Found; there is no nvidia-smi"
    read = "[read(Path('/nonexistent')), utilisation('GPU-1')]"
    assert _run(read, tmp_path, nvml) == [Inventory((), reason), None]
    reason = "the package nvidia-ml-py is not installed; there is no nvidia-smi"
    assert _run(read, tmp_path, bindings=no_bindings) == [Inventory((), reason), None]


def test_a_broken_driver_is_not_the_same_as_no_gpu(tmp_path: Path, no_bindings: Path) -> None:
    devices = tmp_path / "dev"
    devices.mkdir()
    (devices / "nvidia0").touch()
    path = _smi(
        tmp_path / "bin", "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    )
    found = _run(f"read(Path({str(devices)!r}))", path, bindings=no_bindings)
    assert found.gpus is None
    assert "version mismatch" in found.reason


def test_nvidia_smi_where_the_bindings_are_missing(tmp_path: Path, no_bindings: Path) -> None:
    body = f"""case "$*" in
      "--query-gpu=index,uuid,name,memory.total,memory.used --format=csv,noheader,nounits") echo "{TWO}";;
      "--query-compute-apps=gpu_uuid,pid --format=csv,noheader,nounits") echo "{A}, 4242";;
      -L) echo "{TREE}";;
      *) exit 2
    esac"""
    found = _run("read()", _smi(tmp_path / "bin", body), bindings=no_bindings)
    assert found == Inventory(parse_gpus(TWO, f"{A}, 4242", TREE))


def test_nvidia_smi_that_finds_nothing(tmp_path: Path, no_bindings: Path) -> None:
    path = _smi(tmp_path / "bin", "echo 'No devices were found'; exit 6")
    reason = "nvidia-smi lists no GPU: No devices were found"
    assert _run("read()", path, bindings=no_bindings) == Inventory((), reason)


def test_the_fake_knows_no_call_that_nvml_does_not() -> None:
    real = pytest.importorskip("pynvml")
    names = re.findall(r"^def (nvml\w+)", (FAKE / "pynvml.py").read_text(), re.MULTILINE)
    assert len(names) > 10
    assert [name for name in names if not hasattr(real, name)] == []
