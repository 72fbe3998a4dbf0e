"""A way into a VM: what OpenSSH's server reads, and its key. Each visitor gets a server of their own."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

_USERS = {  # for a server that is no root: see init
    "passwd": "root:x:1000:1000:root:/root:/bin/bash\nsshd:x:1001:1001::/run/sshd:/usr/sbin/nologin\n",
    "shadow": "root:*:19000:0:99999:7:::\n",
}


def find_server() -> str:
    """The program, or nothing if it is not installed."""
    path = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")
    return path if path is not None and shutil.which("ssh-keygen") else ""


def write_files(directory: Path, seen: str, keys: str, environment: Mapping[str, str]) -> None:
    """All that the server needs, in a directory that the VM sees as `seen`. The VM's key stays the same."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not (directory / "host_key").exists():
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(directory / "host_key")]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)
    (directory / "authorized_keys").write_text(keys.rstrip("\n") + "\n", encoding="utf-8")
    (directory / "sshd_config").write_text(render(seen, environment), encoding="utf-8")
    for name, text in _USERS.items():
        (directory / name).write_text(text, encoding="utf-8")


def render(seen: str, environment: Mapping[str, str]) -> str:
    """The configuration."""
    lines = [
        f"HostKey {_quoted(f'{seen}/host_key')}",
        f"AuthorizedKeysFile {_quoted(f'{seen}/authorized_keys')}",
        "PermitRootLogin prohibit-password",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "UsePAM no",
        "StrictModes no",
        "UseDNS no",
        "PidFile none",
        "PrintMotd no",
        "PrintLastLog no",
        "AcceptEnv LANG LC_*",
        "Subsystem sftp internal-sftp",
    ]
    values = {name: value for name, value in environment.items() if "\n" not in value}
    if values:
        lines.append("SetEnv " + " ".join(_quoted(f"{name}={value}") for name, value in values.items()))
    return "\n".join(lines) + "\n"


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
