"""Which results are wanted, and what of the lowered graph they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snplan.errors import ModelError, UsageError
from snplan.frontend import codes
from snplan.frontend.context import LowerContext, Record
from snplan.frontend.values import Item, Poison, Value

_SHOWN = 20


def choose_targets(outputs: Mapping[str, Item], scope: Mapping[str, Item], *, loss: str, mode: str) -> list[str]:
    """Names of the results that are wanted.

    To infer: all outputs. To train: the tensor that `output:NAME` names; with "auto" a scalar floating-point output
    (the loss), else the first floating-point one. An output that could not be lowered counts where no other does.
    Raises UsageError (SNP-U062) for a name that is not in the graph, ModelError (SNP-I018) where no output is a float.
    """
    if mode == "infer":
        return list(outputs)
    if loss.startswith("output:"):
        return [_named(loss.removeprefix("output:"), outputs, scope)]
    floats = [name for name, item in outputs.items() if isinstance(item, Value) and item.spec.dtype.is_float]
    if loss == "auto":
        for shape in ((), (1,)):
            for name in floats:
                item = outputs[name]
                if isinstance(item, Value) and item.spec.shape == shape:
                    return [name]
    unknown = [name for name, item in outputs.items() if isinstance(item, Poison)]
    if not floats and not unknown:
        raise ModelError(codes.TARGET, f"no output is floating-point: {', '.join(outputs)}; use --mode infer")
    # In the order of the outputs: a first output that could not be lowered is an error, not a reason to train another.
    trainable = {*floats, *unknown}
    return [next(name for name in outputs if name in trainable)]


def _named(name: str, outputs: Mapping[str, Item], scope: Mapping[str, Item]) -> str:
    if name in outputs or name in scope:
        return name
    raise UsageError(
        codes.OUTPUT, f"--loss output:{name}: the model has no tensor of that name; its outputs: {', '.join(outputs)}"
    )


def check_lowered(name: str, item: Item | None) -> Value:
    """The value that a wanted result stands for.

    Raises ModelError where it needs a node that is wrong (that node's own error), or nodes that are not supported
    (SNP-I014: every one of them with its reason, how many of each operator, and the path of the first to the result).
    """
    if isinstance(item, Value):
        return item
    if not isinstance(item, Poison):
        raise ModelError(codes.TARGET, f"output {name!r} is not a tensor")
    found = _upstream(item)
    for poison in found:
        if poison.error is not None:
            raise poison.error
    raise ModelError(codes.UNSUPPORTED, _unsupported_text(name, item, found), {"nodes": [p.node for p in found]})


def _upstream(last: Poison) -> list[Poison]:
    """What made `last` unusable: each node once, in the order of a walk from its inputs."""
    found: list[Poison] = []
    seen: set[int] = set()
    stack = [(last, False)]
    while stack:
        poison, done = stack.pop()
        if done:
            if not poison.parents:
                found.append(poison)
            continue
        if id(poison) in seen:
            continue
        seen.add(id(poison))
        stack.append((poison, True))
        stack.extend((parent, False) for parent in reversed(poison.parents))
    unique: dict[str, Poison] = {}
    for poison in found:
        unique.setdefault(poison.node, poison)
    return list(unique.values())


def _unsupported_text(name: str, last: Poison, found: Sequence[Poison]) -> str:
    counts: dict[str, int] = {}
    for poison in found:
        counts[poison.op] = counts.get(poison.op, 0) + 1
    total = ", ".join(f"{op} x{count}" for op, count in counts.items())
    listed = [_described(poison) for poison in found[:_SHOWN]]
    if len(found) > _SHOWN:
        listed.append(f"... and {len(found) - _SHOWN} more")
    return (
        f"output {name!r} needs {len(found)} node{'s' if len(found) > 1 else ''} that cannot be lowered ({total}): "
        f"{'; '.join(listed)}. Path to the output: {' -> '.join([*_path(last), name])}"
    )


def _described(poison: Poison) -> str:
    reason = f" ({poison.reason})" if poison.reason else ""
    return f"{poison.op} {poison.node!r}{reason}"


def _path(last: Poison) -> list[str]:
    """Nodes from the first unsupported one down to `last`, shortened in the middle."""
    names = [last.node]
    while last.parents:
        last = last.parents[0]
        names.append(last.node)
    names = list(dict.fromkeys(names[::-1]))
    return names if len(names) <= 8 else [*names[:4], "...", *names[-3:]]


def needed_records(ctx: LowerContext, targets: Sequence[int]) -> list[Record]:
    """The ops that the tensors `targets` need, in order, and the updates of running statistics that go with them."""
    needed = set(targets)
    kept: list[Record] = []
    for record in reversed(ctx.records):
        if record.kind != "batch_norm_update" and not needed.isdisjoint(record.outputs):
            kept.append(record)
            needed.update(record.inputs)
    written = {handle for record in kept for handle in record.outputs}
    updates = {id(r) for r in ctx.records if r.kind == "batch_norm_update" and written.issuperset(r.inputs[2:])}
    chosen = {id(record) for record in kept} | updates
    return [record for record in ctx.records if id(record) in chosen]
