"""Who may use a cluster: a real slurmdbd, with its tables in a real MariaDB, both on loopback only."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path

from tests.slurm.cluster import SYSTEM, free_ports

_DATABASE = (
    "mariadbd", "--no-defaults", "--user=root", "--bind-address=127.0.0.1", "--skip-grant-tables",
    "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M",
)  # fmt: skip
_DAEMON = """\
AuthType=auth/none
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={storage}
StorageUser=root
StorageLoc=slurm
LogFile={place}/dbd.log
PidFile={place}/dbd.pid
"""
_CLUSTER = """\
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStorageEnforce=associations,limits,qos
"""


class Accounts:
    """Started when made. A cluster in the same place is told of it by `more`."""

    def __init__(self, place: Path) -> None:
        storage, port = free_ports(2)
        tables = f"--datadir={place / 'tables'}"
        install = ["mariadb-install-db", "--no-defaults", "--user=root", "--skip-test-db", tables]
        subprocess.run(install, check=True, capture_output=True)
        words = [*_DATABASE, tables, f"--socket={place / 'sql'}", f"--port={storage}"]
        self._daemons = [_start(place / "sql.log", *words)]
        _wait_for(storage)
        settings = place / "slurmdbd.conf"
        settings.write_text(_DAEMON.format(place=place, port=port, storage=storage), encoding="utf-8")
        settings.chmod(0o600)
        (place / "slurm.conf").write_text("ClusterName=test\nSlurmctldHost=localhost\nAuthType=auth/none\n")
        self._daemons.append(_start(place / "dbd.out", "slurmdbd", "-D", conf=place / "slurm.conf"))
        _wait_for(port)
        self.more = _CLUSTER.format(port=port)

    def stop(self) -> None:
        """End both; the daemon first."""
        for daemon in reversed(self._daemons):
            daemon.terminate()
            daemon.wait(30)


def is_here() -> bool:
    """Whether both are installed."""
    return all(
        shutil.which(name, path=SYSTEM["PATH"]) for name in ("slurmdbd", "mariadbd", "mariadb-install-db")
    )


def _start(log: Path, *words: str, conf: Path | None = None) -> subprocess.Popen[bytes]:
    environment = SYSTEM | ({"SLURM_CONF": str(conf)} if conf else {})
    with log.open("wb") as out:
        return subprocess.Popen(words, env=environment, stdout=out, stderr=out)


def _wait_for(port: int, most: float = 30.0) -> None:
    until = time.monotonic() + most
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return
