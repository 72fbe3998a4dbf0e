"""NVML without a driver: what it answers is in the variable FAKE_NVML, as JSON.

{"init": error, "gpus": [{"uuid", "name", "total", "used", "pids", "percent", "instances": [...], "lost"}]}
What a GPU does not mention it does not support.
"""

# ruff: noqa: N802
from __future__ import annotations

import json
import os
from types import SimpleNamespace
from typing import Any

nvmlMemory_v2 = 0x02000028  # noqa: N816
_state = json.loads(os.environ["FAKE_NVML"])
_started = False


class NVMLError(Exception):
    pass


def _told(handle: dict[str, Any], key: str) -> Any:
    if key not in handle:
        raise NVMLError("Not Supported")
    return handle[key]


def nvmlInit() -> None:
    global _started  # noqa: PLW0603
    if _state.get("init"):
        raise NVMLError(_state["init"])
    _started = True


def nvmlDeviceGetCount() -> int:
    if not _started:
        raise NVMLError("Uninitialized")
    return len(_state["gpus"])


def nvmlDeviceGetHandleByIndex(index: int) -> dict[str, Any]:
    handle: dict[str, Any] = _state["gpus"][index]
    if handle.get("lost"):
        raise NVMLError("GPU is lost")
    return handle


def nvmlDeviceGetHandleByUUID(uuid: str) -> dict[str, Any]:
    for gpu in _state["gpus"]:
        for handle in (gpu, *filter(None, gpu.get("instances", ()))):
            if handle.get("uuid") == uuid:
                return dict(handle)
    raise NVMLError("Not Found")


def nvmlDeviceGetUUID(handle: dict[str, Any]) -> str:
    return str(_told(handle, "uuid"))


def nvmlDeviceGetName(handle: dict[str, Any]) -> bytes:
    return str(_told(handle, "name")).encode()  # as old bindings do


def nvmlDeviceGetMemoryInfo(handle: dict[str, Any], version: int | None = None) -> SimpleNamespace:
    reserved = 0 if version == nvmlMemory_v2 else 600 << 20
    return SimpleNamespace(total=_told(handle, "total"), used=_told(handle, "used") + reserved)


def nvmlDeviceGetComputeRunningProcesses(handle: dict[str, Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(pid=pid) for pid in _told(handle, "pids")]


def nvmlDeviceGetUtilizationRates(handle: dict[str, Any]) -> SimpleNamespace:
    return SimpleNamespace(gpu=_told(handle, "percent"), memory=0)


def nvmlDeviceGetMigMode(handle: dict[str, Any]) -> list[int]:
    return [int(bool(_told(handle, "instances")))] * 2


def nvmlDeviceGetMaxMigDeviceCount(handle: dict[str, Any]) -> int:
    return 7


def nvmlDeviceGetMigDeviceHandleByIndex(handle: dict[str, Any], index: int) -> dict[str, Any]:
    instances = handle["instances"]
    if index >= len(instances) or instances[index] is None:
        raise NVMLError("Not Found")
    return dict(instances[index])
