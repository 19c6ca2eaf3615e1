"""Figure 12: workspaces of AlexNet's convolutions at batch 100 and 300 in a pool of 3 GB, functional tensors first.

Functional are the tensors that liveness leaves (with the tensor cache nothing moves while all fits), the input batch,
the parameters and their gradients. What they leave free at a step bounds the workspace; the fastest engine under that
bound runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snplan.analysis.index import Choice, IndexedStep
from snplan.report.chart import Series, line_chart
from superneurons.layers import MIB, Kind
from superneurons.memory import profile
from superneurons.networks import network
from superneurons.result import Cell, Check, Result
from superneurons.steps import DEVICE, prepared
from superneurons.trace import trace

POOL_BYTES = 3 << 30
BATCHES = (100, 300)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Workspaces of one convolution, forward or backward: bytes given, bytes of the fastest engines, bytes free.

    A backward step runs two ops one after another, which share a workspace. Times are in microseconds: with what is
    given, with the fastest engines, and without a workspace.
    """

    name: str
    given: int
    fastest: int
    free: int
    given_us: int
    fastest_us: int
    least_us: int


def assign(batch: int, pool: int = POOL_BYTES) -> list[Assigned]:
    """The workspaces of AlexNet's convolutions in the order of the step: 1f to 5f, 5b to 1b."""
    step, indexed = trace(network("alexnet", batch)), prepared("alexnet", batch).indexed
    layers = step.network
    held = 2 * layers.parameter_bytes + layers.layers[0].bytes
    functional = [usage.bytes + held for usage in profile(step)]
    names = [layer.name for layer in layers.layers if layer.kind is Kind.CONV]
    found = []
    for number, name in enumerate(names, 1):
        forward = [choices for op, choices in _engines(indexed, name) if op < indexed.backward]
        found.append(_assigned(f"{number}f", forward, pool - functional[layers.position[name]]))
    for number, name in reversed(list(enumerate(names, 1))):
        backward = [choices for op, choices in _engines(indexed, name) if op >= indexed.backward]
        found.append(_assigned(f"{number}b", backward, pool - functional[step.backward_of(name)]))
    return found


def _engines(indexed: IndexedStep, layer: str) -> list[tuple[int, Sequence[Choice]]]:
    """Ops of a layer that have engines, by op index."""
    return [(i, indexed.engines[i]) for i, op in enumerate(indexed.ops) if layer in op.nodes and indexed.engines[i]]


def _assigned(name: str, ops: Sequence[Sequence[Choice]], free: int) -> Assigned:
    chosen = [[choice for choice in choices if choice.workspace <= free][-1] for choices in ops]
    fastest = [choices[-1] for choices in ops]
    return Assigned(
        name=name,
        given=max(choice.workspace for choice in chosen),
        fastest=max(choice.workspace for choice in fastest),
        free=free,
        given_us=sum(choice.us for choice in chosen),
        fastest_us=sum(choice.us for choice in fastest),
        least_us=sum(choices[0].us for choices in ops),
    )


def fig12() -> Result:
    """Figure 12: workspace given and wanted by each convolution, at both batches."""
    found = {batch: assign(batch) for batch in BATCHES}
    small, large = found[BATCHES[0]], found[BATCHES[1]]
    rows: list[list[Cell]] = [
        [batch, each.name, *(round(count / MIB, 1) for count in (each.free, each.given, each.fastest))]
        for batch, all_of in found.items()
        for each in all_of
    ]
    shrunk = [each.name for each in large if each.given < each.fastest]
    checks = [
        Check(what=f"batch {BATCHES[0]}: all get the workspace of the fastest engine", passed=_full(small)),
        Check(what=f"batch {BATCHES[1]}: workspaces shrink ({', '.join(shrunk)})", passed=bool(shrunk)),
        Check(
            what="functional tensors first: they fit at every step, and workspaces take only what they leave free",
            passed=all(0 <= each.given <= each.free for each in (*small, *large)),
        ),
    ]
    return Result(
        name="fig12",
        title="convolution workspaces of AlexNet in a pool of 3 GB",
        columns=("batch", "convolution", "free MiB", "given MiB", "fastest MiB"),
        digits=1,
        rows=rows,
        checks=checks,
        notes=(
            f"Functional tensors by the layer model (liveness), engines by the cost model with {DEVICE} data. The "
            "figure has no numbers in the paper's text.",
            *(_speed(batch, all_of) for batch, all_of in found.items()),
        ),
        charts={f"fig12-batch{batch}": _chart(batch, all_of) for batch, all_of in found.items()},
    )


def _full(all_of: Sequence[Assigned]) -> bool:
    return all(each.given == each.fastest for each in all_of)


def _speed(batch: int, all_of: Sequence[Assigned]) -> str:
    step_us = prepared("alexnet", batch).everything.step_us
    other = step_us - sum(each.fastest_us for each in all_of)
    without, given = (
        batch * 1e6 / (other + sum(times)) for times in ([e.least_us for e in all_of], [e.given_us for e in all_of])
    )
    return (
        f"Batch {batch}: {without:.0f} img/s without workspaces, {given:.0f} with those given (published: 203 to 240)."
    )


def _chart(batch: int, all_of: Sequence[Assigned]) -> str:
    wanted = Series(
        name="fastest engine", points=[(i, e.fastest / MIB) for i, e in enumerate(all_of, 1)], marks=True, dashed=True
    )
    given = Series(name="given", points=[(i, e.given / MIB) for i, e in enumerate(all_of, 1)], marks=True)
    labels = f"1 to {len(all_of)}: {', '.join(each.name for each in all_of)}"
    return line_chart(f"Figure 12: workspaces at batch {batch}, 3 GB", labels, "MiB", [wanted, given])
