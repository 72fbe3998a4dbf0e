"""A VM as the emulator holds it: a process of its own, the holder, and a socket to speak with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stoker.emulator.http import listen_on_loopback
from stoker.emulator.machines import ssh
from stoker.emulator.machines.interface import Guest, Mode
from stoker.emulator.machines.removal import remove_tree
from stoker.emulator.machines.spec import Spec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_METADATA = "169.254.169.254", 80
_PACKAGE = Path(__file__).parents[3]
_CODE = (
    "import sys; sys.path.insert(0, sys.argv[1]); from stoker.emulator.machines import holder;"
    " holder.main(int(sys.argv[2]), int(sys.argv[3]))"
)


class HostedMachine:
    """One VM, in whichever mode. See Machine for its contract."""

    def __init__(self, guest: Guest, mode: Mode) -> None:
        self.mode, self._guest = mode, guest
        self.serial = guest.directory / "serial.log"
        self.ssh_port: int | None = None
        self._sshd = ssh.find_server() if guest.has_ssh else ""
        self._place: _Place | None = None
        self._lock = threading.Lock()

    def prepare(self) -> dict[str, socket.socket]:
        """Make the place for its processes: before each boot."""
        self.cut()
        directory = self._guest.directory
        if self.mode is Mode.PROCESSES and ":" in str(directory.resolve()):
            # Its own `poweroff` is found by the PATH. Without it, that of this machine would be run.
            raise OSError(f"no place for a VM: the name of {directory} has a colon, which no PATH can have")
        for name in ("disk", "home", "tmp", "bin") if self.mode is Mode.PROCESSES else ("disk",):
            (directory / name).mkdir(parents=True, exist_ok=True)
        with self._lock:
            sockets = {"metadata": listen_on_loopback()} if self.mode is Mode.PROCESSES else {}
            spec = self._spec(sockets["metadata"].getsockname() if sockets else _METADATA)
            listening = self._listen_for_ssh(spec)
            try:
                self._place = _Place(spec, self.serial, listening)
            except BaseException:
                for one in sockets.values():
                    one.close()
                raise
            finally:
                if listening is not None:
                    listening.close()
            return {**sockets, **self._place.sockets}

    def boot(self, ended: Callable[[], None]) -> None:
        """Start its first process."""
        with self._lock:
            if self._place is None:
                raise RuntimeError("a VM is prepared before each boot")
            self._place.boot(ended)

    def shut_down(self) -> None:
        """Press its power button."""
        place = self._place
        if place is not None:
            place.tell(b"power")

    def cut(self) -> None:
        """Take its power away."""
        with self._lock:
            place, self._place = self._place, None
        if place is not None:
            place.end()

    def remove(self) -> None:
        """Leave nothing of it."""
        self.cut()
        remove_tree(str(self._guest.directory))

    def _spec(self, metadata: tuple[str, int]) -> Spec:
        guest = self._guest
        return Spec(
            self.mode.value,
            guest.name,
            uuid.uuid5(uuid.NAMESPACE_URL, f"{guest.directory}/{guest.name}").hex,
            str(guest.directory.resolve()),
            self._environment(metadata),
            metadata,
            ("127.0.0.1", guest.api_port),
            [str(path.resolve()) for path in guest.hidden],
            sorted({str(Path(path).resolve()) for path in (sys.prefix, sys.base_prefix, _PACKAGE)}),
            str(Path.home()),
            self._sshd,
        )

    def _environment(self, metadata: tuple[str, int]) -> dict[str, str]:
        if self.mode is not Mode.PROCESSES:
            return {"PATH": _PATH, "LANG": "C.UTF-8", **self._guest.environment}
        directory, where = self._guest.directory.resolve(), f"{metadata[0]}:{metadata[1]}"
        environment = {
            "PATH": os.environ.get("PATH", _PATH),
            "LANG": "C.UTF-8",
            "HOME": f"{directory}/home",
            "TMPDIR": f"{directory}/tmp",  # noqa: S108
            "GCE_METADATA_HOST": where,
            "GCE_METADATA_IP": where,
            **self._guest.environment,
        }
        return environment | {"PATH": f"{directory}/bin:{environment['PATH']}"}

    def _listen_for_ssh(self, spec: Spec) -> socket.socket | None:
        """On the same port as before, if it is still free."""
        if not self._sshd:
            return None
        directory = self._guest.directory.resolve() / "ssh"
        seen = "/run/ssh" if spec.has_place else str(directory)
        ssh.write_files(directory, seen, self._guest.ssh_keys, spec.environment)
        try:
            listening = listen_on_loopback(self.ssh_port or 0)
        except OSError:
            listening = listen_on_loopback()
        self.ssh_port = int(listening.getsockname()[1])
        return listening


class _Place:
    """A holder that runs, and with it all that there is of a VM but its directory."""

    def __init__(self, spec: Spec, serial: Path, listening: socket.socket | None) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        with theirs, serial.open("ab") as console:
            passed = [theirs.fileno(), listening.fileno() if listening is not None else -1]
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CODE, str(_PACKAGE), *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                cwd="/",
                env={name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
                pass_fds=[one for one in passed if one >= 0],
                start_new_session=True,
            )
        self._channel.send(json.dumps(spec._asdict()).encode())
        word, descriptors, _, _ = socket.recv_fds(self._channel, 10_000, 2)
        made = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        if word != b"ready":
            self.end()
            raise OSError(f"no place for a VM: {word.decode() or 'its process has died; see its console'}")
        self.sockets = dict(zip(("metadata", "api"), made, strict=False))

    def boot(self, ended: Callable[[], None]) -> None:
        self._thread = threading.Thread(target=self._wait, args=(ended,), name="emulator VM", daemon=True)
        self._thread.start()
        self.tell(b"boot")

    def tell(self, word: bytes) -> None:
        with suppress(OSError):  # it has ended
            self._channel.send(word)

    def end(self) -> None:
        """Returns when nothing runs any more. May be repeated."""
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_WR)
        if self._thread is None:
            self._process.wait()
            self._channel.close()
        else:
            self._over.wait()

    def _wait(self, ended: Callable[[], None]) -> None:
        self._process.wait()
        self._channel.close()
        self._over.set()
        ended()
