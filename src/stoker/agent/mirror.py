"""Mirroring a trial's directory to a store, again and again while the trial writes to it.

`files.py` says what stands in the store. Here is what is sent, and when what is deleted.

**What is a change.** A file whose size, time and inode are as before was not changed, and is not read. If its
time was within seconds of our look, it is read once more: a second write may have left the time as it was.
What is read is compared by digest, part by part, and only what no kept manifest has is sent: a checkpoint
that is renamed or copied is not sent again.

**A file that is being written.** It is taken only if it did not change while it was read; otherwise what was
known of it stays, and a new file waits for the next time. Else half a checkpoint would take the place of a
whole one. But a log must get through that grows all the time. So what only grew is taken up to the length it
had at first, if it is text (no zero byte) and what was known of it is unchanged.

**Large logs.** A file that was seen to only grow is a log. When it has grown again, its first part and its
last are read, and what came; those between are believed. Whoever writes it anew changes its beginning. Files
that change in the middle while they grow (data bases) change their beginning too, where they keep their size;
a thorough save, at the end of a stage, reads all that was believed.

**What is deleted.** An attempt deletes only what it wrote itself and neither of the last two manifests needs,
and nothing once a later attempt goes on from its files. One that is thought dead may be about to delete in
that moment. But the manifests it then keeps were written before it looked for the mark, so whoever set the
mark later finds them. All the rest is for `prune`.
"""

# ruff: noqa: PTH115, PTH120  (paths are strings, as in files.py)

from __future__ import annotations

import io
import os
import stat
import tarfile
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from stoker.agent.world import Attempt
from stoker.store.interface import Store, StoreError
from stoker.store.records import TrialId
from stoker.study import files
from stoker.study.files import AT_ONCE, EVERYTHING, PART, File, Manifest, Part, Select, Version, digest

SMALL = 1024 * 1024
"""Files up to this size may be packed together."""
MANY = 32
"""So many small files that changed at once are packed; fewer remain files that a person finds by name."""
_DOUBT = 2.0  # seconds: more than the coarsest clock of a file system
_Send = Callable[[bytes, str, "int | None"], Part]  # contents, digest, which part of several
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Mirror:
    """Keeps a copy of one attempt's directory in a store.

    One call at a time. After a StoreError the next call goes on: what was sent is not sent again.
    """

    def __init__(
        self,
        store: Store,
        attempt: Attempt,
        directory: Path,
        select: Select = EVERYTHING,
        base: Manifest | None = None,
        *,
        part: int = PART,
    ) -> None:
        """`base` is what `restore` gave; `part` the size of the parts of large files, at most PART."""
        self._store = store
        self._attempt = attempt
        self._root = os.path.realpath(directory)
        self._select = select
        self._part = part
        self._kept: deque[Manifest] = deque([base] if base else [], maxlen=2)
        self._seen = {path: _Seen(file) for path, file in base.files.items()} if base else {}
        self._sent = _by_digest(self._kept)
        self._own: set[str] = set()  # keys that this attempt wrote, or tried to
        self._looks = 0
        self._number = 0  # of the last manifest

    def save(self, thorough: bool = False) -> Manifest:
        """Mirror what has changed; the manifest that now describes the directory.

        `thorough` for the end of a stage, when nobody writes: also what is usually believed is read. Raises
        StoreError if the store is away, and OSError if the directory is.
        """
        tree = self._scan()
        seen = self._send(tree.files, thorough)
        found = {path: known.file for path, known in seen.items()}
        directories = self._select.directories(tree.directories, [*found, *tree.links])
        last = self._kept[-1] if self._number else None  # each attempt has a manifest of its own
        if last and (last.directories, last.links, last.files) == (directories, tree.links, found):
            self._seen = seen
            return last
        manifest = self._commit(directories, tree.links, found)
        self._seen = seen
        with suppress(StoreError):  # what is left over now is deleted another time
            self._clean()
        return manifest

    def _scan(self) -> _Tree:
        tree = _Tree()
        for path, entry in files.walk(self._root, lambda path, _: path in tree.directories):
            if entry.name.startswith(files.PRIVATE):
                continue
            with suppress(OSError):  # gone meanwhile
                if entry.is_dir(follow_symlinks=False):
                    if self._select.enters(path):
                        tree.directories[path] = entry.stat(follow_symlinks=False).st_mode & 0o777
                elif self._select.takes(path):
                    tree.add(path, entry)
        return tree

    # Sending

    def _send(self, found: Mapping[str, os.stat_result], thorough: bool) -> dict[str, _Seen]:
        """What is now known of all files, after sending what the store has not."""
        changed = {path for path, status in found.items() if not self._is_known(path, status, thorough)}
        small = sum(found[path].st_size <= SMALL for path in changed)
        self._looks += 1
        seen: dict[str, _Seen] = {}
        with self._sending(packing=small > MANY) as outgoing:
            for path, status in found.items():
                if path in changed:
                    known = self._copy(path, outgoing, thorough)
                else:
                    known = self._seen[path].with_mode(status)
                if known is not None:
                    seen[path] = known
        return seen

    def _is_known(self, path: str, status: os.stat_result, thorough: bool) -> bool:
        seen = self._seen.get(path)
        return seen is not None and seen.is_same(status) and not (thorough and seen.believed)

    @contextmanager
    def _sending(self, packing: bool) -> Iterator[_Outgoing]:
        attempt = self._attempt
        prefix = files.attempt_prefix(attempt.trial, attempt.round, attempt.number)
        outgoing = _Outgoing(self._store, f"{prefix}{self._looks:06d}/", packing, self._sent)
        try:
            yield outgoing
            outgoing.pack()
        finally:
            outgoing.wait()
            self._own |= outgoing.keys
        outgoing.tell()

    def _copy(self, path: str, outgoing: _Outgoing, thorough: bool) -> _Seen | None:
        """Send what is new in a file; None if it is to be left out."""
        seen, place = self._seen.get(path), f"{self._root}/{path}"
        above = os.path.dirname(place)
        try:
            if os.path.realpath(above) != above:
                return None  # a directory became a link meanwhile
            with open(place, "rb", buffering=0, opener=_opener) as file:
                copy = _Copy(file, seen, self._part, lambda *words: outgoing.send(path, *words))
                return copy.take(believing=not thorough) or seen
        except FileNotFoundError:
            return None
        except OSError:  # not ours to read, or a link by now
            return seen

    # Writing the manifest

    def _commit(
        self, directories: Mapping[str, int], links: Mapping[str, str], found: Mapping[str, File]
    ) -> Manifest:
        trial = self._attempt.trial
        while True:
            version = Version(self._attempt.round, self._attempt.number, self._number + 1)
            manifest = Manifest(trial, version, directories, links, found)
            earlier = self._create(files.manifest_key(trial, version), files.encode(manifest))
            self._number += 1
            if earlier is None:
                self._kept.append(manifest)
                return manifest
            # One that was answered with an error had landed all the same. It is as good as any.
            landed = files.decode(trial, version, earlier)
            if landed is not None:
                self._kept.append(landed)

    def _create(self, key: str, data: bytes) -> bytes | None:
        """Put an object; if another one is there, that one."""
        self._own.add(key)
        trouble: StoreError | None = None
        try:
            if self._store.create(key, data):
                return None
        except StoreError as error:
            trouble = error  # it may be there all the same
        there = self._store.read(key)
        if there is None:
            raise trouble or StoreError(f"{self._store.url}/{key} is neither written nor there")
        return None if there == data else there

    # Deleting

    def _clean(self) -> None:
        """Delete what neither of the last two manifests needs."""
        needed = {key for manifest in self._kept for key in files.keys(manifest)}
        self._sent = _by_digest(self._kept)  # nothing else can be relied upon from here on
        old = self._own - needed
        attempt = self._attempt
        if not old or self._store.read(files.taken_key(attempt.trial, attempt.round, attempt.number)):
            return
        manifests = {key for key in old if key.startswith(files.manifest_prefix(attempt.trial))}
        self._delete(manifests)  # first: none is without what it needs
        self._delete(old - manifests)

    def _delete(self, old: Collection[str]) -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for key, _ in zip(old, pool.map(self._store.delete, old), strict=True):
                self._own.discard(key)


# Cleaning up


def prune(store: Store, trial: TrialId) -> int:
    """Delete what the two newest good manifests do not need; how many objects that were.

    Only for a trial that nobody writes to: an attempt that is thought dead may still be about to commit.
    """
    there = [entry.key for entry in store.list(files.trial_prefix(trial))]
    good = islice(_good(store, trial, set(there)), 2)
    needed = {key for manifest in good for key in files.keys(manifest)}
    marks, manifests = files.taken_prefix(trial), files.manifest_prefix(trial)
    old = [key for key in there if key not in needed and not key.startswith(marks)] if needed else []
    for key in sorted(old, key=lambda key: not key.startswith(manifests)):  # as in Mirror
        store.delete(key)
    return len(old)


def _good(store: Store, trial: TrialId, there: set[str]) -> Iterator[Manifest]:
    for version in files.versions(store, trial):
        manifest = files.decode(trial, version, store.read(files.manifest_key(trial, version)))
        if manifest is not None and files.keys(manifest) <= there:
            yield manifest


# The parts of a save


@dataclass
class _Tree:
    """What is in the directory. Pipes, sockets and devices are not."""

    directories: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    files: dict[str, os.stat_result] = field(default_factory=dict)

    def add(self, path: str, entry: os.DirEntry[str]) -> None:
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            self.links[path] = os.readlink(entry.path)
        elif stat.S_ISREG(status.st_mode):
            self.files[path] = status


@dataclass(frozen=True)
class _Seen:
    """What is known of a file from the last time."""

    file: File
    inode: int = 0  # 0: it was restored, and has not been looked at
    sure: bool = True  # a later change would show in its time
    grows: bool = False  # it is a log
    believed: bool = False  # some of it was not read

    def is_same(self, status: os.stat_result) -> bool:
        return (
            self.sure
            and (status.st_size, status.st_mtime_ns) == (self.file.size, self.file.mtime)
            and self.inode in (0, status.st_ino)
        )

    def with_mode(self, status: os.stat_result) -> _Seen:
        mode = status.st_mode & 0o777
        return replace(self, inode=status.st_ino, file=replace(self.file, mode=mode))


class _Copy:
    """One file that is being copied, at the length it had when it was opened."""

    def __init__(self, file: io.FileIO, seen: _Seen | None, part: int, send: _Send) -> None:
        self._file = file
        self._before = os.fstat(file.fileno())
        self._looked = time.time()
        self._seen = seen or _Seen(File(0, 0, ()))
        self._part = part
        self._send = send
        self._intact = True  # what was known is a beginning of what is there
        self._is_text = True

    def take(self, believing: bool) -> _Seen | None:
        """Send what is new; None if the file is changing."""
        size = self._before.st_size
        self._intact = size >= self._seen.file.size
        believed = self._believable() if believing else range(0)
        parts: list[Part] = []
        for index, start in enumerate(range(0, size, self._part)):
            if index in believed:
                parts.append(self._seen.file.parts[index])
                continue
            wanted = min(self._part, size - start)
            data = self._read(start, wanted)
            told = digest(data)
            self._compare(index, data, told)
            if len(data) < wanted or not self._is_steady():
                return None
            parts.append(self._send(data, told, index if size > self._part else None))
        if believed and not self._intact:
            return self.take(believing=False)
        return self._result(tuple(parts), bool(believed)) if self._is_steady() else None

    def _believable(self) -> range:
        """Parts of a log that need not be read: neither the first, nor the last, which may have grown."""
        seen, before = self._seen, self._before
        is_log = seen.grows and seen.inode == before.st_ino and before.st_size > seen.file.size
        return range(1, len(seen.file.parts) - 1) if is_log else range(0)

    def _read(self, start: int, size: int) -> bytes:
        """So many bytes; fewer if the file was cut off."""
        self._file.seek(start)
        data = self._file.read(size)
        while data and len(data) < size and (more := self._file.read(size - len(data))):
            data += more
        return data

    def _compare(self, index: int, data: bytes, told: str) -> None:
        known = self._seen.file.parts[index : index + 1]
        for part in known:
            beginning = told if part.size == len(data) else digest(memoryview(data)[: part.size])
            self._intact = self._intact and beginning == part.digest
        self._is_text = self._is_text and b"\0" not in data

    def _is_steady(self) -> bool:
        """Whether the file is a true one that did not change, or a log that only grew."""
        before, after = self._before, os.fstat(self._file.fileno())
        if (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns):
            return stat.S_ISREG(before.st_mode)
        return after.st_size > before.st_size and self._intact and self._is_text

    def _result(self, parts: tuple[Part, ...], believed: bool) -> _Seen:
        before, seen = self._before, self._seen
        file = File(before.st_mode & 0o777, before.st_mtime_ns, parts)
        sure = abs(self._looked - before.st_mtime) > _DOUBT
        grew = seen.inode == before.st_ino and file.size > seen.file.size
        return _Seen(file, before.st_ino, sure, self._intact and (grew or seen.grows), believed)


class _Outgoing:
    """Objects on their way in one save: a few at once; many small ones packed into a bundle, if wanted."""

    def __init__(self, store: Store, prefix: str, packing: bool, sent: dict[str, Part]) -> None:
        self.keys: set[str] = set()  # all that may have been written
        self._store = store
        self._prefix = prefix
        self._packing = packing
        self._sent = sent  # by digest: what the store has; grows as objects land
        self._bundle = _Bundle()
        self._bundles = 0
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._flying: deque[tuple[Future[None], list[Part]]] = deque()
        self._trouble: StoreError | None = None

    def send(self, path: str, data: bytes, told: str, index: int | None) -> Part:
        """Send a file, or its part with this index, unless the store has it; where it is."""
        if told in self._sent:
            return self._sent[told]
        if self._packing and index is None and len(data) <= SMALL:
            return self._put_into_bundle(path, data, told)
        key = f"{self._prefix}{files.key_name(path)}" + ("" if index is None else f"=part-{index:05d}")
        part = Part(key, 0, len(data), told)
        self._put(key, data, [part])
        return part

    def pack(self) -> None:
        """Send the bundle that was begun."""
        if self._bundle.parts:
            self._put(self._bundle_key(), self._bundle.contents(), self._bundle.parts)
            self._bundle = _Bundle()
            self._bundles += 1

    def wait(self) -> None:
        """Until nothing is on its way."""
        while self._flying:
            self._land()
        self._pool.shutdown()

    def tell(self) -> None:
        """Raise what went wrong."""
        if self._trouble:
            raise self._trouble

    def _bundle_key(self) -> str:
        return f"{self._prefix}=bundle-{self._bundles:05d}.tar"

    def _put_into_bundle(self, path: str, data: bytes, told: str) -> Part:
        if not self._bundle.has_room(path, data):
            self.pack()
        return self._bundle.add(self._bundle_key(), path, data, told)

    def _put(self, key: str, data: bytes, parts: list[Part]) -> None:
        if len(self._flying) >= AT_ONCE:
            self._land()
        self.tell()  # a store that is away need not hear the rest
        self.keys.add(key)
        self._flying.append((self._pool.submit(self._store.write, key, data), parts))

    def _land(self) -> None:
        sending, parts = self._flying.popleft()
        try:
            sending.result()
        except StoreError as error:
            self._trouble = error
        else:
            self._sent.update((part.digest, part) for part in parts)


class _Bundle:
    """Small files in one object: a tar that everybody can open, and whose offsets the manifest knows."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._file = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._file, mode="w")  # noqa: SIM115  (closed with its contents)

    def has_room(self, path: str, data: bytes) -> bool:
        return self._file.tell() + len(data) + 4 * len(os.fsencode(path)) + 8 * tarfile.BLOCKSIZE <= PART

    def add(self, key: str, path: str, data: bytes, told: str) -> Part:
        info = tarfile.TarInfo(path)
        info.size = len(data)
        self._tar.addfile(info, io.BytesIO(data))
        padded = -(-len(data) // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        part = Part(key, self._file.tell() - padded, len(data), told)
        self.parts.append(part)
        return part

    def contents(self) -> bytes:
        self._tar.close()
        return self._file.getvalue()


def _opener(path: str, _: int) -> int:
    return os.open(path, _FLAGS)


def _by_digest(kept: Collection[Manifest]) -> dict[str, Part]:
    return {part.digest: part for manifest in kept for file in manifest.files.values() for part in file.parts}
