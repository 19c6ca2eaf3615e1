"""The CUDA backend on a fake device: streams that run late and at random change no bit."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest
from cuda_fake import FakeGpu, MixedOnDevice, mixed
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.plans import plans, random_plan
from runtime_support import normal

import snplan.runtime.cuda.backend as backend_module
from snplan.errors import RunError
from snplan.plan.index import index_plan
from snplan.plan.model import Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.verify import verify
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.reference import CudaReference
from snplan.runtime.cuda.unplanned import unplanned_plan
from snplan.runtime.session import TrainingSession
from snplan.runtime.values import sources

RELAXED = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def backend(seed: int = 0, **options: Any) -> CudaBackend:
    """A backend on a fake device."""
    return CudaBackend(gpu=FakeGpu(seed=seed), kernels=MixedOnDevice, **options)


def values(plan: StepPlan, *, inputs: bool) -> dict[str, Any]:
    """Numbers for every input, or for all else that is there at the start."""
    rows = sources(index_plan(plan), inputs=inputs)
    return {row.name: normal(*row.shape, seed=number) * 0.1 for number, row in enumerate(rows)}


def trained(plan: StepPlan, executor: CudaBackend, steps: int = 3) -> list[dict[str, Any]]:
    """What every step leaves: outputs, and what persists."""
    with TrainingSession(plan, values(plan, inputs=False), backend=executor, seed=7) as session:
        seen = []
        for _ in range(steps):
            session.step(values(plan, inputs=True))
            seen.append({**session.outputs(), **session.state()})
        return seen


def expected(plan: StepPlan, steps: int = 3) -> list[dict[str, Any]]:
    """The same by a loop over the ops, without memory, copies or streams."""
    held, seen = values(plan, inputs=False), []
    for _ in range(steps):
        tensors = {**held, **values(plan, inputs=True)}
        for row in plan.ops:
            shapes = [tuple(index_plan(plan).tensors[name].shape) for name in row.outputs]
            results = mixed(row, [tensors[name] for name in row.inputs], shapes)
            tensors |= dict(zip(row.outputs, results, strict=True))
        held = {entry.tensor: tensors[entry.becomes] for entry in plan.persistent}
        kept = {name: value for name, value in held.items() if index_plan(plan).tensors[name].role != "constant"}
        seen.append({**{place.tensor: tensors[place.tensor] for place in plan.outputs}, **kept})
    return seen


def same(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> bool:
    """Whether two runs left the same bits."""
    return all(
        x.keys() == y.keys() and all(x[name].tobytes() == y[name].tobytes() for name in x)
        for x, y in zip(a, b, strict=True)
    )


@pytest.mark.parametrize("options", [{}, {"replay": "eager"}, {"debug": True}], ids=["graph", "eager", "debug"])
@RELAXED
@given(plan=plans(), seed=st.integers(0, 100))
def test_as_numpy(options: dict[str, Any], plan: StepPlan, seed: int) -> None:
    """Random plans give the bits that their ops give, however the streams take turns."""
    assert same(trained(plan, backend(seed, **options)), expected(plan))


def roomy(plan: StepPlan) -> StepPlan:
    """The plan with a budget that leaves room beside the arena."""
    return msgspec.structs.replace(plan, budget_bytes=plan.budget_bytes + (1 << 20))


@pytest.mark.parametrize("options", [{}, {"replay": "eager"}, {"debug": True}], ids=["graph", "eager", "debug"])
@pytest.mark.parametrize("way", ["ahead", "blocks"])
@RELAXED
@given(plan=plans(), room=st.booleans(), seed=st.integers(0, 100))
def test_inputs_made_ready_meanwhile(way: str, options: dict[str, Any], plan: StepPlan, room: bool, seed: int) -> None:
    """Inputs staged while the step before runs arrive as those written at once, also through pinned blocks."""
    plan = roomy(plan) if room else plan
    feeds = [{name: value + number for name, value in values(plan, inputs=True).items()} for number in range(4)]

    def run(*, ahead: bool, blocks: bool = False) -> list[bytes]:
        with TrainingSession(plan, values(plan, inputs=False), backend=backend(seed, **options)) as session:
            pair, seen = session.input_blocks(), []
            given: dict[str, Any] = feeds[0]
            for number, feed in enumerate(feeds):
                following: dict[str, Any] | None = feeds[number + 1] if ahead and number < 3 else None
                if blocks and following is not None:
                    for name, value in following.items():
                        pair[(number + 1) % 2][name][...] = value
                    following = pair[(number + 1) % 2]
                session.step(given if ahead else feed, following)
                given = following or feed
                seen += [value.tobytes() for value in (*session.outputs().values(), *session.state().values())]
            return seen

    assert run(ahead=True, blocks=way == "blocks") == run(ahead=False)


def test_inputs_wait_on_the_device_where_the_budget_has_room() -> None:
    """The place for the next step's inputs is part of the budget; without room they arrive in the arena, if at all."""
    some = (random_plan(random.Random(seed)) for seed in range(50))
    plan = next(plan for plan in some if plan.resident[0].tensor == "x0" and plan.resident[0].buffer is not None)
    plan = msgspec.structs.replace(plan, device={**plan.device, "h2d_bytes_per_s": 1_000_000})
    for chosen, ahead in ((plan, False), (roomy(plan), True)):
        executor = backend()
        with TrainingSession(chosen, values(plan, inputs=False), backend=executor) as session:
            outside = bool(executor._bound.ahead.addresses) and not executor._bound.ahead.gates
            assert outside == ahead
            late = sum(
                index_plan(chosen).tensors[place.tensor].bytes
                for place in chosen.resident
                if place.buffer is not None and index_plan(chosen).tensors[place.tensor].role == "input"
            )
            assert executor.arriving_us == (0 if ahead else late)
            assert session.predicted_step_us == chosen.step_time_us + executor.arriving_us


def test_check_needs_steady_engines() -> None:
    """Bits of engines that vary prove nothing: the comparison says so instead of calling it a bug."""
    plan = random_plan(random.Random(3))
    executor = backend()
    with TrainingSession(plan, values(plan, inputs=False), backend=executor) as session:
        executor._kernels.unsteady = ("conv1",)  # type: ignore[misc]
        with pytest.raises(RunError, match=r"conv1.*--deterministic") as caught:
            CudaReference(session, {**values(plan, inputs=False), **session.state()})
        assert caught.value.code == "SNP-R060"


def without_waits(plan: StepPlan) -> StepPlan:
    """The plan without its `after` edges."""
    moving = (Run, Recompute, Offload, Prefetch)
    actions = [
        msgspec.structs.replace(action, after=[]) if isinstance(action, moving) else action for action in plan.actions
    ]
    return msgspec.structs.replace(plan, actions=actions)


def test_missing_waits_are_seen() -> None:
    """Without its edges, a plan that moves gives other bits: the fake streams do run out of order."""
    moving = (random_plan(random.Random(seed)) for seed in range(200))
    plans_ = [plan for plan in moving if any(isinstance(action, Prefetch) for action in plan.actions)][:20]
    wrong = 0
    for plan in plans_:
        right = expected(plan)
        wrong += any(not same(trained(without_waits(plan), backend(seed)), right) for seed in range(5))
    assert wrong > len(plans_) // 2


@RELAXED
@given(plan=plans())
def test_unplanned_plan(plan: StepPlan) -> None:
    """The unplanned plan is sound but for what persists, which the session brings back; it runs every op once."""
    unplanned = unplanned_plan(index_plan(plan))
    assert all("the next step looks for it" in finding.message for finding in verify(unplanned))
    assert not any(isinstance(action, (Recompute, Offload, Prefetch)) for action in unplanned.actions)
    assert same(trained(unplanned, backend()), expected(plan))


@RELAXED
@given(plan=plans())
def test_reference(plan: StepPlan) -> None:
    """The unplanned execution beside a session agrees with it, step after step."""
    with TrainingSession(plan, values(plan, inputs=False), backend=backend()) as session:
        reference = CudaReference(session, {**values(plan, inputs=False), **session.state()})
        for number in (1, 2):
            session.step(values(plan, inputs=True))
            found = reference.step(number, values(plan, inputs=True), [])
            becomes = {entry.tensor: entry.becomes for entry in plan.persistent}
            for name, value in session.state().items():
                assert np.array_equal(value, found[becomes[name]], equal_nan=True)


def test_nothing_is_taken_in_a_step() -> None:
    """Memory is taken at bind, all of it is given back, and the context is popped as often as it is pushed."""
    plan = random_plan(random.Random(3))
    executor = backend()
    gpu: Any = executor._gpu
    with TrainingSession(plan, values(plan, inputs=False), backend=executor) as session:
        before = executor.allocations
        blocks = len(gpu.blocks) + len(gpu.pinned)
        assert blocks == before
        for _ in range(4):
            session.step(values(plan, inputs=True))
        assert executor.allocations == before
        assert len(gpu.blocks) + len(gpu.pinned) == blocks
        assert gpu.graphs == 1
        assert gpu.depth == 0
        assert session.measured is not None
        assert session.measured.allocations == 0
    assert not gpu.blocks
    assert not gpu.pinned
    assert gpu.graphs == 0
    assert executor._kernels.closed  # type: ignore[attr-defined]


def test_failure_leaves_the_context_clean() -> None:
    """An action that fails is named; the context is popped; the next backend on the device works."""
    plan = random_plan(random.Random(3))
    executor = backend()
    gpu: Any = executor._gpu
    first = next(number for number, action in enumerate(plan.actions) if type(action).__name__ == "Run")
    with TrainingSession(plan, values(plan, inputs=False), backend=executor) as session:
        executor._kernels.fail_at = first  # type: ignore[attr-defined]
        with pytest.raises(RunError, match=f"action {first}, op .*injected failure") as caught:
            session.step(values(plan, inputs=True))
        assert caught.value.code == "SNP-R057"
        assert gpu.depth == 0
    assert not gpu.blocks
    assert trained(plan, CudaBackend(gpu=gpu, kernels=MixedOnDevice))


def test_failure_in_capture_leaves_the_stream_usable() -> None:
    """A failure while the step is captured ends the capture."""
    plan = random_plan(random.Random(3))
    executor = backend()
    gpu: Any = executor._gpu
    first = next(number for number, action in enumerate(plan.actions) if type(action).__name__ == "Run")
    with TrainingSession(plan, values(plan, inputs=False), backend=executor) as session:
        session.step(values(plan, inputs=True))
        executor._kernels.fail_at = first  # type: ignore[attr-defined]
        with pytest.raises(RunError, match="injected failure"):
            session.step(values(plan, inputs=True))
        assert gpu.capturing is None
        assert gpu.depth == 0
        executor._kernels.fail_at = None  # type: ignore[attr-defined]
        session.step(values(plan, inputs=True))


def test_a_failed_run_gives_memory_back() -> None:
    """After a plan that does not fit, a smaller one runs in the same process."""
    plan = random_plan(random.Random(3))
    gpu = FakeGpu(total=plan.arena_bytes // 2)
    with pytest.raises(RunError, match="does not fit fake GPU") as caught:
        TrainingSession(plan, values(plan, inputs=False), backend=CudaBackend(gpu=gpu, kernels=MixedOnDevice))
    assert caught.value.code == "SNP-R052"
    assert not gpu.blocks
    gpu.total = 1 << 24
    assert trained(plan, CudaBackend(gpu=gpu, kernels=MixedOnDevice))


def test_another_cudnn_than_the_profile_was_measured_with_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning with both versions, and none where they are one."""
    plan = random_plan(random.Random(0))
    measured = msgspec.structs.replace(plan, device={**plan.device, "versions": {"cudnn": "9.19.0"}})
    monkeypatch.setattr(backend_module, "library_versions", lambda: {"cudnn": "9.19.0"})
    trained(measured, backend(), steps=1)
    monkeypatch.setattr(backend_module, "library_versions", lambda: {"cudnn": "9.20.1"})
    with pytest.warns(RuntimeWarning, match=r"cuDNN 9\.19\.0, this is 9\.20\.1"):
        trained(measured, backend(), steps=1)
