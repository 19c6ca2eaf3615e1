"""What the replay loop needs of a device: take memory once, bind every action once, then run and copy by action id."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol, TypeAlias

import numpy as np

from snplan.plan.index import PlanIndex
from snplan.plan.model import Place
from snplan.runtime.device_array import DeviceArray

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Backend(Protocol):
    """A device that executes the actions of one plan. Actions are issued in the plan's order, on their own streams.

    `run` and `copy` may return before the work is done; what an action's `after` lists is finished before it starts.
    """

    @property
    def name(self) -> str:
        """The word of `--backend`."""

    @property
    def device(self) -> str:
        """What executes, for people."""

    @property
    def allocations(self) -> int:
        """Blocks of device and pinned memory taken so far: a step must not change it."""

    @property
    def arriving_us(self) -> int:
        """Microseconds that a step waits for its inputs: what of their copy the step before cannot hide."""

    def bind(self, index: PlanIndex, *, taps: Collection[str]) -> None:
        """Take all memory and prepare every action. Tensors in `taps` are copied out when an op has written them."""

    def begin(self, step: int, seed: int) -> None:
        """A training step starts; steps count from 1. Random numbers depend on both."""

    def run(self, action: int) -> None:
        """Issue a `run` or `recompute`."""

    def copy(self, action: int) -> None:
        """Issue an `offload` or `prefetch`."""

    def free(self, action: int) -> None:
        """The buffer's live interval ends; nothing is given back."""

    def synchronize(self) -> None:
        """Wait for all that was issued; raises RunError for what failed."""

    def tapped(self) -> Mapping[str, Array]:
        """The tensors of `taps` as the last step wrote them."""

    def read(self, place: Place) -> Array:
        """A copy of the tensor at `place`."""

    def write(self, place: Place, value: Array) -> None:
        """Put `value`, which has the tensor's type and shape, at `place`."""

    def adopt(self, place: Place, value: DeviceArray) -> None:
        """Put an input that is in device memory at `place`. Raises RunError (SNP-R002) where that cannot be."""

    def stage(self, place: Place, value: Array) -> None:
        """Take an input of the next step while one runs; `send` puts it at its place."""

    def send(self, place: Place) -> None:
        """Put the staged value at its place, between two steps."""

    def blocks(self, place: Place) -> tuple[Array, Array]:
        """Two arrays for an input, used by steps in turn, that `write` and `stage` need not copy from."""

    def close(self) -> None:
        """Give all memory back."""
