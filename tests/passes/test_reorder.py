"""Order refinement: a lower peak in a sound order, and no bit of a result changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.graphs import forwards
from step_support import evaluate
from tests_support import training_chain

from snplan import models
from snplan.analysis.index import Choice, IndexedStep, index_step
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.compiler import CompileOptions, Prepared, plan_prepared, prepare
from snplan.frontend import load_model
from snplan.ir import DType, Forward, Graph, Op, Phase, Role, Spec, Step, Tensor, problems
from snplan.passes.order import sink_updates
from snplan.passes.reorder import Refinement, alive_at_turn, in_order, reorder
from snplan.plan.verify import verify
from snplan.training import attach_loss, build_step, fuse_step, make_optimizer

RELAXED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
WORK = 100_000


def peak_of(step: IndexedStep) -> int:
    """The peak of live bytes as the analysis has it."""
    return int(Residency(build_schedule(step)).live.max())


def step_of(ops: dict[str, tuple[tuple[str, ...], int]], phases: dict[str, Phase] | None = None) -> IndexedStep:
    """A step of ops by the name of what they write: what they read, and granules written. `x` is a granule of input."""
    rows = {"x": 1, **{name: granules for name, (_, granules) in ops.items()}}
    tensors = {
        name: Tensor(
            name=name, spec=Spec(DType.FLOAT32, (128 * granules,)), role=Role.INPUT if name == "x" else Role.ACTIVATION
        )
        for name, granules in rows.items()
    }
    made = tuple(
        Op(name=name, kind="concat", inputs=reads, outputs=(name,), phase=(phases or {}).get(name, Phase.FORWARD))
        for name, (reads, _) in ops.items()
    )
    graph = Graph(tensors=tensors, ops=made, sources=("x",), outputs=(made[-1].name,))
    step = Step(graph=graph, loss=None, inputs=("x",), gradients={}, becomes={})
    return index_step(step, [1] * len(made))


def names(step: IndexedStep) -> list[str]:
    return [op.name for op in step.ops]


def trained(forward: Forward, optimizer: str, *, fuse: bool) -> IndexedStep:
    """The training step of a forward graph."""
    built = build_step(attach_loss(forward, "auto"), optimizer=make_optimizer(optimizer))
    step = sink_updates(fuse_step(built) if fuse else built)
    return index_step(step, [1] * len(step.graph.ops))


def small_gpt2() -> Prepared:
    """A GPT-2 whose vocabulary is most of it: the gradient of its head is large while all is saved."""
    model = models.build("gpt2", loss=True, batch=1, layers=2, heads=2, embed=64, context=32, vocab=2048)
    return prepare(load_model(model.SerializeToString()), CompileOptions(budget_bytes=1 << 40, device="k40c"))


def test_the_branch_with_the_higher_hump_goes_first() -> None:
    # As routed, a (8 granules) stays while b1 (100) is made: 1 + 8 + 100. The other way: 1 + 100 + 1.
    step = step_of({"a": (("x",), 8), "b1": (("x",), 100), "b2": (("b1",), 1), "end": (("a", "b2"), 1)})
    found = reorder(step)
    assert names(found) == ["b1", "b2", "a", "end"]
    assert (peak_of(step), peak_of(found)) == (109 * 512, 102 * 512)


def test_a_whole_branch_changes_places() -> None:
    step = step_of(
        {
            "a1": (("x",), 4),
            "a2": (("a1",), 6),
            "a3": (("a2",), 8),
            "b1": (("x",), 100),
            "b2": (("b1",), 1),
            "end": (("a3", "b2"), 1),
        }
    )
    found = reorder(step)
    assert names(found) == ["b1", "b2", "a1", "a2", "a3", "end"]
    assert (peak_of(step), peak_of(found)) == (109 * 512, 102 * 512)


def test_what_frees_a_large_tensor_runs_before_what_needs_room() -> None:
    # `big` waits for `drop` while `wide` is made: 50 + 1 + 60 granules. Dropped first: small, drop and wide.
    step = step_of(
        {
            "big": (("x",), 50),
            "small": (("big",), 1),
            "wide": (("small",), 60),
            "thin": (("wide",), 1),
            "drop": (("big",), 1),
            "end": (("thin", "drop"), 1),
        }
    )
    found = reorder(step)
    assert names(found) == ["big", "small", "drop", "wide", "thin", "end"]
    assert (peak_of(step), peak_of(found)) == (111 * 512, 62 * 512)


def test_forward_ops_stay_before_the_backward_pass() -> None:
    phases = {"g": Phase.BACKWARD, "end": Phase.BACKWARD}
    step = step_of({"keep": (("x",), 9), "y": (("x",), 90), "g": (("y",), 1), "end": (("g", "keep"), 1)}, phases)
    found = reorder(step)
    phased = [op.phase for op in found.ops]
    assert phased == sorted(phased, key=lambda phase: phase is Phase.BACKWARD)
    assert found.backward == step.backward == 2


def test_a_chain_is_left_alone() -> None:
    step = training_chain()
    assert reorder(step) is step


def test_a_step_without_ops_is_left_alone() -> None:
    graph = Graph(tensors={}, ops=(), sources=(), outputs=())
    step = index_step(Step(graph=graph, loss=None, inputs=(), gradients={}, becomes={}), [])
    assert reorder(step) is step


def test_no_work_no_move() -> None:
    step = step_of({"a": (("x",), 8), "b1": (("x",), 100), "b2": (("b1",), 1), "end": (("a", "b2"), 1)})
    assert reorder(step, work=0) is step


def test_a_small_gain_is_none() -> None:
    # One granule of 5001 is less than one part in 4096.
    step = step_of({"a": (("x",), 1), "b1": (("x",), 5000), "b2": (("b1",), 1), "end": (("a", "b2"), 1)})
    assert reorder(step) is step


def test_costs_and_engines_follow_their_ops() -> None:
    step = step_of({"a": (("x",), 8), "b1": (("x",), 100), "b2": (("b1",), 1), "end": (("a", "b2"), 1)})
    engines: list[tuple[Choice, ...]] = [(Choice(0, 0, 9), Choice(1, 512, 7)), (), (), ()]
    step = replace(step, cost=[7, 2, 3, 4], engines=engines)
    found = in_order(step, [1, 2, 0, 3])
    assert found.cost == [2, 3, 7, 4]
    assert found.engines == [(), (), engines[0], ()]
    assert found.producer[found.names.index("a")] == 2


def test_workspaces_count() -> None:
    # The engine of b2 wants 60 granules: with them its position is the peak, and `a` waits for after it.
    step = step_of({"a": (("x",), 30), "b1": (("x",), 40), "b2": (("b1",), 1), "end": (("a", "b2"), 1)})
    step = replace(step, engines=[(), (), (Choice(0, 60 * 512, 1),), ()])
    found = reorder(step)
    assert peak_of(step) == (30 + 40 + 1 + 60) * 512
    assert names(found) == ["b1", "b2", "a", "end"]
    assert peak_of(found) == (1 + 40 + 1 + 60) * 512


@given(forward=forwards(max_ops=24), optimizer=st.sampled_from(("sgd", "momentum", "adam", "none")), fuse=st.booleans())
@RELAXED
def test_live_bytes_are_those_of_the_analysis(forward: Forward, optimizer: str, fuse: bool) -> None:
    step = trained(forward, optimizer, fuse=fuse)
    refinement = Refinement(step, WORK)
    np.testing.assert_array_equal(refinement.live, Residency(build_schedule(step)).live)
    refinement.run()
    moved = in_order(step, refinement.order)
    np.testing.assert_array_equal(refinement.live, Residency(build_schedule(moved)).live)
    assert max(refinement.live) >= alive_at_turn(step) == refinement.alive[step.backward]


@given(forward=forwards(max_ops=24), optimizer=st.sampled_from(("sgd", "momentum", "adam", "none")), fuse=st.booleans())
@RELAXED
def test_orders_are_sound_and_peaks_fall(forward: Forward, optimizer: str, fuse: bool) -> None:
    step = trained(forward, optimizer, fuse=fuse)
    found = reorder(step)
    if found is step:
        return
    assert peak_of(found) < peak_of(step)
    assert problems(found.step.graph) == []
    assert sorted(names(found)) == sorted(names(step))
    assert sink_updates(found.step) is found.step
    assert [op.phase for op in found.ops[: step.backward]].count(Phase.BACKWARD) == 0
    assert reorder(step).step.graph.ops == found.step.graph.ops


@given(forward=forwards(max_ops=16), optimizer=st.sampled_from(("sgd", "adam")), fuse=st.booleans())
@settings(RELAXED, max_examples=25)
def test_no_bit_changes(forward: Forward, optimizer: str, fuse: bool) -> None:
    step = trained(forward, optimizer, fuse=fuse)
    found = reorder(step)
    rng = np.random.default_rng(5)
    graph = step.step.graph
    values: dict[str, Any] = {
        name: rng.normal(size=graph.tensors[name].shape).astype(str(graph.tensors[name].dtype)) ** 2
        for name in graph.sources
    }
    before, after = evaluate(graph, values), evaluate(found.step.graph, values)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_array_equal(value, after[name], err_msg=name)


def test_a_budget_that_only_the_new_order_meets_keeps_everything() -> None:
    found = small_gpt2()
    budget = found.reordered.arena_bytes
    assert alive_at_turn(found.indexed) <= budget < found.everything.arena_bytes
    result = plan_prepared(found, CompileOptions(budget_bytes=budget, reserve_bytes=0, device="k40c"))
    assert verify(result.plan) == []
    assert result.plan.arena_bytes == budget
    assert result.plan.step_time_us == found.everything.step_us
    assert result.report["recompute_ops"] == result.report["offload_bytes"] == 0


def test_strategies_and_ample_budgets_keep_the_route() -> None:
    found = small_gpt2()
    ample = found.everything.arena_bytes
    for strategy, order in (("auto", found.indexed), ("liveness", found.unfused.indexed)):
        options = CompileOptions(budget_bytes=2 * ample, reserve_bytes=0, device="k40c", strategy=strategy)
        plan = plan_prepared(found, options).plan
        assert [op.name for op in plan.ops] == names(order)
