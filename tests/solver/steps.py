"""Small training steps, a slow link, and the best plan of a step by enumeration."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from property.graphs import GraphWriter

from snplan.analysis.floor import floor
from snplan.analysis.index import IndexedStep, index_step
from snplan.cost.device import Device, load_device
from snplan.ir import Forward, Role
from snplan.passes.order import sink_updates
from snplan.passes.refine import Realiser
from snplan.solver.space import Decisions, Space
from snplan.training import attach_loss, build_step, make_optimizer

GRANULE = 512


def slow_link() -> Device:
    """A device whose copies take about as long as the ops of these steps."""
    return replace(
        load_device("h200"),
        h2d_bytes_per_s=10**9,
        d2h_bytes_per_s=10**9,
        h2d_both_bytes_per_s=8 * 10**8,
        d2h_both_bytes_per_s=8 * 10**8,
        copy_latency_us=1,
    )


def step_of(forward: Forward, seed: int) -> IndexedStep:
    """The step of a forward graph, with op times of 1 to 12 microseconds."""
    rng = random.Random(seed)
    step = sink_updates(build_step(attach_loss(forward, "auto"), optimizer=make_optimizer("none")))
    return index_step(step, [rng.randint(1, 12) for _ in step.graph.ops])


def _scaled(writer: GraphWriter) -> str:
    x = writer.source("x", (16, 64), Role.INPUT)
    weight = writer.source("w0", (1, 64), Role.CONSTANT)
    return writer.op("mul", (x, weight))[0]


def _averaged(writer: GraphWriter, output: str) -> Forward:
    return writer.forward(writer.op("reduce_mean", (output,), axes=[0, 1], keepdims=False)[0])


def chain(length: int) -> Forward:
    """Ops one after another, each saving what it needs."""
    writer = GraphWriter()
    tensor = _scaled(writer)
    for i in range(length):
        (tensor,) = writer.op(("tanh", "softplus", "sigmoid")[i % 3], (tensor,))
    return _averaged(writer, tensor)


def fan(width: int) -> Forward:
    """One tensor read by several ops whose results are multiplied together."""
    writer = GraphWriter()
    tensor = _scaled(writer)
    joined = tensor
    for i in range(width):
        (branch,) = writer.op(("tanh", "sigmoid")[i % 2], (tensor,))
        (joined,) = writer.op("mul", (joined, branch))
    return _averaged(writer, joined)


def random_graph(ops: int, seed: int) -> Forward:
    """Unary and binary ops over earlier results."""
    rng = random.Random(seed)
    writer = GraphWriter()
    found = [_scaled(writer)]
    for _ in range(ops - 2):
        first = rng.choice(found[-2:])
        if rng.random() < 0.4 and len(found) > 1:
            found += writer.op(rng.choice(["add", "mul"]), (first, rng.choice(found)))
        else:
            found += writer.op(rng.choice(["tanh", "sigmoid", "relu", "softplus"]), (first,))
    return _averaged(writer, found[-1])


def budgets(step: IndexedStep, keep_all_bytes: int, count: int) -> list[int]:
    """`count` budgets from the floor up, below keep-all."""
    low = floor(step).bytes
    return sorted({low + (keep_all_bytes - low) * i // count // GRANULE * GRANULE for i in range(count)})


def all_decisions(space: Space) -> Iterator[Decisions]:
    """Every point of the space once."""
    saved = [s.tensor for s in space.saved]
    for mask in range(1 << len(saved)):
        dropped = frozenset(t for i, t in enumerate(saved) if mask >> i & 1)
        seen = set()
        for gaps in range(1 << len(space.gaps)):
            evicted = space.closed((g for g in range(len(space.gaps)) if gaps >> g & 1), dropped)
            if evicted not in seen:
                seen.add(evicted)
                yield Decisions(dropped=dropped, evicted=evicted)


def brute_force(space: Space, realiser: Realiser) -> int:
    """Microseconds of the fastest plan of the space."""
    times = (realiser.evaluate(decisions) for decisions in all_decisions(space))
    return min(time for time in times if time is not None)
