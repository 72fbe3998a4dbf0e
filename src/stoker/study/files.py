"""The files of a trial in a store, and how they come back to a directory.

    files/0001/000000005/                     trial 5 of iteration 1
      manifests/001.002.000003                what the trial's directory was, at the third save of attempt 2
      001.002/000007/ckpt/model.pt            a file that this attempt sent, the seventh time it looked
      001.002/000007/ckpt/big.pt=part-00000   large files are in parts: `cat` them in order
      001.002/000007/=bundle-00000.tar        many small files that changed at once
      taken/001.002                           a later attempt goes on from this one

A manifest is written last, and names all that it needs; so what it names is whole. Objects are never written
twice: an older manifest stays as good as it was. `mirror.py` writes all this, and says when it removes what.

A store is not trusted: whatever a manifest says, nothing is written outside the directory it is fetched to.
"""

# Paths are strings here: ten thousand Paths take longer than the system calls they are made for.
# ruff: noqa: PTH101, PTH102, PTH103, PTH106, PTH108, PTH112, PTH115, PTH123, PTH211

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import Protocol

from stoker.core.errors import StokerError
from stoker.store import records
from stoker.store.directory import whole_file
from stoker.store.interface import Store, check_key
from stoker.store.records import TrialId

PART = 16 * 1024 * 1024
"""No object is larger, so that one fits into memory and a change in a large file sends little."""
AT_ONCE = 4
"""Objects on their way at the same time."""
PRIVATE = ".tmp-"
"""Names that begin so are files in the making; they never travel."""


class DamagedError(StokerError):
    """What a manifest names is not there, or is not what it was."""


# What a manifest says


@dataclass(frozen=True)
class Part:
    """Some bytes of a file, and where they are."""

    key: str
    start: int  # in the object, which may be a bundle
    size: int
    digest: str


@dataclass(frozen=True)
class File:
    """A file: its parts in order. An empty file has none."""

    mode: int
    mtime: int  # nanoseconds
    parts: tuple[Part, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(part.size for part in self.parts)


@dataclass(frozen=True, order=True)
class Version:
    """A manifest among those of its trial; the greatest is the newest."""

    round: int
    attempt: int
    number: int = 0


@dataclass(frozen=True)
class Manifest:
    """What a trial's directory was. Paths are relative, with slashes, and decoded as by `os.fsdecode`."""

    trial: TrialId
    version: Version
    directories: Mapping[str, int]  # their mode
    links: Mapping[str, str]  # where they point, which may be anywhere
    files: Mapping[str, File]

    def only(self, select: Select) -> Manifest:
        """The part of it that somebody wants, with the directories that lead there."""
        files = {path: file for path, file in self.files.items() if select.takes(path)}
        links = {path: target for path, target in self.links.items() if select.takes(path)}
        directories = select.directories(self.directories, [*files, *links])
        return replace(self, directories=directories, links=links, files=files)


@dataclass(frozen=True)
class Select:
    """Which files travel: those that `include` matches, or all if it is empty, but none that `exclude` does.

    `*.tmp` matches at any depth, `ckpt/*` and `/log` from the trial's directory, `**` any number of
    directories, `cache/` only directories. What matches a directory matches all that is in it.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def takes(self, path: str, is_directory: bool = False) -> bool:
        """Whether this path travels."""
        if _covers(self.exclude, path, is_directory):
            return False
        return not self.include or _covers(self.include, path, is_directory)

    def enters(self, path: str) -> bool:
        """Whether anything in this directory may travel."""
        return not _covers(self.exclude, path, True)

    def directories(self, known: Mapping[str, int], others: Iterable[str]) -> dict[str, int]:
        """Those that travel, and those on the way to these and to other paths that do."""
        taken = [path for path in known if self.takes(path, True)]
        needed = {above for path in (*taken, *others) for above in _above(path)}.union(taken)
        return {path: mode for path, mode in known.items() if path in needed}


EVERYTHING = Select()


def _covers(patterns: Sequence[str], path: str, is_directory: bool) -> bool:
    """Whether a pattern matches the path, or a directory that it is in."""
    if not patterns:
        return False
    words = path.split("/")
    return any(
        _matches(pattern, words[:depth], is_directory or depth < len(words))
        for depth in range(1, len(words) + 1)
        for pattern in patterns
    )


def _matches(pattern: str, words: Sequence[str], is_directory: bool) -> bool:
    bare = pattern.rstrip("/")
    if bare != pattern and not is_directory:
        return False
    if "/" not in bare:
        return fnmatchcase(words[-1], bare)
    return _fits(words, re.sub(r"^\.?/", "", bare).split("/"))


def _fits(words: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "**":
        return any(_fits(words[skipped:], pattern[1:]) for skipped in range(len(words) + 1))
    return bool(words) and fnmatchcase(words[0], pattern[0]) and _fits(words[1:], pattern[1:])


# Where things stand in the store


def trial_prefix(trial: TrialId) -> str:
    """Where the files of a trial stand."""
    return f"files/{trial.iteration:04d}/{trial.number:09d}/"


def manifest_prefix(trial: TrialId) -> str:
    """Where the manifests of all attempts stand, so that one listing shows them."""
    return f"{trial_prefix(trial)}manifests/"


def manifest_key(trial: TrialId, version: Version) -> str:
    """A manifest."""
    return f"{manifest_prefix(trial)}{version.round:03d}.{version.attempt:03d}.{version.number:06d}"


def attempt_prefix(trial: TrialId, round_: int, attempt: int) -> str:
    """Where an attempt, and nobody else, puts what it sends."""
    return f"{trial_prefix(trial)}{round_:03d}.{attempt:03d}/"


def taken_prefix(trial: TrialId) -> str:
    """Where the marks stand that say which attempts were given up."""
    return f"{trial_prefix(trial)}taken/"


def taken_key(trial: TrialId, round_: int, attempt: int) -> str:
    """A mark: a later attempt goes on from this one, which must delete nothing from now on."""
    return f"{taken_prefix(trial)}{round_:03d}.{attempt:03d}"


def key_name(path: str) -> str:
    """A path as words of a key: bytes other than ASCII letters, digits and `._-` become =hex."""
    name = "/".join(_word(os.fsencode(word)) for word in path.split("/"))
    too_long = len(name) > 600 or any(len(word) > 200 for word in name.split("/"))
    return f"=name-{digest(os.fsencode(path))}" if too_long else name


def _word(name: bytes) -> str:
    plain = re.sub(rb"[^A-Za-z0-9._-]", lambda match: b"=%02X" % ord(match[0]), name).decode()
    return f"={ord(plain[0]):02X}{plain[1:]}" if plain[0] in ".-" else plain


def digest(data: bytes | memoryview) -> str:
    """What tells contents apart."""
    return blake2b(data, digest_size=20).hexdigest()


# Reading and writing manifests


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON. A check over all of it tells when it was damaged."""
    skip = len(trial_prefix(manifest.trial))
    body = {
        "v": records.VERSION,
        "directories": manifest.directories,
        "links": manifest.links,
        "files": {
            path: [
                file.mode,
                file.mtime,
                [[part.key[skip:], part.start, part.size, part.digest] for part in file.parts],
            ]
            for path, file in manifest.files.items()
        },
    }
    # Only ASCII: names that are not UTF-8 come as lone surrogates.
    return json.dumps({**body, "check": digest(json.dumps(body).encode())}).encode() + b"\n"


def decode(trial: TrialId, version: Version, data: bytes | None) -> Manifest | None:
    """The manifest, or None if there is none, or if it is torn, of another version, or not to be trusted."""
    try:
        body = records.decode(data)
        if body is None or body.pop("check") != digest(json.dumps(body).encode()):
            return None
        prefix = trial_prefix(trial)
        files = {path: _file(prefix, *told) for path, told in body["files"].items()}
        directories = {path: int(mode) for path, mode in body["directories"].items()}
        manifest = Manifest(trial, version, directories, body["links"], files)
        _check_tree(manifest)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError):
        return None
    return manifest


def _file(prefix: str, mode: int, mtime: int, parts: Sequence[tuple[str, int, int, str]]) -> File:
    _check(0 <= mode <= 0o777 and abs(mtime) < 2**63)
    return File(int(mode), int(mtime), tuple(_part(prefix, *part) for part in parts))


def _part(prefix: str, key: str, start: int, size: int, told: str) -> Part:
    _check(0 <= start <= 2 * PART and 0 < size <= PART)
    return Part(check_key(prefix + key), int(start), int(size), str(told))


def _check_tree(manifest: Manifest) -> None:
    """Nothing leads out of the directory, and nothing stands in what is no directory."""
    directories, links, files = manifest.directories, manifest.links, manifest.files
    paths = [*directories, *links, *files]
    _check(len(set(paths)) == len(paths))
    for path in paths:
        _check(all(_is_name(word) for word in path.split("/")))
        _check("/" not in path or path.rpartition("/")[0] in directories)
    _check(all(0 <= mode <= 0o777 for mode in directories.values()))
    _check(all(target and b"\0" not in os.fsencode(target) for target in links.values()))


def _is_name(word: str) -> bool:
    return word not in ("", ".", "..") and not word.startswith(PRIVATE) and b"\0" not in os.fsencode(word)


def _check(holds: bool) -> None:
    if not holds:
        raise ValueError


# Finding


_ANY = Version(10**6, 0)


def versions(store: Store, trial: TrialId, before: Version = _ANY) -> list[Version]:
    """The manifests of a trial, newest first."""
    prefix = manifest_prefix(trial)
    names = [entry.key.removeprefix(prefix).split(".") for entry in store.list(prefix)]
    found = [Version(*map(int, words)) for words in names if len(words) == 3 and all(map(str.isdigit, words))]
    found = sorted((version for version in found if version < before), reverse=True)
    # A listing may be late; a read is not.
    while found and store.read(manifest_key(trial, newer := _next(found[0]))) is not None:
        found.insert(0, newer)
    return found


def newest(store: Store, trial: TrialId, before: Version = _ANY) -> Manifest | None:
    """The newest manifest that can be read: `before` Version(3, 1) the newest of rounds 1 and 2."""
    return _first_good(store, trial, versions(store, trial, before), lambda manifest: None)


def read_file(store: Store, file: File, start: int = 0) -> Iterator[bytes]:
    """A file's contents from `start` on, piece by piece; raises DamagedError where they are not as they were.

    What comes before is not asked for, so that the end of a large log is quickly read, again and again.
    """
    parts = list(file.parts)
    while parts and start >= parts[0].size:
        start -= parts.pop(0).size
    for piece in _pieces(store, parts):
        yield piece[start:]
        start = 0


class Claimed(Protocol):
    """An attempt at a trial, with the key of its claim."""

    @property
    def trial(self) -> TrialId: ...  # noqa: D102
    @property
    def round(self) -> int: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def claim(self) -> str: ...  # noqa: D102


def restore(store: Store, attempt: Claimed, directory: Path, oldest_round: int = 1) -> Manifest | None:
    """Make the directory what the newest good manifest of earlier attempts says, as on a fresh machine.

    What is not in it is removed; with no good manifest, everything. Give the result to Mirror as its base:
    what did not change since is not sent again. For that the earlier attempts are told, before their
    manifests are chosen, to delete nothing any more: one of them may live and not know that it was given up.
    """
    trial, before = attempt.trial, Version(attempt.round, attempt.number)

    def known() -> list[Version]:
        return [version for version in versions(store, trial, before) if version.round >= oldest_round]

    for round_, number in sorted({(version.round, version.attempt) for version in known()}):
        store.create(taken_key(trial, round_, number), records.encode({"by": attempt.claim}))
    found = _first_good(store, trial, known(), lambda manifest: fetch(store, manifest, directory, whole=True))
    if found is None:
        _remove_others(os.path.realpath(directory), Manifest(trial, before, {}, {}, {}))
    return found


def pull(
    store: Store, trial: TrialId, directory: Path, select: Select = EVERYTHING, before: Version = _ANY
) -> Manifest | None:
    """Get what is wanted of a trial; again, only what has changed. Other files in the directory stay."""
    found = versions(store, trial, before)
    return _first_good(store, trial, found, lambda manifest: fetch(store, manifest.only(select), directory))


def keys(manifest: Manifest) -> set[str]:
    """All objects that make up this manifest, itself among them."""
    parts = {part.key for file in manifest.files.values() for part in file.parts}
    return parts | {manifest_key(manifest.trial, manifest.version)}


def _next(version: Version) -> Version:
    return replace(version, number=version.number + 1)


def _first_good(
    store: Store, trial: TrialId, found: Sequence[Version], use: Callable[[Manifest], None]
) -> Manifest | None:
    """The first that can be used."""
    for version in found:
        manifest = decode(trial, version, store.read(manifest_key(trial, version)))
        if manifest is not None:
            with suppress(DamagedError):
                use(manifest)
                return manifest
    return None


# Fetching


def fetch(store: Store, manifest: Manifest, directory: Path, whole: bool = False) -> None:
    """Bring a directory to what the manifest says; `whole` removes what it does not name.

    Each file appears when it is complete. Those that are there, with the same size and time or the same
    contents, are not read from the store: whoever is interrupted goes on. Raises DamagedError where the
    store has not what the manifest names, and OSError where the disk is full or a directory in the way.
    """
    root = os.path.realpath(directory)
    os.makedirs(root, exist_ok=True)
    if whole:
        _remove_others(root, manifest)
    for path in sorted(manifest.directories):  # from here on, none of these is a link that leads elsewhere
        _make_directory(f"{root}/{path}")
    missing = [(path, file) for path, file in manifest.files.items() if not _is_there(f"{root}/{path}", file)]
    missing.sort(key=lambda item: [(part.key, part.start) for part in item[1].parts[:1]])
    with closing(_pieces(store, [part for _, file in missing for part in file.parts])) as pieces:
        for path, file in missing:
            with whole_file(f"{root}/{path}") as temp, open(temp, "xb") as target:
                target.writelines(islice(pieces, len(file.parts)))
    for path, file in manifest.files.items():
        os.chmod(f"{root}/{path}", file.mode)
        os.utime(f"{root}/{path}", ns=(file.mtime, file.mtime))
    for path, target_ in manifest.links.items():
        _make_link(f"{root}/{path}", target_)
    for path in sorted(manifest.directories, reverse=True):
        os.chmod(f"{root}/{path}", manifest.directories[path])


def _pieces(store: Store, parts: Iterable[Part]) -> Generator[bytes, None, None]:
    """The contents of these parts, each checked. Neighbours in one object cost one read."""
    runs = [(key, list(run)) for key, run in groupby(parts, attrgetter("key"))]
    objects = _read_ahead(store, [key for key, _ in runs])
    with closing(objects):
        for (key, run), data in zip(runs, objects, strict=True):
            for part in run:
                piece = (data or b"")[part.start : part.start + part.size]
                if len(piece) != part.size or digest(piece) != part.digest:
                    raise DamagedError(f"{store.url}/{key} is {'damaged' if data else 'missing'}")
                yield piece


def _read_ahead(store: Store, keys_: Iterable[str]) -> Generator[bytes | None, None, None]:
    """The objects in this order, while the next few are on their way."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        coming: deque[Future[bytes | None]] = deque()
        for key in keys_:
            coming.append(pool.submit(store.read, key))
            if len(coming) >= AT_ONCE:
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()


def _is_there(path: str, file: File) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISREG(found.st_mode) or found.st_size != file.size:
        return False
    return found.st_mtime_ns == file.mtime or _has_contents(path, file)


def _has_contents(path: str, file: File) -> bool:
    try:
        with open(path, "rb") as there:
            return all(digest(there.read(part.size)) == part.digest for part in file.parts)
    except PermissionError:
        return False


def _make_directory(path: str) -> None:
    """A true directory that we can write to, whatever stood there."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        os.mkdir(path)
        return
    if not stat.S_ISDIR(found.st_mode):
        os.unlink(path)
        os.mkdir(path)
    elif found.st_mode & 0o700 != 0o700:
        os.chmod(path, 0o700)


def _make_link(path: str, target: str) -> None:
    with suppress(OSError):
        if os.readlink(path) == target:
            return
    with suppress(FileNotFoundError):
        os.unlink(path)
    os.symlink(target, path)


def _remove_others(root: str, manifest: Manifest) -> None:
    """Remove what the manifest does not name, or names as something else."""
    found = list(walk(root, _open_up)) if os.path.isdir(root) else []
    for path, entry in reversed(found):  # what is in a directory before the directory
        if entry.is_dir(follow_symlinks=False):
            if path not in manifest.directories:
                os.rmdir(entry.path)
        elif path not in (manifest.links if entry.is_symlink() else manifest.files):
            os.unlink(entry.path)


def _open_up(path: str, entry: os.DirEntry[str]) -> bool:
    if entry.stat(follow_symlinks=False).st_mode & 0o700 != 0o700:
        os.chmod(entry.path, 0o700)
    return True


def walk(root: str, enter: Callable[[str, os.DirEntry[str]], bool]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """All that is in a directory, each before what is in it. Links are not followed.

    Without recursion: a tree may be deeper than Python's stack.
    """
    levels = [("", root)]
    while levels:
        above, place = levels.pop()
        try:
            with os.scandir(place) as entries:
                found = sorted(entries, key=attrgetter("name"))
        except OSError:
            if not above:
                raise
            continue  # gone meanwhile, or not ours to read
        for entry in found:
            path = above + entry.name
            yield path, entry
            if entry.is_dir(follow_symlinks=False) and enter(path, entry):
                levels.append((f"{path}/", entry.path))


def _above(path: str) -> Iterator[str]:
    """The directories that a path is in."""
    for match in re.finditer("/", path):
        yield path[: match.start()]
