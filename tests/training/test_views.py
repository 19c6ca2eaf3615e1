"""Views resolved into their bases."""

from __future__ import annotations

import numpy as np
from op_cases import values
from step_support import Model, evaluate

from snplan.ir import problems
from snplan.training import build_inference_step, resolve_views
from snplan.training.views import view_bases


def chained() -> tuple[Model, str]:
    """x viewed twice, then read with another tensor; a view of the result."""
    model = Model()
    x = model.source("x", values(2, 6), fed=True)
    once = model.then("view", x, shape=[3, 4])
    twice = model.then("view", once, shape=[4, 3])
    y = model.then("add", twice, model.source("b", values(3)))
    return model, model.then("view", y, shape=[12])


def test_readers_name_the_base() -> None:
    model, out = chained()
    graph = resolve_views(model.forward(out).graph)
    assert problems(graph) == []
    (op,) = graph.ops
    assert op.inputs == ("x", "b")
    assert op.attrs == {"in_shapes": [[4, 3], None]}
    assert graph.outputs == op.outputs
    before, after = evaluate(model.forward(out).graph, model.values), evaluate(graph, model.values)
    np.testing.assert_array_equal(before[out], after[op.outputs[0]].reshape(12))


def test_view_back_to_the_own_shape_needs_no_shapes() -> None:
    model = Model()
    x = model.source("x", values(2, 6), fed=True)
    back = model.then("view", model.then("view", x, shape=[12]), shape=[2, 6])
    y = model.then("neg", back)
    (op,) = resolve_views(model.forward(y).graph).ops
    assert (op.inputs, dict(op.attrs)) == (("x",), {})


def test_bases() -> None:
    model, out = chained()
    assert view_bases(model.forward(out).graph) == {"view_0.0": "x", "view_1.0": "x", out: "add_2.0"}


def test_resolving_twice_changes_nothing() -> None:
    model, out = chained()
    graph = resolve_views(model.forward(out).graph)
    assert resolve_views(graph) == graph


def test_shapes_of_an_earlier_resolution_stay() -> None:
    model = Model()
    x = model.source("x", values(2, 6), fed=True)
    view = model.then("view", x, shape=[12])
    y = model.then("neg", view, in_shapes=[[3, 4]])
    (op,) = resolve_views(model.forward(y).graph).ops
    assert op.attrs == {"in_shapes": [[3, 4]]}


def test_outputs_keep_their_names_and_hold_their_own_bytes() -> None:
    """A view that is an output is a copy: nothing that overwrites its base can hurt it."""
    model, out = chained()
    step = build_inference_step(model.forward(out, "x", out))
    assert problems(step.graph) == []
    assert step.graph.outputs == (out, "x:output")
    found = evaluate(step.graph, model.values)
    np.testing.assert_array_equal(found[out], evaluate(model.forward(out).graph, model.values)[out])
    np.testing.assert_array_equal(found["x:output"], model.values["x"])
    assert step.graph.tensors[out].shape == (12,)
