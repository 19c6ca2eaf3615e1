"""Rewrites that change no bit."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import values
from step_support import Model, evaluate

from snplan.ir import problems
from snplan.training.simplify import drop_expands, fold_transposes


@pytest.mark.parametrize("sides", ["a", "b", "ab"])
@pytest.mark.parametrize("twice", [False, True])
def test_transposes_of_the_last_axes_fold_into_matmul(sides: str, twice: bool) -> None:
    model = Model()
    inputs = []
    for side, shape in (("a", (2, 3, 4)), ("b", (2, 4, 5))):
        flips = (1 + twice) if side in sides else 0
        stored = (shape[0], shape[2], shape[1]) if flips % 2 else shape
        name = model.source(side, values(*stored), fed=True)
        for _ in range(flips):
            name = model.then("transpose", name, perm=[0, 2, 1])
        inputs.append(name)
    y = model.matmul(*inputs)
    graph = model.forward(y).graph
    folded = fold_transposes(graph)
    (op,) = [op for op in folded.ops if op.kind == "matmul"]
    assert op.inputs == ("a", "b")
    assert (op.attrs["trans_a"], op.attrs["trans_b"]) == ("a" in sides and not twice, "b" in sides and not twice)
    np.testing.assert_allclose(evaluate(folded, model.values)[y], evaluate(graph, model.values)[y], rtol=1e-14)


def test_a_long_chain_of_transposes_with_many_readers() -> None:
    """Walked anew for each matmul, 20,000 transposes with 20,000 readers would be 4 * 10^8 look-ups."""
    model = Model()
    name, weight = model.source("a", values(3, 4), fed=True), model.source("w", values(4, 2))
    for _ in range(20_000):
        name = model.then("transpose", name, perm=[1, 0])
    products = [model.matmul(name, weight) for _ in range(20_000)]
    folded = fold_transposes(model.forward(products[-1]).graph)
    found = [op for op in folded.ops if op.kind == "matmul"]
    assert len(found) == 20_000
    assert {(op.inputs, op.attrs["trans_a"]) for op in found} == {(("a", "w"), False)}


def test_other_transposes_stay() -> None:
    model = Model()
    a = model.then("transpose", model.source("a", values(3, 2, 4), fed=True), perm=[1, 0, 2])
    y = model.matmul(a, model.source("b", values(4, 5), fed=True))
    graph = model.forward(y).graph
    assert fold_transposes(graph) is graph


def test_other_readers_of_a_transpose_are_not_touched() -> None:
    model = Model()
    a = model.then("transpose", model.source("a", values(3, 4), fed=True), perm=[1, 0])
    y = model.matmul(a, model.source("b", values(3, 3), fed=True))
    z = model.then("add", y, a)
    folded = fold_transposes(model.forward(z).graph)
    assert folded.ops[1].inputs == ("a", "b")
    assert folded.ops[2].inputs == (y, a)


def test_expands_that_elementwise_ops_repeat_themselves_are_dropped() -> None:
    model = Model()
    x = model.source("x", values(3, 4), fed=True)
    row = model.source("row", values(1, 4), fed=True)
    wide = model.then("expand", model.then("expand", row, shape=[1, 4]), shape=[3, 4])
    y = model.then("add", model.then("mul", wide, x), model.then("where", model.then("less", x, wide), wide, x))
    graph = model.forward(y).graph
    dropped = drop_expands(graph)
    assert problems(dropped) == []
    assert [op.kind for op in dropped.ops] == ["mul", "less", "where", "add"]
    assert dropped.tensors.keys() < graph.tensors.keys()
    np.testing.assert_array_equal(evaluate(dropped, model.values)[y], evaluate(graph, model.values)[y])


def test_expands_that_give_the_shape_stay() -> None:
    """Of two expanded operands one is read as it is; a relu needs the whole; outputs stay."""
    model = Model()
    a = model.then("expand", model.source("a", values(1, 4), fed=True), shape=[3, 4])
    b = model.then("expand", model.source("b", values(3, 1), fed=True), shape=[3, 4])
    c = model.then("expand", model.source("c", values(1), fed=True), shape=[3, 4])
    y = model.then("add", a, b)
    z = model.then("add", model.then("relu", c), y)
    graph = model.forward(z, c).graph
    dropped = drop_expands(graph)
    assert [op.kind for op in dropped.ops] == ["expand", "expand", "add", "relu", "add"]
    assert dropped.ops[2].inputs == ("a", b)
    np.testing.assert_array_equal(evaluate(dropped, model.values)[z], evaluate(graph, model.values)[z])


def test_nothing_to_drop() -> None:
    model = Model()
    y = model.then("neg", model.source("a", values(3), fed=True))
    graph = model.forward(y).graph
    assert drop_expands(graph) is graph


def test_gradient_of_a_mean_that_is_added_is_never_repeated_in_memory() -> None:
    """x - mean(x): the mean's gradient is added to the other one row by row."""
    model = Model()
    w = model.source("w", values(3, 4))
    x = model.then("tanh", w)
    centred = model.then("sub", x, model.then("reduce_mean", x, axes=[1], keepdims=True))
    step = model.step(model.sum(model.then("mul", centred, centred)))
    repeated = [op for op in step.graph.ops if op.kind == "expand" and op.inputs[0] != f"{step.loss}:grad"]
    assert repeated == []
