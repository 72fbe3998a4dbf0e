"""Scripts that show what they see, and scripts that end in all the ways there are."""

from __future__ import annotations

SHOW = """
import os, pprint, signal, sys, threading

def stream(s):
    return s.name, s.mode, s.encoding, s.errors, s.line_buffering, s.write_through, type(s.buffer), s.isatty()

shown = {name: value for name, value in globals().items() if name.startswith("__")}
shown.update(__builtins__=type(__builtins__), __loader__=type(__loader__))
shown.update(__spec__=getattr(__spec__, "name", None))
mark = os.environ.pop("STOKER_MARK")
status = [line.split() for line in open("/proc/self/status")]
sees = {
    "main": shown,
    "is main": sys.modules["__main__"].__dict__ is globals(),
    "argv": (sys.argv, getattr(sys, "orig_argv", None), open("/proc/self/cmdline").read().rstrip("\\0")),
    "path": sys.path,
    "flags": sys.flags,
    "interpreter": (sys.executable, sys.prefix, sys.version),
    "environment": dict(os.environ),
    "is marked": f"STOKER_MARK={mark}" in open("/proc/self/environ", errors="replace").read().split("\\0"),
    "directory": os.getcwd(),
    "group": (os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid()),
    "signals": [signal.getsignal(number) for number in (2, 10, 13, 15, 17, 25)],
    "kernel": [line for line in status if line[0] in ("SigBlk:", "SigIgn:", "SigCgt:", "Umask:", "Threads:")],
    "stdin": sys.stdin.read(),
    "streams": [stream(s) for s in (sys.stdin, sys.stdout, sys.stderr)],
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:-1],
    "thread": (threading.current_thread() is threading.main_thread(), threading.active_count()),
    "hooks": (sys.excepthook is sys.__excepthook__, sys.stdout is sys.__stdout__),
}
pprint.pprint(sees, width=100)
"""

_ENDS = """
### nothing
pass

### exit
import sys
sys.exit()

### exit 3, in a function
import sys
def leave():
    sys.exit(3)
leave()

### exit 263
import sys
sys.exit(263)

### exit -1
import sys
sys.exit(-1)

### exit with a text
import sys
sys.exit("no data")

### exit with a list
import sys
sys.exit(["no", 1])

### an exception with its cause
def divide():
    1 / 0
try:
    divide()
except ZeroDivisionError as error:
    raise ValueError("x") from error

### an exception after output
print("first")
raise ValueError("last")

### an exception of another kind
class Mine(BaseException):
    pass
raise Mine(1)

### no Python
x = 1
x = = 2

### interrupted
raise KeyboardInterrupt

### terminated
import os, time
os.kill(os.getpid(), 15)
time.sleep(9)

### aborted
import os
os.abort()

### its group is killed
import os
os.killpg(0, 9)

### os._exit
import os
print("printed")
os._exit(9)

### a hook for exceptions
import sys
def hook(kind, error, trace):
    print(kind, trace.tb_lineno, trace.tb_frame.f_code.co_name, sys.last_value is error)
sys.excepthook = hook
1 / 0

### atexit
import atexit, sys
atexit.register(print, "first")
atexit.register(print, "second")
sys.exit(4)

### atexit fails
import atexit
atexit.register(lambda: 1 / 0)
atexit.register(print, "after")

### a thread
import threading, time
threading.Thread(target=lambda: (time.sleep(0.1), print("thread"))).start()
print("main")

### a daemon thread
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()

### a pool of threads
import time
from concurrent.futures import ThreadPoolExecutor
ThreadPoolExecutor().submit(lambda: (time.sleep(0.1), print("done")))

### objects that are deleted
import os
class Thing:
    def __del__(self):
        print("deleted", os.getpid() > 0)
alone, cycle = Thing(), Thing()
cycle.itself = cycle

### a temporary directory
import tempfile
directory = tempfile.TemporaryDirectory(dir=".")
file = open(directory.name + "/x", "w")

### a file that is not closed
file = open("kept", "w")
file.write("kept")

### a file that is kept by a module of the parent
import decimal
decimal.kept = open("kept too", "w")
decimal.kept.write("kept too")

### no newline at the end
import sys
sys.stdout.write("half")
sys.stderr.write("other half")

### output of a library
import ctypes
ctypes.CDLL(None).printf(b"from a library\\n")

### another program
import subprocess
subprocess.run("echo $OMP_NUM_THREADS; exit 3", shell=True, check=True)

### closed streams
import sys
sys.stdout.close()
sys.stderr.close()
"""

ENDS = dict(part.split("\n", 1) for part in _ENDS.split("### ")[1:])
