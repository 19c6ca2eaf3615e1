"""Questions to the op table about one op: its results' specs, its inputs as it reads them, what it may overwrite."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.ir import Attrs, Op, Spec, Tensor
from snplan.ops.base import KINDS, ShapeError, Specs


def infer(kind: str, specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """Specs of the outputs of an op of `kind`; inputs read through a view are reshaped first (`in_shapes`).

    Raises ShapeError, its message led by the kind, where the kind is unknown or does not take these inputs.
    """
    if kind not in KINDS:
        raise ShapeError(f"there is no op kind {kind}")
    try:
        return KINDS[kind].infer(viewed(specs, attrs), attrs)
    except ShapeError as error:
        raise ShapeError(f"{kind}: {error}") from None


def viewed(specs: Specs, attrs: Attrs) -> Specs:
    """`specs` as the op reads them: with the shapes of attribute `in_shapes` where it has any."""
    shapes = attrs.get("in_shapes")
    if shapes is None:
        return specs
    if not isinstance(shapes, list) or len(shapes) != len(specs):
        raise ShapeError(f"in_shapes must list one shape or null for each of {len(specs)} inputs")
    return [spec if shape is None else _view(spec, shape) for spec, shape in zip(specs, shapes, strict=True)]


def _view(spec: Spec, shape: object) -> Spec:
    if not isinstance(shape, (list, tuple)):
        raise ShapeError(f"in_shapes has {shape!r} for a shape")
    view = Spec(spec.dtype, tuple(shape))
    if view.elements != spec.elements:
        raise ShapeError(f"{spec.dtype}{list(spec.shape)} cannot be read as {list(shape)}")
    return view


def input_specs(op: Op, tensors: Mapping[str, Tensor]) -> Specs:
    """Specs of the inputs of `op` as it reads them, views applied: what costs are counted of."""
    return viewed([tensors[name].spec for name in op.inputs], op.attrs)


def inplace_pairs(op: Op, tensors: Mapping[str, Tensor]) -> list[tuple[int, int]]:
    """(output, input) pairs of `op` that may share one buffer: declared by its kind, of one type and as many bytes."""
    pairs, kind = [], KINDS[op.kind]
    for output, index in kind.inplace if kind.pairs is None else kind.pairs(op):
        if index >= len(op.inputs) or output >= len(op.outputs):
            continue
        written, read = tensors[op.outputs[output]], tensors[op.inputs[index]]
        if written.dtype is read.dtype and written.bytes == read.bytes:
            pairs.append((output, index))
    return pairs
