"""What Google's guest agent does in a VM: runs the startup and the shutdown script of its metadata.

Its lines on the console are those of the agent, for whoever looks for them there.
"""

# Paths are text here: the processes of a VM start faster without pathlib.
# ruff: noqa: PTH102, PTH106, PTH108

from __future__ import annotations

import os
import signal
import socket
import time

from stoker.emulator.machines.spec import Spec

_SLOWEST = 5.0  # seconds between two tries to reach the metadata server
_SHELL = "/bin/bash"
_FLAVOR = {"Metadata-Flavor": "Google"}


def run(kind: str, spec: Spec) -> None:
    """Run the scripts of a kind, startup or shutdown. Returns when they have ended.

    SIGTERM is blocked. So it stays when all are told to end: a script's last words are heard, and it does not
    die of a broken pipe. But no startup script begins after that.
    """
    _say(spec, f"Starting {kind} scripts (version emulated).")
    has_any = False
    for key in (f"{kind}-script", f"{kind}-script-url"):
        found = _attribute(spec, key, kind == "startup")
        if found is None:
            continue
        has_any = True
        _say(spec, f"Found {key} in metadata.")
        try:
            _run_one(spec, key, _download(spec, found.decode().strip()) if key.endswith("-url") else found)
        except (OSError, ValueError) as error:
            _say(spec, f'Script "{key}" failed with error: {error}')
    _say(spec, f"Finished running {kind} scripts." if has_any else f"No {kind} scripts to run.")


def _run_one(spec: Spec, key: str, script: bytes) -> None:
    folder = f"{spec.environment.get('TMPDIR', '/tmp')}/metadata-scripts{os.getpid()}"  # noqa: S108
    os.mkdir(folder, 0o755)
    path = f"{folder}/{key}"
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o755)) as file:
        file.write(script)
    hear, tell = os.pipe()
    child = os.fork()
    if not child:
        _become(spec, path, tell)
    os.close(tell)
    if _is_told_to_end() and key.startswith("startup"):  # it may have been too young to be told
        os.kill(child, signal.SIGTERM)
    with os.fdopen(hear, "rb") as lines:  # until nobody can write any more, as the real one does
        for line in lines:
            _say(spec, f"{key}: {line.decode(errors='replace').rstrip()}")
    _, status = os.waitpid(child, 0)
    os.unlink(path)
    os.rmdir(folder)
    code = os.waitstatus_to_exitcode(status)
    if code == 0:
        _say(spec, f"{key} exit status 0")
    else:
        how = f"exit status {code}" if code > 0 else f"signal: {-code}"
        _say(spec, f'Script "{key}" failed with error: {how}')


def _become(spec: Spec, path: str, tell: int) -> None:
    try:
        os.setsid()
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.dup2(tell, 1)
        os.dup2(tell, 2)
        os.execve(_SHELL, [_SHELL, "-c", f"'{_quoted(path)}'"], spec.environment)  # noqa: S606
    except OSError as error:
        os.write(2, f"{error}\n".encode())
    finally:
        os._exit(127)


def _quoted(path: str) -> str:
    return path.replace("'", "'\\''")


def _say(spec: Spec, line: str) -> None:
    when = time.strftime("%b %e %H:%M:%S")
    os.write(1, f"{when} {spec.name} google_metadata_script_runner[{os.getpid()}]: {line}\n".encode())


def _is_told_to_end() -> bool:
    return signal.SIGTERM in signal.sigpending()


def _attribute(spec: Spec, key: str, may_end: bool) -> bytes | None:
    """None if there is no such key. Tries until the metadata server answers."""
    pause = 0.05
    while not (may_end and _is_told_to_end()):
        try:
            path = f"/computeMetadata/v1/instance/attributes/{key}"
            status, body = _get(spec.metadata, path, _FLAVOR)
            if status in (200, 404):
                return body if status == 200 else None
        except (OSError, ValueError):
            pass
        time.sleep(pause)
        pause = min(pause * 1.5, _SLOWEST)
    return None


def _download(spec: Spec, url: str) -> bytes:
    """A script that lies in a bucket, or on a web server that can be reached."""
    scheme, _, rest = url.partition("://")
    host, _, path = rest.partition("/")
    if scheme == "gs":
        status, body = _get(spec.api, f"/{rest}", _authority(spec))
    elif host in ("storage.googleapis.com", "storage.cloud.google.com"):
        status, body = _get(spec.api, f"/{path}", _authority(spec))
    elif scheme == "http":
        name, _, port = host.partition(":")
        status, body = _get((name, int(port or 80)), f"/{path}", {"Host": host})
    else:
        raise ValueError("only gs:// and http:// can be reached from here")
    if status != 200:
        raise ValueError(f"{url} was answered with {status}")
    return body


def _authority(spec: Spec) -> dict[str, str]:
    """The token of the VM's service account, if it has one."""
    import json

    path = "/computeMetadata/v1/instance/service-accounts/default/token"
    status, body = _get(spec.metadata, path, _FLAVOR)
    return {"Authorization": f"Bearer {json.loads(body)['access_token']}"} if status == 200 else {}


def _get(address: tuple[str, int], path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """One request. HTTP/1.0, so that the end of the answer is the end of the connection."""
    headers = {"Host": f"{address[0]}:{address[1]}", **headers}
    head = f"GET {path} HTTP/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with socket.create_connection(address, timeout=30) as connection:
        connection.sendall(head.encode() + b"\r\n")
        with connection.makefile("rb") as answer:
            found = answer.read()
    start, _, body = found.partition(b"\r\n\r\n")
    words = start.split(None, 2)
    if len(words) < 2:
        raise ValueError("an empty answer")
    return int(words[1]), body
