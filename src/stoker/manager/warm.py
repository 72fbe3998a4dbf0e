"""Many trials in one process: the script's side of `warm`.

An agent that wants it gives the address of a socket, in STOKER_WARM. When its trial is over the script tells
the outcome there, and waits for the next trial instead of ending. The agent's side is in agent/preload.py.
"""

from __future__ import annotations

import array
import gc
import json
import os
import socket
import sys
import traceback

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_GROWTH, _MORE = (
    2,
    1 << 30,
)  # a process that has more than so many times its first memory, and so much more, ends


def serve(run_one: Callable[[], None]) -> None:
    """Call `run_one` for this trial, and again for every other one that the agent has for this process.

    Before each further call `os.environ` and `sys.argv` are those of its trial, and output goes to its log. A
    trial that fails is told as failed, and the next one goes on. Whoever is asked to stop (a `SystemExit` of
    another class, such as the manager's `Stopped`) or has grown too much ends with its trial, as it would
    without all this; so does everything where no agent listens.
    """
    channel = _connect(os.environ.pop("STOKER_WARM", ""))
    if channel is None:
        run_one()
        return
    with channel:
        first = 0
        while True:
            code = _outcome(run_one)
            first = first or _memory()
            request = None if _has_grown(first) else _ask(channel, code)
            if request is None:
                break
            _become(request)
    if code:
        raise SystemExit(code)


def _connect(address: str) -> socket.socket | None:
    """An address that begins with @ is in Linux's own space of names, and no file."""
    if not address.startswith("@"):
        return None
    channel = socket.socket(socket.AF_UNIX)
    try:
        channel.connect("\0" + address[1:])
    except OSError:
        channel.close()
        return None
    return channel


def _outcome(run_one: Callable[[], None]) -> int:
    """The exit code that a process would have after this call."""
    try:
        run_one()
    except SystemExit as error:
        if type(error) is not SystemExit:
            raise
        if error.code is None or isinstance(error.code, int):
            return (error.code or 0) & 0xFF
        sys.stderr.write(f"{error.code}\n")
        return 1
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def _has_grown(first: int) -> bool:
    most = _GROWTH * first + _MORE
    if _memory() > most:
        gc.collect()
    return _memory() > most


def _memory() -> int:
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _ask(channel: socket.socket, code: int) -> dict[str, Any] | None:
    """Tell the outcome, and wait for the next trial; None if there is none."""
    sys.stdout.flush()
    sys.stderr.flush()
    size, line, log = array.array("i").itemsize, b"", array.array("i")
    try:
        channel.sendall(json.dumps({"code": code}).encode() + b"\n")
        while not line.endswith(b"\n"):
            part, passed, _, _ = channel.recvmsg(1 << 16, socket.CMSG_SPACE(size), socket.MSG_CMSG_CLOEXEC)
            if not part:
                return None
            line += part
            for _, _, data in passed:
                log.frombytes(data[:size])
    except OSError:  # the agent is gone
        return None
    request: dict[str, Any] = json.loads(line)
    return {**request, "log": log[0]}


def _become(request: dict[str, Any]) -> None:
    """Be a process of the next trial."""
    os.environ.update(request["environment"])
    sys.argv[1:] = request["arguments"]
    for stream in (1, 2):
        os.dup2(request["log"], stream)
    os.close(request["log"])
