"""The plans of strategies show their rules: what moves when, what runs twice, which buffers are reused."""

from __future__ import annotations

import pytest
from small_strategy_models import LOOSE, TIGHT, planned, runs

from snplan.plan.model import Algorithm, Offload, Prefetch, StepPlan
from snplan.plan.timeline import copied_bytes, count_actions


@pytest.mark.parametrize("spec", ["baseline", "liveness", "caffe", "torch"])
def test_simple_strategies_neither_move_nor_recompute(spec: str) -> None:
    counts = count_actions(planned("resnet", spec, LOOSE)[0])
    assert not {"offload", "prefetch", "recompute"} & {kind for kind, count in counts.items() if count}


def test_strategies_use_memory_in_the_order_of_the_paper() -> None:
    arenas = {spec: planned("resnet", spec, LOOSE)[0].peak_live_bytes for spec in ("baseline", "caffe", "torch")}
    assert arenas["baseline"] > arenas["caffe"] == arenas["torch"]
    live = planned("resnet", "liveness", LOOSE)[1]
    assert live["peak_live_bytes"] < arenas["caffe"]
    assert arenas["caffe"] <= live["baseline_bytes"]


def test_baseline_takes_every_buffer_before_the_first_op_and_frees_none_before_the_last() -> None:
    plan = planned("mlp", "baseline", LOOSE)[0]
    kinds = [type(action).__name__ for action in plan.actions]
    first, last = kinds.index("Run"), len(kinds) - 1 - kinds[::-1].index("Run")
    assert "Alloc" not in kinds[first:last]
    assert "Free" not in kinds[:last]
    sizes = {t.name: -(-t.bytes // 512) * 512 for t in plan.tensors}
    replaced = {entry.becomes for entry in plan.persistent if entry.becomes != entry.tensor}
    assert plan.arena_bytes == sum(size for name, size in sizes.items() if name not in replaced)


def test_nothing_moves_with_the_cache_while_all_fits_and_outputs_move_without_it() -> None:
    with_cache = copied_bytes(planned("resnet", "superneurons", LOOSE)[0])
    without = copied_bytes(planned("resnet", "superneurons:-cache", LOOSE)[0])
    assert with_cache == (0, 0)
    assert min(without) > 0
    assert copied_bytes(planned("resnet", "superneurons:-offload", LOOSE)[0]) == (0, 0)


def test_without_recompute_nothing_runs_twice() -> None:
    assert count_actions(planned("resnet", "superneurons", LOOSE)[0])["recompute"] > 0
    assert not count_actions(planned("resnet", "superneurons:-recompute", LOOSE)[0]).get("recompute")


def test_without_algorithms_no_convolution_has_a_workspace() -> None:
    def workspaces(spec: str) -> list[int]:
        plan = planned("resnet", spec, LOOSE)[0]
        return [a.workspace for a in plan.actions if isinstance(a, Algorithm) and a.workspace is not None]

    assert workspaces("superneurons")
    assert workspaces("superneurons:-algorithms") == []


def test_vdnn_moves_layer_inputs_and_each_next_op_waits() -> None:
    plan = planned("resnet", "vdnn-conv", LOOSE)[0]
    inputs = {op.inputs[0] for op in plan.ops if op.kind == "conv" and op.phase == "forward"}
    moved = {action.tensor for action in plan.actions if isinstance(action, Offload)}
    assert moved
    assert moved <= inputs
    assert all(_waited_for(plan, number) for number, a in enumerate(plan.actions) if isinstance(a, Offload))


def _waited_for(plan: StepPlan, offload: int) -> bool:
    """Whether the second op behind the offload waits for it or a later one: the first one runs beside it."""
    behind = [action for number, action in runs(plan) if number > offload]
    return any(number >= offload for action in behind[:2] for number in action.after)


def test_tensorflow_fetches_when_the_reader_is_next_over_a_slow_link() -> None:
    plan = planned("gpt2", "tensorflow", TIGHT)[0]
    assert plan.device["h2d_bytes_per_s"] == 4_000_000_000  # a K40c's 8 GB/s are those of pinned memory
    fetches = [(number, action) for number, action in enumerate(plan.actions) if isinstance(action, Prefetch)]
    assert fetches
    for number, action in fetches:
        reader = next(run for place, run in runs(plan) if place > number)
        assert (action.tensor, action.buffer) in reader.reads
        assert _ordered(plan, max(place for place, _ in runs(plan) if place < number), number)


def _ordered(plan: StepPlan, first: int, then: int) -> bool:
    """Whether an earlier fetch or this one waits for action `first`, directly or by a later one of its stream."""
    chain = [a for a in plan.actions[: then + 1] if isinstance(a, Prefetch)]
    return any(number >= first for a in chain for number in a.after)
