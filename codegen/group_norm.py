"""Builders of group normalisation: x is seen as [N, groups, channels of a group, ...] in either physical order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.fold import Fold, fold
from snplan.codegen.launch import Launch
from snplan.codegen.operand import Operand, broadcast
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.reduce import WORK, scratch, with_scratch
from snplan.codegen.scalars import SIZES, compute_type


class _Groups:
    """The views of a group norm: whole tensors, vectors of channels, statistics of groups."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.groups = call.attrs["groups"]
        self.compute = compute_type(x.dtype for x in call.inputs)
        self.shape = self.whole(call.inputs[0]).shape
        self.within = list(range(2, len(self.shape)))
        self.across = [0, *range(3, len(self.shape))]

    def whole(self, x: Operand) -> Operand:
        """`x` with its channels as groups and channels of a group."""
        each = x.shape[1] // self.groups
        stride = x.strides[1]
        return replace(
            x,
            shape=(x.shape[0], self.groups, each, *x.shape[2:]),
            strides=(x.strides[0], each * stride, stride, *x.strides[2:]),
        )

    def by_group(self, channels: Operand) -> Operand:
        """A vector of channels as [groups, channels of a group]."""
        each = channels.shape[0] // self.groups
        return replace(channels, shape=(self.groups, each), strides=(each * channels.strides[0], channels.strides[0]))

    def read(self, index: int) -> Access:
        """A whole input."""
        return reads(self.call, index, self.whole(self.call.inputs[index]))

    def channel(self, index: int) -> Access:
        """An input vector of channels, repeated."""
        vector = self.by_group(self.call.inputs[index])
        rank = len(self.shape)
        strides = (0, *vector.strides, *(0,) * (rank - 3))
        return reads(self.call, index, replace(vector, shape=self.shape, strides=strides))

    def statistic(self, access: Access) -> Access:
        """[N, groups], repeated."""
        seen = access.operand
        ones = replace(
            seen, shape=(*seen.shape, *(1,) * len(self.within)), strides=(*seen.strides, *(0,) * len(self.within))
        )
        return replace(access, operand=broadcast(ones, self.shape))


@builds("group_norm")
def group_norm(call: Call) -> Sequence[Launch]:
    """Statistics of each group, then y."""
    g = _Groups(call)
    epsilon = f"A({float(call.attrs['epsilon'])!r})"
    body = Fold(
        compute=g.compute,
        monoid=f"Moments<{g.compute}>",
        size=4 * SIZES[g.compute],
        values=("a0",),
        results=("t.mean()", f"inverse_root(t.variance() + {epsilon})"),
    )
    statistics = [writes(call, 1), writes(call, 2)]
    apply = Body(compute=g.compute, results=("(a0 - a1) * a2 * a3 + a4",))
    inputs = [g.read(0), *(g.statistic(s) for s in statistics), g.channel(1), g.channel(2)]
    return (
        *fold("group_norm_statistics", [g.read(0)], g.within, statistics, body),
        *pointwise("group_norm_apply", inputs, [writes(call, 0, g.whole(call.outputs[0]))], apply),
    )


@builds("group_norm_grad")
def group_norm_grad(call: Call) -> Sequence[Launch]:
    """dscale and dbias, then two means of each group, then dx (which may overwrite dy)."""
    g = _Groups(call)
    size = SIZES[g.compute]
    mean, inverse = (g.statistic(reads(call, k)) for k in (2, 3))
    inputs = [g.read(0), g.read(4), mean, inverse]
    channels = Fold(
        compute=g.compute,
        monoid=f"Sum2<{g.compute}>",
        size=2 * size,
        values=("a1 * ((a0 - a2) * a3)", "a1"),
        results=("t.v", "t.w"),
    )
    along = Fold(
        compute=g.compute,
        monoid=f"Sum2<{g.compute}>",
        size=2 * size,
        values=("a1 * a4 * ((a0 - a2) * a3)", "a1 * a4"),
        results=("t.v / A(count)", "t.w / A(count)"),
    )
    groups = call.inputs[2].shape
    count = call.inputs[2].elements
    parts = [scratch(WORK[g.compute], groups, k * count * size) for k in range(2)]
    outputs = [writes(call, k, g.by_group(call.outputs[k])) for k in (1, 2)]
    apply = Body(compute=g.compute, results=("(a1 * a4 - ((a0 - a2) * a3) * a5 - a6) * a3",))
    full = [*inputs, g.channel(1)]
    held = 2 * count * size
    return with_scratch(
        held,
        fold("group_norm_weights", inputs, g.across, outputs, channels, held),
        fold("group_norm_means", full, g.within, parts, along, held),
        pointwise(
            "group_norm_grad_apply",
            [*full, *(g.statistic(p) for p in parts)],
            [writes(call, 0, g.whole(call.outputs[0]))],
            apply,
        ),
    )
