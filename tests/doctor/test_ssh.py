"""The other half on a host that is reached by ssh: a real sshd, on loopback."""

from __future__ import annotations

import getpass
import os
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stoker.checkup.finding import Verdict
from stoker.checkup.other import by_ssh
from stoker.checkup.race import look
from tests.doctor.needs import program
from tests.stories.command import stoker

SERVER = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {place}/host
PidFile none
AuthorizedKeysFile {place}/user.pub
StrictModes no
UsePAM no
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin yes
"""
CLIENT = """\
Host neighbour
  Port {port}
  IdentityFile {place}/user
Host shut
  Port 1
Host stranger
  Port {port}
  IdentityFile {place}/nobody
Host *
  HostName 127.0.0.1
  HostKeyAlias neighbour
  User {user}
  IdentitiesOnly yes
  UserKnownHostsFile {place}/known
"""


@contextmanager
def running(place: Path, port: int) -> Iterator[None]:
    words = [program("sshd", "openssh-server"), "-D", "-e", "-f", str(place / "server")]
    with (place / "log").open("wb") as log, subprocess.Popen(words, stderr=log) as server:
        try:
            until = time.monotonic() + 10
            while b"listening on" not in (place / "log").read_bytes():
                assert server.poll() is None, (place / "log").read_text()
                assert time.monotonic() < until
                time.sleep(0.02)
            yield
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A PATH on which ssh reaches the hosts of CLIENT."""
    place = tmp_path_factory.mktemp("ssh")
    keygen, client = program("ssh-keygen", "openssh-client"), program("ssh", "openssh-client")
    program("sshd", "openssh-server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    for key in ("host", "user", "nobody"):
        subprocess.run([keygen, "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    about = {"place": place, "port": port, "user": getpass.getuser()}
    (place / "server").write_text(SERVER.format(**about))
    (place / "client").write_text(CLIENT.format(**about))
    (place / "known").write_text(f"neighbour {(place / 'host.pub').read_text()}")
    (place / "bin").mkdir()
    (place / "bin/ssh").write_text(f'#!/bin/sh\nexec {client} -F {place}/client "$@"\n')
    (place / "bin/ssh").chmod(0o755)
    with running(place, port):
        yield f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"


def test_a_neighbour(workplace: Path, ssh: str) -> None:
    done = stoker("doctor", "--with", "neighbour", PATH=ssh)
    assert done.returncode == 0, done.stdout
    told = done.stdout.partition("this host and neighbour\n")[2]
    assert re.search(r"✔ host +this host itself", told)
    assert re.search(r"✔ clocks +that of neighbour is as ours", told)
    assert re.search(r"✔ race by link +200 names, each with one winner", told)
    assert re.search(r"✔ new names +seen by name within 0\.\d\d s", told)
    assert re.search(r"✔ listings +seen in listings within 0\.\d\d s", told)
    assert list(workplace.iterdir()) == []


@pytest.mark.parametrize(
    ("host", "told"), [("shut", "Connection refused"), ("stranger", "Permission denied (publickey).")]
)
def test_a_host_that_does_not_let_us_in(
    tmp_path: Path, ssh: str, monkeypatch: pytest.MonkeyPatch, host: str, told: str
) -> None:
    monkeypatch.setenv("PATH", ssh)
    (check,) = look(tmp_path, by_ssh(host))
    assert (check.name, check.verdict) == (host, Verdict.BAD)
    assert check.found.startswith("does not answer: ")
    assert check.found.endswith(told)
    assert check.remedy.startswith(f"this must work: ssh -o BatchMode=yes {host} ")
    assert list(tmp_path.iterdir()) == []


def test_no_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = look(tmp_path, by_ssh("neighbour"))
    assert check.found == "does not answer: ssh: No such file or directory"
