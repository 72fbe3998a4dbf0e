"""Checkpoints: copied while training waits, written by a thread while it goes on, committed by a rename.

    checkpoints/train.1-2.000007.state     all that was tracked, at the 7th save of attempt 2 in round 1
    checkpoints/train.1-2.000007.params    what was given to `save_progress`, in a form of its own
    checkpoints/train.1-2.000005.best      the best model so far, and the best parameters

A state names the other two with their checksums, and is committed last. Of two or more states that are kept,
the newest that is not damaged counts.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import zlib
from collections import Counter

from stoker.manager import tree
from stoker.manager.trial import files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

    from stoker.manager.trial import Trial

KEEP = 2
"""So many states are kept, lest the last one is damaged."""


class Job:
    """One checkpoint to be written."""

    def __init__(
        self,
        state: tree.Packed,
        about: dict[str, Any],
        params: Callable[[str], None] | None,
        best: Callable[[str], None] | None,
        first: Callable[[], None],
    ) -> None:
        self.state, self.about, self.params, self.best = state, about, params, best
        self.first = first  # to be done before: a state counts on the progress that came before it


class Saver:
    """Writes checkpoints of one attempt, one at a time."""

    def __init__(self, trial: Trial, complain: Callable[[str], None]) -> None:
        self._trial, self._complain = trial, complain
        self._number = 0
        self._job: Job | None = None
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        self._ends = False
        self._best: dict[str, Any] | None = None  # file and checksum of the best that is written
        self._params: dict[str, Any] | None = None  # the same for what was given to `save_progress` last
        self._new_best: Callable[[str], None] | None = None  # one that is to be written yet
        self.seconds = 0.0  # that the last checkpoint took to write
        self.failed = ""  # why the last one was not written
        self.has_saved = False

    @property
    def best(self) -> str | None:
        """The file of the best that is written."""
        return None if self._best is None else str(self._best["file"])

    @property
    def is_busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._job is not None

    def submit(self, job: Job) -> None:
        """Write a checkpoint; the one before must be written."""
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stoker checkpoints", daemon=True)
                self._thread.start()
            self._job = job
            self._changed.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing is being written."""
        with self._changed:
            return self._changed.wait_for(lambda: self._job is None, seconds)

    def close(self) -> None:
        """Write what is left, and end."""
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._job is not None or self._ends)
                job = self._job
            if job is None:
                return
            began = time.monotonic()
            try:
                self._write(job)
                self.failed, self.has_saved = "", True
            except OSError as error:
                self.failed = f"{error.strerror or error}"
                self._complain(f"cannot save a checkpoint: {self.failed}; the one before stays")
            except Exception as error:
                self.failed = f"{type(error).__name__}: {error}"
                self._complain(f"cannot save a checkpoint: {self.failed}; the one before stays")
            self.seconds = time.monotonic() - began
            with self._changed:
                self._job = None
                self._changed.notify_all()

    def _write(self, job: Job) -> None:
        job.first()
        self._new_best = job.best or self._new_best  # the disk may have been full for the last one
        self._number += 1
        os.makedirs(self._trial.checkpoints, exist_ok=True)
        self._remove_torn()
        made: list[str] = []
        try:
            best = self._best if self._new_best is None else self._part(self._new_best, "best", made)
            params = self._params if job.params is None else self._part(job.params, "params", made)
            about = {**job.about, "attempt": list(self._trial.attempt), "params": params, "best": best}
            path = self._path("state")
            job.state.write(f"{path}.tmp", about)
            os.replace(f"{path}.tmp", path)
        except BaseException:
            for name in (*made, *(self._path(kind) + ".tmp" for kind in ("state", "params", "best"))):
                _remove(name)
            raise
        self._best, self._params, self._new_best = best, params, None
        self._sync_directory()
        self._tidy()

    def _part(self, write: Callable[[str], None], kind: str, made: list[str]) -> dict[str, Any]:
        path = self._path(kind)
        write(f"{path}.tmp")
        crc = checksum(f"{path}.tmp", sync=True)
        os.replace(f"{path}.tmp", path)
        made.append(path)
        return {"file": os.path.basename(path), "crc": crc}

    def _path(self, kind: str) -> str:
        round_, attempt = self._trial.attempt
        name = f"{self._trial.stage}.{round_}-{attempt}.{self._number:06d}.{kind}"
        return os.path.join(self._trial.checkpoints, name)

    def _sync_directory(self) -> None:
        file = os.open(self._trial.checkpoints, os.O_RDONLY)
        try:
            os.fsync(file)
        except OSError:
            pass  # some file systems cannot
        finally:
            os.close(file)

    def _remove_torn(self) -> None:
        """What attempts that were killed did not write to the end."""
        for name in os.listdir(self._trial.checkpoints):
            if name.startswith(f"{self._trial.stage}.") and name.endswith(".tmp"):
                _remove(os.path.join(self._trial.checkpoints, name))

    def _tidy(self) -> None:
        """Remove states that newer ones replace, and what only those named."""
        states = list(files(self._trial.checkpoints, self._trial.stage, "state"))
        kept = {os.path.basename(file.path) for file in states[-KEEP:]}
        for file in states[-KEEP:]:
            try:
                head = tree.read_head(file.path)
            except tree.Damaged:
                continue
            kept.update(part["file"] for part in (head.get("params"), head.get("best")) if part)
        newest = states[-1].order if states else ((0, 0), 0)
        for kind in ("state", "params", "best"):
            for file in files(self._trial.checkpoints, self._trial.stage, kind):
                if os.path.basename(file.path) not in kept and file.order < newest:
                    _remove(file.path)

    def take_over(self, best: dict[str, Any] | None, params: dict[str, Any] | None) -> None:
        """An earlier attempt's best is the best so far, and what it was given last is what was given."""
        self._best, self._params = best, params


class Found:
    """A checkpoint that can be gone on from."""

    def __init__(self, directory: str, head: dict[str, Any], state: dict[str, Any]) -> None:
        self.directory, self.head, self.state = directory, head, state

    @property
    def attempt(self) -> tuple[int, int]:
        """The round and attempt that made it."""
        return self.head["attempt"][0], self.head["attempt"][1]

    def part(self, kind: str) -> str | None:
        """The path of its `params` or `best`, if it has any."""
        part = self.head.get(kind)
        return None if part is None else os.path.join(self.directory, part["file"])


def newest(trial: Trial, allow_pickle: bool, complain: Callable[[str], None]) -> Found | None:
    """The newest checkpoint of a stage that is not damaged; damaged ones are told.

    One that would run code is refused, and the one before is not taken: whoever allowed it wants to go on.
    """
    for file in reversed(list(files(trial.checkpoints, trial.stage, "state"))):
        if file.attempt[0] < trial.since:
            return None
        try:
            return _open(file.path, allow_pickle)
        except tree.Damaged as error:
            complain(f"{error}; going on from the checkpoint before it, if there is one")
    return None


def _open(path: str, allow_pickle: bool) -> Found:
    head, data = tree.read(path)
    try:
        _check_head(head)
        for kind in ("params", "best"):
            _check_part(os.path.dirname(path), head.get(kind))
        state = tree.unpack(head, data, allow_pickle)
    except tree.Unsafe as error:
        raise tree.Unsafe(f"{path} is refused: {error}") from None
    except tree.Damaged as error:
        raise tree.Damaged(f"{path} is damaged: {error}") from None
    parts = (
        [state.get(name) for name in ("objects", "random", "notes")] if isinstance(state, dict) else [None]
    )
    if not all(isinstance(part, dict) for part in parts):
        raise tree.Damaged(f"{path} is damaged: it has no state")
    return Found(os.path.dirname(path), head, state)


def _check_head(head: Mapping[str, Any]) -> None:
    """What is said about a state is used as it is, so it must be right."""
    attempt, counts, epoch = head.get("attempt"), head.get("counts"), head.get("epoch")
    if not isinstance(attempt, list) or [type(number) for number in attempt] != [int, int]:
        raise tree.Damaged("it does not tell whose it is")
    if not isinstance(counts, dict) or not all(type(n) is int and n >= 0 for n in counts.values()):
        raise tree.Damaged("it does not tell how much progress there was")
    if epoch is not None and type(epoch) is not int:
        raise tree.Damaged("it does not tell its epoch")


def _check_part(directory: str, part: Any) -> None:
    if part is None:
        return
    name = part.get("file") if isinstance(part, dict) else None
    if not isinstance(name, str) or name != os.path.basename(name) or name in ("", ".", ".."):
        raise tree.Damaged(f"it names {name!r}, which is no file of a checkpoint")
    try:
        crc = checksum(os.path.join(directory, name))
    except OSError as error:
        raise tree.Damaged(f"{name} cannot be read: {error.strerror}") from error
    if crc != part.get("crc"):
        raise tree.Damaged(f"{name} has a wrong checksum")


def checksum(path: str, sync: bool = False) -> int:
    """The CRC-32 of a file; with `sync` it is on the disk afterwards."""
    crc = 0
    with open(path, "rb") as file:
        while True:
            chunk = file.read(1 << 22)
            if not chunk:
                break
            crc = zlib.crc32(chunk, crc)
        if sync:
            os.fsync(file.fileno())
    return crc


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


# What people give to be saved


def make_writer(value: Any, buffer: tree.Buffer, allow_pickle: bool) -> Callable[[str], None]:
    """Copy a value now; returns what writes it. Tensors are written as torch does, plain data as JSON.

    What is large is copied into the buffer, which must not be used again before it is written.
    """
    torch = sys.modules.get("torch")
    if torch is not None and has_tensor(value, torch) and _is_torchs(value, torch):
        packed = tree.pack(value, buffer)
        return lambda path: torch.save(packed.view(), path)
    if isinstance(value, (bytes, bytearray)) and _is_opaque(value):
        data = bytes(value)
        return lambda path: _write_bytes(path, data)
    try:
        text = json.dumps(value)
        if json.loads(text) == value:
            return lambda path: _write_bytes(path, text.encode())
    except (TypeError, ValueError, RecursionError):
        pass
    return tree.pack(value, buffer, allow_pickle).write


def load_written(path: str, allow_pickle: bool) -> Any:
    """What `make_writer` wrote. Nothing in it can run code, unless pickles are allowed."""
    with open(path, "rb") as file:
        start = file.read(8)
    if start == tree.MAGIC:
        return tree.unpack(*tree.read(path), allow_pickle=allow_pickle)
    if start[:2] == _ZIP:
        return _load_torch(path)
    with open(path, "rb") as file:
        data = file.read()
    try:
        return json.loads(data)
    except ValueError:
        return data
    except RecursionError:
        raise tree.Damaged("it is nested too deeply") from None


_ZIP = b"PK"


def _is_opaque(data: bytes | bytearray) -> bool:
    """Whether bytes are taken for nothing else when they are loaded."""
    if data[:8] == tree.MAGIC or data[:2] == _ZIP:
        return False
    try:
        json.loads(data)
    except ValueError:
        return True
    except RecursionError:
        return False
    return False


def _load_torch(path: str) -> Any:
    import pickle

    import torch

    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError:
        raise tree.Unsafe("it is torch's, with more than tensors in it, which may run anything") from None
    except (RuntimeError, ValueError, KeyError, EOFError) as error:
        raise tree.Damaged(f"torch cannot read it: {str(error).splitlines()[0]}") from None


def _write_bytes(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def has_tensor(value: Any, torch: Any) -> bool:
    """Whether there is a tensor of torch anywhere in it."""
    if isinstance(value, dict):
        return any(has_tensor(item, torch) for item in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_tensor(item, torch) for item in value)
    return isinstance(value, torch.Tensor)


def _is_torchs(value: Any, torch: Any) -> bool:
    """Whether torch loads it without running anything: other things are written in our own form."""
    if isinstance(value, dict) and not isinstance(value, Counter):
        return all(_is_torchs(item, torch) for pair in value.items() for item in pair)
    if type(value) in (list, tuple):
        return all(_is_torchs(item, torch) for item in value)
    return value is None or type(value) in (bool, int, float, str) or isinstance(value, torch.Tensor)
