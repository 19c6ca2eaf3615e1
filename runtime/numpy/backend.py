"""The NumPy backend: the arena is one byte array, buffers are views. The reference, and the default without a GPU."""

from __future__ import annotations

import platform
import threading
from collections.abc import Collection, Mapping

import numpy as np

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import Place
from snplan.runtime.arena import Arena
from snplan.runtime.calls import layout
from snplan.runtime.device_array import DeviceArray
from snplan.runtime.numpy.base import Array, Context
from snplan.runtime.numpy.bind import Bound, BoundRun, bind_actions
from snplan.runtime.numpy.debug import NanWatch, Poisoner
from snplan.runtime.numpy.streams import Delays, StreamPool, describe


class NumpyBackend:
    """Executes a plan with NumPy kernels: action by action, or with `threads` each stream in a thread of its own.

    `debug` poisons dead bytes and checks every op's inputs for them; `delays` (with threads) waits before actions.
    """

    name = "numpy"

    def __init__(
        self, *, debug: bool = False, threads: bool = False, delays: Delays | None = None, timeout: float = 600.0
    ) -> None:
        self._threads = threads or delays is not None
        self._delays = delays
        self._timeout = timeout
        self._debug = debug
        self._watch = NanWatch()
        self._lock = threading.Lock()
        self._tapped: dict[str, Array] = {}
        self._staged: dict[str, Array] = {}
        self._context = Context()
        self._actions: dict[int, Bound] = {}
        self._done: set[int] = set()
        self._pool: StreamPool | None = None
        self._poisoner: Poisoner | None = None

    @property
    def device(self) -> str:
        """The machine's processor."""
        return f"{platform.machine()} CPU, NumPy {np.__version__}"

    @property
    def allocations(self) -> int:
        """Blocks taken: one arena on either side."""
        return self._device.allocations + self._host.allocations

    @property
    def first_nan(self) -> str | None:
        """In debug mode the first op that made a NaN out of inputs without one."""
        return self._watch.first

    @property
    def arriving_us(self) -> int:
        """There is no device."""
        return 0

    def bind(self, index: PlanIndex, *, taps: Collection[str]) -> None:
        """Take both arenas and bind every action. Raises RunError for what this backend cannot hold or run."""
        self._index = index
        self._device = Arena(index.plan.arena_bytes, "arena")
        self._host = Arena(index.plan.host_arena_bytes, "host arena")
        self._actions = bind_actions(index, self._device, self._host, taps)
        if self._debug:
            self._device.poison()
            self._host.poison()
            self._poisoner = Poisoner(index, self._device)
        if self._threads:
            self._pool = StreamPool(self._actions, self._execute, delays=self._delays, timeout=self._timeout)

    def begin(self, step: int, seed: int) -> None:
        """A training step starts."""
        self._context = Context(seed=seed, step=step)
        self._tapped = {}
        self._done.clear()
        if self._debug:
            self._watch.carry(self._index.plan.persistent)
        if self._poisoner is not None:
            self._poisoner.begin()
        if self._pool is not None:
            self._pool.begin()

    def run(self, action: int) -> None:
        """Run the op, or queue it where streams are threads."""
        if self._pool is not None:
            self._pool.issue(action)
        else:
            self._execute_now(action)

    copy = run

    def free(self, action: int) -> None:
        """Nothing: the last action that touches a buffer poisons it (debug mode)."""

    def synchronize(self) -> None:
        """Wait for the streams' threads, where there are any."""
        if self._pool is not None:
            self._pool.drain()

    def tapped(self) -> Mapping[str, Array]:
        """Copies of the tapped tensors that the last step wrote."""
        return self._tapped

    def read(self, place: Place) -> Array:
        """A copy of the tensor at `place`."""
        return self._at(place).copy()

    def write(self, place: Place, value: Array) -> None:
        """Put `value` at `place`."""
        if self._debug:
            self._watch.given(place.tensor, value)
        np.copyto(self._at(place), value, casting="no")

    def adopt(self, place: Place, value: DeviceArray) -> None:
        """Nothing here reads a device."""
        message = f"input {place.tensor} is in a GPU's memory; copy it to the host for the numpy backend, or use cuda"
        raise RunError("SNP-R002", message)

    def stage(self, place: Place, value: Array) -> None:
        """Keep a copy."""
        self._staged[place.tensor] = value.copy()

    def send(self, place: Place) -> None:
        """Write the copy."""
        self.write(place, self._staged.pop(place.tensor))

    def blocks(self, place: Place) -> tuple[Array, Array]:
        """Two arrays like any others."""
        dtype, shape = layout(self._index.tensors[place.tensor])
        return np.zeros(shape, dtype), np.zeros(shape, dtype)

    def close(self) -> None:
        """End the threads and let the arenas go."""
        if self._pool is not None:
            self._pool.close()
        self._actions = {}

    def _at(self, place: Place) -> Array:
        kind = layout(self._index.tensors[place.tensor])
        if place.slot is not None:
            return self._host.view(self._index.slots[place.slot], *kind)
        if place.buffer is None:
            return np.empty(kind[1], kind[0])
        return self._device.view(self._index.buffers[place.buffer], *kind)

    def _execute_now(self, action: int) -> None:
        bound = self._actions[action]
        missing = [other for other in bound.after if other not in self._done]
        if missing:
            message = f"{describe(bound)} comes after {missing}, which are not done when it is issued; verify the plan"
            raise RunError("SNP-R005", message, {"action": action})
        self._execute(bound)
        self._done.add(action)

    def _execute(self, bound: Bound) -> None:
        if not self._debug:
            bound.execute(self._context, self._tapped)
            return
        if isinstance(bound, BoundRun):
            self._watch.before(bound)
        bound.execute(self._context, self._tapped)
        if isinstance(bound, BoundRun):
            self._watch.after(bound)
        if self._poisoner is not None:
            with self._lock:
                self._poisoner.finished(bound.action)
