"""From an ONNX model by hand to a plan under a tight budget, and its replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import ModelProto

from snplan.compiler import CompileOptions, compile_model
from snplan.cost.device import load_device
from snplan.frontend import load_model, read_weights
from snplan.plan.model import Recompute, StepPlan
from snplan.runtime.numpy import Array
from snplan.runtime.numpy.backend import NumpyBackend
from snplan.runtime.numpy.streams import Delays
from snplan.runtime.session import TrainingSession

PLENTY = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A plan, the report of its compilation, and the model's stored values."""

    plan: StepPlan
    report: dict[str, Any]
    weights: dict[str, Array]

    @property
    def recomputed(self) -> list[str]:
        """Kinds of the ops that run again."""
        kinds = {op.name: op.kind for op in self.plan.ops}
        return [kinds[action.op] for action in self.plan.actions if isinstance(action, Recompute)]

    def roles(self, name: str) -> str:
        """The role of a tensor."""
        return next(tensor.role for tensor in self.plan.tensors if tensor.name == name)


def saved(proto: ModelProto, folder: Path, name: str = "m.onnx") -> Path:
    """The model as a file."""
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


def made(source: ModelProto | Path, folder: Path, budget: int = PLENTY, **options: Any) -> Made:
    """The plan of a model within `budget`, nothing reserved."""
    path = source if isinstance(source, Path) else saved(source, folder)
    result = compile_model(path, CompileOptions(budget_bytes=budget, reserve_bytes=0, **options))
    roles = {tensor.name: tensor.role for tensor in result.plan.tensors}
    stored = [place.tensor for place in result.plan.resident if roles[place.tensor] not in ("input", "optimizer")]
    return Made(plan=result.plan, report=result.report, weights=read_weights(load_model(path), stored))


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


def recomputing(source: ModelProto | Path, folder: Path, kind: str, **options: Any) -> Made:
    """The first plan, from loose budgets to tight ones, in which an op of `kind` runs again.

    The device's link is so slow that recomputing is what is left.
    """
    device = str(device_file(folder, copies=10**6))
    for share in (0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05, 0.0):
        found = squeezed(source, folder, share, device=device, **options)
        if kind in found.recomputed:
            return found
    raise AssertionError(f"no plan recomputes an op of kind {kind}")


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
