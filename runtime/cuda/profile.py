"""`snplan profile`: what every distinct op of a plan costs on this device, with every engine that it has.

Ops with one signature do the same work and are measured once. Each runs alone, in a graph of several, on operands in
one block of memory under the budget. Engines that fail, or need more workspace than the block leaves, are skipped and
counted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from snplan.codegen.launch import CONTROL
from snplan.codegen.operand import Operand
from snplan.cost.device import Precision
from snplan.cost.profile import FORMAT, Engine, MeasuredOp, Profile, signature
from snplan.errors import RunError
from snplan.ir import Spec
from snplan.ops.base import ShapeError
from snplan.ops.pieces import check_pieces
from snplan.plan.index import PlanIndex, index_plan
from snplan.plan.model import PlanOp, StepPlan
from snplan.plan.pieces import PIECES, in_pieces
from snplan.runtime.cuda.calls import DeviceCall
from snplan.runtime.cuda.cudnn import Mode
from snplan.runtime.cuda.driver import DriverGpu
from snplan.runtime.cuda.gpu import Gpu, Issue
from snplan.runtime.cuda.issue import Streams, make_streams
from snplan.runtime.cuda.kernels import DeviceKernels, Engines, problem_of
from snplan.runtime.cuda.links import graph_time_us, measure_links
from snplan.runtime.cuda.memory import Memory
from snplan.runtime.cuda.packages import library_versions, versions
from snplan.runtime.cuda.pieces import piece_calls
from snplan.runtime.cuda.pool import Pool, bytes_of
from snplan.runtime.cuda.timing import time_us
from snplan.runtime.layout import CONVOLUTIONS, Orders, assign_orders, op_operands, spec_of, views_of
from snplan.units import format_bytes, round_up

# What is being measured, and which share of all ops is done.
Progress = Callable[[str, float], None]
# A measurement replays about this many microseconds of work, at least once and at most so many times.
_WORK_US, _MOST = 400.0, 20
# An engine so much slower than one that needs no more workspace is of no use, and not measured closely.
_SLOWER = 1.5
# Engines measured of a convolution for each number of pieces.
_CUT_ENGINES = 4
# Workspace that a trial may have beside the largest op, where the budget allows: more buys next to nothing.
_WORKSPACE = 1 << 30
# The reserve of plans made with the profile is what was in use, and this much for what other models load besides.
_HEADROOM = 96 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Profiled:
    """A profile, and how many engines were tried and how many of them could not run."""

    profile: Profile
    tried: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Distinct:
    """An op that stands for all with its signature."""

    signature: str
    op: PlanOp
    number: int
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]


def profile_plan(
    plan: StepPlan,
    *,
    budget_bytes: int | None = None,
    engines: int | None = None,
    pieces: int = 1,
    progress: Progress,
    gpu: Gpu | None = None,
) -> Profiled:
    """Measured costs of everything in `plan` on this machine's GPU.

    Of each convolution's engines the first `engines` that the library lists and that run here are measured (default:
    all of them). In 2, 4 and 8 pieces of the batch, and at most `pieces`, four of each are measured.
    All memory taken stays under `budget_bytes` (default: what is free). Raises RunError: SNP-R050, SNP-R051
    without a device, SNP-R052 where the device cannot give what the largest op needs.
    """
    gpu = DriverGpu() if gpu is None else gpu
    memory = Memory(gpu)
    with gpu.current():
        streams = make_streams(gpu)
        index = index_plan(plan)
        kernels = DeviceKernels(gpu, streams.compute, _mode(plan), cut=pieces > 1)
        try:
            profiler = Profiler(gpu, streams, memory, kernels, index, budget_bytes, engines, pieces)
            ops = list(profiler.measure(progress))
            free, total = gpu.memory()
            reserve = round_up(total - free - profiler.pool_bytes + _HEADROOM, 1 << 20)
            links = measure_links(gpu, streams, memory)
        finally:
            gpu.synchronize(streams.compute)
            kernels.close()
            memory.release()
    published = {key: value for key, value in plan.device.items() if isinstance(value, (int, str))}
    device: dict[str, int | str] = {**published, **links, "capacity_bytes": total, "reserve_bytes": reserve}
    seen = {**gpu.versions(), **library_versions(), **versions()}
    profile = Profile(format=FORMAT, device=device, versions=seen, ops=ops)
    return Profiled(profile=profile, tried=profiler.tried, failed=profiler.failed)


class Profiler:
    """Measures the distinct ops of a plan, one after another, in one block of memory."""

    def __init__(
        self,
        gpu: Gpu,
        streams: Streams,
        memory: Memory,
        kernels: DeviceKernels,
        index: PlanIndex,
        budget: int | None,
        limit: int | None,
        pieces: int,
    ) -> None:
        self._gpu, self._streams, self._kernels, self._limit, self._pieces = gpu, streams, kernels, limit, pieces
        self.tried = self.failed = 0
        orders = assign_orders(index)
        scratch = round_up(kernels.prepare(index, orders))
        control = memory.device(scratch + round_up(CONTROL.itemsize), "the executor's scratch")
        gpu.fill(control, scratch + round_up(CONTROL.itemsize), 0, streams.compute)
        kernels.compile(scratch=control + round_up(CONTROL.itemsize), control=control)
        self._ops = list(distinct_ops(index, orders))
        self.pool_bytes = _pool_bytes(self._ops, index.plan, gpu.memory()[0], budget)
        self._pool = Pool(
            gpu, streams.compute, memory.device(self.pool_bytes, "the block to measure in"), self.pool_bytes
        )

    def measure(self, progress: Progress) -> Iterator[MeasuredOp]:
        """Each distinct op with its engines; those that do not fit or run are left out."""
        for number, row in enumerate(self._ops):
            progress(f"{row.op.kind} {row.op.name}", number / len(self._ops))
            places = self._pool.place([*row.inputs, *row.outputs])
            if places is None:
                continue
            count = len(row.inputs)
            workspace, size = self._pool.workspace
            call = DeviceCall(
                op=row.op,
                number=row.number,
                inputs=row.inputs,
                outputs=row.outputs,
                at_inputs=tuple(places[:count]),
                at_outputs=tuple(places[count:]),
                workspace=workspace,
                workspace_bytes=size,
            )
            engines = self._convolution(call) if row.op.kind in CONVOLUTIONS else self._other(call)
            if engines:
                yield MeasuredOp(signature=row.signature, engines=engines)

    def _other(self, call: DeviceCall) -> list[Engine]:
        issues = self._kernels.issues_of(call)
        us = self._time(issues) if issues else 1
        return [Engine(workspace_bytes=0, us=us, id=0)]

    def _convolution(self, call: DeviceCall) -> list[Engine]:
        offered = self._kernels.library().engines(problem_of(call))
        found: dict[int, Engine] = {}
        for separate in (False, True):
            running = 0
            for candidate in (engine for engine in offered if engine.separate_bias is separate):
                if running == self._limit:
                    break
                self.tried += 1
                engine = self._try(call, (candidate,), list(found.values()))
                if engine is None:
                    self.failed += 1
                else:
                    running += 1
                    found.setdefault(engine.id, engine)
        for pieces in (count for count in PIECES if count <= self._pieces and _is_cut(call, count)):
            # A piece that the library has no engine for is no reason to lose what was measured.
            with contextlib.suppress(RunError):
                for engine in self._cut(call, pieces, list(found.values())):
                    found[engine.id] = engine
        return list(found.values())

    def _cut(self, call: DeviceCall, pieces: int, found: list[Engine]) -> Iterator[Engine]:
        """The first engines that the library lists for a piece, and that need a workspace."""
        calls = piece_calls(call, pieces)
        running = 0
        for candidate in self._kernels.library().engines(problem_of(calls[0])):
            if running == _CUT_ENGINES:
                break
            if not candidate.build():
                continue
            running += 1
            self.tried += 1
            engine = self._try(call, self._kernels.engines_like(candidate, calls), found)
            if engine is None:
                self.failed += 1
            else:
                yield engine

    def _try(self, call: DeviceCall, engines: Engines, found: list[Engine]) -> Engine | None:
        """An engine for each piece after a real run; None where they cannot run here."""
        sizes = [engine.build() for engine in engines]
        need = max((size for size in sizes if size is not None), default=0)
        need += call.workspace_bytes - piece_calls(call, len(engines))[0].workspace_bytes
        if None in sizes or need > call.workspace_bytes:
            return None
        rivals = [engine.us for engine in found if engine.workspace_bytes <= need]
        try:
            us = self._time(self._kernels.convolution(call, engines), enough=_SLOWER * min(rivals, default=1 << 40))
        except RunError:
            raise
        except Exception:
            # Whatever the library says of a candidate that it has listed itself: it does not run here.
            return None
        steady = all(engine.deterministic for engine in engines)
        return Engine(workspace_bytes=need, us=us, id=in_pieces(engines[0].id, len(engines)), deterministic=steady)

    def _time(self, issues: list[Issue], enough: float = float("inf")) -> int:
        """Whole microseconds, at least 1; a rough measurement will do for what takes longer than `enough`."""

        def issue() -> None:
            for each in issues:
                each()

        rough = time_us(self._gpu, self._streams.compute, issue, repeats=1)
        if rough > enough:
            return max(1, round(rough))
        inner = max(1, min(_MOST, int(_WORK_US / max(rough, 1.0))))
        return max(1, round(graph_time_us(self._gpu, self._streams, issue, inner)))


def distinct_ops(index: PlanIndex, orders: Orders) -> Iterator[_Distinct]:
    """The first op of each signature, in the plan's order."""
    seen = set()
    precision = cast(Precision, index.plan.options.get("precision", "fp32"))
    for number, op in enumerate(index.plan.ops):
        key = signature(op.kind, _read_specs(op, index), op.attrs, precision)
        if key in seen:
            continue
        seen.add(key)
        inputs, outputs = op_operands(op, index, orders)
        yield _Distinct(signature=key, op=op, number=number, inputs=tuple(inputs), outputs=tuple(outputs))


def _is_cut(call: DeviceCall, pieces: int) -> bool:
    """Whether the op of a call can run in so many pieces of its batch."""
    try:
        check_pieces(call.op.kind, [Spec(x.dtype, x.shape) for x in call.inputs], call.op.attrs, pieces)
    except ShapeError:
        return False
    return True


def _read_specs(op: PlanOp, index: PlanIndex) -> list[Spec]:
    """Inputs as the op reads them."""
    specs = [spec_of(index, name) for name in op.inputs]
    views = views_of(op)
    return [spec if view is None else Spec(spec.dtype, tuple(view)) for spec, view in zip(specs, views, strict=True)]


def _pool_bytes(ops: list[_Distinct], plan: StepPlan, free: int, budget: int | None) -> int:
    """Bytes of the block: the largest op and a workspace, within the budget. Raises RunError (SNP-R052)."""
    largest = max((sum(map(bytes_of, (*row.inputs, *row.outputs))) for row in ops), default=0)
    allowed = free if budget is None else min(free, max(0, budget - plan.reserve_bytes))
    room = max(0, allowed - _HEADROOM) // (2 << 20) * (2 << 20)
    if largest > room:
        message = (
            f"the largest op needs {format_bytes(largest)} at once, and {format_bytes(room)} may be taken "
            f"({format_bytes(free)} are free); give a larger --gpu-mem or lower the batch size"
        )
        raise RunError("SNP-R052", message, {"bytes": largest, "free_bytes": free})
    return min(room, round_up(largest + _WORKSPACE, 2 << 20))


def _mode(plan: StepPlan) -> Mode:
    return Mode(tf32=plan.options.get("precision") == "tf32", deterministic=False)
