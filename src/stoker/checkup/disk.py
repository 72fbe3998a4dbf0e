"""The disk that a directory is on: of which kind, and how much is left."""

from __future__ import annotations

import getpass
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stoker.checkup.finding import FEW, Check, ask, bad, ok, size, warning
from stoker.study.place import is_on_shared_disk

LITTLE = 1e9
"""Bytes that are little, whatever share of the disk they are."""
PATIENCE = 5.0
"""Seconds to wait for a quota: its server may be away."""
LONGEST_CACHED = 60
"""Seconds for which NFS keeps what it knows of a directory, by default, and a lease."""
_TABLE = Path("/proc/self/mountinfo")
_TOLD = re.compile(r"ro|noac|nocto|soft|(local|no)?flock|(actimeo|ac(reg|dir)(min|max)|lookupcache|vers)=.*")


def look(directory: Path) -> Iterator[Check]:
    """The disk of a directory that is there."""
    try:
        table = _TABLE.read_text(encoding="utf-8", errors="replace")
    except OSError:
        table = ""
    mount = find_mount(os.path.realpath(directory), table)
    yield judge_mount(mount, is_on_shared_disk(directory))
    disk = os.statvfs(directory)
    yield judge_space(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
    yield judge_inodes(disk.f_favail, disk.f_files)
    found = _ask_quota(mount) if mount is not None else None
    if found is not None:
        yield judge_quota(found)


# Its kind


@dataclass(frozen=True)
class Mount:
    """A file system, where it is."""

    point: str
    kind: str
    source: str
    options: tuple[str, ...]


def find_mount(place: str, table: str) -> Mount | None:
    """The mount that a path without links is on, from the text of /proc/self/mountinfo."""
    found = None
    for line in table.splitlines():
        before, _, after = line.partition(" - ")
        here, there = before.split(" "), after.split(" ")
        if len(here) < 6 or len(there) < 3:
            continue
        point = _plain(here[4])
        inside = place == point or place.startswith(point.rstrip("/") + "/")
        if inside and (found is None or len(point) >= len(found.point)):
            options = dict.fromkeys(f"{here[5]},{there[2]}".split(","))
            found = Mount(point, there[0], _plain(there[1]), tuple(options))
    return found


def _plain(word: str) -> str:
    """Spaces and the like stand as octal numbers there."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), word)


def judge_mount(mount: Mount | None, is_shared: bool) -> Check:
    """What kind of file system it is, and whether it is mounted so that agents see what others write."""
    name = "file system"
    if mount is None:
        return ok(name, "of a kind that the system does not tell; taken as this machine's own")
    options = [option for option in mount.options if _TOLD.fullmatch(option)]
    if not is_shared:
        return ok(name, f"{mount.kind} at {mount.point}, this machine's own")
    told = f"{mount.kind} at {mount.point} from {mount.source}, shared"
    told += f" ({', '.join(options)})" if options else ""
    if "nocto" in options:
        return warning(name, told, "mount it without nocto: beats would be read as they were a minute ago")
    if longest := [option for option in options if _cached(option) > LONGEST_CACHED]:
        remedy = f"mount it with actimeo=3: with {longest[0]}, what other machines write is seen late"
        return warning(name, told, remedy)
    return ok(name, told)


def _cached(option: str) -> int:
    """For how many seconds an option lets NFS take a directory as it was."""
    found = re.fullmatch(r"(?:actimeo|acdirmin|acdirmax)=(\d+)", option)
    return int(found[1]) if found else 0


# What is left


def judge_space(free: int, total: int) -> Check:
    """Bytes that this user may still write."""
    share = free / total if total else 0.0
    told = f"{size(free)} free of {size(total)} ({share:.0%})"
    if not free:
        return bad("space", told, "the disk is full: free some of it; agents wait until there is space")
    if free < LITTLE or share < FEW:
        return warning("space", told, "free some of it, or put the study elsewhere (-o)")
    return ok("space", told)


def judge_inodes(free: int, total: int) -> Check:
    """How many files there may still be."""
    if not total:
        return ok("inodes", "not counted here")
    told = f"{free:,} free of {total:,} ({free / total:.0%})"
    if not free:
        return bad("inodes", told, "remove files that are not needed: no more can be made")
    if free / total < FEW:
        remedy = "remove files that are not needed; a trial makes seven, and what its commands write"
        return warning("inodes", told, remedy)
    return ok("inodes", told)


@dataclass(frozen=True)
class Quota:
    """What a user has of bytes and files, and the most of each; 0 if there is no limit."""

    used: int
    most: int
    files: int
    most_files: int


def parse_quota(text: str, names: tuple[str, ...]) -> Quota | None:
    """From what `quota -wp` and `lfs quota` print, the line of the file system with one of these names.

    Name, kB, soft and hard limit, grace, files, soft and hard limit, grace. A star marks what is too much.
    The name may stand on a line of its own.
    """
    words = text.split()
    for place, word in enumerate(words):
        numbers = [cell.rstrip("*") for cell in words[place + 1 : place + 8]]
        if word in names and len(numbers) == 7 and all(map(str.isdecimal, numbers[:3] + numbers[4:])):
            used, soft, hard = (int(cell) * 1024 for cell in numbers[:3])
            files, soft_files, hard_files = (int(cell) for cell in numbers[4:])
            return Quota(used, _least(soft, hard), files, _least(soft_files, hard_files))
    return None


def _least(*limits: int) -> int:
    return min(filter(None, limits), default=0)


def judge_quota(quota: Quota) -> Check:
    """How near the user is to a limit."""
    told, left = [], [1.0]
    if quota.most:
        told.append(f"{size(quota.used)} of {size(quota.most)}")
        left.append(1 - quota.used / quota.most)
    if quota.most_files:
        told.append(f"{quota.files:,} of {quota.most_files:,} files")
        left.append(1 - quota.files / quota.most_files)
    found = ", ".join(told) or "no limit"
    if min(left) <= 0:
        return bad("quota", found, "remove files that are not needed, or ask for more")
    if min(left) < FEW:
        return warning("quota", found, "remove files that are not needed, or ask for more")
    return ok("quota", found)


def _ask_quota(mount: Mount) -> Quota | None:
    """Best effort: most file systems have none, and some do not answer."""
    if mount.kind == "lustre" and shutil.which("lfs"):
        try:
            user = getpass.getuser()
        except (KeyError, OSError):
            return None
        said = ask("lfs", "quota", "-u", user, mount.point, patience=PATIENCE).out
    elif shutil.which("quota"):
        said = ask("quota", "-wp", patience=PATIENCE).out
    else:
        return None
    return parse_quota(said, (mount.point, mount.source))
