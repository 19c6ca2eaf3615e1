"""The unplanned execution of a step: every op once, every value in an array of its own; `--check` compares with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from snplan.plan.index import PlanIndex
from snplan.plan.model import Run
from snplan.runtime.calls import op_call
from snplan.runtime.numpy.base import Array, Context


class Unplanned(Protocol):
    """Something that executes steps as no plan asks: each op once, nothing moved."""

    def step(self, number: int, inputs: Mapping[str, Array], taps: Collection[str]) -> Mapping[str, Array]:
        """Values of `taps`, of the plan's outputs, and of what persists (under the name it becomes), after a step."""

    def close(self) -> None:
        """Give memory back."""


class Reference:
    """Executes steps without arena, copies or recomputes; `values` holds what persists, by tensor name."""

    def __init__(self, index: PlanIndex, values: Mapping[str, Array], *, seed: int) -> None:
        self._calls = [op_call(index.ops[action.op], index) for action in index.plan.actions if isinstance(action, Run)]
        self._persistent = index.plan.persistent
        self._outputs = {place.tensor for place in index.plan.outputs}
        self._last = {name: position for position, call in enumerate(self._calls) for name in call.op.inputs}
        self._seed = seed
        self.values = {name: value.copy() for name, value in values.items()}

    def step(self, number: int, inputs: Mapping[str, Array], taps: Collection[str]) -> dict[str, Array]:
        """Values of `taps`, of the plan's outputs, and of what persists (under the name it becomes), after a step."""
        wanted = {*taps, *self._outputs, *(entry.becomes for entry in self._persistent)}
        tensors: dict[str, Array] = {**self.values, **{name: value.copy() for name, value in inputs.items()}}
        context = Context(seed=self._seed, step=number)
        for position, call in enumerate(self._calls):
            views = [tensors[name].reshape(shape) for name, (_, shape) in zip(call.op.inputs, call.inputs, strict=True)]
            tensors.update(zip(call.op.outputs, call(views, call.context(context)), strict=True))
            for name in (*call.op.inputs, *call.op.outputs):
                if name not in wanted and self._last.get(name, -1) <= position:
                    tensors.pop(name, None)
        self.values.update({entry.tensor: tensors[entry.becomes] for entry in self._persistent})
        return {name: tensors[name] for name in sorted(wanted) if name in tensors}

    def close(self) -> None:
        """Forget all values."""
        self.values = {}
