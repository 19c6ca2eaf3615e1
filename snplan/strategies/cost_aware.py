"""Cost-aware recompute of SuperNeurons (section 3.4): which segments are recomputed for one reader at a time.

A segment is a connected set of forward ops whose results are dropped. It is recomputed once for all its readers
(speed-centric) if its tensors and what its backward needs beside them are within l_peak, the largest working set of one
op; else for one reader at a time (memory-centric), so that no segment costs more memory than l_peak.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container

from snplan.analysis.floor import working_set
from snplan.analysis.index import IndexedStep
from snplan.analysis.schedule import needed_at_end, saved_tensors
from snplan.ir import Phase
from snplan.passes.recompute import Segments


def memory_centric(step: IndexedStep, kept: Container[int], l_peak: int) -> set[int]:
    """Tensors of the segments between `kept` tensors that exceed `l_peak` bytes when they are recomputed at once."""
    segment = _segments(step, kept)
    dropped = {t: segment[t] for t in saved_tensors(step) if t in segment}
    total: defaultdict[int, int] = defaultdict(int)
    for tensor, index in dropped.items():
        total[index] += step.size[tensor]
    beside: defaultdict[int, int] = defaultdict(int)
    for op in range(step.backward, len(step.ops)):
        own: defaultdict[int, int] = defaultdict(int)
        for tensor in step.reads[op]:
            if tensor in dropped:
                own[dropped[tensor]] += step.size[tensor]
        for index, size in own.items():
            beside[index] = max(beside[index], working_set(step, op) - size)
    large = {index for index in total if total[index] + beside[index] > l_peak}
    return {tensor for tensor, index in segment.items() if index in large}


def _segments(step: IndexedStep, kept: Container[int]) -> dict[int, int]:
    """For each dropped forward tensor the segment that it is in (the index of an op of it)."""
    pinned = needed_at_end(step)
    segments = Segments(step.backward)
    dropped: dict[int, int] = {}
    for op in range(step.backward):
        if step.ops[op].phase is not Phase.FORWARD:
            continue
        gone = [t for t in step.writes[op] if t not in kept and t not in pinned]
        for tensor in step.reads[op] if gone else ():
            if tensor in dropped:
                segments.union(dropped[tensor], op)
        dropped.update(dict.fromkeys(gone, op))
    return {tensor: segments.find(op) for tensor, op in dropped.items()}
