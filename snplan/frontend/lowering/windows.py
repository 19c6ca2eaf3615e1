"""Windows of convolutions and pooling: attributes with their defaults, pads resolved from auto_pad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snplan.frontend.node import NodeView
from snplan.frontend.values import Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window over spatial axes; `pads` are begins then ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def extent(self, axis: int) -> int:
        """Positions from the first to the last one that the window touches."""
        return (self.kernel[axis] - 1) * self.dilations[axis] + 1

    def count(self, axis: int, size: int, *, ceil: bool = False) -> int:
        """Number of windows on an axis of `size`; with `ceil`, a last one may start inside and reach past the end.

        A window that starts past the input and its leading pad does not count.
        """
        rank = len(self.kernel)
        before, after, stride = self.pads[axis], self.pads[axis + rank], self.strides[axis]
        room = size + before + after - self.extent(axis)
        if not ceil:
            return room // stride + 1
        count = -(-room // stride) + 1
        return count - 1 if (count - 1) * stride >= size + before else count


def window_of(node: NodeView, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """The node's window over `spatial`."""
    rank = len(spatial)
    if not 1 <= rank <= 3:
        raise Unsupported(f"it has {rank} spatial axes; 1 to 3 are supported")
    strides, dilations = _listed(node, "strides", rank, 1), _listed(node, "dilations", rank, 1)
    node.need(len(kernel) == rank and min(kernel) > 0, f"kernel {list(kernel)} does not fit {rank} spatial axes")
    plain = Window(kernel=tuple(kernel), strides=strides, dilations=dilations, pads=(0,) * (2 * rank))
    auto = node.attr_str("auto_pad", "NOTSET")
    if auto == "NOTSET" or not auto:
        pads = _listed(node, "pads", 2 * rank, 0)
    elif auto == "VALID":
        pads = plain.pads
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        pads = same_pads(plain, spatial, upper=auto == "SAME_UPPER")
    else:
        raise node.error(f"auto_pad {auto!r} is unknown")
    if min(pads) < 0:
        raise Unsupported(f"its pads {list(pads)} are negative")
    return Window(kernel=tuple(kernel), strides=strides, dilations=dilations, pads=pads)


def same_pads(window: Window, spatial: Sequence[int], *, upper: bool) -> tuple[int, ...]:
    """Pads such that every stride starts one window; the odd one goes to the end (`upper`) or the beginning."""
    before, after = [], []
    for axis, size in enumerate(spatial):
        stride = window.strides[axis]
        total = max((-(-size // stride) - 1) * stride + window.extent(axis) - size, 0)
        first = total // 2 if upper else total - total // 2
        before.append(first)
        after.append(total - first)
    return (*before, *after)


def _listed(node: NodeView, name: str, count: int, default: int) -> tuple[int, ...]:
    found = node.attr_ints(name)
    if not found:
        return (default,) * count
    node.need(len(found) == count, f"{name} {found} must be {count} numbers")
    node.need(name == "pads" or min(found) > 0, f"{name} {found} must be positive")
    return tuple(found)
