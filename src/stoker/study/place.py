"""Where a study lives: a directory of this machine, one that many machines share, or a bucket."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from stoker.core.errors import UsageError
from stoker.store import REMOTE, open_store
from stoker.store.directory import DirectoryStore
from stoker.store.interface import Store

RECORDS = ".stoker"
"""Where the records stand in the output directory of a study."""
FLAT = f"{RECORDS}/flat/"
"""Where managers of trials that share one directory write."""

_SHARED = re.compile(
    r"nfs\d?|lustre|beegfs|gpfs|cifs|smb\d?|ceph|glusterfs|9p|afs|fhgfs|panfs|wekafs|pvfs2|orangefs|dvs"
    r"|gfs2|ocfs2|quobyte|virtiofs|fuse\..*",
    re.ASCII,
)


@dataclass(frozen=True)
class Place:
    """A study's store, and whether its trials' directories are there too."""

    url: str
    store: Store
    output: (
        Path | None
    )  # where the trials' directories are; None for a bucket, where each machine has its own
    is_shared: bool = False  # other machines see the directory too

    @property
    def is_remote(self) -> bool:
        """Whether files have to be copied to the store."""
        return self.output is None


def open_place(word: str, must_exist: bool = False) -> Place:
    """The place that a user names: the output directory of a study, or the URL of a bucket.

    If it must exist, a directory is not made again when somebody moves or removes it.
    """
    if word.partition("://")[0] in REMOTE and "://" in word:
        store = open_store(word)
        return Place(store.url, store, None)
    if "://" in word:
        word = open_store(word).url  # file:///PATH, or the message that tells what is possible
    path = Path(word)
    if path.exists() and not path.is_dir():
        raise UsageError(f"{word} is a file; a study's output is a directory")
    return Place(
        str(path.absolute()),
        DirectoryStore(path / RECORDS, must_exist=must_exist),
        path,
        is_on_shared_disk(path),
    )


def is_on_shared_disk(path: Path, table: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether a path is on a network file system, as far as the system tells."""
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return False
    found, longest = "", -1
    place = os.path.realpath(path)
    for line in lines:
        before, _, after = line.partition(" - ")
        mount = re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), before.split(" ")[4])
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= longest:
            found, longest = after.split(" ")[0], len(mount)
    return bool(_SHARED.fullmatch(found))
