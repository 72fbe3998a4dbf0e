"""The commands by which a VM ends itself: `poweroff`, `shutdown`, `reboot` and their relatives."""

from __future__ import annotations

import signal

POWER, RESTART, CRASH = signal.SIGPWR, signal.SIGINT, signal.SIGQUIT
"""What the first process of a VM understands: shut down, boot again, end at once."""

NAMES = ("poweroff", "halt", "shutdown", "reboot", "telinit", "init")
"""In /sbin."""

_SCRIPT = """#!/bin/sh
# Tells the first process of this VM to end it.
power={power} restart={restart} crash={crash} first={first}
name=${{0##*/}}
force= wait= what=$power
tell() {{ kill -s "$1" "$first"; }}
case $name in
    reboot) what=$restart;;
    systemctl)
        for word; do case $word in
            poweroff|halt) verb=$word;;
            reboot|kexec) verb=$word what=$restart;;
            -f|--force|-ff) force=1;;
        esac; done
        if [ -z "$verb" ]; then
            echo "System has not been booted with systemd as init system (PID 1). Can't operate." >&2
            exit 1
        fi;;
    init|telinit)
        case $1 in
            0) ;;
            6) what=$restart;;
            *) echo "$name: only 0 and 6 are known" >&2; exit 1;;
        esac;;
esac
[ "$name" = systemctl ] || for word; do case $word in
    -r|--reboot) what=$restart;;
    -c) exit 0;;
    -f|--force) force=1;;
    --help) echo "usage: $name [-f] [-r] [now|+minutes]"; exit 0;;
    +[0-9]*) wait=${{word#+}};;
esac; done
[ "$name" = shutdown ] && [ $# = 0 ] && wait=1
if [ -n "$wait" ] && [ "$wait" != 0 ]; then
    (sleep "$((wait * 60))"; tell "$what") >/dev/null 2>&1 </dev/null &
    exit 0
fi
if [ -n "$force" ] && [ "$what" = "$power" ]; then what=$crash; fi
tell "$what"
"""


def command(first: int) -> str:
    """The text of all of them: one script, which asks for its own name. `first` is the VM's first process."""
    return _SCRIPT.format(first=first, power="PWR", restart="INT", crash="QUIT")
