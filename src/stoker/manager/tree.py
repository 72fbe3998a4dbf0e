"""State as a file that can be read without running anything that is in it.

A state is plain data: dicts, lists, tuples, numbers, texts, bytes, and tensors and arrays in them. It is
written as JSON that tells its shape, and the tensors' bytes behind it:

    STOKER1\\n  length of the JSON (8 bytes)  its CRC-32 (4)  JSON  padding  bytes of tensors and arrays

The JSON has the CRC-32 of those bytes. Nothing is pickled, unless whoever saves and whoever loads both ask
for it.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import sys
import zlib
from collections import Counter, OrderedDict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Mapping

MAGIC = b"STOKER1\n"
_HEAD = struct.Struct("<8sQI")
_ALIGN = 64
_CHUNK = 1 << 24


class Unsafe(TypeError):
    """Something that cannot be saved as plain data, or must not be loaded."""


class Damaged(ValueError):
    """A file that is not what was written."""


class Buffer:
    """Memory that is used again and again: new memory would cost more than copying into it."""

    def __init__(self) -> None:
        self.memory: Any = None
        self._owner: Any = None  # of pinned memory
        self.size = 0

    def reserve(self, size: int, pinned: bool = False) -> None:
        """Have at least so many bytes. Memory that a GPU can copy into by itself is pinned."""
        if size <= self.size:
            return
        self.memory = self._owner = None  # before the new one is made
        if pinned:
            import ctypes

            torch = sys.modules["torch"]
            self._owner = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            self.memory = (ctypes.c_char * size).from_address(self._owner.data_ptr())
        else:
            self.memory = mmap.mmap(-1, max(size, 1))
            if hasattr(mmap, "MADV_HUGEPAGE"):
                try:
                    self.memory.madvise(mmap.MADV_HUGEPAGE)
                except OSError:
                    pass
        self.size = size


class Packed:
    """A state, copied: what it was made of may change from now on."""

    def __init__(self, skeleton: Any, leaves: list[dict[str, Any]], buffer: Buffer, size: int) -> None:
        self.skeleton, self.leaves, self.buffer, self.size = skeleton, leaves, buffer, size

    def write(self, path: str, more: Mapping[str, Any] | None = None) -> None:
        """Write it to a new file, with more to tell at its beginning."""
        view = memoryview(self.buffer.memory)[: self.size] if self.size else memoryview(b"")
        crc = 0
        for begin in range(0, self.size, _CHUNK):
            crc = zlib.crc32(view[begin : begin + _CHUNK], crc)
        told = {"state": self.skeleton, "leaves": self.leaves, "crc": crc, "size": self.size, **(more or {})}
        text = json.dumps(told).encode()
        text += b" " * (-(_HEAD.size + len(text)) % _ALIGN)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            _write(file, memoryview(_HEAD.pack(MAGIC, len(text), zlib.crc32(text)) + text))
            _write(file, view)
            os.fsync(file)
        finally:
            view.release()
            os.close(file)

    def view(self) -> Any:
        """The state again, made of the copied memory itself."""
        told = {"state": self.skeleton, "leaves": self.leaves}
        return _unpack(told, self.buffer.memory or bytearray(), False, is_view=True)


def _write(file: int, data: memoryview) -> None:
    while len(data):
        data = data[os.write(file, data[:_CHUNK]) :]


# Packing


def pack(state: Any, buffer: Buffer, allow_pickle: bool = False) -> Packed:
    """Copy a state into a buffer. Raises Unsafe for what is no plain data, naming where it is."""
    leaves: list[tuple[dict[str, Any], Any]] = []
    skeleton = _Packer(leaves, allow_pickle).value(state, "")
    size = 0
    for leaf, _ in leaves:
        leaf["at"] = size
        size += leaf["bytes"] + -leaf["bytes"] % _ALIGN
    torch = sys.modules.get("torch")
    pinned = torch is not None and any(getattr(data, "is_cuda", False) for _, data in leaves)
    buffer.reserve(size, pinned)
    with _OneThread(torch):
        for leaf, data in leaves:
            if leaf["bytes"]:
                _COPY[leaf["is"]](leaf, data, buffer.memory)
    return Packed(skeleton, [leaf for leaf, _ in leaves], buffer, size)


class _OneThread:
    """Torch copies with one thread: more wait for one another at each tensor, if others have the cores."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._threads = torch.get_num_threads() if torch is not None else 1

    def __enter__(self) -> None:
        if self._threads > 1:
            self._torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        if self._threads > 1:
            self._torch.set_num_threads(self._threads)


class _Packer:
    def __init__(self, leaves: list[tuple[dict[str, Any], Any]], allow_pickle: bool) -> None:
        self._leaves, self._allow_pickle = leaves, allow_pickle

    def value(self, value: Any, where: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if kind is list:
            return [self.value(item, f"{where}[{place}]") for place, item in enumerate(value)]
        if isinstance(value, dict):
            return self._mapping(value, where)
        if isinstance(value, tuple):  # torch.Size and named ones as well
            return {"!tuple": [self.value(item, f"{where}[{place}]") for place, item in enumerate(value)]}
        if kind in (set, frozenset):
            return {"!set": [self.value(item, where) for item in sorted(value, key=repr)]}
        if kind in (bytes, bytearray):
            return self._leaf({"is": "bytes", "bytes": len(value)}, value)
        return self._array(value, where)

    def _mapping(self, value: Mapping[Any, Any], where: str) -> Any:
        items = [
            (key, self.value(item, f"{where}.{key}" if where else str(key))) for key, item in value.items()
        ]
        if type(value) not in (OrderedDict, Counter) and all(
            type(key) is str and key[:1] != "!" for key in value
        ):
            return dict(items)
        name = {OrderedDict: "!ordered", Counter: "!counter"}.get(type(value), "!dict")
        return {name: [[self.value(key, where), item] for key, item in items]}

    def _array(self, value: Any, where: str) -> Any:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if torch is not None and isinstance(value, torch.Tensor):
            if value.layout is not torch.strided or value.is_quantized or value.is_meta:
                raise Unsafe(f"{where or 'the state'} is a tensor that is sparse, quantised or without data")
            tensor = value.detach()
            about = {"is": "tensor", "dtype": str(tensor.dtype).split(".")[-1], "shape": list(tensor.shape)}
            return self._leaf({**about, "bytes": tensor.numel() * tensor.element_size()}, tensor)
        if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
            array = numpy.asarray(value)
            if array.dtype.hasobject or array.dtype.names:
                raise Unsafe(f"{where or 'the state'} is an array of {array.dtype}, which is no plain data")
            name = "array" if isinstance(value, numpy.ndarray) else "scalar"
            about = {"is": name, "dtype": array.dtype.str, "shape": list(array.shape)}
            return self._leaf({**about, "bytes": array.nbytes}, array)
        if isinstance(value, (int, float, str)):  # an enumeration, or another kind of number
            return {int: int, float: float, str: str}[
                next(t for t in (int, float, str) if isinstance(value, t))
            ](value)
        if self._allow_pickle:
            import pickle

            data = pickle.dumps(value)
            return self._leaf({"is": "pickle", "bytes": len(data)}, data)
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise Unsafe(
            f"{where or 'the state'} is a {kind}, which is no plain data; save what it is made of, or pass "
            "allow_pickle=True to create_manager if you trust the store"
        )

    def _leaf(self, about: dict[str, Any], data: Any) -> dict[str, int]:
        self._leaves.append((about, data))
        return {"!leaf": len(self._leaves) - 1}


def _copy_bytes(leaf: Mapping[str, Any], data: Any, memory: Any) -> None:
    memory[leaf["at"] : leaf["at"] + leaf["bytes"]] = bytes(data)


def _copy_tensor(leaf: Mapping[str, Any], tensor: Any, memory: Any) -> None:
    torch = sys.modules["torch"]
    place = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=leaf["at"])
    place.view(tensor.shape).copy_(tensor)


def _copy_array(leaf: Mapping[str, Any], array: Any, memory: Any) -> None:
    numpy = sys.modules["numpy"]
    place = numpy.frombuffer(memory, dtype=array.dtype, count=array.size, offset=leaf["at"])
    place.reshape(array.shape)[...] = array


_COPY: dict[str, Callable[..., None]] = {
    "bytes": _copy_bytes,
    "pickle": _copy_bytes,
    "tensor": _copy_tensor,
    "array": _copy_array,
    "scalar": _copy_array,
}


# Loading


def read(path: str) -> tuple[dict[str, Any], bytearray]:
    """What a file tells of itself, and its data; raises Damaged if it is not as it was written."""
    try:
        with open(path, "rb") as file:
            head = _read_head(file, path)
            size = os.fstat(file.fileno()).st_size
            data = bytearray(head["size"] if head["size"] <= size else 0)
            if file.readinto(data) != head["size"]:
                raise Damaged(f"{path} is cut off")
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error
    if zlib.crc32(data) != head.get("crc"):
        raise Damaged(f"{path} is damaged: its checksum is wrong")
    return head, data


def read_head(path: str) -> dict[str, Any]:
    """What a file tells of itself; its data is not looked at."""
    try:
        with open(path, "rb") as file:
            return _read_head(file, path)
    except OSError as error:
        raise Damaged(f"{path} cannot be read: {error.strerror}") from error


def _read_head(file: Any, path: str) -> dict[str, Any]:
    start = file.read(_HEAD.size)
    if len(start) != _HEAD.size:
        raise Damaged(f"{path} is cut off")
    magic, length, crc = _HEAD.unpack(start)
    if magic != MAGIC:
        raise Damaged(f"{path} is no checkpoint of Stoker")
    text = file.read(length) if length <= os.fstat(file.fileno()).st_size else b""
    if len(text) != length or zlib.crc32(text) != crc:
        raise Damaged(f"{path} is damaged, at its beginning")
    try:
        head: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        raise Damaged(f"{path} is no checkpoint of Stoker: its beginning cannot be read") from None
    is_whole = isinstance(head, dict) and isinstance(head.get("leaves"), list) and _is_count(head.get("size"))
    if not is_whole:
        raise Damaged(f"{path} is no checkpoint of Stoker: its beginning does not tell what is in it")
    return head


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def unpack(head: Mapping[str, Any], data: bytearray, allow_pickle: bool = False) -> Any:
    """The state that was packed. Nothing in it can run code, unless pickles are allowed.

    Whoever wrote the file may have lied in it: what does not fit together is Damaged.
    """
    try:
        return _unpack(head, data, allow_pickle)
    except (Unsafe, Damaged):
        raise
    except Exception as error:  # whatever torch and numpy make of it
        told = str(error).split("\n", 1)[0]
        raise Damaged(f"it does not fit together ({type(error).__name__}: {told})") from None


def _unpack(head: Mapping[str, Any], data: bytearray, allow_pickle: bool, is_view: bool = False) -> Any:
    leaves = head["leaves"]

    def value(node: Any) -> Any:
        if isinstance(node, list):
            return [value(item) for item in node]
        if not isinstance(node, dict):
            return node
        if len(node) == 1:
            ((name, inside),) = node.items()
            if name == "!leaf":
                return _load(leaves[inside], data, allow_pickle, is_view)
            if name in _MADE:
                return _MADE[name](value(inside))
        return {key: value(item) for key, item in node.items()}

    return value(head["state"])


_MADE: dict[str, Callable[[Any], Any]] = {
    "!tuple": tuple,
    "!set": set,
    "!dict": dict,
    "!ordered": OrderedDict,
    "!counter": lambda items: Counter(dict(items)),
}


def _load(leaf: Mapping[str, Any], data: bytearray, allow_pickle: bool, is_view: bool) -> Any:
    kind, begin, size = leaf["is"], leaf["at"], leaf["bytes"]
    if not _is_count(begin) or not _is_count(size) or begin + size > len(data):
        raise Damaged("it names bytes that it does not have")
    if kind == "tensor":
        import torch

        dtype = getattr(torch, leaf["dtype"])
        if not isinstance(dtype, torch.dtype):
            raise Damaged(f"there is no type {leaf['dtype']!r} of tensors")
        _check_shape(leaf, torch.empty(0, dtype=dtype).element_size())
        if not size:
            return torch.empty(leaf["shape"], dtype=dtype)
        count = math.prod(leaf["shape"])
        tensor = torch.frombuffer(data, dtype=dtype, count=count, offset=begin).reshape(leaf["shape"])
        return tensor if is_view else tensor.clone()
    if kind in ("array", "scalar"):
        import numpy

        dtype = numpy.dtype(leaf["dtype"])
        _check_shape(leaf, dtype.itemsize)
        found = numpy.frombuffer(data, dtype=dtype, count=math.prod(leaf["shape"]), offset=begin).copy()
        return found.reshape(leaf["shape"]) if kind == "array" else found[0]
    if kind == "pickle":
        if not allow_pickle:
            raise Unsafe(
                "it has a pickle in it, which may run anything: pass allow_pickle=True if you trust the store"
            )
        import pickle

        return pickle.loads(bytes(data[begin : begin + size]))
    return bytes(data[begin : begin + size])


def _check_shape(leaf: Mapping[str, Any], item: int) -> None:
    """Before memory is taken for it: a shape may lie."""
    if not all(map(_is_count, leaf["shape"])) or math.prod(leaf["shape"]) * item != leaf["bytes"]:
        raise Damaged(f"its shape {leaf['shape']} is not that of {leaf['bytes']} bytes")
