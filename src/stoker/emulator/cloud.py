"""All of the cloud together: one address, behind which each API answers for its part of the paths."""

from __future__ import annotations

import fcntl
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from stoker.core.errors import StokerError
from stoker.emulator.control import Control
from stoker.emulator.errors import ApiError, bug
from stoker.emulator.faults import Fault, Faults
from stoker.emulator.http import Reply, Request, Server, json_reply, listen_on_loopback, too_large
from stoker.emulator.identity import Identity
from stoker.emulator.machines.interface import Mode
from stoker.emulator.machines.removal import remove_tree
from stoker.emulator.pace import Pace
from stoker.emulator.service import Service, Surroundings, caller_of, variables

PROJECT = "home-project"
_INSIDE = ("metadata.google.internal", "169.254.169.254")
_SAVE_AFTER = 0.5  # seconds: several changes are written at once
_SAVE_LIVE = 5.0  # seconds after which it is written in any case while VMs run: the meter has changed
_TRIES = 10

Observer = Callable[[Request, Reply], None]


class Emulator:
    """A cloud that runs until it is closed. With a directory, it goes on where it was closed."""

    def __init__(  # noqa: PLR0913  (all but the first by name, and none is needed)
        self,
        directory: str | Path | None = None,
        *,
        project: str = PROJECT,
        port: int = 0,
        pace: Pace | None = None,
        faults: Iterable[Fault] = (),
        seed: int | None = None,
        mode: Mode | None = None,
        observe: Observer | None = None,
    ) -> None:
        from stoker.emulator.compute.service import Compute
        from stoker.emulator.secrets import Secrets
        from stoker.emulator.storage.service import Storage

        with ExitStack() as undo:  # if one of these fails, nothing is left behind
            self._listening = undo.enter_context(listen_on_loopback(port))
            self._scratch = None if directory else tempfile.TemporaryDirectory(prefix="stoker-emulator-")
            scratch = undo.enter_context(self._scratch) if self._scratch else ""
            self.directory = Path(directory or scratch).absolute()
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._own = undo.enter_context(_owned(self.directory))
            kept = self._kept()
            undo.pop_all()
        self.project, self._observe = project, observe
        self.identity = Identity(project, kept.get("policy", {}))
        self.faults = Faults(random.Random(seed))  # noqa: S311  (no secret)
        self._server = Server()
        self._changed, self._is_open, self._is_told = threading.Event(), True, False
        around = Surroundings(
            project,
            self.directory,
            self.identity,
            self.faults,
            pace or Pace(),
            self._server,
            self._changed.set,
            time.monotonic,
            self.answer,
            lambda: self.url,
        )
        self.storage = Storage(around, kept.get("storage", {}), lasts=self._scratch is None)
        self.secrets = Secrets(around, kept.get("secrets", {}))
        self.compute = Compute(around, kept.get("compute", {}), mode)
        self.control = Control(around, self.compute)
        self._services: dict[str, Service] = {
            "compute": self.compute,
            "storage": self.storage,
            "secretmanager": self.secrets,
        }
        for fault in faults:
            self.faults.add(fault, time.monotonic())
        self._server.listen(self._listening, self.answer)
        self._saver = threading.Thread(target=self._save_changes, name="emulator state", daemon=True)
        self._saver.start()

    @property
    def port(self) -> int:
        """Where it answers, on loopback only."""
        return int(self._listening.getsockname()[1])

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def environment(self) -> dict[str, str]:
        """What makes clients outside turn to this cloud, as its owner."""
        return {**variables(self.url, self.project), "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true"}

    def __enter__(self) -> Emulator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all VMs and stop answering; what a directory has to keep is in it."""
        if not self._is_open:
            return
        self.compute.close()
        self._is_open = False
        self._changed.set()
        self._saver.join()
        if self._scratch is None:
            self._is_told = False
            self._try_to_save()  # what changed while it slept
        for service in (self.storage, self.secrets):
            service.close()
        self._server.close()
        self._own.close()
        if self._scratch is not None:
            self._clear(self._scratch)

    def _clear(self, scratch: tempfile.TemporaryDirectory[str]) -> None:
        try:
            remove_tree(scratch.name)
            scratch.cleanup()
        except OSError as error:
            _say(f"{scratch.name} could not be removed: {error}")

    # Requests

    def answer(self, request: Request) -> Reply:
        """Answer one request, of whichever API; faults on request come before and after."""
        if not self._is_known(request.headers.get("host", "")) or "origin" in request.headers:
            error = ApiError(
                421, "badRequest", "this emulator does not answer for that host, nor to browsers"
            )
            return json_reply(error.body(), error.code)
        api = self._api(request.path)
        if request.large is not None and api != "storage":  # nothing else has uploads
            return json_reply(too_large().body(), 413)
        reply = self._faulty(api, request)
        if self._observe is not None:
            self._observe(request, reply)
        return reply

    def _is_known(self, host: str) -> bool:
        name, _, port = host.lower().partition(":")
        if name in ("127.0.0.1", "localhost"):
            return port in (str(self.port), "")
        return name in _INSIDE or name == "googleapis.com" or name.endswith(".googleapis.com")

    def _faulty(self, api: str, request: Request) -> Reply:
        if api == "emulator":
            return self._guarded(self.control.handle, request)
        fault = self.faults.of_request(api, request.method, request.path, time.monotonic())
        if fault is not None and fault.kind == "slow":
            time.sleep(fault.seconds)
        if fault is None or fault.kind in ("slow", "error-after", "drop-after"):
            reply = self._guarded(self._named, request)
            if fault is None or fault.kind == "slow":
                return reply
        if fault.kind.startswith("drop"):
            return Reply(0)
        error = ApiError(fault.status, fault.reason, "The service is currently unavailable.")
        return json_reply(error.body(), error.code)

    def _named(self, request: Request) -> Reply:
        """With the caller's name. Whoever calls from inside a VM without a token is known already."""
        caller = self.identity.caller(request.headers)
        if not caller.account:
            caller = caller_of(request)
        known = replace(request, extra={"caller": caller})
        return self._services[self._api(request.path)].handle(known)

    @staticmethod
    def _guarded(handle: Callable[[Request], Reply], request: Request) -> Reply:
        try:
            return handle(request)
        except ApiError as error:
            return json_reply(error.body(), error.code)
        except Exception as error:  # told as ours, and seen by whoever observes
            return json_reply(bug(error).body(), 500)

    @staticmethod
    def _api(path: str) -> str:
        """Which API a path belongs to. What belongs to none is an object of the XML interface of storage."""
        for start, api in _PATHS:
            if path == start or path.startswith(start + "/"):
                return api
        return "storage"

    # State

    def _kept(self) -> dict[str, Any]:
        path = self.directory / "state.json"
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except ValueError:
            raise StokerError(f"{path}: damaged; remove it to begin with nothing") from None
        return found if isinstance(found, dict) else {}

    def _save_changes(self) -> None:
        while self._is_open:
            lasts = self._scratch is None
            self._changed.wait(_SAVE_LIVE if lasts and self.compute.meter.is_live else None)
            self._changed.clear()
            if lasts:
                self._try_to_save()
            if self._is_open:
                time.sleep(_SAVE_AFTER)

    def _try_to_save(self) -> None:
        """Whatever stands in the way, a full disk perhaps, is told once, and may be gone the next time."""
        try:
            self._save()
        except Exception as error:  # the edge of a thread: no error may end all saving
            self._changed.set()
            if not self._is_told:
                _say(f"the state could not be saved in {self.directory}: {error}")
            self._is_told = True
        else:
            self._is_told = False
            self.storage.saved()

    def _save(self) -> None:
        new = self.directory / "state.json.new"
        new.touch(mode=0o600)
        new.write_text(self._state(), encoding="utf-8")
        os.replace(new, self.directory / "state.json")  # noqa: PTH105  (the same)

    def _state(self) -> str:
        """All of it. What changes while it is read is read again."""
        for _ in range(_TRIES):
            with suppress(RuntimeError):
                return self._dumped()
        return self._dumped()

    def _dumped(self) -> str:
        state = {
            "policy": self.identity.policy,
            "storage": self.storage.dump(),
            "secrets": self.secrets.dump(),
            "compute": self.compute.dump(),
        }
        return json.dumps(state)


def _say(text: str) -> None:
    sys.stderr.write(f"stoker emulate: {text}\n")


def _owned(directory: Path) -> IO[str]:
    """A file that is open as long as this emulator has the directory for itself."""
    held = (directory / "lock").open("w")
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        held.close()
        raise StokerError(f"{directory}: another emulator runs there") from None
    return held


_PATHS = (
    ("/emulator", "emulator"),
    ("/compute/v1", "compute"),
    ("/batch/compute/v1", "compute"),
    ("/v1/projects", "secretmanager"),
    ("/storage/v1", "storage"),
)
