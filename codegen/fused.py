"""Builder of fused ops: all parts in one kernel, pointwise, by rows around a softmax, or a fold where the last sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.chain import DRAWING, Step, chain, statements
from snplan.codegen.elementwise import spread
from snplan.codegen.fold import Fold, fold
from snplan.codegen.launch import Launch
from snplan.codegen.operand import broadcast, only
from snplan.codegen.pointwise import pointwise
from snplan.codegen.random import drawing, drawing_rows
from snplan.codegen.reduce import reduced
from snplan.codegen.rows import RowBody, Tensors, rows
from snplan.codegen.scalars import SIZES, compute_type
from snplan.codegen.softmax import softmax_of
from snplan.ir import DType

_SUMS = ("batch_norm_grad_sums", "reduce_sum", "reduce_mean")
ROWS = ("softmax", "log_softmax", "softmax_grad", "log_softmax_grad")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The elementwise parts as steps, the last part where it is a sum, and what a body calls each value."""

    steps: tuple[Step, ...]
    last: Step | None
    names: tuple[str, ...]
    compute: str


def _parts(call: Call, inputs: Sequence[str], letter: str = "t") -> _Parts:
    """The parts of `call`, whose inputs a body calls `inputs`; what parts give is a letter and a number."""
    rows = call.attrs["parts"]
    names = [*inputs, *(f"{letter}{number}" for number in range(len(rows)))]
    steps = [Step(kind=k, operands=tuple(names[n] for n in operands), attrs=attrs) for k, operands, attrs in rows]
    last = steps.pop() if steps[-1].kind in _SUMS else None
    numbers = [x.dtype for x in (*call.inputs, *call.outputs) if x.dtype is not DType.BOOL]
    return _Parts(steps=tuple(steps), last=last, names=tuple(names), compute=compute_type(numbers))


@builds("fused")
def fused(call: Call) -> Sequence[Launch]:
    """One kernel for all parts."""
    kinds = [kind for kind, _, _ in call.attrs["parts"]]
    if kinds[-1] in _SUMS:
        return _summed(call)
    if any(kind in ROWS for kind in kinds):
        return _by_rows(call)
    parts = _parts(call, [f"a{k}" for k in range(len(call.inputs))])
    body = chain(parts.steps, [parts.names[number] for number in call.attrs["results"]], parts.compute)
    if any(step.kind in DRAWING for step in parts.steps):
        body = drawing(call, body)
    return pointwise("fused", spread(call), [writes(call, k) for k in range(len(call.outputs))], body)


def _by_rows(call: Call) -> Sequence[Launch]:
    """A row kernel: what leads to the softmax is made for each of its stages, what follows for the results alone."""
    split = next(k for k, (kind, _, _) in enumerate(call.attrs["parts"]) if kind in ROWS)
    inputs = range(len(call.inputs))
    early = sorted({number for _, read, _ in call.attrs["parts"][: split + 1] for number in read if number in inputs})
    late = [number for number in inputs if number not in early]
    # The first operand says in which order elements lie.
    early.sort(key=lambda k: call.inputs[k].elements, reverse=True)
    called = {k: f"a{place}" for place, k in enumerate(early)} | {k: f"l{place}" for place, k in enumerate(late)}
    # The totals of stages are t0, t1.
    parts = _parts(call, [called[k] for k in inputs], "s")
    row = parts.steps[split]
    found = softmax_of(row.kind, parts.compute, row.operands)
    before = statements(parts.steps[:split], 0, "s")
    after = statements(parts.steps[split + 1 :], split + 1, "s")
    body = RowBody(
        compute=parts.compute,
        stages=found.stages,
        long_stages=found.long_stages,
        results=tuple(parts.names[number] for number in call.attrs["results"]),
        lines=before,
        late_lines=(f"const A s{split} = (A)({found.result});", *after),
    )
    tensors = Tensors(
        inputs=tuple(_spread(call, k) for k in early),
        late=tuple(_spread(call, k) for k in late),
        outputs=tuple(writes(call, k) for k in range(len(call.outputs))),
    )
    if any(step.kind in DRAWING for step in parts.steps):
        body, tensors = drawing_rows(call, body, tensors)
    return rows("fused", tensors, [row.attrs["axis"]], body)


def _spread(call: Call, index: int) -> Access:
    """An input, broadcast to the outputs' shape."""
    return reads(call, index, broadcast(call.inputs[index], call.outputs[0].shape))


def _domain(call: Call) -> tuple[int, ...]:
    """The shape that all inputs broadcast to."""
    rank = max(x.rank for x in call.inputs)
    shapes = [(1,) * (rank - x.rank) + x.shape for x in call.inputs]
    return tuple(next((n for n in sizes if n != 1), 1) for sizes in zip(*shapes, strict=True))


def _summed(call: Call) -> Sequence[Launch]:
    """A fold over what the parts before the sum give."""
    domain = _domain(call)
    # The first operand of a fold says in which order elements lie.
    order = sorted(range(len(call.inputs)), key=lambda k: call.inputs[k].elements, reverse=True)
    parts = _parts(call, [f"a{order.index(k)}" for k in range(len(call.inputs))])
    inputs = [reads(call, k, broadcast(call.inputs[k], domain)) for k in order]
    assert parts.last is not None
    if parts.last.kind == "batch_norm_grad_sums":
        return _gradient_sums(call, parts, parts.last, inputs)
    axes = parts.last.attrs["axes"]
    mean = " / A(count)" if parts.last.kind == "reduce_mean" else ""
    body = replace(_sum(parts, 1), values=parts.last.operands, results=(f"t.v{mean}",))
    return fold("fused", inputs, axes, [writes(call, 0, reduced(call.outputs[0], axes, len(domain)))], body)


def _sum(parts: _Parts, count: int) -> Fold:
    """A fold of one or two sums, without what is summed."""
    monoid = f"{'Sum2' if count == 2 else 'Sum'}<{parts.compute}>"
    lines = statements(parts.steps)
    size = count * SIZES[parts.compute]
    return Fold(compute=parts.compute, monoid=monoid, size=size, values=(), results=(), lines=lines)


def _gradient_sums(call: Call, parts: _Parts, last: Step, inputs: Sequence[Access]) -> Sequence[Launch]:
    """Sums of dy * (x - mean), times the inverse standard deviation, and of dy."""
    x, mean, _, dy = last.operands
    inverse, first = call.attrs["parts"][-1][1][2], len(parts.names) - 1
    beside = reads(call, inverse, only(broadcast(call.inputs[inverse], inputs[0].operand.shape), [1]))
    results = tuple(("t.v * b0", "t.w")[number - first] for number in call.attrs["results"])
    body = replace(_sum(parts, 2), values=(f"{dy} * ({x} - {mean})", dy), results=results)
    axes = [0, *range(2, inputs[0].operand.rank)]
    return fold("fused", inputs, axes, [writes(call, k) for k in range(len(results))], body, 0, [beside])
