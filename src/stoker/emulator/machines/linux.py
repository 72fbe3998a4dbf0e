"""The calls of Linux that Python does not have: namespaces, mounts, rights, and a network of its own."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = (
    0x00020000,
    0x04000000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, PRIVATE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18
_DETACH = 2
_PUNCH = 3  # a hole, and the same size
_PDEATHSIG, _SET_NAME, _CAPBSET_DROP, _SUBREAPER = 1, 15, 24, 36
_MOUNT_SETATTR, _PIVOT_ROOT, _PIVOT_ROOT_X86 = 442, 41, 155
_GET_FLAGS, _SET_FLAGS, _SET_ADDRESS, _SET_MASK, _UP = 0x8913, 0x8914, 0x8916, 0x891C, 0x1
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def unshare(flags: int) -> None:
    """Leave the namespaces of the parent."""
    _check(_libc.unshare(ctypes.c_int(flags)), "unshare")


def map_ids(inside: int, user: int, group: int) -> None:
    """In a new user namespace: who we were outside, a user and a group, is `inside` here."""
    words = (("setgroups", "deny"), ("uid_map", f"{inside} {user} 1"), ("gid_map", f"{inside} {group} 1"))
    for name, text in words:
        _write(f"/proc/self/{name}", text)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def mount(what: str, where: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """As mount(2)."""
    words = [os.fsencode(word) if word else None for word in (what, where, kind)]
    data = os.fsencode(options) if options else None
    _check(_libc.mount(*words, ctypes.c_ulong(flags), data), f"mount {where}")


def bind(what: str, where: str, *, is_read_only: bool = False) -> None:
    """Show something, and all that is mounted below it, at a second place."""
    mount(what, where, flags=BIND | REC)
    try:
        if is_read_only:
            permit_writing(where, False)
    except OSError:
        unmount(where)
        raise


def permit_writing(where: str, is_permitted: bool) -> None:
    """To a mount and all those below it."""
    attributes = struct.pack("=QQQQ", 0 if is_permitted else RDONLY, RDONLY if is_permitted else 0, 0, 0)
    recursive, here = 0x8000, -100
    done = _libc.syscall(
        ctypes.c_long(_MOUNT_SETATTR),
        ctypes.c_int(here),
        ctypes.c_char_p(os.fsencode(where)),
        ctypes.c_uint(recursive),
        ctypes.c_char_p(attributes),
        ctypes.c_size_t(len(attributes)),
    )
    _check(done, f"mount_setattr {where}")


def unmount(where: str) -> None:
    """It is gone when nobody uses it any more."""
    _check(_libc.umount2(os.fsencode(where), ctypes.c_int(_DETACH)), f"unmount {where}")


def change_root(where: str) -> None:
    """What is mounted there becomes /; what / was before is gone."""
    os.chdir(where)
    number = _PIVOT_ROOT_X86 if os.uname().machine == "x86_64" else _PIVOT_ROOT
    _check(_libc.syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def set_hostname(name: str) -> None:
    """In a UTS namespace of our own."""
    word = os.fsencode(name)
    _check(_libc.sethostname(word, ctypes.c_size_t(len(word))), "sethostname")


def start_loopback(*addresses: str) -> None:
    """Bring up the network of a new network namespace, with these addresses besides 127.0.0.1."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = fcntl.ioctl(control, _GET_FLAGS, struct.pack("16sH22x", b"lo", 0))
        fcntl.ioctl(
            control, _SET_FLAGS, struct.pack("16sH22x", b"lo", struct.unpack_from("H", flags, 16)[0] | _UP)
        )
        for number, address in enumerate(addresses, 1):
            for what, value in ((_SET_ADDRESS, address), (_SET_MASK, "255.255.255.255")):
                name, words = f"lo:{number}".encode(), socket.inet_aton(value)
                fcntl.ioctl(control, what, struct.pack("16sHH4s16x", name, socket.AF_INET, 0, words))


def die_with_parent(number: int) -> None:
    """Get a signal when the process that started this one ends."""
    _prctl(_PDEATHSIG, number)


def adopt_orphans() -> None:
    """Be the parent of all below us whose parents end."""
    _prctl(_SUBREAPER, 1)


def rename(name: str) -> None:
    """How `ps` shows this process."""
    _libc.prctl(ctypes.c_int(_SET_NAME), ctypes.c_char_p(name.encode()))


def give_up(rights: tuple[int, ...]) -> None:
    """Capabilities that no program started from here on can have."""
    for right in rights:
        _libc.prctl(
            ctypes.c_int(_CAPBSET_DROP), ctypes.c_ulong(right)
        )  # unknown to an old kernel: nothing to drop


def punch(descriptor: int, size: int) -> None:
    """The first bytes of a file become a hole, which takes no room. Those behind it stay where they are."""
    done = _libc.fallocate(
        ctypes.c_int(descriptor), ctypes.c_int(_PUNCH), ctypes.c_longlong(0), ctypes.c_longlong(size)
    )
    _check(done, "fallocate")


def _prctl(what: int, value: int) -> None:
    _check(_libc.prctl(ctypes.c_int(what), ctypes.c_ulong(value)), "prctl")
