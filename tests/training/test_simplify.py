"""Rewrites that change no bit."""

from __future__ import annotations

import numpy as np
import pytest
from op_cases import values
from step_support import Model, evaluate

from snplan.training.simplify import fold_transposes


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
