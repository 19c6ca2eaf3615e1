"""Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).

Every number depends on (seed, stream, step, element index) only, so that a recompute, another backend or another order
of execution draws the same one. The mapping, for element i of a tensor (row-major):

- counter words: `(i // 4) mod 2^32`, `(i // 4) // 2^32`, `stream mod 2^32`, `step mod 2^32`
- key words: `seed mod 2^32`, `(seed // 2^32) mod 2^32`
- the element's word is output word `i mod 4` of that block
- uniform: `(word >> 8) * 2^-24`, in [0, 1), exact in float32
- keep an element with dropout ratio r: `(word >> 8) >= ceil(r * 2^24)`
- normal (Box-Muller): with a and b the words `i mod 4` rounded down to even, and the one after it,
  `r = sqrt(-2 ln(((a >> 8) + 1) * 2^-24))`, `t = 2 pi (b >> 8) * 2^-24`; even i takes `r cos t`, odd i `r sin t`
"""

from __future__ import annotations

from math import ceil, pi
from typing import Any, TypeAlias

import numpy as np

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_ROUNDS = 10
_UNIT = 2.0**-24
# Blocks made at a time: temporaries of this many 64-bit words stay in the second-level cache.
_BATCH = 1 << 14


def philox(counter: tuple[Words, Words, Words, Words], key: tuple[int, int]) -> tuple[Words, Words, Words, Words]:
    """The four output words (in uint64) of Philox4x32-10 for arrays of counter words and one key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        first, second = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (second >> _SHIFT) ^ c1 ^ np.uint64(k0),
            second & _MASK,
            (first >> _SHIFT) ^ c3 ^ np.uint64(k1),
            first & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & 0xFFFFFFFF, (k1 + _WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def words(count: int, *, seed: int, stream: int, step: int) -> Words:
    """The 32-bit words (in uint64) of elements 0 to `count` - 1."""
    blocks = -(-count // 4)
    result = np.empty((blocks, 4), np.uint64)
    key = (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)
    for start in range(0, blocks, _BATCH):
        index = np.arange(start, min(start + _BATCH, blocks), dtype=np.uint64)
        high = np.full_like(index, stream & 0xFFFFFFFF), np.full_like(index, step & 0xFFFFFFFF)
        for word, values in enumerate(philox((index & _MASK, index >> _SHIFT, *high), key)):
            result[start : start + _BATCH, word] = values
    return result.reshape(-1)[:count]


def uniform(count: int, *, seed: int, stream: int, step: int) -> Floats:
    """`count` multiples of 2^-24 in [0, 1)."""
    return (words(count, seed=seed, stream=stream, step=step) >> np.uint64(8)).astype(np.float64) * _UNIT


def keep(count: int, ratio: float, *, seed: int, stream: int, step: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which of `count` elements a dropout of `ratio` keeps."""
    return (words(count, seed=seed, stream=stream, step=step) >> np.uint64(8)) >= np.uint64(ceil(ratio * 2**24))


def normal(count: int, *, seed: int, stream: int, step: int) -> Floats:
    """`count` numbers of the standard normal distribution."""
    pairs = uniform(count + count % 2, seed=seed, stream=stream, step=step).reshape(-1, 2)
    radius, angle = np.sqrt(-2.0 * np.log(pairs[:, 0] + _UNIT)), 2.0 * pi * pairs[:, 1]
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=1).reshape(-1)[:count]
