"""A parent for trials: it has imported what they import, and forks for each of them.

    PYTHON [-u] preload.py OPTIONS

The agent starts it in the environment, directory and with the interpreter of a slot's stages. It imports the
modules, tells how that went, and then forks whenever the agent asks. The script that runs in the child is not
changed and must notice nothing, so:

- the parent does as little as possible by itself, and has what Python gave it at its start: streams, signals,
  environment. Whatever it imports leaves there what it would leave in a script.
- the child is the agent's: the process between the two ends at once, and Linux hands its child to the next
  subreaper above. From then on it is waited for, measured and killed like every other stage.
- the child runs nothing before the agent has taken it and told it what to run.
- at its end the child does what Python does at exit, for all that the script made and imported. What it got
  from the parent is left to the kernel: torch alone would take a quarter of a second to take down.

Forking is safe while there is one thread, and no GPU in use: otherwise the parent says so, and is not used.
"""

# What this file imports is imported in every trial: so it is little, and not before the path is right.
# ruff: noqa: E402
from __future__ import annotations

_FRESH = {name: value for name, value in globals().items() if name[:2] == "__"}  # what a script begins with

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
if sys.path and os.path.abspath(sys.path[0]) == _HERE:
    del sys.path[0]  # nothing of this directory is for trials
_AT_START = frozenset(sys.modules)

import array
import atexit
import ctypes
import gc
import importlib
import io
import json
import runpy
import signal
import socket
import time
import types
import warnings
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_GPUS = ("/dev/nvidia", "/dev/kfd", "/dev/dri/")
_INTERRUPTED = -signal.SIGINT


# The parent


def prepare(options: dict[str, Any]) -> dict[str, Any]:
    """Import the modules, and tell whether it is safe to fork and which files must not change."""
    root = options["root"] or os.getcwd()
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, root)
    problem = _hidden(root) or _import(options["modules"]) or _unsafe() or _unmarked(options["mark"])
    return {"problem": problem, "files": {} if problem else _files()}


def _hidden(root: str) -> str:
    """A script that has a json.py beside it means that one, but here the library's is imported by now."""
    for name in sorted(set(sys.modules) - _AT_START):
        for path in (os.path.join(root, name + ".py"), os.path.join(root, name, "__init__.py")):
            if os.path.exists(path):
                return f"{path} hides a module of Python"
    return ""


_ALSO = {"torch": "torch._dynamo"}
"""What a module imports late, as torch does for the first optimizer: it takes longer than the rest."""


def _import(modules: list[str]) -> str:
    for name in modules:
        try:
            importlib.import_module(name)
        except BaseException as error:  # whatever a module does, SystemExit included
            return f"cannot import {name}: {type(error).__name__}: {error}"
        try:
            importlib.import_module(_ALSO.get(name, name))
        except ImportError:  # another version has no such part
            pass
    return ""


def _unsafe() -> str:
    """Why this process must not fork."""
    if _threads() > 1:
        _fork_once()  # a library that knows of forks ends its threads before the first, as OpenBLAS does
    if _threads() > 1:
        return "the modules start threads"
    if _has_children():
        return "the modules start processes"
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if (cuda is not None and cuda.is_initialized()) or _uses_gpu():
        return "the modules use a GPU when they are imported"
    return ""


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))


def _fork_once() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python's own, about threads
        pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def _has_children() -> bool:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _uses_gpu() -> bool:
    """Also what `torch.cuda.is_available()` does: the driver is not of use after a fork."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + name).startswith(_GPUS):
                return True
        except OSError:  # the descriptor of the listing itself
            pass
    return False


def _unmarked(mark: list[str]) -> str:
    try:
        _show_mark(mark[0], mark[1])
    except (OSError, ValueError) as error:
        return f"cannot mark processes: {error}"
    return ""


def _files() -> dict[str, list[int]]:
    """Files whose change makes this parent stale.

    Of a package that was installed, the first one: an installer replaces them all.
    """
    standard = os.path.dirname(os.__file__) + os.sep
    found = {}
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(path, str) or name == "__main__":
            continue
        installed = "/site-packages/" in path or "/dist-packages/" in path
        if "." in name if installed else path.startswith(standard):
            continue
        try:
            about = os.stat(path)
        except OSError:
            continue
        found[path] = [about.st_mtime_ns, about.st_size, about.st_ino]
    return found


def serve(channel: socket.socket, session: bool) -> dict[str, Any]:
    """Fork whenever the agent asks. Returns only in a child: what it has to run."""
    while True:
        size = array.array("i").itemsize
        message, passed, _, _ = channel.recvmsg(1, socket.CMSG_SPACE(2 * size), socket.MSG_CMSG_CLOEXEC)
        if not message:
            os._exit(0)  # the agent is gone, or needs us no more
        descriptors = array.array("i")
        for _, _, data in passed:
            descriptors.frombytes(data[: len(data) - len(data) % size])
        between = os.fork()
        if not between:
            os.setpgid(0, 0)
            between = os.getpid()
            if os.fork():
                os._exit(0)
            channel.close()
            return _be_born(between, session, descriptors[0], descriptors[1])
        for descriptor in descriptors:
            os.close(descriptor)
        os.waitpid(between, 0)


# The child


def _be_born(between: int, session: bool, log: int, told: int) -> dict[str, Any]:
    """Become a stage of the agent's, and hear from it what to run."""
    os.setsid() if session else os.setpgid(0, 0)
    while os.getppid() == between:
        time.sleep(0.0001)
    with socket.socket(fileno=told) as channel:
        channel.sendall(b"%d\n" % os.getpid())
        with channel.makefile("rb") as lines:
            line = lines.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # the agent is gone, or no longer wants us
    for stream in (1, 2):
        os.dup2(log, stream)
    os.close(log)
    request: dict[str, Any] = json.loads(line)
    return request


def become(request: dict[str, Any]) -> None:
    """Be what a fresh process would be."""
    _show_mark(request["mark"][0], request["mark"][1])
    _show_command(request["command"])
    os.environ.update(request["environment"])
    if hasattr(sys, "orig_argv"):
        sys.orig_argv[:] = request["command"]
    sys.path_importer_cache.clear()
    if "numpy.random" in sys.modules:  # `random` does that by itself
        sys.modules["numpy.random"].seed()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()  # that of the CPU; those of GPUs begin with a constant
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)


def run(argv: list[str]) -> int:
    """Run a script, or `-m` and a module, as Python does; returns the exit code."""
    main = types.ModuleType("__main__")
    main.__dict__.update(_FRESH, __doc__=None)
    sys.modules["__main__"] = main
    sys.argv = argv
    try:
        if argv[0] == "-m":
            name = argv.pop(1)
            del main.__dict__["__file__"]
            runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what `python -m` itself calls
        else:
            _run_script(main)
    except SystemExit as error:
        return _exit_code(error.code)
    except BaseException as error:
        _show(error)
        return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _run_script(main: types.ModuleType) -> None:
    path = os.path.join(os.getcwd(), sys.argv[0])
    loader = type(_FRESH["__loader__"])("__main__", path)
    main.__dict__.update(__file__=path, __loader__=loader)
    try:
        source = loader.get_data(path)
    except OSError as error:
        sys.stderr.write(
            f"{sys.executable}: can't open file '{path}': [Errno {error.errno}] {error.strerror}\n"
        )
        raise SystemExit(2) from None
    try:
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    finally:
        for stream in (sys.stderr, sys.stdout):  # in this order, and before a traceback
            _try_to_write(stream)


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1


def _show(error: BaseException) -> None:
    """The traceback of a script begins in the script."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    sys.excepthook(type(error), error, trace)


# Its end


def finish(code: int, before: Mapping[str, object]) -> None:
    """End as Python does, but for what the parent had imported."""
    threading = sys.modules.get("threading")
    if threading is not None:
        _try(threading._shutdown)
    _try(atexit._run_exitfuncs)
    code = code if _flush() else 120
    _drop(before, threading is None or threading.active_count() == 1)
    _flush()
    ctypes.CDLL(None).fflush(None)  # what libraries printed
    if code == _INTERRUPTED:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code)


def _try(act: Callable[[], Any]) -> None:
    try:
        act()
    except BaseException:  # it is said, and the end goes on
        sys.excepthook(*sys.exc_info())


def _flush() -> bool:
    """Write what was printed; False if that is impossible, which Python tells by an exit code of its own."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None and not stream.closed:
                stream.flush()
    except Exception:
        return False
    return True


def _drop(before: Mapping[str, object], alone: bool) -> None:
    """Let go of what the script made and imported: files are written, `__del__` is called."""
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    new = [name for name, module in sys.modules.items() if before.get(name) is not module]
    left = [
        weakref.ref(sys.modules.pop(name)) for name in new if isinstance(sys.modules[name], types.ModuleType)
    ]
    gc.collect()
    for one in reversed(left):  # what others hold on to; a thread that is still there may need it
        module = one()
        if module is not None and alone:
            module.__dict__.update((name, None) for name in list(module.__dict__) if name != "__builtins__")
    gc.collect()
    for thing in gc.get_objects():  # files that are kept somewhere in what the parent had imported
        if issubclass(type(thing), io.IOBase) and not isinstance(thing, io.RawIOBase):
            _try_to_write(thing)


def _try_to_write(file: Any) -> None:
    try:
        if file is not None and not file.closed:
            file.flush()
    except Exception:  # noqa: S110  (Python says nothing either)
        pass


# What ps shows, and how the agent knows whose a process is


def _show_mark(name: str, mark: str) -> None:
    """Change the mark where other processes see it: in the memory that this one was started with.

    /proc/PID/environ shows that memory, whatever becomes of `os.environ`.
    """
    with open("/proc/self/environ", "rb") as file:
        text = b"\0" + file.read()
    wanted = f"{name}={mark}".encode()
    place = text.find(b"\0" + name.encode() + b"=")
    end = text.find(b"\0", place + 1)
    if place < 0 or end - place - 1 != len(wanted):
        raise ValueError("no place for it")
    _overwrite(_fields()[47] + place, wanted)


def _show_command(command: list[str]) -> None:
    start, end = _fields()[45:47]
    text = "\0".join(command).encode("utf-8", "surrogateescape")[: end - start - 1]
    _overwrite(start, text.ljust(end - start, b"\0"))


def _fields() -> list[int]:
    """/proc/self/stat from the state on; where the arguments and the environment are comes late in it."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    return [0, *map(int, fields[1:])]


def _overwrite(address: int, text: bytes) -> None:
    memory = os.open("/proc/self/mem", os.O_WRONLY | os.O_CLOEXEC)
    try:
        if os.pwrite(memory, text, address) != len(text):
            raise OSError("the memory is not ours")
    finally:
        os.close(memory)


def main() -> dict[str, Any]:
    """Prepare and serve; returns in a child."""
    options = json.loads(sys.argv[1])
    sys.argv = [""]
    channel = socket.socket(fileno=options["channel"])
    channel.set_inheritable(False)
    told = prepare(options)
    channel.sendall(json.dumps(told).encode() + b"\n")
    if told["problem"]:
        os._exit(1)
    _flush()
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        finalizer.atexit = False  # what modules made for themselves: a child must not take it from the others
    gc.collect()
    gc.freeze()  # children do not look at it, so its pages stay shared
    return serve(channel, options["session"])


if __name__ == "__main__":
    _request = main()
    _before = dict(sys.modules)
    become(_request)
    finish(run(_request["argv"]), _before)
