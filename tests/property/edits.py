"""Every plan that one edit makes of a plan: on plain JSON data, as a text editor or a bug would."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

from snplan.plan.model import StepPlan

Raw: TypeAlias = dict[str, Any]
Edit: TypeAlias = tuple[str, Raw]

_TOTALS = ("arena_bytes", "peak_live_bytes", "host_arena_bytes", "budget_bytes", "reserve_bytes")


def raw(plan: StepPlan) -> Raw:
    """The plan as plain JSON data."""
    found = msgspec.json.decode(msgspec.json.encode(plan))
    assert isinstance(found, dict)
    return found


def plan_of(data: Raw) -> StepPlan:
    """The plan that plain JSON data says."""
    return msgspec.convert(data, StepPlan)


def edits(plan: StepPlan) -> Iterator[Edit]:
    """Each edit in words, and the edited plan."""
    data = raw(plan)
    yield from _totals(data)
    for table in ("tensors", "ops", "buffers", "slots", "resident", "persistent", "outputs", "actions"):
        for i in range(len(data[table])):
            yield f"{table}[{i}] dropped", _spliced(data, table, i, [])
            yield f"{table}[{i}] twice", _spliced(data, table, i, [data[table][i]] * 2)
    for i in range(len(data["tensors"])):
        yield from _tensor(data, i)
    for table in ("buffers", "slots"):
        for i in range(len(data[table])):
            yield from _extent(data, table, i)
    for table in ("resident", "persistent", "outputs"):
        for i in range(len(data[table])):
            yield from _place(data, table, i)
    for i in range(len(data["ops"])):
        yield from _op(data, i)
    for i in range(len(data["actions"])):
        yield from _moved(data, i)
        yield from _action(data, i)


def _spliced(data: Raw, table: str, at: int, rows: list[Any]) -> Raw:
    return {**data, table: [*data[table][:at], *copy.deepcopy(rows), *data[table][at + 1 :]]}


def _with(data: Raw, table: str, at: int, **fields: Any) -> Raw:
    return _spliced(data, table, at, [{**data[table][at], **fields}])


def _totals(data: Raw) -> Iterator[Edit]:
    for name in _TOTALS:
        for change in (-512, 512, -(1 << 40)):
            yield f"{name} {change:+d}", {**data, name: data[name] + change}


def _tensor(data: Raw, i: int) -> Iterator[Edit]:
    row = data["tensors"][i]
    yield f"tensor {row['name']} larger", _with(data, "tensors", i, bytes=row["bytes"] + 4096)
    yield f"tensor {row['name']} of another role", _with(data, "tensors", i, role="weight")
    yield f"tensor {row['name']} renamed", _with(data, "tensors", i, name="no such tensor")


def _extent(data: Raw, table: str, i: int) -> Iterator[Edit]:
    row = data[table][i]
    where = f"{table}[{i}]"
    for change in (-512, 512, 4096, 3):
        yield f"{where} moved {change:+d}", _with(data, table, i, offset=row["offset"] + change)
        yield f"{where} resized {change:+d}", _with(data, table, i, bytes=row["bytes"] + change)
    yield f"{where} to 0", _with(data, table, i, offset=0)
    yield f"{where} of another id", _with(data, table, i, id=9999)


def _place(data: Raw, table: str, i: int) -> Iterator[Edit]:
    row = data[table][i]
    other = data["tensors"][0]["name"] if data["tensors"][0]["name"] != row["tensor"] else data["tensors"][-1]["name"]
    yield f"{table}[{i}] of {other}", _with(data, table, i, tensor=other)
    for key, ids in (("buffer", "buffers"), ("slot", "slots")):
        if row.get(key) is None:
            continue
        for extent in data[ids]:
            if extent["id"] != row[key]:
                yield f"{table}[{i}] in {key} {extent['id']}", _with(data, table, i, **{key: extent["id"]})
    if table == "persistent":
        yield f"{table}[{i}] becomes {other}", _with(data, table, i, becomes=other)


def _op(data: Raw, i: int) -> Iterator[Edit]:
    row = data["ops"][i]
    yield f"op {row['name']} without inputs", _with(data, "ops", i, inputs=[])
    yield f"op {row['name']} without outputs", _with(data, "ops", i, outputs=[])
    for phase in ("forward", "backward", "update", "eval"):
        if phase != row["phase"]:
            yield f"op {row['name']} of phase {phase}", _with(data, "ops", i, phase=phase)


def _moved(data: Raw, i: int) -> Iterator[Edit]:
    """The action elsewhere, with `after` edges that still mean the same actions."""
    count = len(data["actions"])
    for target in {0, i - 6, i - 1, i + 1, i + 6, count - 1} - {i}:
        if 0 <= target < count:
            order = [j for j in range(count) if j != i]
            order.insert(target, i)
            yield f"action {i} moved to {target}", _reordered(data, order)


def _reordered(data: Raw, order: list[int]) -> Raw:
    number = {old: new for new, old in enumerate(order)}
    actions = []
    for old in order:
        action = dict(data["actions"][old])
        if "after" in action:
            action["after"] = [number[edge] for edge in action["after"]]
        actions.append(action)
    return {**data, "actions": actions}


def _action(data: Raw, i: int) -> Iterator[Edit]:
    action = data["actions"][i]
    for key, value in _replacements(data, action):
        yield f"action {i} ({action['kind']}) {key} = {value!r:.60}", _with(data, "actions", i, **{key: value})


def _replacements(data: Raw, action: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if "after" in action:
        for at in range(len(action["after"])):
            yield "after", action["after"][:at] + action["after"][at + 1 :]
        yield from (("after", [*action["after"], edge]) for edge in (-1, 10**6))
        yield "stream", {"compute": "h2d", "h2d": "d2h", "d2h": "compute"}[action["stream"]]
    for key, table in (("buffer", "buffers"), ("slot", "slots"), ("workspace", "buffers")):
        if action.get(key) is not None:
            yield from ((key, row["id"]) for row in data[table] if row["id"] != action[key])
            yield key, 12345
    if action["kind"] == "algorithm":
        yield "engine", action["engine"] + 1
    if "tensor" in action:
        yield from (("tensor", row["name"]) for row in data["tensors"] if row["name"] != action["tensor"])
    for key in ("reads", "writes"):
        for at, (tensor, buffer) in enumerate(action.get(key, [])):
            rest = action[key][:at] + action[key][at + 1 :]
            yield key, rest
            yield key, [*action[key], [tensor, buffer]]
            yield from ((key, [*rest, [tensor, row["id"]]]) for row in data["buffers"] if row["id"] != buffer)
            yield key, [*rest, ["no such tensor", buffer]]
    if "op" in action:
        yield from (("op", row["name"]) for row in data["ops"] if row["name"] != action["op"])
        yield "op", "no such op"
    if action["kind"] in ("run", "recompute"):
        yield "kind", {"run": "recompute", "recompute": "run"}[action["kind"]]
