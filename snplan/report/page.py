"""A plan as one HTML page that opens offline: figures, memory and streams over the step, the arena, tensors and ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

from snplan.cost.simulate import Timeline
from snplan.plan.model import Offload, Prefetch, Recompute, Run, StepPlan
from snplan.report.addresses import address_chart
from snplan.report.areas import memory_chart
from snplan.report.inspected import summary
from snplan.report.lanes import lanes_chart
from snplan.units import format_bytes, format_us, printable

MOST_ROWS = 2000
"""Rows of a table; the tail of small ones is summed up below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Names and values."""

    title: str
    rows: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A drawing as SVG text."""

    title: str
    svg: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows under heads; `rest` says what was left out."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    rest: str = ""


def page(plan: StepPlan, timeline: Timeline) -> str:
    """HTML without references to anything outside; `timeline` is the plan's, as simulated."""
    import jinja2

    charts = [
        Chart(title="Memory", svg=memory_chart(plan, timeline.start)),
        Chart(title="Streams", svg=lanes_chart(plan, timeline)),
        Chart(title="Arena", svg=address_chart(plan)),
    ]
    source = files("snplan.report").joinpath("templates/plan.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(source).render(
        title=f"{printable(plan.model.name)}: step plan",
        facts=_facts(plan, timeline),
        charts=charts,
        tables=[_tensors(plan), _ops(plan, timeline)],
    )


def _facts(plan: StepPlan, timeline: Timeline) -> list[Facts]:
    found = summary(plan)
    sizes = ("budget_bytes", "reserve_bytes", "arena_bytes", "peak_live_bytes", "floor_bytes", "host_arena_bytes")
    rows = [(name.removesuffix("_bytes").replace("_", " "), format_bytes(found[name])) for name in sizes]
    bound = plan.lower_bound_us
    gap = f", {plan.step_time_us / bound - 1:.1%} above the lower bound {format_us(bound)}" if bound else ""
    rows += [
        ("predicted step", f"{format_us(plan.step_time_us)}{gap}"),
        ("simulated step", f"{format_us(timeline.step_time_us)}, {format_us(timeline.stall_us)} of it waiting"),
        ("moved out, in", f"{format_bytes(found['offload_bytes'])}, {format_bytes(found['prefetch_bytes'])}"),
        ("actions", ", ".join(f"{count:,} {kind}" for kind, count in found["actions"].items() if count)),
        ("binding op", str(found["binding"])),
    ]
    fates = [
        (name.replace("_", ", "), f"{fate['tensors']:,} tensors, {format_bytes(fate['bytes'])}")
        for name, fate in found["fates"].items()
    ]
    peak = [(name, format_bytes(size)) for name, size in found["breakdown_bytes"].items() if size]
    options = [(name, str(value)) for name, value in sorted(plan.options.items())]
    return [
        Facts(title="Plan", rows=rows),
        Facts(title="Tensors that backward needs", rows=fates),
        Facts(title="At the peak", rows=peak),
        Facts(title="Options", rows=options),
    ]


def _tensors(plan: StepPlan) -> Table:
    out = Counter(action.tensor for action in plan.actions if isinstance(action, Offload))
    back = Counter(action.tensor for action in plan.actions if isinstance(action, Prefetch))
    again = _recomputed(plan)
    ranked = sorted(plan.tensors, key=lambda row: -row.bytes)
    rows = [
        (
            printable(row.name),
            row.role,
            f"{row.dtype}{row.shape}",
            f"{row.bytes:,}",
            *(_count(n) for n in (out[row.name], back[row.name], again[row.name])),
        )
        for row in ranked[:MOST_ROWS]
    ]
    heads = ("tensor", "role", "type", "bytes", "offloads", "prefetches", "recomputes")
    tail = ranked[MOST_ROWS:]
    return Table(title="Tensors, the largest first", heads=heads, rows=rows, rest=_rest(row.bytes for row in tail))


def _recomputed(plan: StepPlan) -> Counter[str]:
    found: Counter[str] = Counter()
    for action in plan.actions:
        if isinstance(action, Recompute):
            found.update(tensor for tensor, _ in action.writes)
    return found


def _ops(plan: StepPlan, timeline: Timeline) -> Table:
    spent: Counter[str] = Counter()
    runs: Counter[str] = Counter()
    for i, action in enumerate(plan.actions):
        if isinstance(action, Run | Recompute):
            spent[action.op] += timeline.end[i] - timeline.start[i]
            runs[action.op] += 1
    ranked = sorted(plan.ops, key=lambda op: -spent[op.name])
    rows = [
        (printable(op.name), op.kind, op.phase, str(runs[op.name]), f"{spent[op.name]:,}") for op in ranked[:MOST_ROWS]
    ]
    left = ranked[MOST_ROWS:]
    rest = f"and {len(left):,} ops of {format_us(sum(spent[op.name] for op in left))} together" if left else ""
    heads = ("op", "kind", "phase", "executions", "us")
    return Table(title="Ops, the slowest first", heads=heads, rows=rows, rest=rest)


def _rest(sizes: Iterable[int]) -> str:
    found = list(sizes)
    return f"and {len(found):,} tensors of {format_bytes(sum(found))} together" if found else ""


def _count(number: int) -> str:
    return str(number) if number else ""
