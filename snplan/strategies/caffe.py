"""`caffe`: forward buffers are kept to the end, gradients reuse them along linear chains (SuperNeurons, section 2.2).

"Caffe and Torch directly reuse the forward data tensors for the backward data propagation, which saves up to 50% of
memory on a linear network [...] it requires extra tensors to hold the future dependencies for training non-linear
networks": a gradient takes the smallest forward buffer that is not needed any more, of a tensor without fork or join;
gradients that are summed at forks or split at joins have buffers of their own.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from typing import ClassVar

from snplan.analysis.index import IndexedStep, forward_readers
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import Schedule, build_schedule
from snplan.ir import Phase
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.layers import is_activation
from snplan.strategies.whole_step import whole_step


class Caffe(Strategy):
    """No buffer is freed during the step; in-place ops share one, and gradients of linear chains reuse forward ones."""

    name: ClassVar[str] = "caffe"
    summary: ClassVar[str] = "forward buffers are kept to the end; gradients reuse them along linear chains"

    def plan(self, task: Task) -> Candidate:
        """The candidate that reuses forward buffers for gradients. Raises InfeasibleError (SNP-P004)."""
        schedule = build_schedule(task.step)
        return whole_step(self, task, schedule, chain_heirs(schedule))


def chain_heirs(schedule: Schedule) -> dict[int, int]:
    """For each value that takes over another's buffer that value: in place, or a gradient on a linear chain."""
    residency = Residency(schedule)
    heirs = {written: read for pairs in residency.joins for written, read in pairs}
    step = schedule.step
    forward, gradients = _linear_tensors(step), _chain_gradients(step)
    root = list(range(len(schedule.values)))
    linear = [True] * len(schedule.values)
    free: list[tuple[int, int]] = []
    ends: defaultdict[int, list[int]] = defaultdict(list)  # position -> values whose buffer is not needed after it
    successors = set(heirs.values())
    now = -1
    for value, assignment in enumerate(schedule.values):  # in the order of their births
        while now < assignment.birth:
            for done in ends.pop(now, ()):
                insort(free, (residency.size[schedule.values[root[done]].tensor], root[done]))
            now += 1
        if value in heirs:
            root[value] = root[heirs[value]]
        elif assignment.tensor in gradients:
            at = bisect_left(free, (residency.size[assignment.tensor], -1))
            if at < len(free):
                heirs[value] = root[value] = free.pop(at)[1]
        else:
            linear[value] = assignment.tensor in forward
        if value not in successors and linear[root[value]]:
            ends[residency.events[value][-1]].append(value)
    return heirs


def _linear_tensors(step: IndexedStep) -> set[int]:
    """Forward results with one forward reader at most, which has no other activation to read."""
    readers = forward_readers(step)
    return {
        tensor
        for op in range(step.backward)
        if step.ops[op].phase is Phase.FORWARD
        for tensor in step.writes[op]
        if all(sum(is_activation(step, t) for t in step.reads[r]) == 1 for r in readers[tensor])
        and len(readers[tensor]) <= 1
    }


def _chain_gradients(step: IndexedStep) -> set[int]:
    """Gradients of activations that are neither summed at a fork nor split at a join."""
    parameters = set(step.step.gradients.values())
    backward = [op for op in range(step.backward, len(step.ops)) if step.ops[op].phase is Phase.BACKWARD]
    found = {step.writes[op][0] for op in backward if len(step.writes[op]) == 1}
    for op in backward:
        if step.ops[op].kind == "add":
            found.difference_update((*step.reads[op], *step.writes[op]))
    return {tensor for tensor in found if step.names[tensor] not in parameters}
