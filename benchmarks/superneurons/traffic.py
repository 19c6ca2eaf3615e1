"""Table 3: bytes that AlexNet moves over the link in a step, without and with the tensor cache.

Without the cache every demand moves data:
- the input batch is fetched for CONV1's forward and again for its backward;
- a CONV's output is offloaded once, fetched when the CONV or FC behind its segment recomputes its input in the backward
  pass and dropped with it, and fetched again for the backward steps of the segment itself;
- parameters cross once.
The paper's text names the offload and one prefetch of each CONV output, which is about half of what it measured; the
second fetch, the input and the parameters are inferred from its numbers, which they give to the last printed digit.

With the cache (Algorithm 2) a tensor leaves only when an allocation finds no room: the least recently used one goes
that no tensor of the running layer is. The cache is evaluated alone, so that every tensor has its own buffer: with
liveness nothing would have to move at these batches.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from snplan.report.chart import Series, line_chart
from superneurons.layers import READS_INPUT, Kind
from superneurons.networks import network
from superneurons.result import Cell, Check, Result
from superneurons.segments import segments
from superneurons.trace import Role, Trace, trace

GB = 10**9
POOL_BYTES = 12 * GB
PUBLISHED = {
    256: (2.56, 0.0),
    384: (3.72, 0.0),
    512: (4.88, 0.0),
    640: (6.03, 0.0),
    896: (8.35, 0.0),
    1024: (9.50, 0.88),
}
"""Batch -> GB without and with the cache."""
TOLERANCE = 0.10


def conv_output_bytes(step: Trace) -> int:
    """Bytes of all CONV outputs."""
    return sum(layer.bytes for layer in step.network.layers if layer.kind is Kind.CONV)


def moved_without_cache(step: Trace) -> int:
    """Bytes moved by the on-demand protocol."""
    network, fetches = step.network, dict.fromkeys(step.output, 0)
    for part in segments(network):
        (reader,) = network.readers[part.layers[-1]]
        fetches[part.checkpoint] += 1 + (network[reader].kind in READS_INPUT)
    moved = 2 * network.layers[0].bytes + network.parameter_bytes
    for layer in network.layers:
        if layer.kind is Kind.CONV:
            # A CONV right behind another one reads its output itself.
            direct = sum(network[reader].kind is Kind.CONV for reader in network.readers[layer.name])
            moved += layer.bytes * (1 + fetches[layer.name] + direct)
    return moved


@dataclass(slots=True, kw_only=True)
class TensorCache:
    """Algorithm 2, replayed: `room` bytes on the device, tensors from the least to the most recently used."""

    step: Trace
    room: int
    offloaded: int = 0
    fetched: int = 0
    _held: OrderedDict[int, None] = field(default_factory=OrderedDict)
    _on_host: set[int] = field(default_factory=set)
    _made: set[int] = field(default_factory=set)

    def run(self) -> None:
        """Replay one training step; the input batch is in host memory when it starts. Raises MemoryError."""
        inputs = {i for i, tensor in enumerate(self.step.tensors) if tensor.role is Role.INPUT}
        self._on_host |= inputs
        for step in self.step.steps:
            locked = dict.fromkeys((*step.reads, *step.writes))
            for tensor in locked:
                self._check(tensor, locked)
            self._made.update(locked)
            # What was written is newer than its copy.
            self._on_host -= set(step.writes) - inputs

    def _check(self, tensor: int, locked: dict[int, None]) -> None:
        """Bring a tensor in, or to the front."""
        if tensor in self._held:
            self._held.move_to_end(tensor)
            return
        size = self.step.tensors[tensor].bytes
        self._make_room(size, locked)
        self.room -= size
        self._held[tensor] = None
        if tensor in self._made:
            self.fetched += size

    def _make_room(self, size: int, locked: dict[int, None]) -> None:
        victims = iter([tensor for tensor in self._held if tensor not in locked])
        while self.room < size:
            victim = next(victims, None)
            if victim is None:
                raise MemoryError(f"{size} bytes do not fit beside the tensors of one layer")
            del self._held[victim]
            self.room += self.step.tensors[victim].bytes
            if victim not in self._on_host:
                self.offloaded += self.step.tensors[victim].bytes
                self._on_host.add(victim)


def moved_with_cache(step: Trace, pool: int) -> int:
    """Bytes moved with the cache in `pool` bytes, which also hold the parameters and their gradients."""
    cache = TensorCache(step=step, room=pool - 2 * step.network.parameter_bytes)
    cache.run()
    return cache.offloaded + cache.fetched


def table3() -> Result:
    """Table 3: GB moved at the paper's batches."""
    rows: list[list[Cell]] = []
    checks = []
    without: dict[int, int] = {}
    for batch, (published, published_cached) in PUBLISHED.items():
        step = trace(network("alexnet", batch))
        text = 2 * conv_output_bytes(step)
        without[batch], cached = moved_without_cache(step), moved_with_cache(step, POOL_BYTES)
        rows.append(
            [
                *(batch, round(text / GB, 2)),
                *(round(without[batch] / GB, 2), published),
                *(round(cached / GB, 2), published_cached),
            ]
        )
        close = abs(without[batch] / GB - published) <= TOLERANCE * published
        checks.append(Check(what=f"batch {batch}: without the cache within 10 % of {published} GB", passed=close))
        if published_cached == 0:
            checks.append(Check(what=f"batch {batch}: 0 bytes with the cache", passed=cached == 0))
        else:
            order = 10**-0.5 <= cached / GB / published_cached <= 10**0.5
            checks.append(Check(what=f"batch {batch}: order of {published_cached} GB with the cache", passed=order))
    checks.append(Check(what="without the cache linear in the batch", passed=_is_linear(without)))
    return Result(
        name="table3",
        title="GB moved by AlexNet in a step",
        columns=("batch", "CONV out and back", "no cache", "published no cache", "cache", "published cache"),
        digits=2,
        rows=rows,
        checks=checks,
        notes=(
            "Layer model, no device times; GB = 10^9 bytes. 'CONV out and back' is what the paper's text names; "
            "'no cache' adds a second fetch of each CONV output, the input batch twice and the parameters once, "
            "inferred from the published numbers (docs/paper.md).",
            "Cache: Algorithm 2 alone, every tensor with its own buffer, in 12 x 10^9 bytes (a K40c with ECC on has "
            "11.25 GiB) with parameters and their gradients. With liveness nothing moves at any of these batches.",
        ),
        charts={"table3": _chart(without)},
    )


def _is_linear(moved: dict[int, int]) -> bool:
    """Whether all points lie on the line through the first and the last."""
    (first, low), (last, high) = min(moved.items()), max(moved.items())
    return all((count - low) * (last - first) == (high - low) * (batch - first) for batch, count in moved.items())


def _chart(without: dict[int, int]) -> str:
    ours = Series(name="no cache", points=[(batch, count / GB) for batch, count in without.items()], marks=True)
    theirs = Series(name="published", points=[(b, gb) for b, (gb, _) in PUBLISHED.items()], marks=True, dashed=True)
    return line_chart("Table 3: GB moved without the tensor cache", "batch", "GB", [ours, theirs])
