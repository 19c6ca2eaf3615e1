"""`snplan run`: some training steps by a plan, checked, measured and saved."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.plan.model import Persistent, StepPlan
from snplan.runtime.data import Data, load_data, random_data
from snplan.runtime.files import save_arrays
from snplan.runtime.protocol import Backend
from snplan.runtime.reference import Reference, Unplanned
from snplan.runtime.session import TrainingSession
from snplan.runtime.snapshot import latest_snapshot, load_snapshot, save_snapshot
from snplan.runtime.values import host_inputs, sources, start_values

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# Called after each step with its number, how many there are, and its loss.
Progress: TypeAlias = Callable[[int, int, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a run did; `snplan run --json` prints these keys. Times are integer microseconds, measured."""

    losses: list[float]
    steps: int
    peak_bytes: int
    arena_bytes: int
    step_us: int
    samples_per_second: float
    predicted_step_us: int
    checked: bool
    backend: str
    device: str

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON object."""
        return asdict(self)


def run_plan(
    plan: StepPlan,
    weights: Mapping[str, Array],
    *,
    steps: int = 1,
    seed: int = 0,
    data: Path | None = None,
    check: bool = False,
    save_gradients: Path | None = None,
    save_state: Path | None = None,
    snapshot: Path | None = None,
    export: Callable[[TrainingSession], None] | None = None,
    backend: str | Backend = "numpy",
    debug: bool = False,
    progress: Progress | None = None,
) -> RunReport:
    """Run `steps` training steps. Gradients and state are written after the last one.

    `snapshot` is a folder: the run goes on from the latest snapshot there, if any, and leaves one after its last step.
    `export` is called with the session after the last step.
    With `check` every loss, gradient, output and updated state is compared, bit for bit, with an unplanned execution
    of the same step. Raises RunError: SNP-R008 where they differ, and what sessions and data raise.
    """
    keep = check or save_gradients is not None
    with (
        TrainingSession(plan, weights, backend=backend, seed=seed, debug=debug, keep_gradients=keep) as session,
        ExitStack() as stack,
    ):
        resumed = latest_snapshot(snapshot) if snapshot is not None else None
        if resumed is not None:
            load_snapshot(session, resumed)
        feed = load_data(session.index, data) if data is not None else random_data(session.index, seed=session.seed)
        reference = stack.enter_context(closing(_reference(session, weights))) if check else None
        done = []
        for number in range(1, steps + 1):
            done.append(_measured_step(session, feed, reference))
            if progress is not None:
                progress(number, steps, done[-1].loss)
        if save_gradients is not None:
            save_arrays(save_gradients, session.gradients())
        if save_state is not None:
            save_arrays(save_state, session.state())
        if snapshot is not None:
            save_snapshot(session, snapshot)
        if export is not None:
            export(session)
        return _report(session, done, checked=check and steps > 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A step that was run: its loss, measured microseconds and peak."""

    loss: float
    step_us: int
    peak_bytes: int


def _reference(session: TrainingSession, weights: Mapping[str, Array]) -> Unplanned:
    """The unplanned execution from where the session stands, on the same device."""
    values = {**start_values(session.index, weights), **session.state()}
    if session.backend.name == "cuda":
        from snplan.runtime.cuda.reference import CudaReference

        return CudaReference(session, values)
    return Reference(session.index, values, seed=session.seed)


def _measured_step(session: TrainingSession, feed: Data, reference: Unplanned | None) -> _Done:
    """Run one step; the comparison is not timed."""
    number = session.steps_done + 1
    inputs = feed.step(number)
    start = time.perf_counter_ns()
    loss = session.step(inputs)
    microseconds = (time.perf_counter_ns() - start) // 1000
    if reference is not None:
        compare(session, reference, inputs, number)
    return _Done(loss=loss, step_us=microseconds, peak_bytes=session.measured.peak_bytes if session.measured else 0)


def compare(session: TrainingSession, reference: Unplanned, inputs: Mapping[str, Array], number: int) -> None:
    """Raises RunError (SNP-R008) naming the first tensor that step `number` left with other bits than `reference`."""
    gradients = session.gradients()
    expected = reference.step(number, host_inputs(session.index, inputs), [f"{name}:grad" for name in gradients])
    for name, value in session.outputs().items():
        _same(name, value, expected[name], number)
    for name, value in gradients.items():
        _same(f"{name}:grad", value, expected[f"{name}:grad"].reshape(value.shape), number)
    becomes: dict[str, Persistent] = {entry.tensor: entry for entry in session.index.plan.persistent}
    for name, value in session.state().items():
        _same(becomes[name].becomes, value, expected[becomes[name].becomes], number)


def _same(name: str, value: Array, expected: Array, number: int) -> None:
    if value.dtype == expected.dtype and value.shape == expected.shape and value.tobytes() == expected.tobytes():
        return
    place = _first_difference(value, expected)
    message = (
        f"step {number}: tensor {name} differs from the unplanned execution, first at element {place} "
        f"({value.flat[place]} instead of {expected.flat[place]}); this is a bug: please report the plan"
    )
    raise RunError("SNP-R008", message, {"tensor": name, "step": number})


def _first_difference(a: Array, b: Array) -> int:
    """Row-major number of the first element with other bits in arrays of one type and shape."""
    one, other = (np.frombuffer(x.tobytes(), np.uint8).reshape(-1, x.itemsize) for x in (a, b))
    return int(np.argmax((one != other).any(axis=1)))


def _report(session: TrainingSession, done: Sequence[_Done], *, checked: bool) -> RunReport:
    step_us = int(statistics.median(step.step_us for step in done)) if done else 0
    return RunReport(
        losses=[step.loss for step in done] if session.has_loss else [],
        steps=len(done),
        peak_bytes=max((step.peak_bytes for step in done), default=0),
        arena_bytes=session.index.plan.arena_bytes,
        step_us=step_us,
        samples_per_second=round(_batch(session) * 1e6 / step_us, 3) if step_us else 0.0,
        predicted_step_us=session.predicted_step_us,
        checked=checked,
        backend=session.backend.name,
        device=session.backend.device,
    )


def _batch(session: TrainingSession) -> int:
    """Samples of a step: the first axis of the first input that has one."""
    shapes = [tensor.shape for tensor in sources(session.index, inputs=True) if tensor.shape]
    return shapes[0][0] if shapes else 1
