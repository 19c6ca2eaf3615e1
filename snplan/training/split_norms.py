"""Batch normalisation taken apart into sums over the batch and elementwise ops, which fuse with what is around them.

`batch_norm_train` becomes `batch_norm_statistics` and `batch_norm_apply` (a recompute of y needs the second alone),
`batch_norm_grad` becomes `batch_norm_grad_sums` and `batch_norm_grad_apply`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from snplan.ir import Attr, Attrs, Graph, Op, Tensor
from snplan.training.naming import Namer


def split_norms(graph: Graph) -> Graph:
    """`graph` with batch normalisations in pieces where no bit changes: where sums have the type of the statistics."""
    if not any(op.kind == "batch_norm_train" for op in graph.ops):
        return graph
    return _Splitter(graph).run()


class _Splitter:
    """Rewrites one graph; `inverse` maps a batch variance to its inverse standard deviation."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.names = Namer(graph.tensors)
        self.op_names = Namer(op.name for op in graph.ops)
        self.inverse: dict[str, str] = {}
        self.ops: list[Op] = []

    def run(self) -> Graph:
        """The rewritten graph."""
        read = {*self.graph.outputs, *(name for op in self.graph.ops for name in op.inputs)}
        for op in self.graph.ops:
            if op.kind == "batch_norm_train" and "in_shapes" not in op.attrs:
                self.split_forward(op)
            elif op.kind == "batch_norm_grad" and op.inputs[3] in self.inverse and self._is_exact(op):
                self.split_gradient(op, is_read=op.outputs[0] in read)
            else:
                self.ops.append(op)
        return replace(self.graph, ops=tuple(self.ops), tensors=self.tensors)

    def split_forward(self, op: Op) -> None:
        """Statistics under a new name, then the op's y under its own."""
        (x, scale, bias), (y, mean, variance) = op.inputs, op.outputs
        inverse = self.names.fresh(f"{y}:inv_std")
        self.tensors[inverse] = replace(self.tensors[variance], name=inverse)
        self.inverse[variance] = inverse
        name = self.op_names.fresh(f"{op.name}:statistics")
        outputs = (mean, variance, inverse)
        self.ops.append(
            replace(op, name=name, kind="batch_norm_statistics", inputs=(x,), outputs=outputs, attrs=dict(op.attrs))
        )
        inputs = (x, mean, inverse, scale, bias)
        attrs = self._views(x, inputs, {})
        self.ops.append(replace(op, kind="batch_norm_apply", inputs=inputs, outputs=(y,), attrs=attrs))

    def split_gradient(self, op: Op, *, is_read: bool) -> None:
        """The sums under a new name, then dx, where anything reads it."""
        (x, scale, mean, variance, dy), (dx, dscale, dbias) = op.inputs, op.outputs
        inverse, dy_view = self.inverse[variance], _view(op, 4)
        name = self.op_names.fresh(f"{op.name}_sums") if is_read else op.name
        inputs: tuple[str, ...] = (x, mean, inverse, dy)
        attrs = self._views(x, inputs, {}, dy_view)
        self.ops.append(
            replace(op, name=name, kind="batch_norm_grad_sums", inputs=inputs, outputs=(dscale, dbias), attrs=attrs)
        )
        if not is_read:
            del self.tensors[dx]
            return
        shape = self.tensors[dx].shape
        inputs = (x, scale, mean, inverse, dscale, dbias, dy)
        attrs = self._views(x, inputs, {"count": max(1, prod(shape) // max(1, shape[1]))}, dy_view)
        self.ops.append(replace(op, kind="batch_norm_grad_apply", inputs=inputs, outputs=(dx,), attrs=attrs))

    def _is_exact(self, op: Op) -> bool:
        """Whether the sums keep their precision as gradients of scale and bias: these are of the statistics' type."""
        return self.tensors[op.inputs[1]].dtype is self.tensors[op.inputs[2]].dtype

    def _views(self, x: str, inputs: Sequence[str], attrs: Attrs, last: Attr = None) -> Attrs:
        """`attrs` with views: vectors of channels as [C, 1, ...], and `last` for the last input that is none."""
        ones: list[Attr] = [1] * (len(self.tensors[x].shape) - 2)
        shapes = [self.tensors[name].shape for name in inputs]
        views = [[*shape, *ones] if len(shape) == 1 and ones else None for shape in shapes]
        found: list[Attr] = [*views[:-1], last if views[-1] is None else views[-1]]
        return attrs if all(view is None for view in found) else {**attrs, "in_shapes": found}


def _view(op: Op, index: int) -> Attr:
    """The shape under which `op` reads an input; None: the tensor's own."""
    given = op.attrs.get("in_shapes")
    return given[index] if isinstance(given, list) else None
