"""Gradients of broadcasting operands, for random shapes and random graphs, against float64 differences."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import broadcastable_shapes, mutually_broadcastable_shapes
from op_cases import positive, values
from step_support import Model, differences, gradients_of

from snplan.ir import Forward
from snplan.ops.shapes import broadcasts_to
from snplan.runtime.numpy import Array

KINDS = ("add", "sub", "mul", "div", "pow", "max", "min")
MOST = settings(max_examples=60, deadline=None)


def agree(model: Model, loss: str) -> None:
    """The step's gradients are the differences."""
    forward: Forward = model.forward(loss, loss=loss)
    found = gradients_of(model.step(loss), model.values)
    assert list(found) == model.initializers
    for name, gradient in found.items():
        expected = differences(forward.graph, loss, model.values, name)
        np.testing.assert_allclose(gradient, expected, rtol=2e-6, atol=2e-7)


def small(shape: tuple[int, ...]) -> bool:
    return int(np.prod(shape)) <= 24


@MOST
@given(mutually_broadcastable_shapes(num_shapes=2, max_dims=4, min_side=0, max_side=3), st.sampled_from(KINDS))
def test_two_operands(shapes: Any, kind: str) -> None:
    if not small(shapes.result_shape):
        return
    model = Model()
    a, b = (
        model.source(name, positive(*shape, seed=seed))
        for seed, (name, shape) in enumerate(zip("ab", shapes.input_shapes, strict=True))
    )
    y = model.then(kind, a, b)
    weights = model.source("weights", positive(*shapes.result_shape, seed=7), fed=True)
    agree(model, model.sum(model.then("mul", y, weights)))


@MOST
@given(st.lists(st.integers(0, 3), max_size=3).map(tuple), st.data())
def test_expand(target: tuple[int, ...], data: st.DataObject) -> None:
    shape = data.draw(broadcastable_shapes(target, max_dims=len(target), min_side=0))
    if not broadcasts_to(shape, target):
        return
    model = Model()
    y = model.then("expand", model.source("x", values(*shape)), shape=[*target])
    weights = model.source("weights", values(*target, seed=7), fed=True)
    agree(model, model.sum(model.then("mul", y, weights)))


@MOST
@given(
    batches=mutually_broadcastable_shapes(num_shapes=2, max_dims=2, min_side=1, max_side=2),
    sizes=st.tuples(*[st.integers(1, 3)] * 3),
    trans=st.tuples(st.booleans(), st.booleans()),
    bias=st.sampled_from((None, (), (1,), "columns", "result")),
)
def test_matmul(batches: Any, sizes: tuple[int, int, int], trans: tuple[bool, bool], bias: Any) -> None:
    rows, inner, columns = sizes
    left, right = batches.input_shapes
    a = (*left, *((inner, rows) if trans[0] else (rows, inner)))
    b = (*right, *((columns, inner) if trans[1] else (inner, columns)))
    result = (*batches.result_shape, rows, columns)
    model = Model()
    inputs = [model.source("a", values(*a)), model.source("b", values(*b, seed=1))]
    if bias is not None:
        shape = {"columns": (columns,), "result": result}.get(bias, bias) if isinstance(bias, str) else bias
        inputs.append(model.source("bias", values(*shape, seed=2)))
    y = model.then("matmul", *inputs, trans_a=trans[0], trans_b=trans[1], alpha=0.5)
    weights = model.source("weights", values(*result, seed=7), fed=True)
    agree(model, model.sum(model.then("mul", y, weights)))


def test_batched_weight_gradient_is_one_product() -> None:
    """A weight shared by a batch of matrices gets its gradient without a gradient for each matrix."""
    model = Model()
    x = model.source("x", values(4, 5, 3), fed=True)
    w = model.source("w", values(3, 2))
    step = model.step(model.sum(model.matmul(x, w)))
    (filter_op,) = [op for op in step.graph.ops if op.kind == "matmul" and op.phase == "backward"]
    assert filter_op.outputs == ("w:grad",)
    assert filter_op.attrs["in_shapes"] == [[20, 3], [20, 2]]


def half(x: Array) -> Array:
    return x.astype(np.float16)


def test_half_precision() -> None:
    """float16 gradients have float16's accuracy and type."""
    model = Model()
    x = model.source("x", half(values(4, 3)), fed=True)
    w = model.source("w", half(values(3, 2)))
    b = model.source("b", half(values(2)))
    loss = model.then(
        "reduce_mean",
        model.then("gelu", model.then("add", model.matmul(x, w), b), approximate="none"),
        axes=[0, 1],
        keepdims=False,
    )
    found = model.gradients(loss)
    exact = Model()
    exact.source("x", values(4, 3), fed=True)
    exact.source("w", values(3, 2))
    exact.source("b", values(2))
    exact.ops, exact.tensors = (
        model.ops,
        {
            name: type(t)(name=name, spec=type(t.spec)(type(t.dtype)("float64"), t.shape), role=t.role)
            for name, t in model.tensors.items()
        },
    )
    for name, expected in exact.gradients(loss).items():
        assert found[name].dtype == np.float16
        np.testing.assert_allclose(found[name], expected, rtol=2e-2, atol=2e-3)
