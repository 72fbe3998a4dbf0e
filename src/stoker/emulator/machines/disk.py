"""The disk of a VM: all that this machine has, to be read, and a place of its own for what is written.

An overlay lies on / and on every other file system. Where the kernel refuses one, as it does for a user
namespace and a directory with mounts below it, a plain directory stands in, with an overlay on each thing in
it. What cannot be laid over in any way is shown read-only. So no write reaches this machine, and the
directory `disk` of the VM keeps them for its next boot. /proc, /sys, /dev, /run and /tmp are made anew. It
keeps accidents in, not attackers: root in a VM of root's has most of root's rights.
"""

# Paths are text here: the processes of a VM start faster without pathlib.
# ruff: noqa: PTH101, PTH103, PTH108, PTH110, PTH112, PTH113, PTH114, PTH115, PTH116, PTH118, PTH120, PTH123, PTH208, PTH211

from __future__ import annotations

import os
import stat
from collections.abc import Iterator

from stoker.emulator.machines import linux, power
from stoker.emulator.machines.spec import Spec

_OWN = ("/proc", "/sys", "/dev", "/run", "/tmp")  # noqa: S108
_UNREAL = (
    *("autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs"),
    *("efivarfs", "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "rpc_pipefs", "securityfs"),
    *("selinuxfs", "sysfs", "tracefs"),
)
_MANY = 300  # things in a directory that do not get an overlay each
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SECRETS = (
    ".aws",
    ".azure",
    ".boto",
    ".config/gcloud",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".netrc",
    ".ssh",
)
_WRITABLE = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/lib",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/tmp",  # noqa: S108
)
_NETWORK = "/proc/sys/net"  # belongs to the VM
_KERNELS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs")

Mounts = dict[str, tuple[str, bool]]
"""Where something is mounted: the kind of file system, and whether it is read-only."""


def parse_mounts(text: str) -> Mounts:
    """From /proc/self/mountinfo."""
    found: Mounts = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, kind, *_rest = before.split(), *after.split()
        options = {*words[5].split(","), *_rest[-1].split(",")}
        found[_unescape(words[4])] = kind, "ro" in options
    return found


def _unescape(word: str) -> str:
    for code, sign in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        word = word.replace(code, sign)
    return word


def is_below(path: str, directory: str) -> bool:
    """Whether it is the directory itself, or something in it."""
    return directory in ("/", path) or path.startswith(directory + "/")


class Disk:
    """To be used once, by the first process of a VM, in a mount namespace of its own."""

    def __init__(self, spec: Spec, files: dict[str, tuple[str, int]], mounts: Mounts) -> None:
        self._spec, self._files = spec, files
        self._mounts = {path: mount for path, mount in mounts.items() if mount[0] not in _UNREAL}
        self._root = "root"  # below the VM's directory, which is the current one

    def enter(self) -> None:
        """Make it, and let it be / for this process and all that it starts."""
        linux.mount("", "/", flags=linux.REC | linux.PRIVATE)
        os.chdir(self._spec.directory)
        os.makedirs(self._root, exist_ok=True)
        if not self._overlay("/", self._root):
            _make(f"disk/{_key('/')}/plain")
            linux.bind(f"disk/{_key('/')}/plain", self._root)
            self._place_each("/")
        else:
            self._place_mounts("/")
        self._make_own()
        self._hide()
        self._show()
        linux.change_root(self._root)

    # What this machine has

    def _place(self, path: str) -> None:
        if path in _OWN or not os.access(path, os.R_OK | os.X_OK):
            return
        target = self._at(path)
        if self._is_read_only(path):
            linux.bind(path, target, is_read_only=True)
        elif self._overlay(path, target):
            self._place_mounts(path)
        elif any(self._mounts_below(path)) and len(os.listdir(path)) < _MANY:
            self._place_each(path)
        else:
            linux.bind(path, target, is_read_only=True)

    def _place_each(self, path: str) -> None:
        """In a plain directory: everything for itself."""
        self._write_files(self._at(path), path)
        for name in os.listdir(path):
            source = os.path.join(path, name)
            target = self._at(source)
            if not os.path.islink(target):  # there since an earlier boot
                self._place_one(source, target)

    def _place_one(self, source: str, target: str) -> None:
        kind = os.lstat(source).st_mode
        if stat.S_ISLNK(kind):
            os.symlink(os.readlink(source), target)
        elif stat.S_ISDIR(kind):
            _make(target)
            self._place(source)
        elif stat.S_ISREG(kind) and os.access(source, os.R_OK):
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
            linux.bind(source, target, is_read_only=True)

    def _place_mounts(self, path: str) -> None:
        """What is mounted below, which an overlay does not show."""
        for below in self._mounts_below(path):
            if not any(is_below(below, own) for own in (*_OWN, self._spec.directory)):
                self._place_mount(below)

    def _place_mount(self, path: str) -> None:
        target = self._at(path)
        if os.path.isdir(path) and os.path.isdir(target):
            self._place(path)
        elif os.path.isfile(path) and os.path.isfile(target) and path not in self._files:
            linux.bind(path, target, is_read_only=True)

    def _mounts_below(self, path: str) -> Iterator[str]:
        """The nearest only: each of them cares for those below itself."""
        below = sorted(one for one in self._mounts if one != path and is_below(one, path))
        last = ""
        for one in below:
            if not last or not is_below(one, last):
                last = one
                yield one

    def _is_read_only(self, path: str) -> bool:
        return self._mounts.get(path, ("", False))[1]

    def _overlay(self, path: str, target: str) -> bool:
        """Whether the kernel permits one."""
        layer = f"disk/{_key(path)}"
        _make(f"{layer}/upper", like=path)
        _make(f"{layer}/work")
        self._write_files(f"{layer}/upper", path)
        try:
            linux.mount("overlay", target, "overlay", 0, _options(path, layer, self._spec.is_user))
        except OSError:
            return False
        return True

    def _write_files(self, layer: str, path: str) -> None:
        """Files that the VM has of its own go into the upper layer before it is mounted."""
        for directory in _WRITABLE if self._spec.is_user else ():
            if is_below(directory, path) and os.path.isdir(directory):
                self._make_way(layer, path, directory)
        for name, (text, mode) in self._files.items():
            if not is_below(name, path):
                continue
            self._make_way(layer, path, os.path.dirname(name))
            where = _within(layer, path, name)
            if os.path.lexists(where):
                os.unlink(where)
            with open(where, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(where, mode)

    def _make_way(self, layer: str, path: str, directory: str) -> None:
        """Directories as below: with their modes."""
        while not os.path.isdir(_within(layer, path, directory)):
            missing = directory
            while not os.path.isdir(_within(layer, path, os.path.dirname(missing))):
                missing = os.path.dirname(missing)
            _make(_within(layer, path, missing), like=missing)

    # What is its own

    def _make_own(self) -> None:
        kept = linux.NOSUID | linux.NODEV
        self._mount("proc", "/proc", kept | linux.NOEXEC)
        for name in (*_KERNELS, _NETWORK):
            if os.path.exists(self._at(name)):
                linux.bind(self._at(name), self._at(name), is_read_only=name != _NETWORK)
        linux.permit_writing(self._at(_NETWORK), True)
        try:
            self._mount("sysfs", "/sys", kept | linux.NOEXEC | linux.RDONLY)
        except OSError:  # a container without one
            linux.bind("/sys", self._at("/sys"), is_read_only=True)
        self._mount("tmpfs", "/run", kept, "mode=755")
        for name, mode in (("lock", 0o1777), ("sshd", 0o755), ("ssh", 0o700)):
            _make(self._at(f"/run/{name}"), mode)
        _make("tmp", 0o1777)
        _make(self._at("/tmp"))  # noqa: S108
        linux.bind("tmp", self._at("/tmp"))  # noqa: S108
        if self._spec.sshd:
            linux.bind("ssh", self._at("/run/ssh"))
        self._make_devices()
        self._name_boot()

    def _mount(self, kind: str, path: str, flags: int, options: str = "") -> None:
        _make(self._at(path))
        linux.mount(kind, self._at(path), kind, flags, options)

    def _make_devices(self) -> None:
        self._mount("tmpfs", "/dev", linux.NOSUID, "mode=755")
        dev = self._at("/dev")
        for name in _DEVICES:
            if self._spec.is_user:
                os.close(os.open(f"{dev}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
                linux.bind(f"/dev/{name}", f"{dev}/{name}", is_read_only=True)  # it can still be written to
            else:
                os.mknod(f"{dev}/{name}", stat.S_IFCHR | 0o666, os.stat(f"/dev/{name}").st_rdev)
                os.chmod(f"{dev}/{name}", 0o666)  # noqa: S103
        _make(f"{dev}/shm", 0o1777)
        self._mount("devpts", "/dev/pts", linux.NOSUID | linux.NOEXEC, "newinstance,ptmxmode=0666,mode=620")
        os.mkfifo(f"{dev}/ttyS0", 0o600)
        links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "console": "ttyS0"}
        links |= {
            name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))
        }
        for name, where in links.items():
            os.symlink(where, f"{dev}/{name}")

    def _name_boot(self) -> None:
        """Each boot of each VM has an id, though they all share one kernel."""
        digits = os.urandom(16).hex()
        groups = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        with open("boot", "w", encoding="ascii") as file:
            file.write("-".join(groups) + "\n")
        linux.bind("boot", self._at("/proc/sys/kernel/random/boot_id"), is_read_only=True)

    def _hide(self) -> None:
        """Other VMs, and keys that nobody would have put on a VM."""
        _make("nothing")
        for path in {self._spec.directory, *self._spec.hidden}:
            if os.path.isdir(self._at(path)):
                linux.bind("nothing", self._at(path), is_read_only=True)
        for name in _SECRETS:
            target = self._at(f"{self._spec.home}/{name}")
            if not os.path.lexists(target) or os.path.islink(target):
                continue
            own = f"disk/{_key(name)}.own"
            if os.path.isdir(target):
                _make(own, 0o700)
            else:
                os.close(os.open(own, os.O_CREAT | os.O_WRONLY, 0o600))
            linux.bind(own, target)

    def _show(self) -> None:
        """Python has to be there, even if it lies in a place that was hidden."""
        for path in self._spec.needed:
            if not os.path.exists(self._at(path)):
                os.makedirs(self._at(path), exist_ok=True)
                linux.bind(path, self._at(path), is_read_only=True)

    def _at(self, path: str) -> str:
        return f"{self._root}{path}" if path != "/" else self._root


def make_writable(spec: Spec) -> None:
    """Where the VM's directory cannot be a layer of an overlay, its disk lies in memory, until its end.

    So it is in a container, whose / is an overlay itself. To be called in the holder's mount namespace.
    """
    disk = f"{spec.directory}/disk"
    trial = f"{disk}/trial"
    for name in ("lower", "upper", "work", "all"):
        _make(f"{trial}/{name}")
    os.chdir(trial)  # the options of an overlay do not take every name
    try:
        linux.mount("overlay", "all", "overlay", 0, _options("lower", ".", spec.is_user))
        linux.unmount("all")
    except OSError:
        linux.mount("tmpfs", disk, "tmpfs", linux.NODEV, "mode=755")
        os.write(1, b"The disk of this VM lies in memory: it is lost when the VM ends.\n")
    finally:
        os.chdir("/")


def files_of(spec: Spec) -> dict[str, tuple[str, int]]:
    """What differs from this machine: names, and the commands that end it. By path, with the mode."""
    hosts = "127.0.0.1 localhost\n::1 localhost\n169.254.169.254 metadata.google.internal metadata\n"
    files = {
        "/etc/hosts": (f"{hosts}127.0.1.1 {spec.name}\n", 0o644),
        "/etc/hostname": (f"{spec.name}\n", 0o644),
        "/etc/machine-id": (f"{spec.identity}\n", 0o444),
    }
    script = power.command(1)
    files |= {f"{os.path.realpath('/sbin')}/{name}": (script, 0o755) for name in power.NAMES}
    return files | {f"{os.path.realpath('/bin')}/systemctl": (script, 0o755)}


def _options(lower: str, layer: str, is_user: bool) -> str:
    """Of an overlay."""
    rights = "userxattr" if is_user else "redirect_dir=on"
    return f"lowerdir={_escape(lower)},upperdir={layer}/upper,workdir={layer}/work,index=off,{rights}"


def _make(path: str, mode: int = 0o755, like: str = "") -> None:
    if os.path.isdir(path):
        return
    os.makedirs(path, exist_ok=True)
    if like and os.path.isdir(like):
        mode = stat.S_IMODE(os.stat(like).st_mode)
    os.chmod(path, mode)


def _within(layer: str, path: str, name: str) -> str:
    return os.path.normpath(f"{layer}/{os.path.relpath(name, path)}")


def _key(path: str) -> str:
    """A file name for a path."""
    return "".join(sign if sign.isalnum() or sign in "-_." else f"%{ord(sign):x}" for sign in path)


def _escape(path: str) -> str:
    for sign in "\\:,":
        path = path.replace(sign, f"\\{sign}")
    return path
