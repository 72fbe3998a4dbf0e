"""VMs that boot, speak, end, and come again; in each mode that this machine permits this user."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import signal
import subprocess
import sysconfig
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stoker.emulator.http import Reply, Request, Server
from stoker.emulator.machines import choose
from stoker.emulator.machines.disk import parse_mounts
from stoker.emulator.machines.interface import Mode
from stoker.emulator.machines.ssh import find_server
from stoker.emulator.metadata import MetadataServer
from tests.emulator import traces
from tests.emulator.vms import ROOT, Vm, emulator_with, eventually, is_running, permitted

APART = (Mode.NAMESPACES, Mode.USER)


@pytest.fixture(scope="module")
def modes() -> list[Mode]:
    return permitted()


@pytest.fixture(params=list(Mode), ids=lambda mode: mode.name.lower())
def mode(request: pytest.FixtureRequest, modes: list[Mode]) -> Mode:
    found: Mode = request.param
    if found not in modes:
        pytest.skip(f"{found.value} are not permitted here")
    return found


@pytest.fixture
def apart(mode: Mode) -> Mode:
    if mode not in APART:
        pytest.skip("plain processes see the whole machine")
    return mode


class Place:
    """Makes VMs."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.server, self.vms = directory, Server(), list[Vm]()

    def vm(self, mode: Mode, **guest: Any) -> Vm:
        name = f"vm-{len(self.vms) + 1}"
        made = Vm(self.directory / name, mode, self.server, name, **guest)
        self.vms.append(made)
        return made


@pytest.fixture
def place() -> Iterator[Place]:
    """In a directory that is visible in a VM, unless something hides it; nothing may stay of it."""
    descriptors, children = _descriptors(), traces.descendants()
    directory = Path(tempfile.mkdtemp(prefix='it\'s, a "place" ', dir="/var/tmp"))
    found = Place(directory)
    yield found
    for vm in found.vms:
        vm.remove()
    found.server.close()
    left = list(directory.iterdir())
    shutil.rmtree(directory)
    assert left == []
    assert not any(is_running(vm.word) for vm in found.vms)
    assert traces.of_directory(directory) == []
    assert traces.descendants() == children
    assert _descriptors() <= descriptors


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Boots


def test_the_startup_script_speaks_on_the_console(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    vm.boot("echo hello; echo trouble >&2")
    text = vm.says("Finished running startup scripts.")
    assert "startup-script: hello\n" in text
    assert "startup-script: trouble\n" in text
    assert "startup-script exit status 0\n" in text
    assert not vm.ended.is_set()


def test_a_failing_script_and_a_script_in_another_language(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    vm.attributes["startup-script"] = f"#!{shutil.which('perl')}\nprint 'from ', 'perl'; exit 3"
    vm.boot()
    text = vm.says("Finished running startup scripts.")
    assert "startup-script: from perl\n" in text
    assert 'Script "startup-script" failed with error: exit status 3\n' in text


def test_a_vm_without_a_script_runs_and_can_be_told_to_end(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    vm.boot()
    vm.says("No startup scripts to run.")
    vm.machine.shut_down()
    assert "No shutdown scripts to run." in vm.ends()


def test_a_script_in_a_bucket_is_fetched_with_the_token_of_the_vm(place: Place, apart: Mode) -> None:
    vm, asked = place.vm(apart), list[Request]()

    def api(request: Request) -> Reply:
        asked.append(request)
        return Reply(200, b"echo I was far away")

    vm.api = api
    vm.attributes["startup-script-url"] = "gs://bucket/some/script"
    vm.boot()
    vm.says("startup-script-url: I was far away")
    assert [(one.path, one.headers["authorization"][:10]) for one in asked] == [
        ("/bucket/some/script", "Bearer for")
    ]


def test_the_environment_and_the_metadata_of_a_vm(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    vm.boot("echo word=$STOKER_WORD; echo name=$(see instance/name); echo root=$(id -u); echo done")
    text = vm.says("startup-script: done")
    assert f"word={vm.word}\n" in text
    assert "name=vm-1\n" in text
    if mode in APART:
        assert "root=0\n" in text


def test_google_auth_inside_gets_a_token(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    code = (
        "import google.auth, google.auth.transport.requests as r, google.auth.compute_engine._metadata as m\n"
        "c, p = google.auth.default()\nc.refresh(r.Request())\n"
        "print(p, '|', c.token, '|', m.ping(r.Request()), '|', c.service_account_email)"
    )
    packages = (
        sysconfig.get_paths()["purelib"] if "PYTHONPATH" not in os.environ else os.environ["PYTHONPATH"]
    )
    vm.boot(f'export PYTHONPATH="{packages}"\n"$python" -c "{code}" 2>&1 | tail -5; echo done')
    text = vm.says("startup-script: done")
    email = "1-compute@developer.gserviceaccount.com"
    assert f"home | for {email} 1 | True | {email}" in text


def test_a_metadata_server_that_is_late(place: Place, mode: Mode) -> None:
    vm, asked, answer = place.vm(mode), list[Request](), MetadataServer.app

    class Late(MetadataServer):
        def app(self, request: Request) -> Reply:
            asked.append(request)
            return Reply((0, 503)[len(asked) % 2]) if len(asked) < 4 else answer(self, request)

    vm.metadata = Late(vm.look, vm.token, vm.set_guest_attribute)
    vm.boot("echo patient")
    vm.says("startup-script: patient")


# Ends


@pytest.mark.parametrize(
    "command", ["poweroff", "shutdown -h now", "systemctl poweroff", "init 0", "poweroff -f"]
)
def test_a_vm_ends_itself(place: Place, mode: Mode, command: str) -> None:
    vm = place.vm(mode)
    vm.boot(f"(setsid sleep {vm.word} &)\n{command}\nsleep {vm.word}", "echo goodbye")
    text = vm.ends()
    assert ("shutdown-script: goodbye" in text) == ("-f" not in command)
    assert not is_running(vm.word)


def test_the_commands_are_where_they_always_are(place: Place, apart: Mode) -> None:
    vm = place.vm(apart)
    vm.boot("systemctl start something || echo code=$?; env -i /sbin/shutdown now")
    assert "code=1" in vm.ends()


def test_a_reboot_boots_again(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    vm.boot('cd "${HOME:-/opt}"; echo x >> boots; n=$(wc -l < boots); echo boots: $n; [ $n = 3 ] || reboot')
    text = vm.says("boots: 3")
    assert text.count("Starting startup scripts") == 3
    assert not vm.ended.is_set()


def test_the_power_button_terms_all_and_runs_the_shutdown_script(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    saver = "trap 'sleep 0.3; echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done"
    vm.boot(f"setsid bash -c {shlex.quote(saver)} &\nwait", "echo goodbye $(see instance/name)")
    vm.says("startup-script: ready")
    vm.machine.shut_down()
    text = vm.ends()
    assert "shutdown-script: goodbye vm-1\n" in text
    assert "Finished running shutdown scripts." in text
    assert "startup-script: saved\n" in text


@pytest.mark.parametrize("delay", [0.0, 0.03, 0.06])
def test_a_power_button_is_never_pressed_too_early(place: Place, mode: Mode, delay: float) -> None:
    vm = place.vm(mode)
    vm.boot(f"sleep {vm.word}; sleep {vm.word}")
    time.sleep(delay)
    vm.machine.shut_down()
    assert "No shutdown scripts to run." in vm.ends()


def test_cutting_the_power_kills_what_ignores_signals_and_forked_twice(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    daemon = f"trap '' TERM HUP INT; while :; do sleep {vm.word}; done"
    vm.boot(f'(setsid bash -c "{daemon}" </dev/null >/dev/null 2>&1 &)\necho ready; sleep {vm.word}')
    vm.says("ready")
    assert eventually(lambda: is_running(vm.word))
    vm.machine.shut_down()
    vm.says("No shutdown scripts")
    assert not vm.ended.is_set()
    vm.machine.cut()
    assert not is_running(vm.word)
    vm.ends()
    vm.machine.cut()


def test_a_machine_that_was_only_prepared_is_removed(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    sockets = vm.machine.prepare()
    for one in sockets.values():
        one.close()
    assert set(sockets) == ({"metadata"} if mode is Mode.PROCESSES else {"metadata", "api"})


def test_plain_processes_need_a_directory_without_a_colon(place: Place) -> None:
    place.directory /= "a:b"
    vm = place.vm(Mode.PROCESSES)
    with pytest.raises(OSError, match="colon"):
        vm.boot("poweroff")


@pytest.mark.parametrize("victim", ["emulator", "holder", "booter", "first"])
def test_kill_9_leaves_nothing(place: Place, mode: Mode, victim: str) -> None:
    with emulator_with(
        place.directory / "vm", mode, '(setsid sleep "$STOKER_WORD" &)\necho ready; sleep "$STOKER_WORD"'
    ) as emulator:
        try:
            word = emulator.stdout.readline().strip()
            assert eventually(lambda: is_running(word))
            chain, pid = {}, emulator.pid
            for name in ("emulator", "holder", "booter", "first"):
                chain[name] = pid
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
                pid = int(children[0]) if name != "first" else 0
            os.kill(chain[victim], signal.SIGKILL)
            assert eventually(lambda: not is_running(word))
            emulator.wait(60)
        finally:
            emulator.kill()
    assert eventually(lambda: traces.of_directory(place.directory / "vm") == [])
    shutil.rmtree(place.directory / "vm", onerror=_open_and_retry)


def _open_and_retry(act: Any, path: str, _: object) -> None:
    Path(path).chmod(0o700)
    act(path) if Path(path).is_file() else shutil.rmtree(path)


# Apart from this machine


def test_what_is_written_stays_in_the_vm_and_on_its_disk(place: Place, apart: Mode) -> None:
    vm, other = place.vm(apart), place.vm(apart)
    outside = place.directory.parent / f"stoker-{vm.word}"
    outside.mkdir()
    try:
        (outside / "file").write_text("old")
        vm.boot(
            f"echo new > {outside}/file; echo x > /etc/{vm.word}; rm /etc/hostname; ls -d /etc/h*; echo done"
        )
        vm.says("startup-script: done")
        assert (outside / "file").read_text() == "old"
        assert not Path(f"/etc/{vm.word}").exists()
        assert Path("/etc/hostname").exists()
        vm.machine.cut()
        vm.boot(f"echo file: $(cat {outside}/file) $(cat /etc/{vm.word}) $(cat /etc/hostname)")
        vm.says("file: new x vm-1\n")
        other.boot(f"echo file: $(cat {outside}/file); ls /etc/{vm.word}; echo done")
        text = other.says("startup-script: done")
        assert "file: old\n" in text
        assert "No such file" in text
    finally:
        shutil.rmtree(outside)


def test_a_vm_with_a_very_deep_directory_is_removed(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    where = "/var/tmp" if mode in APART else '"$HOME"'  # noqa: S108
    go_down = "import os\nfor n in range(1500): os.mkdir('some-directory'); os.chdir('some-directory')\n"
    vm.boot(f'cd {where}; "$python" -c "{go_down}"; echo it is "deep $?"')
    vm.says("it is deep 0")
    vm.machine.remove()
    assert not vm.guest.directory.exists()


def test_the_newest_of_a_long_console_is_kept(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    speak = r"import os; [os.write(1, b'x' * 65535 + b'\n') for n in range(600)]"
    vm.boot(f'"$python" -c "{speak}"; echo the end; sleep 100')
    vm.says("startup-script: the end")
    size = vm.machine.serial.stat().st_size
    assert size > 600 * 65536
    assert eventually(lambda: vm.machine.serial.stat().st_blocks * 512 < 17 << 20)
    assert vm.machine.serial.stat().st_size == size
    assert vm.machine.serial.read_bytes()[-(7 << 20) :].count(b"x" * 65535) > 100
    vm.machine.shut_down()
    assert "Starting shutdown scripts" in vm.ends()


def test_a_vm_sees_only_itself(place: Place, apart: Mode) -> None:
    secret = place.directory / "secret"
    secret.mkdir()
    (secret / "key").write_text("hush")
    vm = place.vm(apart, hidden=(secret,))
    vm.boot(
        "echo networks: $(grep -o '[a-z0-9]*:' /proc/net/dev)\n"
        "echo processes: $(ls -d /proc/[0-9]* | wc -l); echo name: $(hostname)\n"
        f"ls -A {_quoted(secret)} {_quoted(vm.guest.directory)} /tmp /run; echo done"
    )
    text = vm.says("startup-script: done")
    shutil.rmtree(secret)
    assert "networks: lo:\n" in text
    assert int(text.partition("processes: ")[2].split()[0]) < 8
    assert "name: vm-1\n" in text
    assert "key" not in text
    assert "serial.log" not in text


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def test_keys_of_the_user_are_not_on_the_vm(
    place: Place, apart: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = place.directory / "home"
    (home / ".config" / "gcloud").mkdir(parents=True)
    (home / ".config" / "gcloud" / "credentials").write_text("hush")
    (home / ".netrc").write_text("hush")
    (home / "plain").write_text("seen")
    monkeypatch.setenv("HOME", str(home))
    vm = place.vm(apart)
    vm.boot(f"grep -r . {_quoted(home)}; touch {_quoted(home)}/.config/gcloud/own && echo own; echo done")
    text = vm.says("startup-script: done")
    shutil.rmtree(home)
    assert "hush" not in text
    assert "plain:seen" in text
    assert "startup-script: own" in text


def test_the_kernel_belongs_to_this_machine(place: Place, apart: Mode) -> None:
    vm = place.vm(apart)
    vm.boot(
        "cd /proc/sys; cat vm/swappiness > vm/swappiness && echo tuned; touch /sys/x && echo touched\n"
        "touch -d 2001-01-01 /dev/zero; echo h > /proc/sysrq-trigger && echo triggered\n"
        "echo 99 > net/core/somaxconn; echo net=$(cat net/core/somaxconn)\n"
        "echo boot=$(cat kernel/random/boot_id) $(grep CapEff /proc/self/status); echo done"
    )
    text = vm.says("startup-script: done")
    assert not {"startup-script: tuned", "startup-script: touched", "startup-script: triggered"} & {
        *text.split("\n")
    }
    assert "net=99\n" in text
    assert Path("/dev/zero").stat().st_mtime > 1_000_000_000
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() not in text
    rights = int(text.partition("CapEff: ")[2].split()[0], 16)
    modules, raw_devices, clock = 16, 17, 25
    assert not rights & (1 << modules | 1 << raw_devices | 1 << clock)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize("mode", APART)
def test_other_file_systems_are_seen_and_not_written(place: Place, mode: Mode, modes: list[Mode]) -> None:
    if mode not in modes:
        pytest.skip("not permitted here")
    disk = place.directory.parent / f"stoker-disk-{os.getpid()}"
    disk.mkdir()
    startup = (
        f"cd {disk}/sub; cat file; echo new > file; echo $(cat file) inside; echo ready; sleep 1; poweroff"
    )
    setup = f"mount -t tmpfs x {disk} && mkdir {disk}/sub && mount -t tmpfs x {disk}/sub && cd {disk}/sub\n"
    setup += 'echo old > file; cd - >/dev/null; "$@" | (read word; cat {disk}/sub/file)'.replace(
        "{disk}", str(disk)
    )
    try:
        command = ["unshare", "--mount", "bash", "-c", setup, "bash"]
        with emulator_with(place.directory / "vm", mode, startup, command) as emulator:
            said = emulator.communicate(timeout=60)[0]
        text = (place.directory / "vm" / "serial.log").read_text()
    finally:
        disk.rmdir()
        shutil.rmtree(place.directory / "vm", onerror=_open_and_retry)
    assert "startup-script: old\n" in text
    assert said == "old\n"
    assert "new inside\n" in text


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
def test_a_directory_on_an_overlay_as_in_a_container(place: Place, modes: list[Mode]) -> None:
    if Mode.NAMESPACES not in modes:
        pytest.skip("not permitted here")
    top = place.directory / "top"
    top.mkdir()
    setup = 'cd "$1"; shift; mount -t tmpfs x . && cd "$PWD" && mkdir l u w all && '
    setup += f"mount -t overlay x -o lowerdir=l,upperdir=u,workdir=w all && cd '{ROOT}' && "
    command = ["unshare", "--mount", "bash", "-c", setup + '"$@"', "bash", str(top)]
    startup = "echo x > /etc/new && cat /etc/new && echo wrote; echo ready; poweroff"
    with emulator_with(top / "all" / "vm", Mode.NAMESPACES, startup, command, prints=True) as emulator:
        said = emulator.communicate(timeout=60)[0]
    top.rmdir()
    assert "startup-script: wrote\n" in said
    assert "lies in memory" in said


# Visitors


@pytest.mark.skipif(not find_server(), reason="OpenSSH's server is not installed")
def test_ssh(place: Place, mode: Mode) -> None:
    user = pwd.getpwuid(os.getuid())
    if mode is Mode.PROCESSES and not user.pw_shell.endswith("sh"):
        pytest.skip("this user may not log in anywhere")
    key = place.directory / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    vm = place.vm(mode, has_ssh=True, ssh_keys=key.with_suffix(".pub").read_text())
    vm.boot('echo ready > "${HOME:-/opt}/there"; echo ready')
    vm.says("ready")

    def ssh(command: str) -> subprocess.CompletedProcess[str]:
        options = (
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "LogLevel=ERROR",
        )
        words = ["ssh", "-F", "none", "-p", str(vm.machine.ssh_port), "-i", str(key)]
        words += [word for option in options for word in ("-o", option)]
        name = user.pw_name if mode is Mode.PROCESSES else "root"
        return subprocess.run(
            [*words, f"{name}@127.0.0.1", command], capture_output=True, text=True, timeout=60, check=False
        )

    found = ssh('echo $STOKER_WORD; cat /opt/there || cat "$HOME/there"')
    assert found.stdout.splitlines() == [vm.word, "ready"], found.stderr + vm.console()
    assert ssh("exit 7").returncode == 7
    if mode in APART:
        assert ssh("hostname").stdout == "vm-1\n"
    ssh("poweroff")
    vm.ends()
    assert ssh("true").returncode == 255
    key.unlink()
    key.with_suffix(".pub").unlink()


def test_a_vm_without_keys_has_no_port(place: Place, mode: Mode) -> None:
    vm = place.vm(mode)
    vm.boot()
    assert vm.machine.ssh_port is None


# Choosing


def test_a_trial_that_fails_leaves_no_socket_open(apart: Mode) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        assert not choose.works(apart, 1e-6)
    assert [str(one.message) for one in found] == []


def test_the_best_mode_is_one_that_works(modes: list[Mode]) -> None:
    assert choose.best_mode() is modes[0]


def test_mounts_are_read_from_their_list() -> None:
    text = (
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
        "28 27 0:25 / /a\\040b\\134 ro,nosuid - tmpfs none rw,size=4k\n"
    )
    assert parse_mounts(text) == {"/proc": ("proc", False), "/": ("ext4", False), "/a b\\": ("tmpfs", True)}
