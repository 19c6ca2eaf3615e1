"""The step plan: plain data that executors replay and `snplan verify` checks (docs/plan-file.md)."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

FORMAT = 1


class _Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Base of all plan records: frozen, unknown keys refused; garbage collection may skip them, they have no cycles."""


class ModelRef(_Record, frozen=True, kw_only=True):
    """The model that the plan was made from: file name without folder, and sha256 of its bytes."""

    sha256: str
    name: str


class PlanTensor(_Record, frozen=True, kw_only=True):
    """A logical value; `bytes` is exact, not rounded to the granule."""

    name: str
    dtype: str
    shape: list[int]
    bytes: int
    role: str


class PlanOp(_Record, frozen=True, kw_only=True):
    """One op of the step; `inputs` name the tensors that hold the bytes (views are resolved)."""

    name: str
    kind: str
    phase: str
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, Any]
    nodes: list[str]
    rng: int | None


class Extent(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """Bytes at an offset: a buffer of the device arena, or a slot of the pinned host arena.

    `pool` names a slot's pool where the plan's device has pools; each pool is a part of the host arena.
    """

    id: int
    offset: int
    bytes: int
    pool: str | None = None


class Place(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """Where a tensor is: a buffer or a slot."""

    tensor: str
    buffer: int | None = None
    slot: int | None = None


class Persistent(_Record, frozen=True, kw_only=True, omit_defaults=True):
    """Where the value that `tensor` has for the next step is when this step ends."""

    tensor: str
    becomes: str
    buffer: int | None = None
    slot: int | None = None


class Alloc(_Record, frozen=True, kw_only=True, tag="alloc", tag_field="kind"):
    """The buffer's live interval begins."""

    buffer: int


class Free(_Record, frozen=True, kw_only=True, tag="free", tag_field="kind"):
    """The buffer's live interval ends."""

    buffer: int


class Run(_Record, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """First execution of an op."""

    op: str
    reads: list[tuple[str, int]]
    writes: list[tuple[str, int]]
    after: list[int]
    stream: str = "compute"


class Recompute(_Record, frozen=True, kw_only=True, tag="recompute", tag_field="kind"):
    """A further execution of a forward op."""

    op: str
    reads: list[tuple[str, int]]
    writes: list[tuple[str, int]]
    after: list[int]
    stream: str = "compute"


class Algorithm(_Record, frozen=True, kw_only=True, tag="algorithm", tag_field="kind"):
    """The engine for the op's next execution, and the buffer that is its workspace."""

    op: str
    engine: int
    workspace: int | None


class Offload(_Record, frozen=True, kw_only=True, tag="offload", tag_field="kind"):
    """Copy a tensor from its buffer to a host slot."""

    tensor: str
    buffer: int
    slot: int
    after: list[int]
    stream: str = "d2h"


class Prefetch(_Record, frozen=True, kw_only=True, tag="prefetch", tag_field="kind"):
    """Copy a tensor from a host slot to a buffer."""

    tensor: str
    slot: int
    buffer: int
    after: list[int]
    stream: str = "h2d"


Action: TypeAlias = Alloc | Free | Run | Recompute | Algorithm | Offload | Prefetch


class StepPlan(_Record, frozen=True, kw_only=True):
    """One training step, every byte and every action of it."""

    format: int
    snplan_version: str
    model: ModelRef
    options: dict[str, Any]
    device: dict[str, Any]
    budget_bytes: int
    reserve_bytes: int
    arena_bytes: int
    peak_live_bytes: int
    host_arena_bytes: int
    step_time_us: int
    lower_bound_us: int
    floor_bytes: int
    tensors: list[PlanTensor]
    ops: list[PlanOp]
    buffers: list[Extent]
    slots: list[Extent]
    resident: list[Place]
    persistent: list[Persistent]
    outputs: list[Place]
    actions: list[Action]
