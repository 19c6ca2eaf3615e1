"""`snplan run`: some training steps by a plan, checked, measured and saved."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.plan.model import Persistent, StepPlan
from snplan.runtime.data import Data, load_data, random_data
from snplan.runtime.files import save_arrays
from snplan.runtime.protocol import Backend
from snplan.runtime.reference import Reference
from snplan.runtime.session import TrainingSession
from snplan.runtime.values import input_values, sources, start_values

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
    backend: str | Backend = "numpy",
    debug: bool = False,
    progress: Progress | None = None,
) -> RunReport:
    """Run `steps` training steps. Gradients and state are written after the last one.

    With `check` every loss, gradient, output and updated state is compared, bit for bit, with an unplanned execution
    of the same step. Raises RunError: SNP-R008 where they differ, and what sessions and data raise.
    """
    with TrainingSession(plan, weights, backend=backend, seed=seed, debug=debug) as session:
        feed = random_data(session.index, seed=seed) if data is None else load_data(session.index, data)
        reference = Reference(session.index, start_values(session.index, weights), seed=seed) if check else None
        losses, times, peak = [], [], 0
        for number in range(1, steps + 1):
            loss, microseconds = _timed_step(session, feed, number, reference)
            losses.append(loss)
            times.append(microseconds)
            peak = max(peak, session.measured.peak_bytes if session.measured else 0)
            if progress is not None:
                progress(number, steps, loss)
        if save_gradients is not None:
            save_arrays(save_gradients, session.gradients())
        if save_state is not None:
            save_arrays(save_state, session.state())
        return _report(session, losses, times, peak, checked=check and steps > 0)


def _timed_step(session: TrainingSession, feed: Data, number: int, reference: Reference | None) -> tuple[float, int]:
    """Loss and microseconds of one step; the comparison is not timed."""
    inputs = feed.step(number)
    start = time.perf_counter_ns()
    loss = session.step(inputs)
    microseconds = (time.perf_counter_ns() - start) // 1000
    if reference is not None:
        compare(session, reference, inputs, number)
    return loss, microseconds


def compare(session: TrainingSession, reference: Reference, inputs: Mapping[str, Array], number: int) -> None:
    """Raises RunError (SNP-R008) naming the first tensor that step `number` left with other bits than `reference`."""
    gradients = session.gradients()
    expected = reference.step(number, input_values(session.index, inputs), [f"{name}:grad" for name in gradients])
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
    ours, theirs = value.reshape(-1), expected.reshape(-1)
    place = int(np.flatnonzero(~((ours == theirs) | ((ours != ours) & (theirs != theirs))))[:1].sum())
    message = (
        f"step {number}: tensor {name} differs from the unplanned execution, first at element {place} "
        f"({ours[place]} instead of {theirs[place]}); this is a bug: please report the plan"
    )
    raise RunError("SNP-R008", message, {"tensor": name, "step": number})


def _report(session: TrainingSession, losses: list[float], times: list[int], peak: int, *, checked: bool) -> RunReport:
    step_us = int(statistics.median(times)) if times else 0
    return RunReport(
        losses=losses,
        steps=len(losses),
        peak_bytes=peak,
        arena_bytes=session.index.plan.arena_bytes,
        step_us=step_us,
        samples_per_second=round(_batch(session) * 1e6 / step_us, 3) if step_us else 0.0,
        predicted_step_us=session.index.plan.step_time_us,
        checked=checked,
        backend=session.backend.name,
        device=session.backend.device,
    )


def _batch(session: TrainingSession) -> int:
    """Samples of a step: the first axis of the first input that has one."""
    shapes = [tensor.shape for tensor in sources(session.index, inputs=True) if tensor.shape]
    return shapes[0][0] if shapes else 1
