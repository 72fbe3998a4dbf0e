"""A random order of 0 … n-1 that is computed place by place, without a list of n."""

from __future__ import annotations

import hashlib
from functools import lru_cache

_ROUNDS = 8
_WORD = (1 << 64) - 1


class Shuffle:
    """A permutation of `range(size)` chosen by `key`; `shuffle[i]` and `shuffle.index(v)` are inverse.

    A Feistel network permutes the next power of four; walking along its cycle until the result falls
    into range makes it a permutation of exactly `size` numbers.
    """

    def __init__(self, size: int, key: str) -> None:
        self.size = size
        self._half = max(2, ((size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        seed = hashlib.blake2b(key.encode(), digest_size=8 * _ROUNDS).digest()
        self._keys = [int.from_bytes(seed[8 * i : 8 * i + 8], "big") for i in range(_ROUNDS)]

    def __getitem__(self, place: int) -> int:
        value = self._forward(place)
        while value >= self.size:
            value = self._forward(value)
        return value

    def index(self, value: int) -> int:
        """The place at which `value` comes."""
        place = self._backward(value)
        while place >= self.size:
            place = self._backward(place)
        return place

    def _forward(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for key in self._keys:
            left, right = right, left ^ self._mix(right, key)
        return left << self._half | right

    def _backward(self, value: int) -> int:
        left, right = value >> self._half, value & self._mask
        for key in reversed(self._keys):
            left, right = right ^ self._mix(left, key), left
        return left << self._half | right

    def _mix(self, half: int, key: int) -> int:
        mixed = (half + key) * 0x9E3779B97F4A7C15 & _WORD
        mixed = (mixed ^ mixed >> 32) * 0xD6E8FEB86659FD93 & _WORD
        return (mixed ^ mixed >> 32) & self._mask


@lru_cache(maxsize=1024)
def shuffle(size: int, key: str) -> Shuffle:
    """The shuffle of that size and key; remembered, because draws come back to the same few."""
    return Shuffle(size, key)
