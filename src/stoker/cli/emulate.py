"""Start a Google Cloud at home, for Google's own clients, `gcloud` and Stoker, and tell what happens in it.

It answers on this machine only. VMs are processes here, and can be preempted; buckets and secrets are files.
It prints the variables that turn clients to it, and runs until Ctrl-C, which ends all of its VMs. With a
directory, it goes on later where it was stopped; without, everything is gone.

Files of faults, what is in it and how faithful that is: docs/emulator.md.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.core.errors import StokerError, UsageError
from stoker.spec.problems import printable

if TYPE_CHECKING:
    from stoker.emulator.cloud import Emulator
    from stoker.emulator.faults import Fault
    from stoker.emulator.http import Reply, Request
    from stoker.emulator.machines.interface import Mode

USAGE = ""
EXAMPLES = """\
  stoker emulate                           a cloud that is gone after Ctrl-C
  stoker emulate --directory cloud         one that goes on later
  stoker emulate --preempt 6 --speed 10    each VM is preempted six times an hour, ten times faster
  stoker emulate --faults faults.yaml      with what goes wrong in this file
"""

_MODES = ("namespaces", "user", "processes")
_CAN = {
    "namespaces": "VMs have a disk, processes and a network of their own",
    "user namespaces": "VMs have a disk, processes and a network of their own",
    "processes": "VMs are plain processes, which see this machine: what `setup` installs is not run",
}
_PORT = "port"  # where it was, in its directory
_GLANCE = 0.2  # seconds between two looks at the VMs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker emulate`."""
    parser.add_argument("--directory", metavar="DIR", help="where it keeps what has to survive Ctrl-C")
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="where it answers (any that is free)"
    )
    parser.add_argument(
        "--project", metavar="NAME", default="home-project", help="its project (home-project)"
    )
    parser.add_argument(
        "--faults", metavar="FILE", help="what goes wrong: a list in YAML or JSON, or a trace as CSV"
    )
    parser.add_argument(
        "--preempt", metavar="RATE", type=float, help="preemptions of each spot VM in an hour"
    )
    parser.add_argument(
        "--speed", metavar="X", type=float, default=1.0, help="boots, notices … pass so much faster (1)"
    )
    parser.add_argument("--mode", choices=_MODES, help="what VMs are (the best that is permitted here)")
    parser.add_argument("--verbose", action="store_true", help="tell every request, too")


def run(options: argparse.Namespace) -> int:
    """Be a cloud until Ctrl-C."""
    faults = _faults(options)
    if not 0 <= options.port <= 65535:
        raise UsageError(f"--port {options.port}: expected a number up to 65535")
    if not 0 < options.speed < float("inf"):
        raise UsageError(f"--speed {options.speed:g}: expected a number above 0")
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    with _started(options, faults) as cloud:
        _introduce(cloud, options.directory)
        _follow(cloud, over)
    again = (
        f"; `stoker emulate --directory {shlex.quote(options.directory)}` goes on"
        if options.directory
        else ""
    )
    _say("END", f"all VMs are ended{again}")
    return 130


def _faults(options: argparse.Namespace) -> list[Fault]:
    from stoker.emulator.fault_file import faults_from
    from stoker.emulator.faults import Fault

    found = faults_from(Path(options.faults)) if options.faults is not None else []
    if options.preempt is not None:
        if not 0 <= options.preempt < float("inf"):
            raise UsageError(f"--preempt {options.preempt:g}: expected a number from 0 on")
        found.append(Fault("preempt", rate=options.preempt))
    return found


def _started(options: argparse.Namespace, faults: list[Fault]) -> Emulator:
    from stoker.emulator.cloud import Emulator
    from stoker.emulator.pace import Pace

    try:
        return Emulator(
            options.directory,
            project=options.project,
            port=options.port or _port_before(options.directory),
            pace=Pace(speed=options.speed),
            faults=faults,
            mode=_mode(options.mode),
            observe=_tell_request if options.verbose else None,
        )
    except OSError as error:
        if error.filename is not None:
            raise
        raise StokerError(f"port {options.port}: {error.strerror}; --port 0 takes one that is free") from None


def _port_before(directory: str | None) -> int:
    """The port of the last time, if it is free: variables in other terminals stay right."""
    from stoker.emulator.http import listen_on_loopback

    try:
        port = int(Path(directory or "", _PORT).read_text(encoding="utf-8")) if directory else 0
        listen_on_loopback(port).close()
    except (OSError, ValueError, OverflowError):
        return 0
    return port


def _mode(name: str | None) -> Mode | None:
    from stoker.emulator.machines.interface import Mode

    return None if name is None else {"user": Mode.USER}.get(name) or Mode(name)


def _introduce(cloud: Emulator, directory: str | None) -> None:
    mode = cloud.compute.mode.value
    if directory:
        (cloud.directory / _PORT).write_text(f"{cloud.port}\n", encoding="utf-8")
    lines = ["# For other terminals, where gcloud, Stoker and Python's storage client then use this cloud:"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in cloud.environment().items()]
    kept = f"kept in {cloud.directory}" if directory else "gone after Ctrl-C"
    lines += ["", f"# {mode}: {_CAN[mode]}", f"# project {cloud.project}; {kept}", *_faulty(cloud), ""]
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def _faulty(cloud: Emulator) -> list[str]:
    count = len(cloud.faults.all())
    return [f"# {count} fault{'s' * (count > 1)} on request: GET /emulator/faults"] if count else []


def _follow(cloud: Emulator, over: threading.Event) -> None:
    from stoker.emulator.news import look, news

    compute = cloud.compute
    before = look(compute.instances(), compute.operations())
    while not over.wait(_GLANCE):
        after = look(compute.instances(), compute.operations())
        for line in news(before, after):
            _say("VM", line)
        before = after


def _tell_request(request: Request, reply: Reply) -> None:
    _say("CALL", f"{request.method} {request.path} {reply.status or 'cut'}")


def _say(what: str, text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {what:<5} {printable(text)}\n")
    sys.stdout.flush()
