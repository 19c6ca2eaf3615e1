"""One op on a real device, by a plan of that op alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from runtime_support import Draft

from snplan.ir import DType, Spec
from snplan.ops.table import infer
from snplan.plan.model import Algorithm, Place, StepPlan
from snplan.runtime.numpy import Array
from snplan.runtime.session import TrainingSession
from snplan.units import round_up


def op_plan(
    kind: str,
    inputs: Sequence[Array],
    attrs: Mapping[str, Any],
    *,
    workspace: int | None = None,
    engine: int = 0,
    **options: Any,
) -> StepPlan:
    """A plan that runs one op; `workspace` gives it that many bytes for its engine (0: the device may choose one)."""
    draft = Draft()
    where = {
        f"x{i}": draft.source(f"x{i}", *x.shape, role="constant", dtype=str(x.dtype)) for i, x in enumerate(inputs)
    }
    specs = infer(kind, [Spec(DType(x.dtype.name), x.shape) for x in inputs], dict(attrs))
    for i, spec in enumerate(specs):
        draft.tensor(f"y{i}", *spec.shape, dtype=spec.dtype.value)
        where[f"y{i}"] = draft.buffer(round_up(max(spec.bytes, 1)))
        draft.outputs.append(Place(tensor=f"y{i}", buffer=where[f"y{i}"]))
        draft.alloc(where[f"y{i}"])
    draft.op(
        "op",
        kind,
        " ".join(f"x{i}" for i in range(len(inputs))),
        " ".join(f"y{i}" for i in range(len(specs))),
        **attrs,
    )
    if workspace is not None:
        buffer = draft.buffer(round_up(workspace))
        draft.alloc(buffer)
        draft.actions.append(Algorithm(op="op", engine=engine, workspace=buffer))
    draft.run("op", where)
    return msgspec.structs.replace(draft.plan(), options=options)


def run_op(kind: str, inputs: Sequence[Array], attrs: Mapping[str, Any], **options: Any) -> list[Array]:
    """An op's outputs as the CUDA backend computes them; options are those of `op_plan`."""
    plan = op_plan(kind, inputs, attrs, **options)
    weights = {f"x{i}": x for i, x in enumerate(inputs)}
    with TrainingSession(plan, weights, backend="cuda") as session:
        session.step({})
        return list(session.outputs().values())
