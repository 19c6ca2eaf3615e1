"""The loss: found among the model's outputs, or computed from one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from snplan.errors import ModelError, UsageError
from snplan.ir import Attrs, DType, Forward, Op, Role, Spec, Tensor, fresh_name
from snplan.ops import infer

LOSSES = ("auto", "cross-entropy", "mse", "sum", "output:NAME")


def attach_loss(forward: Forward, loss: str = "auto") -> Forward:
    """`forward` with its scalar loss: `loss` is "auto", "cross-entropy", "mse", "sum" or "output:NAME".

    "auto" takes a scalar floating-point output as the loss, else the cross-entropy of the first floating-point output.
    Cross-entropy and mse add an input `target` (int64 class ids without the class axis; the output's shape).
    Raises UsageError (SNP-U042) for another word or an output that is no loss, ModelError (SNP-D002) where none can be.
    """
    if loss.startswith("output:"):
        return _with_loss(forward, _named(forward, loss.removeprefix("output:")))
    if loss not in LOSSES:
        raise UsageError("SNP-U042", f"loss {loss!r} is unknown; use one of {', '.join(LOSSES)}")
    if loss == "auto":
        scalar = _scalar_output(forward)
        if scalar is not None:
            return _with_loss(forward, scalar)
    builder = _LossBuilder(forward)
    output = _float_output(forward)
    if loss == "mse":
        return builder.mse(output)
    if loss == "sum":
        return builder.total(output)
    return builder.cross_entropy(output)


def class_axis(rank: int) -> int:
    """The axis of the classes of logits of `rank`: 1, or the last where the rank is 3 (batch, positions, classes)."""
    return 2 if rank == 3 else min(1, rank - 1)


def _float_outputs(forward: Forward) -> list[Tensor]:
    tensors = [forward.graph.tensors[name] for name in forward.graph.outputs]
    return [tensor for tensor in tensors if tensor.dtype.is_float]


def _scalar_output(forward: Forward) -> str | None:
    """A computed floating-point output of rank 0, or else of one element and rank 1."""
    outputs = [tensor for tensor in _float_outputs(forward) if tensor.name not in forward.graph.sources]
    return next((tensor.name for shape in ((), (1,)) for tensor in outputs if tensor.shape == shape), None)


def _float_output(forward: Forward) -> Tensor:
    outputs = _float_outputs(forward)
    if outputs:
        return outputs[0]
    have = ", ".join(f"{name} ({forward.graph.tensors[name].dtype})" for name in forward.graph.outputs)
    raise ModelError(
        "SNP-D002",
        f"no output is floating-point, so there is no loss: {have or 'none'}; use --mode infer or --loss output:NAME",
    )


def _named(forward: Forward, name: str) -> str:
    tensor = forward.graph.tensors.get(name)
    if tensor is None:
        outputs = ", ".join(forward.graph.outputs)
        raise UsageError(
            "SNP-U042", f"--loss output:{name}: the model has no tensor of that name; its outputs: {outputs}"
        )
    if not tensor.dtype.is_float or tensor.spec.elements != 1 or name in forward.graph.sources:
        computed = "given" if name in forward.graph.sources else "computed"
        found = f"a {computed} {tensor.dtype}{list(tensor.shape)}"
        raise UsageError(
            "SNP-U042", f"--loss output:{name}: a loss is one computed floating-point number, this is {found}"
        )
    return name


def _with_loss(forward: Forward, name: str) -> Forward:
    """`forward` with tensor `name` as its loss, first among the outputs."""
    graph = forward.graph
    tensors = {**graph.tensors, name: replace(graph.tensors[name], role=Role.LOSS)}
    outputs = tuple(dict.fromkeys((name, *graph.outputs)))
    return replace(forward, graph=replace(graph, tensors=tensors, outputs=outputs), loss=name)


class _LossBuilder:
    """Adds an input and ops to a forward graph."""

    def __init__(self, forward: Forward) -> None:
        self.forward = forward
        self.tensors = dict(forward.graph.tensors)
        self.ops = list(forward.graph.ops)
        self.op_names = {op.name for op in self.ops}
        self.added: list[str] = []

    def cross_entropy(self, logits: Tensor) -> Forward:
        """Mean cross-entropy against class ids."""
        if not logits.shape:
            raise ModelError(
                "SNP-D002", f"output {logits.name} is a scalar and has no classes; use --loss output:{logits.name}"
            )
        axis = class_axis(len(logits.shape))
        labels = logits.shape[:axis] + logits.shape[axis + 1 :]
        target = self.input(Spec(DType.INT64, labels))
        attrs: Attrs = {"axis": axis, "reduction": "mean", "ignore_index": -100}
        return self.done(self.op("softmax_cross_entropy", [logits.name, target], attrs, "loss"))

    def mse(self, output: Tensor) -> Forward:
        """Mean squared difference from a target of the output's shape."""
        target = self.input(output.spec)
        difference = self.op("sub", [output.name, target], {}, "loss:difference")
        square = self.op("pow", [difference], {"scalar": 2.0}, "loss:square")
        return self.done(self.reduced("reduce_mean", square))

    def total(self, output: Tensor) -> Forward:
        """Sum of all elements."""
        return self.done(self.reduced("reduce_sum", output.name))

    def input(self, spec: Spec) -> str:
        """A new input for the targets."""
        name = fresh_name("target", self.tensors)
        self.tensors[name] = Tensor(name=name, spec=spec, role=Role.INPUT)
        self.added.append(name)
        return name

    def reduced(self, kind: str, name: str) -> str:
        """`name` reduced over all axes."""
        axes = [*range(len(self.tensors[name].shape))]
        return self.op(kind, [name], {"axes": [*axes], "keepdims": False}, "loss")

    def op(self, kind: str, inputs: Sequence[str], attrs: Attrs, label: str) -> str:
        """The one output of a new op, named by `label`."""
        (spec,) = infer(kind, [self.tensors[name].spec for name in inputs], attrs)
        name, op_name = fresh_name(label, self.tensors), fresh_name(label, self.op_names)
        self.tensors[name] = Tensor(name=name, spec=spec)
        self.op_names.add(op_name)
        self.ops.append(Op(name=op_name, kind=kind, inputs=tuple(inputs), outputs=(name,), attrs=attrs))
        return name

    def done(self, loss: str) -> Forward:
        """The forward graph with what was added, and `loss` as its loss."""
        graph = self.forward.graph
        graph = replace(graph, tensors=self.tensors, ops=tuple(self.ops), sources=(*graph.sources, *self.added))
        inputs = (*self.forward.inputs, *self.added)
        return _with_loss(replace(self.forward, graph=graph, inputs=inputs), loss)
