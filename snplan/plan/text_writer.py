"""Plans in their text form (snplan.plan.text)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

from snplan.errors import PlanError
from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    Offload,
    Persistent,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.plan.pieces import in_pieces, pieces_of

BARE = re.compile(r'[^\s"(),@]+')
"""Names that need no quotes."""

HEADER = tuple(StepPlan.__struct_fields__[1:13])
"""The plan's fields before its tables, in the order of the file; `format` is in the first line."""


def to_text(plan: StepPlan) -> str:
    """The text form of `plan`. Raises PlanError (SNP-V004) where a number is not finite."""
    sections: tuple[tuple[str, Iterable[str]], ...] = (
        ("tensors", map(_tensor, plan.tensors)),
        ("ops", map(_op, plan.ops)),
        ("buffers", (_extent("b", row) for row in plan.buffers)),
        ("slots", (_extent("s", row) for row in plan.slots)),
        ("resident", map(_place, plan.resident)),
        ("persistent", map(_persistent, plan.persistent)),
        ("outputs", map(_place, plan.outputs)),
        ("actions", (f"{i}: {action_text(action)}" for i, action in enumerate(plan.actions))),
    )
    lines = [f"snplan plan, format {plan.format}"]
    lines += [f"{name} {_json(_plain(getattr(plan, name)))}" for name in HEADER]
    for title, rows in sections:
        lines.append(title)
        lines += [f"  {row}" for row in rows]
    return "\n".join(lines) + "\n"


def name_text(name: str) -> str:
    """A name as the text form writes it: bare where nothing in it could be misread, else as a JSON string."""
    return name if BARE.fullmatch(name) and name.isprintable() else json.dumps(name)


def action_text(action: Action) -> str:
    """One action as the text form writes it, without its number."""
    return _WRITERS[type(action)](action)


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False, sort_keys=True)
    except ValueError as error:
        raise PlanError("SNP-V004", "the plan holds a number that is not finite; leave it out") from error


def _plain(value: Any) -> Any:
    fields = getattr(value, "__struct_fields__", None)
    return value if fields is None else {name: getattr(value, name) for name in fields}


def _tensor(row: PlanTensor) -> str:
    shape = _json(row.shape).replace(" ", "")
    return f"{name_text(row.name)} {name_text(row.dtype)} {shape} {row.bytes} {name_text(row.role)}"


def _op(row: PlanOp) -> str:
    inputs, outputs = (", ".join(map(name_text, names)) for names in (row.inputs, row.outputs))
    text = f"{name_text(row.name)} {name_text(row.kind)} {name_text(row.phase)} ({inputs}) -> ({outputs})"
    if row.attrs:
        text += f" attrs {_json(row.attrs)}"
    if row.nodes:
        text += f" nodes {_json(row.nodes)}"
    return text if row.rng is None else f"{text} rng {row.rng}"


def _extent(letter: str, row: Extent) -> str:
    text = f"{letter}{row.id} offset {row.offset} bytes {row.bytes}"
    return text if row.pool is None else f"{text} pool {name_text(row.pool)}"


def _place(row: Place) -> str:
    return f"{name_text(row.tensor)}{_where(row)}"


def _persistent(row: Persistent) -> str:
    return f"{name_text(row.tensor)} becomes {name_text(row.becomes)}{_where(row)}"


def _where(row: Place | Persistent) -> str:
    buffer = "" if row.buffer is None else f" in b{row.buffer}"
    return buffer if row.slot is None else f"{buffer} in s{row.slot}"


def _execution(verb: str) -> Callable[[Any], str]:
    def write(action: Run | Recompute) -> str:
        reads, writes = _accesses(action.reads), _accesses(action.writes)
        return f"{verb} {name_text(action.op)} ({reads}) -> ({writes}){_order(action, 'compute')}"

    return write


def _accesses(pairs: Iterable[tuple[str, int]]) -> str:
    return ", ".join(f"{name_text(tensor)}@b{buffer}" for tensor, buffer in pairs)


def _order(action: Run | Recompute | Offload | Prefetch, stream: str) -> str:
    on = "" if action.stream == stream else f" on {name_text(action.stream)}"
    return f"{on} after {', '.join(map(str, action.after))}" if action.after else on


def _algorithm(action: Algorithm) -> str:
    each, pieces = pieces_of(action.engine)
    cut = pieces > 1 and in_pieces(each, pieces) == action.engine
    number = f"{each} pieces {pieces}" if cut else f"{action.engine}"
    text = f"algorithm {name_text(action.op)} engine {number}"
    return text if action.workspace is None else f"{text} workspace b{action.workspace}"


def _offload(action: Offload) -> str:
    return f"offload {name_text(action.tensor)} b{action.buffer} -> s{action.slot}{_order(action, 'd2h')}"


def _prefetch(action: Prefetch) -> str:
    return f"prefetch {name_text(action.tensor)} s{action.slot} -> b{action.buffer}{_order(action, 'h2d')}"


_WRITERS: dict[type[Action], Callable[[Any], str]] = {
    Alloc: lambda action: f"alloc b{action.buffer}",
    Free: lambda action: f"free b{action.buffer}",
    Run: _execution("run"),
    Recompute: _execution("recompute"),
    Algorithm: _algorithm,
    Offload: _offload,
    Prefetch: _prefetch,
}
