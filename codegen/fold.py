"""Launches of reductions: a map over operands, folded along axes in an order that never changes.

Two shapes of work. Rows: the innermost axis is reduced, a warp or a block walks along it. Columns: the innermost axis
is kept, neighbouring threads hold neighbouring results. Where there are too few results to fill a GPU the reduced axes
are split between blocks, and the last block to finish joins their partial results, always in the same order. Sums are
never added by atomics, so results are the same bits run after run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from snplan.codegen.call import Access
from snplan.codegen.launch import Argument, Control, Launch, Param, Scalar, Workspace, source
from snplan.codegen.operand import only, without
from snplan.codegen.scalars import item_bytes, quotient
from snplan.codegen.space import Space, in_vectors, index_type, space_of

THREADS = 256
# Blocks that fill a large GPU, and the fewest elements a thread should fold before its block is split.
_ENOUGH_BLOCKS = 264
_WANTED_BLOCKS = 528
_MAX_SPLITS = 512
_SHORT_ROW = 32
_SHARED_BYTES = 32768


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """What is folded, as C++: inputs are `a0`, `a1`, ...; `A` is `compute`.

    monoid    type of the accumulator (templates/prelude.cu.j2), `size` its bytes, `start` the argument of its start
    values    what is added for each element, after `lines`
    results   one expression for each output, of the total `t` and the number of elements `count`, after `finish`
    """

    compute: str
    monoid: str
    size: int
    values: tuple[str, ...]
    results: tuple[str, ...]
    lines: tuple[str, ...] = ()
    start: str = ""
    finish: tuple[str, ...] = ()
    extra: tuple[tuple[str, Argument], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """How a fold is laid over threads: `lanes` threads along results (columns) or along a row (rows)."""

    rows: bool
    width: int
    lanes: int
    results: int
    length: int
    splits: int

    @property
    def blocks(self) -> int:
        """Blocks along the results."""
        return quotient(self.results, THREADS // self.lanes if self.rows else self.lanes)


def fold(
    stem: str,
    inputs: Sequence[Access],
    axes: Sequence[int],
    outputs: Sequence[Access],
    body: Fold,
    workspace: int = 0,
    beside: Sequence[Access] = (),
) -> tuple[Launch, ...]:
    """The launch that folds `inputs` (all of one shape) over `axes` into `outputs` (of the shape without them).

    `beside` are operands of the outputs' shape that results may use as `b0`, `b1`, ...
    Partial results lie from byte `workspace` of the op's workspace on.
    """
    if outputs[0].operand.elements == 0:
        return ()
    kept = space_of([*(without(x.operand, axes) for x in inputs), *(y.operand for y in (*outputs, *beside))])
    reduced = space_of([only(x.operand, axes) for x in inputs])
    work = _work(inputs, kept, reduced, body.size)
    kind = index_type([x.operand for x in (*inputs, *outputs, *beside)], kept.count, reduced.count)
    shared: list[Argument] = [Workspace(workspace), Control()] if work.splits > 1 else []
    numbers = (work.results, work.length, quotient(work.length, work.splits), reduced.count)
    return (
        Launch(
            source=source("fold", stem, **_text(inputs, outputs, beside, body, kept, reduced, work, kind)),
            grid=(work.blocks, work.splits, 1),
            block=(THREADS, 1, 1),
            arguments=(
                *(x.argument for x in (*outputs, *inputs, *beside)),
                *shared,
                *(Scalar("int64", n) for n in numbers),
                *(argument for _, argument in body.extra),
            ),
            workspace=workspace + work.splits * kept.count * body.size if work.splits > 1 else 0,
        ),
    )


def _work(inputs: Sequence[Access], kept: Space, reduced: Space, size: int) -> _Work:
    # Vectors of the first input; accumulators of a block must fit into shared memory.
    limit = max(1, min(16 // item_bytes(inputs[0].operand.dtype), _SHARED_BYTES // (THREADS * size)))
    lead = (min(abs(s) for s in kept.strides[0]) if kept.sizes else 2**63) or 2**63
    rows = bool(reduced.sizes) and abs(reduced.strides[0][-1]) < lead and reduced.count >= _SHORT_ROW
    rows = rows or kept.count == 1
    count = len(inputs)
    if rows:
        width = _shared_width(reduced, kept, count, limit)
        length, results = reduced.count // width, kept.count
        lanes = 32 if length <= 1024 and results > 1 else THREADS
        grain = lanes * 4
        blocks = quotient(results, THREADS // lanes)
        splits = _splits(blocks, quotient(length, grain)) if lanes == THREADS else 1
    else:
        width = _shared_width(kept, reduced, count, limit)
        length, results = reduced.count, kept.count // width
        lanes = THREADS if length < _SHORT_ROW else min(32, 1 << max(results - 1, 0).bit_length())
        splits = _splits(quotient(results, lanes), quotient(length, THREADS // lanes * 8))
    return _Work(rows=rows, width=width, lanes=lanes, results=results, length=length, splits=splits)


def _splits(blocks: int, most: int) -> int:
    if blocks >= _ENOUGH_BLOCKS:
        return 1
    return max(1, min(quotient(_WANTED_BLOCKS, blocks), most, _MAX_SPLITS))


def _shared_width(along: Space, across: Space, inputs: int, limit: int) -> int:
    """Neighbours that inputs can be read by along the inner axis of `along`: all that is added must keep alignment."""
    if not along.sizes or any(along.strides[k][-1] not in (0, 1) for k in range(inputs)):
        return 1
    bound = gcd(limit, along.sizes[-1])
    for k in range(inputs):
        if along.strides[k][-1] == 1:
            bound = gcd(bound, along.offsets[k], *along.strides[k][:-1], *across.strides[k])
    return bound


def _text(
    inputs: Sequence[Access],
    outputs: Sequence[Access],
    beside: Sequence[Access],
    body: Fold,
    kept: Space,
    reduced: Space,
    work: _Work,
    kind: str,
) -> dict[str, Param]:
    count = len(inputs)
    names = [f"a{k}" for k in range(count)]
    pointers = [f"{y.type}* p_o{k}" for k, y in enumerate(outputs)]
    pointers += [f"const {x.type}* p_{name}" for x, name in zip(inputs, names, strict=True)]
    pointers += [f"const {x.type}* p_b{k}" for k, x in enumerate(beside)]
    pointers += ["void* memory", "Control* tickets"] if work.splits > 1 else []
    own = kept.pick(range(count))
    along = in_vectors(reduced, work.width) if work.rows else reduced
    moving = reduced if work.rows else own
    return {
        "compute": body.compute,
        "monoid": body.monoid,
        "start": body.start,
        "kind": kind,
        "rows": work.rows,
        "width": work.width,
        "lanes": work.lanes,
        "split": work.splits > 1,
        "parameters": ", ".join(
            [*pointers, "i64 outputs", "i64 length", "i64 chunk", "i64 count", *(text for text, _ in body.extra)]
        ),
        "kept": tuple(
            (own if work.rows else in_vectors(own, work.width)).code("o", [f"{n}_kept" for n in names], kind)
        ),
        "reduced": tuple(_relative(along).code("r", [f"{n}_along" for n in names], kind)),
        "places": tuple(
            kept.pick(range(count, len(kept.strides))).code(
                "place", [*(f"o{k}_at" for k in range(len(outputs))), *(f"b{k}_at" for k in range(len(beside)))], kind
            )
        ),
        "inputs": tuple(
            (name, x.type, bool(moving.sizes) and moving.strides[k][-1] != 0)
            for k, (name, x) in enumerate(zip(names, inputs, strict=True))
        ),
        "outputs": tuple((f"o{k}", y.type, r) for k, (y, r) in enumerate(zip(outputs, body.results, strict=True))),
        "beside": tuple(f"b{k}" for k in range(len(beside))),
        "lines": body.lines,
        "finish": body.finish,
        "values": ", ".join(body.values),
    }


def _relative(space: Space) -> Space:
    """`space` without the operands' own offsets, which the kept space adds already."""
    return Space(sizes=space.sizes, strides=space.strides, offsets=(0,) * len(space.offsets))
