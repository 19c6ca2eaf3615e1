"""Batch normalisation taken apart into sums over the batch and elementwise ops, which fuse with what is around them.

`batch_norm_train` becomes `batch_norm_statistics` and `batch_norm_apply` (a recompute of y needs the second alone),
`batch_norm_grad` becomes `batch_norm_grad_sums` and `batch_norm_grad_apply`. With running statistics the inverse
standard deviation is an op of its own (`batch_norm_inverse`), and dx is dy times a factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from snplan.ir import Attr, Attrs, Graph, Op, Role, Tensor
from snplan.ops.shapes import statistics_dtype
from snplan.training.naming import Namer


def split_norms(graph: Graph) -> Graph:
    """`graph` with batch normalisations in pieces where no bit changes: where sums have the type of the statistics."""
    if not any(op.kind in ("batch_norm_train", "batch_norm_eval") for op in graph.ops):
        return graph
    return _Splitter(graph).run()


class _Splitter:
    """Rewrites one graph; `inverse` maps a variance, and an epsilon, to the inverse standard deviation."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors: dict[str, Tensor] = dict(graph.tensors)
        self.names = Namer(graph.tensors)
        self.op_names = Namer(op.name for op in graph.ops)
        self.inverse: dict[tuple[str, Attr], str] = {}
        self.ops: list[Op] = []

    def run(self) -> Graph:
        """The rewritten graph."""
        read = {*self.graph.outputs, *(name for op in self.graph.ops for name in op.inputs)}
        for op in self.graph.ops:
            is_read = [name in read for name in op.outputs]
            if op.kind == "batch_norm_train" and "in_shapes" not in op.attrs:
                self.split_forward(op)
            elif op.kind == "batch_norm_eval" and "in_shapes" not in op.attrs and self._is_exact(op, 4):
                self.split_eval(op)
            elif op.kind == "batch_norm_grad" and self._inverse(op) and self._is_exact(op, 3):
                self.split_gradient(op, is_read=is_read[0])
            elif op.kind == "batch_norm_eval_grad" and self._inverse(op):
                self.split_eval_gradient(op, is_read)
            else:
                self.ops.append(op)
        return replace(self.graph, ops=tuple(self.ops), tensors=self.tensors)

    def split_forward(self, op: Op) -> None:
        """Statistics under a new name, then the op's y under its own."""
        (x, scale, bias), (y, mean, variance) = op.inputs, op.outputs
        inverse = self.names.fresh(f"{y}:inv_std")
        self.tensors[inverse] = replace(self.tensors[variance], name=inverse)
        self.inverse[variance, op.attrs["epsilon"]] = inverse
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
        inverse = self.inverse[variance, op.attrs["epsilon"]]
        self._sums(op, inverse, alone=not is_read)
        if not is_read:
            del self.tensors[dx]
            return
        shape = self.tensors[dx].shape
        inputs = (x, scale, mean, inverse, dscale, dbias, dy)
        attrs = self._views(x, inputs, {"count": max(1, prod(shape) // max(1, shape[1]))}, _view(op, 4))
        self.ops.append(replace(op, kind="batch_norm_grad_apply", inputs=inputs, outputs=(dx,), attrs=attrs))

    def split_eval(self, op: Op) -> None:
        """The inverse of the running variance, once, then y."""
        x, scale, bias, mean, variance = op.inputs
        key = variance, op.attrs["epsilon"]
        if key not in self.inverse:
            inverse = self.inverse[key] = self.names.fresh(f"{variance}:inv_std")
            self.tensors[inverse] = replace(self.tensors[variance], name=inverse, role=Role.ACTIVATION)
            name = self.op_names.fresh(f"{op.name}:inverse")
            self.ops.append(replace(op, name=name, kind="batch_norm_inverse", inputs=(variance,), outputs=(inverse,)))
        inputs = (x, mean, self.inverse[key], scale, bias)
        self.ops.append(replace(op, kind="batch_norm_apply", inputs=inputs, attrs=self._views(x, inputs, {})))

    def split_eval_gradient(self, op: Op, is_read: Sequence[bool]) -> None:
        """The sums and dx = dy * (inv_std * scale), as far as anything reads them."""
        x, scale, _, variance, dy = op.inputs
        inverse = self.inverse[variance, op.attrs["epsilon"]]
        if any(is_read[1:]):
            self._sums(op, inverse, alone=not is_read[0])
        for name, wanted in zip(op.outputs, (is_read[0], any(is_read[1:]), any(is_read[1:])), strict=True):
            if not wanted:
                del self.tensors[name]
        if not is_read[0]:
            return
        factor = self.names.fresh(f"{op.outputs[0]}:factor")
        self.tensors[factor] = replace(self.tensors[inverse], name=factor, role=Role.GRADIENT)
        name = self.op_names.fresh(f"{op.name}:factor")
        self.ops.append(replace(op, name=name, kind="mul", inputs=(inverse, scale), outputs=(factor,), attrs={}))
        attrs = self._views(x, (dy, factor), {})
        views = attrs.get("in_shapes")
        if isinstance(views, list):
            views[0] = _view(op, 4)
        self.ops.append(replace(op, kind="mul", inputs=(dy, factor), outputs=op.outputs[:1], attrs=attrs))

    def _sums(self, op: Op, inverse: str, *, alone: bool) -> None:
        """The sums of a gradient: under the op's name where they are all that is left of it."""
        x, _, mean, _, dy = op.inputs
        inputs = (x, mean, inverse, dy)
        name = op.name if alone else self.op_names.fresh(f"{op.name}_sums")
        attrs = self._views(x, inputs, {}, _view(op, 4))
        self.ops.append(
            replace(op, name=name, kind="batch_norm_grad_sums", inputs=inputs, outputs=op.outputs[1:], attrs=attrs)
        )

    def _inverse(self, op: Op) -> bool:
        """Whether the normalisation that `op` is the gradient of was split."""
        return (op.inputs[3], op.attrs["epsilon"]) in self.inverse

    def _is_exact(self, op: Op, variance: int) -> bool:
        """Whether sums keep their precision as gradients of scale and bias: all are of the statistics' type."""
        wanted = statistics_dtype(self.tensors[op.inputs[0]].dtype)
        return all(self.tensors[name].dtype is wanted for name in op.inputs[1 : variance + 1])

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
