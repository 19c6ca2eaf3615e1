"""Training: what recomputing, freezing and sharing do to results in tools that get them wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults.support import made, recomputing, replay, squeezed
from frontend_support import INT64, info, model, node, tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto
from property.graphs import forwards
from rich.table import Table

from snplan.analysis.floor import floor
from snplan.analysis.index import index_step
from snplan.cost.device import load_device
from snplan.cost.roofline import op_costs
from snplan.errors import ModelError
from snplan.ir import Forward
from snplan.passes.order import sink_updates
from snplan.passes.realise import step_costs
from snplan.passes.search import Search, keep_all_candidate
from snplan.plan.model import Alloc, Free, Offload, Prefetch, Recompute, Run
from snplan.plan.verify import verify
from snplan.report.compiled import compile_tables
from snplan.runtime import rng
from snplan.training import attach_loss, build_step, make_optimizer

ROWS, WIDTH = 512, 32


def weight(number: int) -> np.ndarray[Any, Any]:
    """A seeded matrix."""
    return np.random.default_rng(number).standard_normal((WIDTH, WIDTH)).astype(np.float32) * np.float32(0.3)


def normalised(layers: int = 4) -> ModelProto:
    """Layers of batch normalisation, tanh and a product; the first normalisation reads x itself."""
    stored, nodes, last = [], [], "x"
    for i in range(layers):
        names = [f"{part}{i}" for part in ("scale", "bias", "mean", "var")]
        stored += [tensor(name, np.full(WIDTH, value)) for name, value in zip(names, (1, 0, 0, 1), strict=True)]
        stored.append(tensor(f"w{i}", weight(i)))
        outputs = [f"n{i}", f"m{i}", f"v{i}"]
        nodes += [
            node("BatchNormalization", [last, *names], outputs, f"norm{i}", training_mode=1, momentum=0.9),
            node("Tanh", [f"n{i}"], [f"t{i}"], f"tanh{i}"),
            node("MatMul", [f"t{i}", f"w{i}"], [f"z{i}"], f"product{i}"),
        ]
        last = f"z{i}"
    nodes.append(node("ReduceMean", [last], ["loss"], keepdims=0))
    return model(nodes, [info("x", [ROWS, WIDTH])], ["loss"], stored)


ONE_AND_FIVE = np.repeat([[1.0], [5.0]], ROWS // 2, axis=0).astype(np.float32) * np.ones(WIDTH, np.float32)


def test_a_recomputed_batch_norm_updates_its_statistics_once(tmp_path: Path) -> None:
    """Half the rows are 1, half 5; momentum 0.9. Mean and variance after one step: 0.3 and 1.3 (0.57 and 1.57 where
    the recompute updates them again, 1.7 with the sample variance of two rows); after three 0.813 and 1.813."""
    found = recomputing(normalised(), tmp_path, "t0", "t1")
    assert {"norm0", "norm1"} <= {*found.recomputed}
    everything = made(normalised(), tmp_path, optimizer="none")
    for steps, expected in ((1, (0.3, 1.3)), (3, (0.813, 1.813))):
        result = replay(found, {"x": ONE_AND_FIVE}, steps=steps)
        for name, value in zip(("mean0", "var0"), expected, strict=True):
            np.testing.assert_allclose(result.state[name], np.full(WIDTH, value), rtol=1e-5)
        assert result.bits() == replay(everything, {"x": ONE_AND_FIVE}, steps=steps).bits()


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_statistics_are_updated_once_with_and_without_a_backward_pass(mode: str, tmp_path: Path) -> None:
    """A plan for inference of a graph in training form updates them too."""
    for share in (0.0, 1.0):
        found = squeezed(normalised(2), tmp_path, share, mode=mode)
        state = replay(found, {"x": ONE_AND_FIVE}).state
        np.testing.assert_allclose(state["mean0"], np.full(WIDTH, 0.3), rtol=1e-5)
        np.testing.assert_allclose(state["var0"], np.full(WIDTH, 1.3), rtol=1e-5)


def dropped() -> ModelProto:
    """The sum of tanh(Dropout(x, 0.5) * w), with further layers that press on the memory."""
    nodes = [
        node("Dropout", ["x", "half", "yes"], ["d"], "drop"),
        node("Mul", ["d", "w"], ["y"], "times"),
        node("Exp", ["y"], ["e"], "exp"),
        node("Mul", ["e", "v"], ["f"], "more"),
        node("Tanh", ["f"], ["g"], "tanh"),
        node("ReduceSum", ["g"], ["loss"], keepdims=0),
    ]
    stored = [tensor("half", 0.5), tensor("yes", True, np.bool_)]
    stored += [tensor("w", np.full(1024, 0.25)), tensor("v", np.full(1024, 0.5))]
    return model(nodes, [info("x", [1024])], ["loss"], stored)


def test_a_recomputed_dropout_draws_the_mask_of_the_forward_pass(tmp_path: Path) -> None:
    """dL/dw is zero exactly where the forward mask dropped, in all 1024 elements, in every step."""
    found = recomputing(dropped(), tmp_path, "d")
    assert found.recomputed == ["drop"]
    everything = made(dropped(), tmp_path, optimizer="none")
    ones = np.ones(1024, np.float32)
    stream = next(op.rng for op in found.plan.ops if op.name == "drop")
    assert stream is not None
    masks = []
    for steps in (1, 2):
        result = replay(found, {"x": ones}, steps=steps, seed=5)
        masks.append(rng.keep(1024, 0.5, seed=5, stream=stream, step=steps))
        np.testing.assert_array_equal(result.gradients["w"] != 0, masks[-1])
        assert result.bits() == replay(everything, {"x": ones}, steps=steps, seed=5).bits()
    assert (masks[0] != masks[1]).any()


def test_running_statistics_are_state_without_gradient(tmp_path: Path) -> None:
    """ "All initializers need a gradient" is no error: statistics are told apart, and take no gradient buffer."""
    found = made(normalised(1), tmp_path, optimizer="none")
    roles = {t.name: t.role for t in found.plan.tensors}
    assert {name: roles[name] for name in ("mean0", "var0")} == {"mean0": "state", "var0": "state"}
    assert {name for name, role in roles.items() if role == "parameter"} == {"scale0", "bias0", "w0"}
    outputs = {place.tensor for place in found.plan.outputs}
    assert outputs == {"loss", "scale0:grad", "bias0:grad", "w0:grad"}


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_gradients_of_a_shared_parameter_are_summed(share: float, tmp_path: Path) -> None:
    """f = W (W x), W = 3, x = 2: df/dW = 12; 6 means that one gradient overwrote the other. b is added twice: 2."""
    nodes = [
        node("Mul", ["W", "x"], ["a"]),
        node("Mul", ["W", "a"], ["c"]),
        node("Add", ["c", "b"], ["d"]),
        node("Add", ["d", "b"], ["e"]),
        node("ReduceSum", ["e"], ["loss"], keepdims=0),
    ]
    proto = model(nodes, [info("x", [1])], ["loss"], [tensor("W", [3.0]), tensor("b", [1.0])])
    result = replay(squeezed(proto, tmp_path, share, optimizer="none"), {"x": np.array([2.0], np.float32)})
    assert {name: gradient.tolist() for name, gradient in result.gradients.items()} == {"W": [12.0], "b": [2.0]}


def layered() -> ModelProto:
    """Three layers of product and tanh; rows are picked by an integer input between the first and the second."""
    nodes, last = [], "x"
    for i in range(3):
        nodes.append(node("MatMul", [last, f"W{i}"], [f"z{i}"], f"product{i}"))
        nodes.append(node("Tanh", [f"z{i}"], [f"a{i}"], f"tanh{i}"))
        last = f"a{i}"
        if i == 0:
            nodes.append(node("Gather", ["a0", "rows"], ["picked"], "pick"))
            last = "picked"
    nodes.append(node("ReduceSum", [last], ["loss"], keepdims=0))
    stored = [tensor(f"W{i}", weight(i)) for i in range(3)]
    return model(nodes, [info("x", [ROWS, WIDTH]), info("rows", [ROWS], INT64)], ["loss"], stored)


def layer_feeds() -> dict[str, np.ndarray[Any, Any]]:
    """Numbers and rows."""
    dice = np.random.default_rng(9)
    return {"x": dice.standard_normal((ROWS, WIDTH)).astype(np.float32), "rows": dice.integers(0, ROWS, ROWS)}


def test_a_recomputed_segment_behind_a_frozen_layer_loses_no_gradient(tmp_path: Path) -> None:
    """The segment's inputs need no gradient (data, integers, a frozen weight); W1 and W2 get theirs, bit for bit."""
    found = recomputing(layered(), tmp_path, "picked", "a1", freeze=("W0",))
    assert {*found.recomputed} == {"product0", "tanh0", "pick", "product1", "tanh1"}
    result = replay(found, layer_feeds())
    everything = replay(made(layered(), tmp_path, optimizer="none"), layer_feeds())
    assert sorted(result.gradients) == ["W1", "W2"]
    for name, gradient in result.gradients.items():
        assert np.abs(gradient).max() > 0
        assert gradient.tobytes() == everything.gradients[name].tobytes()


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_frozen_weight_keeps_its_bytes_and_costs_no_backward(share: float, tmp_path: Path) -> None:
    found = squeezed(layered(), tmp_path, share, freeze=("W0",), optimizer="adam")
    result = replay(found, layer_feeds(), steps=2)
    assert result.state["W0"].tobytes() == weight(0).tobytes()
    assert result.state["W1"].tobytes() != weight(1).tobytes()
    names = {t.name for t in found.plan.tensors}
    assert not [name for name in names if name.startswith("W0:")]
    assert not [op for op in found.plan.ops if op.phase != "forward" and "W0" in (*op.inputs, *op.outputs)]


def shown(table: Table) -> dict[str, str]:
    """A table of two columns as a dict."""
    names, values = ([str(cell) for cell in column.cells] for column in table.columns)
    return dict(zip(names, values, strict=True))


def test_the_report_tells_what_freezing_saves(tmp_path: Path) -> None:
    """A gradient and two of Adam's states of 4,096 bytes each."""
    found = made(layered(), tmp_path, freeze=("W0",), optimizer="adam")
    free = made(layered(), tmp_path, optimizer="adam")
    assert free.report["baseline_bytes"] - found.report["baseline_bytes"] >= 3 * 4096
    table = compile_tables(found.plan, {**found.report, "plan": "p"})[0]
    assert shown(table)["frozen"] == "1 parameters; 12.00 KiB (12,288 B) of gradients and optimizer state less"
    assert "frozen" not in shown(compile_tables(free.plan, {**free.report, "plan": "p"})[0])


def test_a_shape_that_depends_on_data_is_refused_on_the_path_and_ignored_off_it(tmp_path: Path) -> None:
    """A second run of such an op could give another shape, so none is planned: the message names it."""
    nodes = [
        node("Mul", ["x", "w"], ["h"]),
        node("NonZero", ["h"], ["where"], "find"),
        node("Gather", ["h", "where"], ["picked"], "pick"),
        node("ReduceSum", ["picked"], ["loss"], keepdims=0),
        node("ReduceSum", ["h"], ["other"], keepdims=0),
    ]
    proto = model(nodes, [info("x", [8])], ["loss", "other"], [tensor("w", np.ones(8))])
    with pytest.raises(ModelError, match="NonZero 'find'") as caught:
        made(proto, tmp_path, loss="output:loss")
    assert caught.value.code == "SNP-I014"
    assert made(proto, tmp_path, loss="output:other").report["status"] == "feasible"


@given(forward=forwards(max_ops=8), share=st.sampled_from((0.0, 0.2, 0.5, 0.8, 1.0)))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_recompute_never_raises_memory_and_does_nothing_where_all_fits(forward: Forward, share: float) -> None:
    """Planned bytes are at most those of the plan that keeps everything; with its bytes nothing moves or runs again."""
    device = load_device("h200")
    step = sink_updates(build_step(attach_loss(forward, "auto"), optimizer=make_optimizer("sgd")))
    indexed = index_step(step, op_costs(step.graph, device, "fp32").tolist())
    costs, lowest = step_costs(indexed, device), floor(indexed)
    everything = keep_all_candidate(indexed, costs)
    most = everything.body.arena_bytes
    budget = int(lowest.bytes + share * (most - lowest.bytes))
    chosen = Search(step=indexed, costs=costs, budget=budget, floor=lowest).run(everything)
    assert chosen is not None
    assert chosen.body.arena_bytes <= min(budget, most)
    assert chosen.body.peak_live_bytes <= everything.body.peak_live_bytes
    if budget >= most:
        assert not [a for a in chosen.body.actions if isinstance(a, Offload | Prefetch | Recompute)]


def test_a_mean_keeps_its_result_and_never_its_input(tmp_path: Path) -> None:
    """4 MiB in, 4 bytes out: the input is dead when the mean is done."""
    size = 1 << 20
    nodes = [
        node("Mul", ["x", "w"], ["large"], "times"),
        node("ReduceMean", ["large"], ["m"], "mean", keepdims=1),
        node("Tanh", ["m"], ["t"]),
        node("ReduceSum", ["t"], ["loss"], keepdims=0),
    ]
    proto = model(nodes, [info("x", [size])], ["loss"], [tensor("w", np.full(size, 1e-6))])
    plan = made(proto, tmp_path, optimizer="none").plan
    runs = [(i, a) for i, a in enumerate(plan.actions) if isinstance(a, Run)]
    last_read = max(i for i, a in runs if any(name == "large" for name, _ in a.reads))
    assert [a.op for i, a in runs if i == last_read] == ["mean"]
    held = next(buffer for i, a in runs for name, buffer in a.writes if name == "large")
    freed = next(i for i, a in enumerate(plan.actions) if isinstance(a, Free) and a.buffer == held and i > last_read)
    assert not [a for i, a in runs if last_read < i < freed]
    assert verify(plan) == []
    assert len([a for a in plan.actions if isinstance(a, Alloc) and a.buffer == held]) == 1


def test_the_input_of_a_product_comes_back_without_the_product(tmp_path: Path) -> None:
    """dW1 needs what product 1 reads: the ops before it run again, the product itself does not."""
    found = recomputing(layered(), tmp_path, "picked")
    assert found.recomputed == ["pick"]
    everything = made(layered(), tmp_path, optimizer="none")
    assert found.plan.peak_live_bytes <= everything.plan.peak_live_bytes
    assert replay(found, layer_feeds()).bits() == replay(everything, layer_feeds()).bits()
