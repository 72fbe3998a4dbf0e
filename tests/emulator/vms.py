"""VMs for tests: machines with a metadata server, without the cloud around them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stoker.emulator.http import Reply, Request, Server
from stoker.emulator.machines.choose import make_machine, works
from stoker.emulator.machines.interface import Guest, Mode
from stoker.emulator.metadata import MetadataServer

LONG = 20.0
"""Seconds after which a test gives up."""
EMAIL = "1-compute@developer.gserviceaccount.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
ROOT = Path(__file__).parents[2]


def permitted() -> list[Mode]:
    """The modes that this machine permits this user."""
    return [mode for mode in Mode if (mode is not Mode.NAMESPACES or os.geteuid() == 0) and works(mode)]


class Vm:
    """One VM, and its metadata. `word` is in the command line of whatever should be found again outside."""

    def __init__(self, directory: Path, mode: Mode, server: Server, name: str = "vm-1", **guest: Any) -> None:
        self.word = f"9{uuid.uuid4().int % 10**15}"
        self.attributes: dict[str, str] = {}
        self.guest_attributes: dict[str, dict[str, str]] = {}
        self.api: Callable[[Request], Reply] = lambda request: Reply(404)
        self.ended = threading.Event()
        self.metadata = MetadataServer(self.look, self.token, self.set_guest_attribute)
        environment = {"STOKER_WORD": self.word}
        self.guest = Guest(name, directory, environment, 8123, **guest)
        self.machine = make_machine(self.guest, mode)
        self._server, self._sockets = server, list[socket.socket]()

    def boot(self, startup: str = "", shutdown: str = "") -> None:
        """Scripts get a shebang, and know python and `see PATH`, which reads metadata."""
        scripts = {"startup-script": startup, "shutdown-script": shutdown}
        self.attributes |= {key: _SCRIPT + text for key, text in scripts.items() if text}
        self.leave()
        self.ended.clear()
        for name, one in self.machine.prepare().items():
            self._sockets.append(one)
            self._server.listen(one, self.metadata.app if name == "metadata" else self._ask_api)
        self.machine.boot(self.ended.set)

    def _ask_api(self, request: Request) -> Reply:
        return self.api(request)

    def says(self, line: str, times: int = 1) -> str:
        """Wait for something on the console, so many times; returns all of it."""
        until = time.monotonic() + LONG
        while (text := self.console()).count(line) < times:
            if time.monotonic() > until:
                raise AssertionError(f"no {line!r} on the console:\n{text}")
            time.sleep(0.01)
        return text

    def console(self) -> str:
        """All that it has said."""
        return self.machine.serial.read_text(encoding="utf-8") if self.machine.serial.exists() else ""

    def ends(self) -> str:
        """Wait for its end; returns what it said."""
        assert self.ended.wait(LONG), self.console()
        return self.console()

    def leave(self) -> None:
        """Its sockets are closed."""
        while self._sockets:
            self._server.leave(self._sockets.pop())

    def remove(self) -> None:
        """Nothing stays."""
        self.machine.remove()
        self.metadata.disconnect()
        self.leave()

    def look(self) -> dict[str, Any]:
        """The tree."""
        account = {"email": EMAIL, "scopes": [SCOPE], "aliases": ["default"]}
        instance = {
            "name": self.guest.name,
            "zone": "projects/7/zones/us-central1-a",
            "id": 4711,
            "preempted": "FALSE",
            "maintenance-event": "NONE",
            "tags": ["web"],
            "attributes": dict(self.attributes),
            "guest-attributes": self.guest_attributes,
            "service-accounts": {"default": account, EMAIL: account | {"aliases": []}},
            "network-interfaces": [{"ip": "10.0.0.2", "access-configs": []}],
        }
        project = {"project-id": "home", "numeric-project-id": 7, "attributes": {"team": "us"}}
        return {"instance": instance, "project": project}

    def token(self, account: str, scopes: Any) -> dict[str, Any]:
        """One that says for whom it is."""
        return {"access_token": f"for {account} {len(scopes)}", "expires_in": 3599, "token_type": "Bearer"}

    def set_guest_attribute(self, name: str, value: str | None) -> None:
        """As compute does it."""
        namespace, key = name.split("/")
        if value is None:
            self.guest_attributes.get(namespace, {}).pop(key, None)
        else:
            self.guest_attributes.setdefault(namespace, {})[key] = value


_SCRIPT = f"""#!/bin/bash
python='{sys.executable}' host="${{GCE_METADATA_HOST:-metadata.google.internal}}"
see() {{ curl -sfL -H 'Metadata-Flavor: Google' "http://$host/computeMetadata/v1/$1"; }}
"""


def is_running(word: str) -> bool:
    """Whether any process of this machine has a word in its command line."""
    for entry in [one / "cmdline" for one in Path("/proc").glob("[0-9]*")]:
        try:
            if word.encode() in entry.read_bytes():
                return True
        except OSError:
            continue
    return False


def eventually(is_so: Callable[[], bool]) -> bool:
    """Whether it becomes so in time."""
    until = time.monotonic() + LONG
    while not is_so():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def emulator_with(
    directory: Path, mode: Mode, startup: str, before: list[str] | None = None, prints: bool = False
) -> Any:
    """Another process with a VM, which may be killed. Its first line is the VM's word; then the console."""
    told = json.dumps({"directory": str(directory), "mode": mode.value, "startup": startup, "prints": prints})
    words = [*(before or []), sys.executable, "-m", "tests.emulator.vms", told]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    vm = Vm(Path(asked["directory"]), Mode(asked["mode"]), Server())
    vm.boot(asked["startup"])
    vm.says("startup-script: ready")
    print(vm.word, flush=True)  # noqa: T201
    vm.ended.wait()
    if asked["prints"]:
        print(vm.console())  # noqa: T201
