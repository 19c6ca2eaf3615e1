"""Figures 2 and 8: what the paper's networks need, with and without workspaces, and how it divides over layer types."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.analysis.index import IndexedStep
from snplan.report.chart import Bar, bar_chart
from superneurons.layers import Kind
from superneurons.memory import baseline
from superneurons.networks import TITLES, network
from superneurons.result import Cell, Check, Result
from superneurons.steps import DEVICE, prepared
from superneurons.trace import Role, trace

GIB = 1 << 30
ALEXNET_BATCH, BATCH = 200, 32
PUBLISHED_GB = {"resnet152": 18.5, "inception_v4": 44.3}
"""GB at batch 32 (section 2.1); other bars of Figure 2 have no number in the text."""

CHEAP = (Kind.POOL, Kind.ACT, Kind.BN, Kind.LRN)
SMALL = (Kind.DROPOUT, Kind.SOFTMAX, Kind.FC)
SHOWN = (Kind.CONV, Kind.FC, Kind.DROPOUT, Kind.SOFTMAX, Kind.POOL, Kind.ACT, Kind.BN, Kind.LRN)

_KINDS = {
    "conv": Kind.CONV,
    "conv_transpose": Kind.CONV,
    "conv_filter": Kind.CONV,
    "matmul": Kind.FC,
    "relu": Kind.ACT,
    "relu_grad": Kind.ACT,
    "lrn": Kind.LRN,
    "lrn_grad": Kind.LRN,
    "batch_norm_train": Kind.BN,
    "batch_norm_grad": Kind.BN,
    "batch_norm_update": Kind.BN,
    "max_pool": Kind.POOL,
    "max_pool_grad": Kind.POOL,
    "average_pool": Kind.POOL,
    "average_pool_grad": Kind.POOL,
    "dropout": Kind.DROPOUT,
    "dropout_grad": Kind.DROPOUT,
    "softmax_cross_entropy": Kind.SOFTMAX,
    "softmax_cross_entropy_grad": Kind.SOFTMAX,
}
"""Op kinds by layer type; global pooling, joins, bias gradients and updates are other work."""


def batch_of(name: str) -> int:
    """The batch of a network in Figures 2 and 8."""
    return ALEXNET_BATCH if name == "alexnet" else BATCH


def workspace_bytes(indexed: IndexedStep) -> int:
    """Workspaces of the fastest engine of every convolution, each with a buffer of its own as in the baseline."""
    return sum(choices[-1].workspace for choices in indexed.engines if choices)


def speedup(indexed: IndexedStep) -> float:
    """How much faster the step's ops are with the fastest engines than without workspaces."""
    slower = sum(choices[0].us - choices[-1].us for choices in indexed.engines if choices)
    return 1 + slower / sum(indexed.cost)


def fig2() -> Result:
    """Figure 2: memory of every network without reuse, with and without workspaces, and what they win."""
    rows: list[list[Cell]] = []
    bars = []
    memory = {}
    for name, title in TITLES.items():
        indexed = prepared(name, batch_of(name)).indexed
        plain = baseline(trace(network(name, batch_of(name)))).bytes
        full = plain + workspace_bytes(indexed)
        memory[name] = plain
        rows.append(
            [
                *(title, batch_of(name), round(plain / GIB, 2)),
                *(round(full / GIB, 2), PUBLISHED_GB.get(name), round(speedup(indexed), 2)),
            ]
        )
        bars.append(Bar(name=title, value=full / GIB))
    linear = max(memory[name] for name in ("vgg16", "vgg19"))
    return Result(
        name="fig2",
        title="memory of the networks without reuse",
        columns=("network", "batch", "GiB", "GiB with workspaces", "published GB", "speed with workspaces"),
        digits=2,
        rows=rows,
        checks=[
            Check(
                what="InceptionV4 and ResNet152 need more than the linear networks",
                passed=min(memory["inception_v4"], memory["resnet152"]) > linear,
            )
        ],
        notes=(
            "Tensors by the layer model, every one with its own buffer; workspaces (of the fastest engine of every "
            f"convolution, each with its own buffer) and speed by the cost model with {DEVICE} data. Only two bars "
            "have numbers in the text, and they include workspaces; the speed axis ends at 3.",
        ),
        charts={"fig2": bar_chart("Figure 2: memory with workspaces", "GiB", bars)},
    )


def memory_shares(name: str, batch: int) -> dict[Kind, float]:
    """Part of all forward outputs and gradients that belongs to each kind of layer."""
    step = trace(network(name, batch))
    total = dict.fromkeys(SHOWN, 0)
    for tensor in step.tensors:
        kind = step.network[tensor.layer].kind
        if tensor.role is not Role.INPUT and kind in total:
            total[kind] += tensor.bytes
    return _shares(total)


def time_shares(indexed: IndexedStep) -> dict[Kind, float]:
    """Part of the ops' time that each kind of layer takes, forward and backward."""
    total = dict.fromkeys(SHOWN, 0)
    for op, cost in zip(indexed.ops, indexed.cost, strict=True):
        if op.kind in _KINDS:
            total[_KINDS[op.kind]] += cost
    return _shares(total)


def _shares(total: Mapping[Kind, int]) -> dict[Kind, float]:
    whole = sum(total.values())
    return {kind: count / whole for kind, count in total.items()}


def fig8() -> Result:
    """Figure 8: time and memory by layer type."""
    times, memories = {}, {}
    rows: list[list[Cell]] = []
    for name, title in TITLES.items():
        times[name] = time_shares(prepared(name, batch_of(name)).indexed)
        memories[name] = memory_shares(name, batch_of(name))
        for what, shares in (("time", times[name]), ("memory", memories[name])):
            rows.append([title, what, *(round(100 * shares[kind], 1) for kind in SHOWN), _percent(shares, CHEAP)])
    cheap_time = sum(_percent(shares, CHEAP) for shares in times.values()) / len(times)
    cheap_memory = min(_percent(shares, CHEAP) for shares in memories.values())
    small = max(_percent(shares, SMALL) for shares in memories.values())
    return Result(
        name="fig8",
        title="time and memory by layer type, percent",
        columns=("network", "of", *SHOWN, "POOL+ACT+BN+LRN"),
        digits=1,
        rows=rows,
        checks=[
            Check(
                what=f"POOL, ACT, BN and LRN hold over 50 % of the memory (at least {cheap_memory:.0f})",
                passed=cheap_memory > 50,
            ),
            Check(what=f"DROPOUT, SOFTMAX and FC hold under 1 % (at most {small:.2f})", passed=small < 1),
        ],
        notes=(
            f"Memory by the layer model, time by the cost model with {DEVICE} data and the fastest engines. POOL, ACT, "
            f"BN and LRN take {cheap_time:.0f} % of the time on average here, 20 % in the paper.",
        ),
        charts={
            "fig8-time": _chart("Figure 8a: time of POOL, ACT, BN, LRN", times),
            "fig8-memory": _chart("Figure 8b: memory of POOL, ACT, BN, LRN", memories),
        },
    )


def _percent(shares: Mapping[Kind, float], kinds: tuple[Kind, ...]) -> float:
    return round(100 * sum(shares[kind] for kind in kinds), 2)


def _chart(title: str, shares: Mapping[str, Mapping[Kind, float]]) -> str:
    bars = [Bar(name=TITLES[name], value=_percent(each, CHEAP)) for name, each in shares.items()]
    return bar_chart(title, "percent", bars)
