"""What the processes of a VM are told about it by the emulator: plain data."""

from __future__ import annotations

from typing import NamedTuple


class Spec(NamedTuple):
    """As JSON, this is the first message to a VM's holder. Paths are absolute."""

    mode: str  # the value of a Mode
    name: str
    identity: str  # 32 digits, its own
    directory: str
    environment: dict[str, str]
    metadata: tuple[str, int]  # where its metadata server answers, as seen by the VM
    api: tuple[str, int]  # the cloud
    hidden: list[str]  # directories that it must not see
    needed: list[str]  # those that it must see: where Python and this package are
    home: str  # of who runs the emulator
    sshd: str  # the program; empty if nobody can log in

    @property
    def has_place(self) -> bool:
        """Whether it is apart from this machine: namespaces of its own, and a disk."""
        return self.mode != "processes"

    @property
    def is_user(self) -> bool:
        """Whether it stands in a user namespace."""
        return self.mode == "user namespaces"
