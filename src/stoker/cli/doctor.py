"""Check this machine and a directory for what Stoker needs, and say what to do about the rest.

The directory is where a study is, or will be; the current one, if none is named. Its file system is tried
out as agents use it, by two processes at once. With --with, the second one runs on another host; with --on
slurm, on a node of the cluster. Files that this makes are removed again.

Exits with 0 if nothing is bad, and with 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from stoker.checkup.finding import Check, Verdict
from stoker.core.errors import UsageError
from stoker.spec.problems import printable

USAGE = "[DIRECTORY]"
EXAMPLES = """\
  stoker doctor                        this machine, and the current directory
  stoker doctor /shared/me --with gpu7 that directory, from here and from gpu7
  stoker doctor --on slurm             the cluster too, and one of its nodes
"""

_SIGNS = {Verdict.OK: ("✔", "+", "32"), Verdict.WARNING: ("!", "!", "33"), Verdict.BAD: ("✘", "x", "31")}
_NARROWEST = 14


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `stoker doctor`."""
    parser.add_argument(
        "directory", metavar="DIRECTORY", nargs="?", default=".", help="where a study is, or will be"
    )
    parser.add_argument(
        "--with", metavar="HOST", dest="host", help="another host that shares the directory, reached by ssh"
    )
    parser.add_argument("--on", choices=["slurm"], help="check this cluster too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--half", action="store_true", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Look at everything, and show it."""
    if "://" in options.directory:
        raise UsageError(f"{options.directory}: only directories are checked; a bucket needs no file system")
    if options.host is not None and (not options.host or options.host.startswith("-")):
        raise UsageError(f"--with {options.host}: expected a host that ssh knows")
    if options.half:
        from stoker.checkup.half import serve

        return serve(Path(options.directory))
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # nothing stays behind
    sections = _sections(Path(options.directory).absolute(), options.host, options.on == "slurm")
    return _print_json(sections) if options.json else _show(sections)


Section = tuple[str, Iterable[Check]]


def _sections(directory: Path, host: str | None, on_slurm: bool) -> Iterator[Section]:
    from stoker.checkup import directory as place
    from stoker.checkup import machine, other, race, slurm

    yield "this machine", machine.look()
    found = list(place.look(directory))
    yield "the directory", found
    if not _is_bad(found):
        yield "two processes in it", race.look(directory, other.here())
        if host is not None:
            yield f"this host and {host}", race.look(directory, other.by_ssh(host))
    if on_slurm or slurm.is_here():
        answered = list(slurm.look(directory, on_slurm))
        yield "Slurm", answered
        if on_slurm and not _is_bad([*found, *answered]):
            yield "this host and a node", race.look(directory, other.by_srun())


def _is_bad(checks: Iterable[Check]) -> bool:
    return any(check.verdict is Verdict.BAD for check in checks)


def _show(sections: Iterable[Section]) -> int:
    """Print a section as soon as it is known."""
    counts = dict.fromkeys(Verdict, 0)
    for title, found in sections:
        checks = list(found)
        sys.stdout.write(f"{_bold(printable(title))}\n")
        width = max([_NARROWEST, *(len(check.name) for check in checks)])
        for check in checks:
            counts[check.verdict] += 1
            sys.stdout.write("".join(f"{line}\n" for line in _lines(check, width)))
        sys.stdout.flush()
    sys.stdout.write(f"\n{_total(counts)}\n")
    return 1 if counts[Verdict.BAD] else 0


def _lines(check: Check, width: int) -> Iterator[str]:
    yield f"  {_sign(check.verdict)} {printable(check.name):<{width}}  {printable(check.found)}"
    if check.remedy:
        yield f"    {'':<{width}}  → {printable(check.remedy)}"


def _total(counts: dict[Verdict, int]) -> str:
    wrong, odd = counts[Verdict.BAD], counts[Verdict.WARNING]
    if not wrong and not odd:
        return "all is well"
    warnings = f"{odd} warning{'s' * (odd != 1)}"
    return f"{wrong} bad, {warnings}" if wrong else f"nothing is bad; {warnings}"


def _sign(verdict: Verdict) -> str:
    sign, plain, colour = _SIGNS[verdict]
    shown = sign if _can_show(sign) else plain
    return f"\x1b[{colour}m{shown}\x1b[0m" if _is_coloured() else shown


def _bold(text: str) -> str:
    return f"\x1b[1m{text}\x1b[0m" if _is_coloured() else text


def _is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _can_show(sign: str) -> bool:
    try:
        sign.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True


def _print_json(sections: Iterable[Section]) -> int:
    told = [
        {
            "about": title,
            "name": check.name,
            "verdict": check.verdict.value,
            "found": check.found,
            "remedy": check.remedy,
        }
        for title, found in sections
        for check in found
    ]
    is_bad = any(check["verdict"] == Verdict.BAD.value for check in told)
    sys.stdout.write(json.dumps({"ok": not is_bad, "checks": told}, indent=2, ensure_ascii=False) + "\n")
    return 1 if is_bad else 0
