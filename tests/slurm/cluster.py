"""A real Slurm on this machine: one slurmctld and three slurmd, each with two GPUs that are none."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

SYSTEM = {**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"}
NODES = ("n1", "n2", "n3")
CONFIGURATION = """\
ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmUser=root
AuthType=auth/none
CredType=cred/none
AuthInfo=cred_expire=5
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool.%n
SlurmctldPidFile={place}/ctld.pid
SlurmdPidFile={place}/%n.pid
SlurmctldLogFile={place}/ctld.log
SlurmdLogFile={place}/%n.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmctldParameters=preempt_send_user_signal
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0,bf_interval=1
ReturnToService=2
SlurmdTimeout=10
KillWait=5
GresTypes=gpu
MaxArraySize={largest_array}
{nodes}
PartitionName=main Nodes=ALL Default=YES GraceTime=20
PartitionName=closed Nodes=n3 State=DOWN
PartitionName=urgent Nodes=ALL PriorityTier=9
"""
NODE = (
    "NodeName={name} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000 "
    "Gres=gpu:2\n"
)


class Cluster:
    """Started when made; `stop` ends it, with all that runs on it."""

    def __init__(self, place: Path, largest_array: int = 101, more: str = "") -> None:
        self.place = place
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        (place / "state").mkdir(parents=True)
        ports = free_ports(1 + len(NODES))
        nodes = "".join(NODE.format(name=name, port=ports[1 + n]) for n, name in enumerate(NODES))
        text = CONFIGURATION.format(place=place, port=ports[0], nodes=nodes, largest_array=largest_array)
        self.configuration = place / "slurm.conf"
        self.configuration.write_text(text + more, encoding="utf-8")
        gres = f"NodeName=n[1-{len(NODES)}] Name=gpu File=/dev/tty[0-1]\n"
        (place / "gres.conf").write_text(gres, encoding="utf-8")
        self._start("ctld", "slurmctld", "-D", "-c")
        for name in NODES:
            self.start_node(name)
        self._wait_for_nodes()

    @property
    def environment(self) -> Mapping[str, str]:
        """With which Slurm's commands, and Stoker, find this cluster."""
        return {**SYSTEM, "SLURM_CONF": str(self.configuration)}

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands prints."""
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else f"{done.stdout}{done.stderr}"

    def idle_nodes(self) -> int:
        """How many nodes are up, and run nothing."""
        told = self.ask("sinfo", "-h", "-p", "main", "-t", "idle", "-o", "%D").strip()
        return int(told) if told.isdecimal() else 0

    def start_node(self, name: str, hidden: Path | None = None) -> None:
        """Start the daemon of a node, if it does not run; a directory may be hidden from it."""
        if name in self._daemons and self._daemons[name].poll() is None:
            return
        slurmd = ["slurmd", "-D", "-N", name]
        if hidden is not None:
            hide = 'mount -t tmpfs none "$1" && shift && exec "$@"'
            slurmd = ["unshare", "-m", "bash", "-c", hide, "-", str(hidden), *slurmd]
        self._start(name, *slurmd)

    def kill_node(self, name: str) -> None:
        """Kill a node's daemon. What runs there goes on."""
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def kill_all_on(self, name: str) -> None:
        """A node loses its power: its daemon, and whatever runs on it."""
        self.kill_node(name)
        for pid in _of(f"SLURMD_NODENAME={name}", self.configuration):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _start(self, name: str, *words: str) -> None:
        with (self.place / f"{name}.out").open("ab") as out:
            self._daemons[name] = subprocess.Popen(words, env=self.environment, stdout=out, stderr=out)

    def _wait_for_nodes(self, most: float = 30.0) -> None:
        until = time.monotonic() + most
        while self.idle_nodes() < len(NODES):
            if time.monotonic() > until:
                told = {log.name: log.read_text(errors="replace")[-800:] for log in self.place.glob("*.log")}
                raise TimeoutError(f"Slurm does not start: {told}")
            time.sleep(0.1)

    def stop(self) -> None:
        """End everything, and be sure of it."""
        self.ask("scancel", "-u", "root")
        time.sleep(0.5)
        for daemon in self._daemons.values():
            daemon.send_signal(signal.SIGTERM)
        for daemon in self._daemons.values():
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
        for pid in _of("", self.configuration):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _of(variable: str, configuration: Path) -> list[int]:
    """Processes with the configuration of this cluster in their environment, and a variable besides."""
    marks, found = {f"SLURM_CONF={configuration}".encode(), variable.encode()}, []
    for path in [one / "environ" for one in Path("/proc").glob("[0-9]*")]:
        with suppress(OSError):
            if marks <= {b"", *path.read_bytes().split(b"\0")} and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def is_here() -> bool:
    """Whether Slurm is installed, and this user may start it."""
    return os.geteuid() == 0 and all(shutil.which(name) for name in ("slurmctld", "slurmd", "sbatch"))
