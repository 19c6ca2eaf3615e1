"""From an ONNX model by hand to a plan under a tight budget, and its replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto

from snplan.analysis.floor import floor
from snplan.analysis.index import index_step
from snplan.analysis.schedule import build_schedule, saved_tensors
from snplan.compiler import CompileOptions, assemble_plan, compile_model
from snplan.cost.device import load_device
from snplan.cost.roofline import op_costs
from snplan.frontend import import_model, load_model, read_weights
from snplan.passes.order import persist_sources, sink_updates
from snplan.passes.realise import keep_all, step_costs
from snplan.passes.route import route
from snplan.plan.model import ModelRef, Recompute, StepPlan
from snplan.plan.verify import verify
from snplan.runtime.numpy import Array
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.session import TrainingSession
from snplan.training import attach_loss, build_step, make_optimizer

PLENTY = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A plan, the report of its compilation, and the model's stored values."""

    plan: StepPlan
    report: dict[str, Any]
    weights: dict[str, Array]

    @property
    def recomputed(self) -> list[str]:
        """Names of the ops that run again."""
        return [action.op for action in self.plan.actions if isinstance(action, Recompute)]


def saved(proto: ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    """The model as a file."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def made(source: ModelProto | Path, folder: Path, budget: int = PLENTY, **options: Any) -> Made:
    """The plan of a model within `budget`, nothing reserved."""
    path = source if isinstance(source, Path) else saved(source, folder)
    result = compile_model(path, CompileOptions(budget_bytes=budget, reserve_bytes=0, **options))
    return Made(plan=result.plan, report=result.report, weights=_weights(path, result.plan))


def squeezed(source: ModelProto | Path, folder: Path, share: float, **options: Any) -> Made:
    """The plan at the floor (share 0), at the keep-all plan's bytes (share 1), or between."""
    everything = made(source, folder, **options)
    floor, keep_all = everything.report["floor_bytes"], everything.report["keep_all_bytes"]
    return made(source, folder, int(floor + share * (keep_all - floor)), **options)


def device_file(folder: Path, *, copies: int, name: str = "device.toml", **changes: int) -> Path:
    """A K40c whose link copies `copies` bytes a second each way, with other fields changed."""
    rates = {f"{way}{both}_bytes_per_s": copies for way in ("h2d", "d2h") for both in ("", "_both")}
    fields = {**load_device("k40c").summary(), **rates, **changes}
    path = folder / name
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in fields.items()))
    return path


def recomputing(source: ModelProto, folder: Path, *drops: str, freeze: tuple[str, ...] = ()) -> Made:
    """The plan that moves nothing and drops these tensors after the forward pass, whatever that costs."""
    path, device = saved(source, folder), load_device("k40c")
    loaded = load_model(path)
    forward = attach_loss(import_model(loaded), "auto")
    routed = replace(forward, graph=route(forward.graph))
    step = sink_updates(persist_sources(build_step(routed, freeze=freeze, optimizer=make_optimizer("none"))))
    indexed = index_step(step, op_costs(step.graph, device, "fp32").tolist())
    kept = {tensor for tensor in saved_tensors(indexed) if indexed.names[tensor] not in drops}
    assert len(kept) == len(saved_tensors(indexed)) - len(drops), "what is dropped must be what backward reads"
    chosen = keep_all(build_schedule(indexed, kept), step_costs(indexed, device))
    options = CompileOptions(budget_bytes=PLENTY, optimizer="none", freeze=freeze)
    ref = ModelRef(sha256=loaded.sha256, name=loaded.name)
    plan = assemble_plan(ref, options, device, 0, indexed, chosen, 1, floor(indexed))
    assert verify(plan) == []
    return Made(plan=plan, report={}, weights=_weights(path, plan))


def _weights(path: Path, plan: StepPlan) -> dict[str, Array]:
    roles = {tensor.name: tensor.role for tensor in plan.tensors}
    stored = [place.tensor for place in plan.resident if roles[place.tensor] not in ("input", "optimizer")]
    return read_weights(load_model(path), stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What some steps left: all losses; of the last one gradients, state, outputs, peak, and the first op with NaN."""

    losses: list[float]
    gradients: dict[str, Array]
    state: dict[str, Array]
    outputs: dict[str, Array]
    peak_bytes: int
    first_nan: str | None

    def bits(self) -> dict[str, bytes]:
        """All of it as bytes, to be compared."""
        parts = {**self.outputs, **{f"{name}:grad": g for name, g in self.gradients.items()}, **self.state}
        return {name: value.tobytes() for name, value in parts.items()} | {"losses": repr(self.losses).encode()}


def replay(
    found: Made,
    feeds: Mapping[str, Array] | Sequence[Mapping[str, Array]],
    *,
    steps: int = 1,
    delays: Delays | None = None,
    seed: int = 0,
) -> Replayed:
    """Some steps in debug mode: freed bytes hold NaN patterns, and every op's inputs are checked for them."""
    backend = NumpyBackend(debug=True, delays=delays)
    every = [feeds] * steps if isinstance(feeds, Mapping) else list(feeds)
    with TrainingSession(found.plan, found.weights, backend=backend, seed=seed) as session:
        losses = [session.step(feed) for feed in every]
        assert session.measured is not None
        return Replayed(
            losses=losses,
            gradients={name: value.copy() for name, value in session.gradients().items()},
            state=session.state(),
            outputs=session.outputs(),
            peak_bytes=session.measured.peak_bytes,
            first_nan=backend.first_nan,
        )
