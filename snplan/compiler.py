"""`compile_model`: a model and a budget in, a verified step plan and its report out.

It has two stages, for callers that plan one model more than once: `prepare` reads and differentiates the model and
says what its ops cost; `plan_prepared` plans it for one budget.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import snplan.ops  # noqa: F401  (fills the op table)
from snplan import collector
from snplan.analysis.floor import Floor, baseline_bytes, floor
from snplan.analysis.index import Choice, IndexedStep, index_step
from snplan.cost.bounds import lower_bound_us
from snplan.cost.device import Device, Precision, load_device
from snplan.cost.engines import engines
from snplan.cost.limits import check_sizes
from snplan.cost.pools import fastest_link, parse_pool, unique
from snplan.cost.roofline import op_costs
from snplan.errors import InfeasibleError, NoPlanError, PlanError
from snplan.ir import Forward, Step
from snplan.ir.signature import by_class
from snplan.ops import input_specs
from snplan.passes.order import persist_sources, sink_updates
from snplan.passes.realise import Candidate, Costs, step_costs
from snplan.passes.reorder import alive_at_turn, reorder
from snplan.passes.route import route
from snplan.passes.search import Search, keep_all_candidate
from snplan.plan.model import FORMAT, ModelRef, PlanOp, PlanTensor, StepPlan
from snplan.strategies.base import Strategy, Task
from snplan.strategies.registry import candidates as strategy_candidates
from snplan.strategies.registry import parse_strategy
from snplan.units import format_bytes, round_up

if TYPE_CHECKING:
    from snplan.frontend.load import LoadedModel
    from snplan.solver.refine import Outcome

Progress = Callable[[str, "float | None"], None]

PORTFOLIO_OPS = 3000
"""Steps of at most so many ops are also planned by every strategy's rule, so that `auto` is never slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions:
    """Everything that decides a plan besides the model, as on the command line (`snplan compile --help`)."""

    budget_bytes: int
    reserve_bytes: int | None = None
    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    mode: str = "train"
    loss: str = "auto"
    optimizer: str = "sgd"
    precision: Precision = "fp32"
    strategy: str = "auto"
    device: str = "h200"
    host_bytes: int | None = None
    solver: str = "off"
    time_limit_s: float = 60.0
    deterministic: bool = False
    freeze: tuple[str, ...] = ()
    train_batchnorm: bool = False
    fuse: bool = True
    pools: tuple[str, ...] = ()
    conv_pieces: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileResult:
    """A verified plan and the keys of `snplan compile --json` (all but `plan`, the path)."""

    plan: StepPlan
    report: dict[str, Any]


class _Clock:
    """Wall seconds by pass, for the report only."""

    def __init__(self, progress: Progress) -> None:
        self.seconds: dict[str, float] = {}
        self._progress = progress

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Time a block under `name`, and tell the user what is going on."""
        self._progress(name, None)
        start = time.perf_counter()
        yield
        self.seconds[name] = round(self.seconds.get(name, 0.0) + time.perf_counter() - start, 3)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A model's training step with what its ops cost: all that plans of every budget share.

    `options` are those that the step was made with; `seconds` (pass -> wall seconds) are for reports.
    """

    model: ModelRef
    options: CompileOptions
    device: Device
    forward: Forward
    step: Step
    indexed: IndexedStep
    costs: Costs
    lowest: Floor
    seconds: Mapping[str, float]

    @cached_property
    def everything(self) -> Candidate:
        """The keep-all candidate; made when it is first asked for."""
        with collector.paused():
            return keep_all_candidate(self.indexed, self.costs)

    @cached_property
    def reordered(self) -> Candidate:
        """The keep-all candidate in an order with a lower peak: `everything` where none was found."""
        step = reorder(self.indexed)
        return self.everything if step is self.indexed else keep_all_candidate(step, self.costs)

    @cached_property
    def unfused(self) -> Prepared:
        """The same with every op on its own, as the systems whose rules strategies follow have them."""
        if not self.options.fuse:
            return self
        silent = _Clock(lambda what, share: None)
        return _prepared(self.model, self.forward, self.device, replace(self.options, fuse=False), silent)

    def reserve(self, options: CompileOptions) -> int:
        """Bytes of the budget that the plan leaves to the CUDA context and library handles."""
        return self.device.reserve_bytes if options.reserve_bytes is None else options.reserve_bytes


def compile_model(
    source: Path,
    options: CompileOptions,
    *,
    progress: Progress = lambda what, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> CompileResult:
    """The fastest plan found for `source` under `options`, verified.

    Raises UsageError, ModelError, InfeasibleError (the floor is above the budget), NoPlanError, or PlanError should the
    verifier refuse what the planner made (a bug, and nothing is written).
    """
    parse_strategy(options.strategy)  # a wrong one is refused before the work begins
    prepared = prepare(source, options, progress=progress)
    return plan_prepared(prepared, options, progress=progress, interrupted=interrupted)


def prepare(
    source: Path | LoadedModel, options: CompileOptions, *, progress: Progress = lambda what, share: None
) -> Prepared:
    """The model's step with costs; budgets and strategies in `options` play no part. Raises UsageError, ModelError."""
    clock = _Clock(progress)
    device = _device(options)  # a wrong one is refused before the work begins
    with collector.paused():
        with clock.timed("import"):
            model, forward = _imported(source, options)
        return _prepared(model, forward, device, options, clock)


def _prepared(model: ModelRef, forward: Forward, device: Device, options: CompileOptions, clock: _Clock) -> Prepared:
    with clock.timed("differentiate"):
        step = _step(forward, options)
    with clock.timed("fuse"):
        step = sink_updates(persist_sources(_fused(step) if options.fuse else step))
    with clock.timed("cost"):
        check_sizes(step.graph)
        indexed = _indexed(step, device, options)
        costs, lowest = step_costs(indexed, fastest_link(device)), floor(indexed)
    return Prepared(
        model=model,
        options=options,
        device=device,
        forward=forward,
        step=step,
        indexed=indexed,
        costs=costs,
        lowest=lowest,
        seconds=clock.seconds,
    )


def plan_prepared(
    prepared: Prepared,
    options: CompileOptions,
    *,
    progress: Progress = lambda what, share: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> CompileResult:
    """The fastest plan found for a prepared model, verified.

    `options` may differ from those that it was prepared with in the budget, reserve, host memory, strategy, solver and
    time limit. Raises InfeasibleError, NoPlanError and PlanError as `compile_model` does.
    """
    clock = _Clock(progress)
    start = time.perf_counter()
    strategy = parse_strategy(options.strategy)
    if strategy is not None:
        prepared = prepared.unfused
    options = replace(options, fuse=prepared.options.fuse)
    if prepared.device.pools:
        options = replace(options, host_bytes=sum(pool.bytes for pool in prepared.device.pools))
    indexed, lowest, reserve = prepared.indexed, prepared.lowest, prepared.reserve(options)
    budget = _arena_budget(options.budget_bytes, reserve, indexed, lowest)
    device = prepared.device if strategy is None else strategy.device(prepared.device)
    costs = replace(prepared.costs, device=fastest_link(device))
    task = Task(step=indexed, costs=costs, budget=budget, floor=lowest, reserve=reserve)
    with collector.paused(), clock.timed("plan"):
        kept = _kept(prepared, budget) if strategy is None else None
        if strategy is None:
            chosen = kept or _searched(task, prepared.everything, options, progress, interrupted)
        else:
            chosen = _ruled(strategy, task, options)
    with collector.paused(), clock.timed("bound"):
        bound = _bound(indexed, device, budget, chosen.step_us)
    outcome = None
    if options.solver == "cp-sat" and strategy is None and kept is None:
        with clock.timed("solve"):
            chosen, outcome = _refined(task, chosen, bound, options, progress, interrupted)
    with collector.paused():
        plan = assemble_plan(prepared.model, options, device, reserve, chosen.schedule.step, chosen, bound, lowest)
        with clock.timed("verify"):
            _verified(plan)
        total = sum(prepared.seconds.values()) + time.perf_counter() - start
        seconds = {**prepared.seconds, **clock.seconds, "total": round(total, 3)}
        return CompileResult(plan=plan, report=_report(plan, prepared, chosen, outcome, seconds))


def _kept(prepared: Prepared, budget: int) -> Candidate | None:
    """The keep-all candidate, which nothing beats, in an order in which it fits the budget; None where none does."""
    if prepared.everything.arena_bytes <= budget:
        return prepared.everything
    if budget < alive_at_turn(prepared.indexed) or prepared.reordered.arena_bytes > budget:
        return None
    return prepared.reordered


def _searched(
    task: Task,
    everything: Candidate,
    options: CompileOptions,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> Candidate:
    """The fastest of the planner's own candidates and, for steps of moderate size, of those of the strategies."""
    ruled = () if len(task.step.ops) > PORTFOLIO_OPS else tuple(strategy_candidates(task))
    search = Search(
        step=task.step,
        costs=task.costs,
        budget=task.budget,
        floor=task.floor,
        host_limit=options.host_bytes,
        extra=ruled,
        progress=progress,
        interrupted=interrupted,
    )
    search.run(everything)
    if search.best is None:
        raise _no_plan(search, options)
    return search.best


def _refined(
    task: Task,
    chosen: Candidate,
    bound: int,
    options: CompileOptions,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> tuple[Candidate, Outcome]:
    """The best that CP-SAT makes of `chosen` within the time limit, and how its search ended."""
    from snplan.passes.refine import refine_candidate

    refined = refine_candidate(
        chosen,
        task.costs,
        task.budget,
        bound_us=bound,
        seconds=options.time_limit_s,
        host_limit=options.host_bytes,
        progress=lambda text: progress(text, None),
        interrupted=interrupted,
    )
    return refined.candidate, refined.outcome


def _ruled(strategy: Strategy, task: Task, options: CompileOptions) -> Candidate:
    """The candidate of a strategy. Raises InfeasibleError where its rule does not fit the budget or the host."""
    chosen = strategy.plan(task)
    needed, limit = chosen.body.host_arena_bytes, options.host_bytes
    if limit is None or needed <= limit:
        return chosen
    raise InfeasibleError(
        "SNP-P004",
        f"strategy {strategy.spec} needs {format_bytes(needed)} of host memory, and --host-mem is "
        f"{format_bytes(limit)}. Raise it or the budget, or choose another strategy",
        details={
            "strategy": strategy.spec,
            "budget_bytes": options.budget_bytes,
            "host_needed_bytes": needed,
            "binding": "host memory",
        },
    )


def _imported(source: Path | LoadedModel, options: CompileOptions) -> tuple[ModelRef, Forward]:
    from snplan.frontend import import_model, load_model

    loaded = load_model(source) if isinstance(source, Path) else source
    forward = import_model(
        loaded,
        batch=options.batch,
        dims=options.dims,
        loss=options.loss,
        mode=options.mode,
        train_batchnorm=options.train_batchnorm,
    )
    return ModelRef(sha256=loaded.sha256, name=loaded.name), forward


def _device(options: CompileOptions) -> Device:
    """The device, with the pools of the options where they name some."""
    device = load_device(options.device)
    if not options.pools:
        return device
    return replace(device, pools=unique([parse_pool(text, device) for text in options.pools]))


def _step(forward: Forward, options: CompileOptions) -> Step:
    from snplan.training import attach_loss, build_inference_step, build_step, make_optimizer

    if options.mode == "infer":
        return build_inference_step(replace(forward, graph=route(forward.graph)))
    with_loss = attach_loss(forward, options.loss)
    routed = replace(with_loss, graph=route(with_loss.graph))
    return build_step(routed, freeze=options.freeze, optimizer=make_optimizer(options.optimizer))


def _fused(step: Step) -> Step:
    from snplan.training import fuse_step

    return fuse_step(step)


def _indexed(step: Step, device: Device, options: CompileOptions) -> IndexedStep:
    """The indexed step with op times and engines."""
    graph = step.graph

    def choices(index: int) -> tuple[Choice, ...]:
        op = graph.ops[index]
        if op.kind not in ENGINE_KINDS:
            return ()
        specs = tuple(input_specs(op, graph.tensors))
        found = engines(
            op, specs, device, options.precision, deterministic=options.deterministic, pieces=options.conv_pieces
        )
        return tuple(Choice(e.id, round_up(e.workspace_bytes), e.us) for e in found)

    chosen = dict(enumerate(by_class(graph.classes, choices)))
    costs = op_costs(graph, device, options.precision, pieces=options.conv_pieces)
    return index_step(step, costs.tolist(), chosen)


ENGINE_KINDS = frozenset({"conv", "conv_transpose", "conv_filter"})


def _arena_budget(budget: int, reserve: int, step: IndexedStep, lowest: Floor) -> int:
    """Bytes for the arena; raises InfeasibleError where that is below the floor."""
    room = budget - reserve
    if room >= lowest.bytes:
        return room
    name = step.ops[lowest.op].name if lowest.op >= 0 else ""
    live = sorted(
        ((step.size[t], step.names[t]) for t in {*step.reads[lowest.op], *step.writes[lowest.op]}), reverse=True
    )
    top = ", ".join(f"{tensor} {format_bytes(size)}" for size, tensor in live[:5])
    raise InfeasibleError(
        "SNP-P001",
        f"the budget of {format_bytes(budget)} less the reserve of {format_bytes(reserve)} is below the floor of "
        f"{format_bytes(lowest.bytes)}: op {name} ({step.ops[lowest.op].kind}) needs that at once (largest: {top}). "
        f"Give at least {format_bytes(lowest.bytes + reserve)}, or lower the batch size",
        details={
            "budget_bytes": budget,
            "reserve_bytes": reserve,
            "floor_bytes": lowest.bytes,
            "baseline_bytes": baseline_bytes(step),
            "binding": name,
            "live_at_binding": [{"tensor": tensor, "bytes": size} for size, tensor in live[:5]],
        },
    )


def _no_plan(search: Search, options: CompileOptions) -> Exception:
    if search.host_needed is not None and options.host_bytes is not None:
        limit = "the pools' size" if options.pools else "--host-mem"
        return NoPlanError(
            "SNP-P002",
            f"every plan found needs more pinned host memory than {limit} {format_bytes(options.host_bytes)}; the "
            f"least asked for was {format_bytes(search.host_needed)}. Raise {limit} or the budget",
            details={
                "budget_bytes": options.budget_bytes,
                "host_needed_bytes": search.host_needed,
                "binding": "host memory",
            },
        )
    return NoPlanError(
        "SNP-P003", "no plan was found; that none exists is not proven", {"budget_bytes": options.budget_bytes}
    )


def _bound(indexed: IndexedStep, device: Device, budget: int, found: int) -> int:
    """A lower bound on the step time in microseconds; raises PlanError where a plan beats it (a bug)."""
    bound = lower_bound_us(indexed, fastest_link(device), budget)
    if bound > found:
        raise PlanError("SNP-P009", f"the lower bound of {bound} us is above the time of a plan, {found} us")
    return bound


def assemble_plan(
    model: ModelRef,
    options: CompileOptions,
    device: Device,
    reserve: int,
    step: IndexedStep,
    chosen: Candidate,
    bound: int,
    lowest: Floor,
) -> StepPlan:
    """The step plan that says what `chosen` does."""
    from snplan import __version__

    body, graph = chosen.body, step.step.graph
    return StepPlan(
        format=FORMAT,
        snplan_version=__version__,
        model=model,
        options=plan_options(options),
        device=device.summary(),
        budget_bytes=options.budget_bytes,
        reserve_bytes=reserve,
        arena_bytes=body.arena_bytes,
        peak_live_bytes=body.peak_live_bytes,
        host_arena_bytes=body.host_arena_bytes,
        step_time_us=chosen.step_us,
        lower_bound_us=bound,
        floor_bytes=lowest.bytes,
        tensors=[
            PlanTensor(name=t.name, dtype=str(t.dtype), shape=list(t.shape), bytes=t.bytes, role=str(t.role))
            for t in graph.tensors.values()
        ],
        ops=[
            PlanOp(
                name=op.name,
                kind=op.kind,
                phase=str(op.phase),
                inputs=list(op.inputs),
                outputs=list(op.outputs),
                attrs=dict(op.attrs),
                nodes=list(op.nodes),
                rng=op.rng,
            )
            for op in graph.ops
        ],
        buffers=body.buffers,
        slots=body.slots,
        resident=body.resident,
        persistent=body.persistent,
        outputs=body.outputs,
        actions=body.actions,
    )


def plan_options(options: CompileOptions) -> dict[str, Any]:
    """The options as the plan file records them: what decides the plan, and nothing of where it was made."""
    recorded = {name: getattr(options, name) for name in CompileOptions.__slots__}
    recorded["dims"] = dict(sorted(options.dims.items()))
    recorded["freeze"] = list(options.freeze)
    recorded["device"] = Path(options.device).name
    recorded["pools"] = list(options.pools)
    del recorded["budget_bytes"], recorded["reserve_bytes"]
    if not options.pools:
        del recorded["pools"]
    if options.conv_pieces == 1:
        del recorded["conv_pieces"]
    return recorded


def _verified(plan: StepPlan) -> None:
    from snplan.verify import verify

    findings = verify(plan)
    if findings:
        raise PlanError("SNP-P010", f"the planner made a plan that fails verification: {findings[0]} (this is a bug)")


def _report(
    plan: StepPlan, prepared: Prepared, chosen: Candidate, outcome: Outcome | None, seconds: Mapping[str, float]
) -> dict[str, Any]:
    from snplan.plan.timeline import binding_op, breakdown, copied_bytes, count_actions, live_set, peak_moment

    counts = count_actions(plan)
    offloaded, prefetched = copied_bytes(plan)
    moment = peak_moment(plan)
    return {
        "status": "feasible",
        "code": None,
        "message": None,
        "model_sha256": plan.model.sha256,
        "strategy": plan.options["strategy"],
        "budget_bytes": plan.budget_bytes,
        "reserve_bytes": plan.reserve_bytes,
        "arena_bytes": plan.arena_bytes,
        "peak_live_bytes": plan.peak_live_bytes,
        "floor_bytes": plan.floor_bytes,
        "keep_all_bytes": prepared.everything.arena_bytes,
        "baseline_bytes": baseline_bytes(prepared.indexed),
        "host_bytes": plan.host_arena_bytes,
        "step_time_us": plan.step_time_us,
        "keep_all_step_time_us": prepared.everything.step_us,
        "lower_bound_us": plan.lower_bound_us,
        "offload_bytes": offloaded,
        "prefetch_bytes": prefetched,
        "recompute_ops": counts.get("recompute", 0),
        "recompute_us": chosen.schedule.recompute_us(),
        "stall_us": chosen.timeline.stall_us,
        "actions": counts,
        "breakdown_bytes": breakdown(live_set(plan, moment)),
        "binding": binding_op(plan, moment),
        "ops": len(plan.ops),
        "tensors": len(plan.tensors),
        "warnings": [*dict.fromkeys((*prepared.forward.warnings, *prepared.step.warnings))],
        "seconds": dict(seconds),
        "solver": None if outcome is None else {"status": outcome.status, "plans": outcome.evaluated},
    }


__all__ = [
    "CompileOptions",
    "CompileResult",
    "Prepared",
    "assemble_plan",
    "compile_model",
    "plan_options",
    "plan_prepared",
    "prepare",
]
