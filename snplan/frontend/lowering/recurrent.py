"""RNN, GRU and LSTM, unrolled: one product for the inputs of all time steps, then a few ops for each step.

Layouts of ONNX: gates of an LSTM in the order input, output, forget, cell; of a GRU update, reset, hidden. Sequences
that end early keep their state from there on and give zeros; a reverse direction that starts past the end keeps its
initial state until it gets there, which is the same as reversing each sequence by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from snplan.frontend.context import LowerContext
from snplan.frontend.lowering.binary import binary
from snplan.frontend.lowering.linear import product
from snplan.frontend.lowering.movement import concat, sliced, split, transpose
from snplan.frontend.lowering.registry import lowers
from snplan.frontend.node import NodeView
from snplan.frontend.tensors import numpy_dtype
from snplan.frontend.values import Unsupported, Value, filled
from snplan.ir import Spec

MOST_STEPS = 1024
"""Time steps that a recurrent node may be unrolled to."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_ACTIVATIONS = {"Relu": "relu", "Sigmoid": "sigmoid", "Softplus": "softplus", "Softsign": "softsign", "Tanh": "tanh"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One direction of a recurrent node: matrices [gates x hidden, ...], biases [gates x hidden] or None."""

    op: str
    w: Value
    r: Value
    w_bias: Value | None
    r_bias: Value | None
    peepholes: tuple[Value, ...]
    activations: tuple[str, ...]
    reset_after: bool
    hidden: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Hidden state and, of an LSTM, cell state; each [batch, hidden]."""

    hidden: Value
    cell: Value | None = None


@lowers("RNN", "GRU", "LSTM")
def lower_recurrent(ctx: LowerContext, node: NodeView) -> None:
    """The node unrolled in every direction."""
    x = node.value(0)
    node.need(x.spec.rank == 3, f"its input is of rank {x.spec.rank}, 3 is needed")
    _refuse(node)
    batch_first = bool(node.attr_int("layout", 0))
    if batch_first:
        x = transpose(ctx, x, (1, 0, 2))
    if x.spec.shape[0] > MOST_STEPS:
        raise Unsupported(f"{x.spec.shape[0]} time steps; at most {MOST_STEPS} are unrolled")
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    chosen = directions.get(node.attr_str("direction", "forward"))
    if chosen is None:
        raise node.error(f"direction {node.attr_str('direction')!r} is unknown")
    outputs, last = [], []
    for place, backwards in enumerate(chosen):
        steps, state = _direction(ctx, node, x, place, len(chosen), backwards, batch_first)
        outputs.append(steps)
        last.append(state)
    _bind(ctx, node, outputs, last, batch_first)


def _refuse(node: NodeView) -> None:
    if node.has("clip") or node.attr_int("input_forget", 0):
        raise Unsupported("clip and input_forget are not supported")
    if node.attr_floats("activation_alpha") or node.attr_floats("activation_beta"):
        raise Unsupported("parameters of activations are not supported")


def _bind(
    ctx: LowerContext, node: NodeView, outputs: Sequence[Sequence[Value]], last: Sequence[State], batch_first: bool
) -> None:
    """Y [steps, directions, batch, hidden], Y_h and Y_c [directions, batch, hidden]; batch first with layout 1."""
    if node.wants(0):
        steps = [_joined(ctx, [each[step] for each in outputs]) for step in range(len(outputs[0]))]
        y = concat(ctx, [ctx.view(step, (1, *step.spec.shape)) for step in steps], 0)
        ctx.bind(0, transpose(ctx, y, (2, 0, 1, 3)) if batch_first else y)
    states = [[state.hidden for state in last], [state.cell for state in last if state.cell is not None]]
    for index, values in enumerate(states, start=1):
        if values and node.wants(index):
            found = _joined(ctx, values)
            ctx.bind(index, transpose(ctx, found, (1, 0, 2)) if batch_first else found)


def _joined(ctx: LowerContext, values: Sequence[Value]) -> Value:
    """Values of all directions behind one another on a new first axis."""
    return concat(ctx, [ctx.view(value, (1, *value.spec.shape)) for value in values], 0)


def _direction(
    ctx: LowerContext, node: NodeView, x: Value, place: int, count: int, backwards: bool, batch_first: bool
) -> tuple[list[Value], State]:
    """Outputs of one direction in the order of time, and the state that it ends with."""
    cell = _cell(ctx, node, place, count)
    steps, batch, size = x.spec.shape
    flat = ctx.view(x, (steps * batch, size))
    gates = product(ctx, flat, cell.w, cell.w_bias, trans_b=True)
    rows = split(ctx, ctx.view(gates, (steps, batch, GATES[cell.op] * cell.hidden)), 0, [1] * steps)
    state = _start(ctx, node, place, batch, cell, batch_first)
    lengths = _lengths(node, steps)
    outputs: list[Value | None] = [None] * steps
    for step in reversed(range(steps)) if backwards else range(steps):
        row = ctx.view(rows[step], (batch, GATES[cell.op] * cell.hidden))
        after = _STEPS[cell.op](ctx, cell, row, state)
        outputs[step], state = _masked(ctx, step, lengths, state, after)
    return [output for output in outputs if output is not None], state


def _cell(ctx: LowerContext, node: NodeView, place: int, count: int) -> Cell:
    gates = GATES[node.op]
    w, r, bias = node.value(1), node.value(2), node.optional(3)
    node.need(w.spec.rank == 3 and r.spec.rank == 3, "W and R must be of rank 3")
    hidden = r.spec.shape[2]
    node.need(w.spec.shape[:2] == r.spec.shape[:2] == (count, gates * hidden), f"W {w.spec.shape} and R {r.spec.shape}")
    w_bias, r_bias = None, None
    if bias is not None:
        w_bias, r_bias = split(ctx, _row(ctx, bias, place), 0, [gates * hidden] * 2)
    peepholes = node.optional(7) if node.op == "LSTM" else None
    parts = () if peepholes is None else tuple(split(ctx, _row(ctx, peepholes, place), 0, [hidden] * 3))
    defaults = _DEFAULTS[node.op]
    names = node.attr_strings("activations") or defaults * count
    names = names[place * len(defaults) : (place + 1) * len(defaults)]
    unknown = [name for name in names if name not in _ACTIVATIONS]
    if unknown or len(names) < len(defaults):
        raise Unsupported(f"activations {node.attr_strings('activations')}")
    return Cell(
        op=node.op,
        w=_row(ctx, w, place),
        r=_row(ctx, r, place),
        w_bias=w_bias,
        r_bias=r_bias,
        peepholes=parts,
        activations=tuple(_ACTIVATIONS[name] for name in names),
        reset_after=bool(node.attr_int("linear_before_reset", 0)),
        hidden=hidden,
    )


def _row(ctx: LowerContext, value: Value, place: int) -> Value:
    """Entry `place` along the first axis, without it."""
    shape = value.spec.shape
    starts = [place] + [0] * (len(shape) - 1)
    return ctx.view(sliced(ctx, value, starts, (1, *shape[1:]), [1] * len(shape)), shape[1:])


def _start(ctx: LowerContext, node: NodeView, place: int, batch: int, cell: Cell, batch_first: bool) -> State:
    def initial(index: int) -> Value:
        given = node.optional(index)
        if given is None:
            spec = Spec(cell.w.spec.dtype, (batch, cell.hidden))
            return Value(spec=spec, content=filled(spec, np.zeros((), numpy_dtype(spec.dtype))))
        given = transpose(ctx, given, (1, 0, 2)) if batch_first else given
        return _row(ctx, given, place)

    return State(hidden=initial(5), cell=initial(6) if cell.op == "LSTM" else None)


def _lengths(node: NodeView, steps: int) -> Value | None:
    """Lengths of the sequences; None where all are known to be as long as the input."""
    lengths = node.optional(4)
    if lengths is None:
        return None
    known = lengths.array()
    return None if known is not None and bool((known == steps).all()) else lengths


def _masked(ctx: LowerContext, step: int, lengths: Value | None, before: State, after: State) -> tuple[Value, State]:
    """Output and state of a step, where sequences that are over give zeros and keep their state."""
    if lengths is None:
        return after.hidden, after
    running = ctx.view(binary(ctx, "greater", lengths, ctx.scalar(step, lengths.spec.dtype)), (*lengths.spec.shape, 1))
    output = ctx.one("mask", [running, after.hidden], {"keep": True})
    hidden = ctx.one("where", [running, after.hidden, before.hidden])
    if after.cell is None or before.cell is None:
        return output, State(hidden=hidden)
    return output, State(hidden=hidden, cell=ctx.one("where", [running, after.cell, before.cell]))


def _rnn_step(ctx: LowerContext, cell: Cell, row: Value, state: State) -> State:
    return State(hidden=ctx.one(cell.activations[0], [_recurrence(ctx, cell, row, state.hidden)]))


def _recurrence(ctx: LowerContext, cell: Cell, row: Value, hidden: Value) -> Value:
    """`row + hidden @ R^T`, with R's bias where there is one."""
    total = product(ctx, hidden, cell.r, row, trans_b=True)
    return total if cell.r_bias is None else binary(ctx, "add", total, cell.r_bias)


def _lstm_step(ctx: LowerContext, cell: Cell, row: Value, state: State) -> State:
    assert state.cell is not None
    f, g, h = cell.activations
    gates = split(ctx, _recurrence(ctx, cell, row, state.hidden), 1, [cell.hidden] * 4)
    enter, leave, forget, fresh = gates
    if cell.peepholes:
        enter = _peeped(ctx, enter, cell.peepholes[0], state.cell)
        forget = _peeped(ctx, forget, cell.peepholes[2], state.cell)
    kept = binary(ctx, "mul", ctx.one(f, [forget]), state.cell)
    added = binary(ctx, "mul", ctx.one(f, [enter]), ctx.one(g, [fresh]))
    after = binary(ctx, "add", kept, added)
    if cell.peepholes:
        leave = _peeped(ctx, leave, cell.peepholes[1], after)
    return State(hidden=binary(ctx, "mul", ctx.one(f, [leave]), ctx.one(h, [after])), cell=after)


def _peeped(ctx: LowerContext, gate: Value, weight: Value, cell: Value) -> Value:
    return binary(ctx, "add", gate, binary(ctx, "mul", cell, weight))


def _gru_step(ctx: LowerContext, cell: Cell, row: Value, state: State) -> State:
    f, g = cell.activations
    hidden, size = state.hidden, cell.hidden
    x_gates, x_fresh = split(ctx, row, 1, [2 * size, size])
    r_gates, r_fresh = split(ctx, cell.r, 0, [2 * size, size])
    b_gates, b_fresh = (None, None) if cell.r_bias is None else split(ctx, cell.r_bias, 0, [2 * size, size])
    gates = product(ctx, hidden, r_gates, x_gates, trans_b=True)
    gates = gates if b_gates is None else binary(ctx, "add", gates, b_gates)
    update, reset = split(ctx, ctx.one(f, [gates]), 1, [size, size])
    if cell.reset_after:
        inner = binary(ctx, "mul", reset, product(ctx, hidden, r_fresh, b_fresh, trans_b=True))
        fresh = binary(ctx, "add", x_fresh, inner)
    else:
        fresh = product(ctx, binary(ctx, "mul", reset, hidden), r_fresh, x_fresh, trans_b=True)
        fresh = fresh if b_fresh is None else binary(ctx, "add", fresh, b_fresh)
    fresh = ctx.one(g, [fresh])
    # (1 - z) * fresh + z * hidden
    return State(hidden=binary(ctx, "add", fresh, binary(ctx, "mul", update, binary(ctx, "sub", hidden, fresh))))


_STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}
