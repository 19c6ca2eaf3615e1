"""Fusion of steps: the same bits, never a higher floor, and what fuses in the networks that matter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.graphs import forwards
from step_support import Model, evaluate

from snplan.analysis.floor import floor
from snplan.analysis.index import index_step
from snplan.analysis.schedule import saved_tensors
from snplan.ir import Graph, Op, Phase, Step, problems
from snplan.ops import infer
from snplan.runtime.numpy import Array
from snplan.training import attach_loss, build_step, fuse_step, make_optimizer

RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def floor_of(step: Step) -> int:
    """The floor, without workspaces."""
    return floor(index_step(step, [1] * len(step.graph.ops))).bytes


def values_of(graph: Graph) -> dict[str, Array]:
    """Random values of all sources."""
    rng = np.random.default_rng(0)
    found: dict[str, Array] = {}
    for name in graph.sources:
        shift = 1.0 if name.endswith((".scale", ".var")) else 0.0
        found[name] = (rng.normal(size=graph.tensors[name].shape) * 0.5 + shift).astype(np.float32)
    return found


def check(step: Step, values: Mapping[str, Array]) -> Step:
    """The fused step, found sound and equal to the bit in every tensor that both steps have."""
    fused = fuse_step(step)
    graph = fused.graph
    assert problems(graph) == []
    for op in graph.ops:
        found = infer(op.kind, [graph.tensors[name].spec for name in op.inputs], op.attrs)
        assert found == tuple(graph.tensors[name].spec for name in op.outputs)
    before, after = evaluate(step.graph, values), evaluate(graph, values)
    wanted = {*step.graph.outputs, *step.gradients.values(), *step.becomes.values()}
    assert wanted <= set(after)
    for name in after.keys() & before.keys():
        assert after[name].tobytes() == before[name].tobytes(), name
    assert floor_of(fused) <= floor_of(step)
    return fused


def parts(op: Op) -> tuple[str, ...]:
    """Kinds of the parts of a fused op."""
    rows: Any = op.attrs["parts"]
    return tuple(row[0] for row in rows)


def fused_kinds(step: Step, phase: Phase) -> Counter[tuple[str, ...]]:
    """The fused ops of a phase by what they do."""
    return Counter(parts(op) for op in step.graph.ops if op.kind == "fused" and op.phase is phase)


def saved_names(step: Step) -> set[str]:
    """Forward tensors that the backward pass reads."""
    index = index_step(step, [1] * len(step.graph.ops))
    return {index.names[tensor] for tensor in saved_tensors(index)}


@given(forward=forwards(max_ops=24), optimizer=st.sampled_from(("none", "momentum")))
@RELAXED
def test_random_graphs_keep_every_bit(forward: Any, optimizer: str) -> None:
    step = build_step(attach_loss(forward, "auto"), optimizer=make_optimizer(optimizer))
    with np.errstate(all="ignore"):
        fused = check(step, values_of(step.graph))
    updates = [op for op in step.graph.ops if op.phase is Phase.UPDATE]
    assert [op for op in fused.graph.ops if op.phase is Phase.UPDATE] == updates
    assert len(fused.graph.ops) <= len(step.graph.ops) + 2 * sum("batch_norm" in op.kind for op in step.graph.ops)


# A 1 x 1 convolution is a product of channels here: the network's other ops are what counts.


def normalised(model: Model, name: str, x: str) -> str:
    """Batch normalisation of `x`."""
    channels = model.tensors[x].shape[1]
    scale = model.source(f"{name}.scale", np.linspace(0.5, 1.5, channels).astype(np.float32))
    bias = model.source(f"{name}.bias", np.linspace(-0.5, 0.5, channels).astype(np.float32))
    return model.then("batch_norm_train", x, scale, bias, epsilon=1e-5)


def convolved(model: Model, name: str, x: str, channels: int) -> str:
    """A convolution of 1 x 1."""
    rng = np.random.default_rng(len(name))
    filters = (rng.normal(size=(channels, model.tensors[x].shape[1], 1, 1)) * 0.3).astype(np.float32)
    weight = model.source(f"{name}.weight", filters)
    return model.then("conv", x, weight, strides=[1, 1], pads=[0] * 4, dilations=[1, 1], group=1)


def image(model: Model, *shape: int) -> str:
    """An input."""
    return model.source("x", np.random.default_rng(1).normal(size=shape).astype(np.float32), fed=True)


def residual_net(activation: tuple[str, dict[str, Any]]) -> tuple[Model, str]:
    """conv, norm, activation; a block with a shortcut; the sum of all."""
    kind, attrs = activation
    model = Model()
    y = convolved(model, "stem", image(model, 4, 3, 16, 16), 32)
    y = model.then(kind, normalised(model, "stem", y), **attrs)
    z = model.then(kind, normalised(model, "a", convolved(model, "a", y, 8)), **attrs)
    z = normalised(model, "b", convolved(model, "b", z, 32))
    return model, model.sum(model.then(kind, model.then("add", z, y), **attrs))


def test_a_residual_block() -> None:
    model, loss = residual_net(("relu", {}))
    fused = check(model.step(loss), model.values)
    assert fused_kinds(fused, Phase.FORWARD) == {
        ("batch_norm_apply", "relu"): 2,
        ("batch_norm_apply", "add", "relu"): 1,
    }
    backward = fused_kinds(fused, Phase.BACKWARD)
    assert backward["batch_norm_apply", "relu", "relu_grad", "batch_norm_grad_sums"] == 1
    assert backward["batch_norm_apply", "relu", "relu_grad", "batch_norm_grad_apply"] == 1
    kinds = Counter(op.kind for op in fused.graph.ops)
    assert kinds["batch_norm_statistics"] == 3
    assert not kinds["batch_norm_train"] + kinds["batch_norm_grad"] + kinds["relu"]


def test_a_clip_saves_the_input_of_the_norm_alone() -> None:
    model, loss = residual_net(("clip", {"min": 0.0, "max": 6.0}))
    step = model.step(loss)
    fused = check(step, model.values)
    large = 4 * 8 * 16 * 16 * 4
    graph = step.graph
    before, after = ({n for n in saved_names(s) if s.graph.tensors[n].bytes >= large} for s in (step, fused))
    lost = before - after
    # What the two norms in front of a clip gave; that of the last clip is a sum, and stays.
    assert len(lost) == 2
    assert {graph.ops[graph.producer[name]].kind for name in lost} == {"batch_norm_train"}
    assert after < before


def test_a_decomposed_activation_saves_its_input_alone() -> None:
    """x * sigmoid(x) behind a product: forward one op, backward one op, both of x."""
    model = Model()
    x = image(model, 64, 64)
    weight = model.source("w", np.eye(64, dtype=np.float32))
    h = model.matmul(x, weight)
    y = model.then("mul", h, model.then("sigmoid", h))
    step = model.step(model.sum(model.matmul(y, weight)))
    fused = check(step, model.values)
    assert fused_kinds(fused, Phase.FORWARD) == {("sigmoid", "mul"): 1}
    (backward,) = (op for op in fused.graph.ops if op.kind == "fused" and op.phase is Phase.BACKWARD)
    assert set(parts(backward)) == {"sigmoid", "mul", "sigmoid_grad", "add"}
    assert h in backward.inputs
    assert "sigmoid_1.0" in saved_names(step)
    assert "sigmoid_1.0" not in saved_names(fused)


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_running_statistics(dtype: Any, frozen: bool) -> None:
    """A norm of an exported model: applying it fuses, its inverse deviation is made once."""
    model = Model()
    rng = np.random.default_rng(2)
    x = model.source("x", rng.normal(size=(4, 8, 5, 5)).astype(dtype), fed=True)
    factor = model.source("factor", rng.normal(size=(8, 1, 1)).astype(dtype))
    vectors = [model.source(n, rng.uniform(0.5, 1.5, 8).astype(dtype)) for n in ("scale", "bias", "mean", "var")]
    h = model.then("mul", x, factor)
    for _ in range(2):
        h = model.then("relu", model.then("batch_norm_eval", h, *vectors, epsilon=1e-5))
    step = model.step(model.sum(h), freeze=("scale", "bias") if frozen else ())
    fused = check(step, model.values)
    kinds = Counter(op.kind for op in fused.graph.ops)
    assert kinds["batch_norm_inverse"] == 1
    assert not kinds["batch_norm_eval"] + kinds["batch_norm_eval_grad"]
    ends = Counter(parts(op)[-1] for op in fused.graph.ops if op.kind == "fused")
    assert ends["relu"] + ends["reduce_sum"] >= 2
    assert ends["batch_norm_grad_sums"] + kinds["batch_norm_grad_sums"] == (0 if frozen else 2)


def test_what_an_activation_is_made_from_is_saved_in_its_place() -> None:
    """Product, bias, GELU, product: the first product's result is saved, not the sum, which is never written."""
    model = Model()
    x = image(model, 32, 64)
    weight, bias = model.source("w", np.eye(64, dtype=np.float32)), model.source("b", np.full(64, 0.1, np.float32))
    product = model.matmul(x, weight)
    total = model.then("add", product, bias)
    y = model.then("gelu", total, approximate="none")
    step = model.step(model.sum(model.matmul(y, weight)))
    fused = check(step, model.values)
    assert fused_kinds(fused, Phase.FORWARD) == {("add", "gelu"): 1}
    assert ("add", "gelu_grad") in fused_kinds(fused, Phase.BACKWARD)
    assert saved_names(step) - saved_names(fused) == {total}
    assert saved_names(fused) - saved_names(step) == {product}


def test_a_value_that_a_product_reads_is_saved_itself() -> None:
    """Its input is not saved beside it."""
    model = Model()
    x = image(model, 32, 64)
    weight, bias = model.source("w", np.eye(64, dtype=np.float32)), model.source("b", np.full(64, 0.1, np.float32))
    product = model.matmul(x, weight)
    total = model.then("add", product, bias)
    end = model.then("add", model.then("gelu", total, approximate="none"), model.matmul(total, weight))
    fused = check(model.step(model.sum(end)), model.values)
    assert total in saved_names(fused)
    assert product not in saved_names(fused)


def test_values_that_others_read_stay() -> None:
    """A forward op gives one tensor: what a product reads is not made by an op that goes on."""
    model = Model()
    x = image(model, 64, 64)
    weight = model.source("w", np.eye(64, dtype=np.float32))
    h = model.then("neg", model.then("neg", model.matmul(x, weight)))
    end = model.then("add", model.matmul(h, weight), model.then("neg", h))
    fused = check(model.step(model.sum(end)), model.values)
    forward = [op for op in fused.graph.ops if op.kind == "fused" and op.phase is Phase.FORWARD]
    assert [len(op.outputs) for op in forward] == [1] * len(forward)
    assert ("neg", "neg") in fused_kinds(fused, Phase.FORWARD)
    # The third waits for the product and keeps no more alive by it.
    assert ("neg", "add", "reduce_sum") in fused_kinds(fused, Phase.FORWARD)


def test_dropout_draws_from_its_own_stream() -> None:
    model = Model()
    x = image(model, 8, 64)
    weight = model.source("w", np.eye(64, dtype=np.float32))
    h = model.then("neg", model.matmul(x, weight))
    (first,) = model.op("dropout", [h], rng=3, ratio=0.5)
    (second,) = model.op("dropout", [first], rng=4, ratio=0.5)
    fused = check(model.step(model.sum(model.matmul(second, weight))), model.values)
    drawing = {op.rng: parts(op) for op in fused.graph.ops if op.kind == "fused" and op.phase is Phase.FORWARD}
    assert drawing == {3: ("neg", "dropout")}


def test_nodes_and_names() -> None:
    model, loss = residual_net(("relu", {}))
    fused = check(model.step(loss), model.values)
    op = next(op for op in fused.graph.ops if op.kind == "fused")
    assert op.name == "relu_2"
    assert op.nodes == ("/batch_norm_train_1", "/relu_2")
    assert len({op.name for op in fused.graph.ops}) == len(fused.graph.ops)


def test_attention_scores() -> None:
    """Scaled, masked softmax is one op; so is the way back through dropout, softmax, mask and scale."""
    model = Model()
    x = image(model, 16, 32)
    weight = model.source("w", np.eye(32, dtype=np.float32) * 0.3)
    flags = model.source("flags", np.tril(np.ones((16, 16), np.bool_)))
    far = model.source("far", np.float32(-1e9), fed=True)
    h = model.matmul(x, weight)
    scores = model.then("matmul", h, h, trans_a=False, trans_b=True, alpha=1.0)
    masked = model.then("where", flags, model.then("mul", scores, scalar=0.5), far)
    (kept,) = model.op("dropout", [model.then("softmax", masked, axis=1)], rng=1, ratio=0.25)
    end = model.matmul(model.matmul(kept, h), weight)
    fused = check(model.step(model.sum(model.then("tanh", end))), model.values)
    assert ("mul", "where", "softmax") in fused_kinds(fused, Phase.FORWARD)
    assert ("dropout_grad", "softmax_grad", "mask", "mul") in fused_kinds(fused, Phase.BACKWARD)
    back = next(op for op in fused.graph.ops if op.phase is Phase.BACKWARD and op.rng is not None)
    assert back.rng == 1


def test_two_softmaxes_are_two_ops() -> None:
    model = Model()
    x = image(model, 16, 32)
    weight = model.source("w", np.eye(32, dtype=np.float32))
    h = model.then("softmax", model.then("neg", model.then("softmax", model.matmul(x, weight), axis=1)), axis=1)
    fused = check(model.step(model.sum(model.then("neg", h))), model.values)
    assert ("neg", "softmax") in fused_kinds(fused, Phase.FORWARD)
    assert all(sum("softmax" in part for part in kinds) <= 1 for kinds in fused_kinds(fused, Phase.BACKWARD))


@pytest.mark.parametrize("dtype", [np.float64, np.float16])
def test_other_types(dtype: Any) -> None:
    model = Model()
    x = model.source("x", np.random.default_rng(1).normal(size=(4, 8, 3, 3)).astype(dtype), fed=True)
    scale, bias = (model.source(n, np.linspace(0.5, 1, 8).astype(dtype)) for n in ("scale", "bias"))
    factor = model.source("factor", np.linspace(0.5, 1, 8).astype(dtype).reshape(8, 1, 1))
    h = model.then("batch_norm_train", model.then("mul", x, factor), scale, bias, epsilon=1e-5)
    y = model.then("cast", model.then("relu", h), to="float32") if dtype == np.float16 else model.then("relu", h)
    fused = check(model.step(model.sum(model.then("mul", y, y))), model.values)
    kinds = Counter(op.kind for op in fused.graph.ops)
    # Half precision sums would round twice: the gradient stays whole.
    assert kinds["batch_norm_grad"] == (dtype == np.float16)
    assert kinds["batch_norm_statistics"] == 1


def test_integers_do_not_fuse() -> None:
    model = Model()
    ids = model.source("ids", np.arange(64, dtype=np.int64), fed=True)
    table = model.source("table", np.eye(64, dtype=np.float32))
    moved = model.then("mod", model.then("add", ids, scalar=3), scalar=64, fmod=False)
    fused = check(model.step(model.sum(model.then("gather", table, moved, axis=0))), model.values)
    kinds = Counter(op.kind for op in fused.graph.ops)
    assert kinds["mod"] == kinds["add"] == 1


def test_views_between_parts_keep_them_apart() -> None:
    model = Model()
    x = image(model, 4, 16)
    weight = model.source("w", np.eye(16, dtype=np.float32))
    h = model.then("view", model.then("tanh", model.matmul(x, weight)), shape=[2, 32])
    fused = check(model.step(model.sum(model.then("exp", h))), model.values)
    assert fused_kinds(fused, Phase.FORWARD) == {("exp", "reduce_sum"): 1}


def test_the_limit_is_the_floor_that_was() -> None:
    """Three large operands at once would be a higher floor than two: the sum stays alone."""
    model = Model()
    x = image(model, 64, 64)
    sources = [model.source(f"w{k}", np.full((64, 64), 0.1 * k, np.float32)) for k in range(3)]
    total = x
    for name in sources:
        total = model.then("add", total, name)
    step = model.step(model.sum(model.then("tanh", total)))
    fused = check(step, model.values)
    assert floor_of(step) == 2 * 64 * 64 * 4
    assert max(len(op.inputs) for op in fused.graph.ops) == 2
    assert floor_of(fused) == floor_of(step)


def test_a_sum_of_one_operand_twenty_thousand_times() -> None:
    """Every add reads the same tensor: looking at all its readers for each would be 4 * 10^8 looks, and a gradient's
    partial sums as many. Groups have at most 24 parts."""
    model = Model()
    x = model.matmul(image(model, 4, 16), model.source("w", np.eye(16, dtype=np.float32)))
    total = x
    for _ in range(20_000):
        total = model.then("add", total, x)
    fused = fuse_step(model.step(model.sum(total))).graph
    adds = [kind for op in fused.ops if op.kind == "fused" for kind in parts(op) if kind == "add"]
    adds += [op.kind for op in fused.ops if op.kind == "add"]
    assert len(adds) == 40_000
    assert max(len(parts(op)) for op in fused.ops if op.kind == "fused") == 24
    assert len(fused.ops) < 2 * 20_000 / 24 + 20


def test_a_gradient_with_ten_thousand_readers() -> None:
    """Ten thousand tanh of one tensor, summed: the gradient of the sum is read by every one of them."""
    model = Model()
    x = model.matmul(image(model, 4, 16), model.source("w", np.eye(16, dtype=np.float32)))
    total = x
    for _ in range(10_000):
        total = model.then("add", total, model.then("tanh", x))
    fused = fuse_step(model.step(model.sum(total))).graph
    kinds = Counter(kind for op in fused.ops if op.kind == "fused" for kind in parts(op))
    kinds.update(op.kind for op in fused.ops)
    assert kinds["tanh"] >= 10_000
    assert kinds["tanh_grad"] == 10_000
    assert problems(fused) == []
