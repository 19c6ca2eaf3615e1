"""Geometry of sliding windows over the spatial axes: what convolutions and pools share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from snplan.runtime.numpy.base import Array, Attrs

# All images, all channels.
_FULL = (slice(None), slice(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows over an input of spatial shape `size`: each field has one entry for each spatial axis.

    `count` is the number of windows, `begin` and `end` the pads (negative ones crop).
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    count: tuple[int, ...]

    @property
    def padded(self) -> tuple[int, ...]:
        """Spatial shape that holds the padded input and every window, also those that reach past its end."""
        axes = zip(self.size, self.kernel, self.strides, self.dilations, self.begin, self.end, self.count, strict=True)
        return tuple(max(n + b + e, (c - 1) * s + (k - 1) * d + 1) for n, k, s, d, b, e, c in axes)

    @property
    def plain(self) -> bool:
        """Whether every window is one element, in order: kernel 1, stride 1, no pads."""
        ones = (1,) * len(self.size)
        return self.kernel == ones and self.strides == ones and not any(self.begin) and not any(self.end)

    def offsets(self) -> Iterator[tuple[int, tuple[slice, ...]]]:
        """For each position in a window, row-major: its number, and where a padded [N, C, ...] array meets it."""
        for number, position in enumerate(product(*(range(k) for k in self.kernel))):
            axes = zip(position, self.dilations, self.count, self.strides, strict=True)
            yield number, _FULL + tuple(slice(p * d, p * d + (c - 1) * s + 1 if c else p * d, s) for p, d, c, s in axes)


def windows_of(attrs: Attrs, size: Sequence[int], kernel: Sequence[int], count: Sequence[int] | None = None) -> Windows:
    """The windows that `attrs` (`strides`, `pads`, `dilations`) say; `count` is worked out where it is not given."""
    rank = len(size)
    strides, dilations = tuple(attrs["strides"]), tuple(attrs["dilations"])
    begin, end = tuple(attrs["pads"][:rank]), tuple(attrs["pads"][rank:])
    if count is None:
        axes = zip(size, kernel, strides, dilations, begin, end, strict=True)
        count = [max(0, (n + b + e - (k - 1) * d - 1) // s + 1) for n, k, s, d, b, e in axes]
    return Windows(
        size=tuple(size),
        kernel=tuple(kernel),
        strides=strides,
        dilations=dilations,
        begin=begin,
        end=end,
        count=tuple(count),
    )


def _overlap(windows: Windows) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The slices of a padded array and of the input that hold the same elements."""
    inner, outer = [], []
    for n, b, length in zip(windows.size, windows.begin, windows.padded, strict=True):
        low, high = max(0, -b), min(n, length - b)
        outer.append(slice(low, high))
        inner.append(slice(low + b, high + b))
    return _FULL + tuple(inner), _FULL + tuple(outer)


def padded(x: Array, windows: Windows, fill: Any = 0) -> Array:
    """x [N, C, spatial] in an array of the padded shape; x itself where nothing is padded."""
    if windows.padded == windows.size and not any(windows.begin):
        return x
    result = np.full(x.shape[:2] + windows.padded, fill, x.dtype)
    inner, outer = _overlap(windows)
    result[inner] = x[outer]
    return result


def cropped(buffer: Array, windows: Windows) -> Array:
    """The input's part of a padded array: the adjoint of `padded` with fill 0."""
    if windows.padded == windows.size and not any(windows.begin):
        return buffer
    result = np.zeros(buffer.shape[:2] + windows.size, buffer.dtype)
    inner, outer = _overlap(windows)
    result[outer] = buffer[inner]
    return result


def window_view(x: Array, windows: Windows) -> Array:
    """A read-only view [N, C, kernel, windows] of a padded array."""
    steps = x.strides[2:]
    inner = tuple(step * d for step, d in zip(steps, windows.dilations, strict=True))
    outer = tuple(step * s for step, s in zip(steps, windows.strides, strict=True))
    shape = x.shape[:2] + windows.kernel + windows.count
    return np.lib.stride_tricks.as_strided(x, shape, x.strides[:2] + inner + outer, writeable=False)
