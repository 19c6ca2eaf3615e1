"""The CUDA backend: one arena on the device, three streams, the whole step replayed as one CUDA graph."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import Place
from snplan.runtime.arena import POISON
from snplan.runtime.calls import layout
from snplan.runtime.cuda.arrival import hidden_us
from snplan.runtime.cuda.bind import bind_plan, control_word
from snplan.runtime.cuda.cudnn import Mode
from snplan.runtime.cuda.debug import Dead, Watch
from snplan.runtime.cuda.delays import Spin
from snplan.runtime.cuda.gpu import Array, Gpu, Stream
from snplan.runtime.cuda.issue import Issuer, Streams, make_streams
from snplan.runtime.cuda.kernels import DeviceKernels, Kernels
from snplan.runtime.cuda.memory import Memory
from snplan.runtime.cuda.order import plan_edges
from snplan.runtime.cuda.packages import library_versions
from snplan.runtime.device_array import DeviceArray
from snplan.runtime.layout import Orders, from_device_order, held_order, to_device_order
from snplan.runtime.numpy.debug import has_nan
from snplan.runtime.numpy.streams import Delays

Replaying: TypeAlias = Literal["graph", "eager"]
KernelFactory: TypeAlias = Callable[[Gpu, Stream, Mode], Kernels]
# Pairs of seed and step number: one is still being copied while the next is set.
_STEP_WORDS = 4


class CudaBackend:
    """Executes a plan on one GPU.

    `replay` "graph" issues the first step action by action, then captures a step once and replays it; "eager" issues
    every step. `debug` is eager, waits after every action, poisons dead bytes and looks for NaN. `delays` puts random
    waits before actions on their streams. `orders` and `engines` are those of another backend whose bits are wanted
    (the unplanned execution's). Raises RunError (SNP-R050, SNP-R051) where packages or a device are missing.
    """

    name = "cuda"

    def __init__(
        self,
        *,
        replay: Replaying = "graph",
        debug: bool = False,
        delays: Delays | None = None,
        orders: Orders | None = None,
        engines: Mapping[str, int] | None = None,
        gpu: Gpu | None = None,
        kernels: KernelFactory = DeviceKernels,
    ) -> None:
        self._gpu = _device() if gpu is None else gpu
        self._eager = replay == "eager" or debug
        self._debug, self._delays = debug, delays
        self._orders, self._engines = orders, engines or {}
        self._make_kernels = kernels
        self._memory = Memory(self._gpu)
        self._graph: Any = None
        self._capturing_next = False
        self._replayed = False
        self._step = 0
        self._close: Callable[[], object] = lambda: None
        self._held: list[dict[int, Any]] = []
        self._flags: list[Any] = []

    @property
    def device(self) -> str:
        """The GPU's name."""
        return self._gpu.title

    @property
    def allocations(self) -> int:
        """Blocks of device and pinned memory taken so far."""
        return self._memory.blocks

    @property
    def arriving_us(self) -> int:
        """All of the copy where no bytes are left for it, else what comes after the end of the step before."""
        plan, ahead = self._index.plan, self._bound.ahead
        on_device = [place for place in plan.resident if place.buffer is not None]
        inputs = sum(self._bytes(place) for place in on_device if place.tensor in self._bound.staging)
        rate = int(plan.device.get("h2d_bytes_per_s", 0))
        if not inputs or not rate or (ahead.addresses and not ahead.gates):
            return 0
        return max(0, inputs * 1_000_000 // rate - (hidden_us(plan, ahead.gates) if ahead.gates else 0))

    @property
    def orders(self) -> Orders:
        """Physical orders of the bound plan's tensors."""
        return self._bound.orders

    @property
    def engines(self) -> Mapping[str, int]:
        """Ids of the engines of the bound plan, by op."""
        return self._kernels.engines

    @property
    def unsteady(self) -> Sequence[str]:
        """Ops of the bound plan whose engines may give other bits in another run."""
        return self._kernels.unsteady

    @property
    def first_nan(self) -> str | None:
        """In debug mode the first op that made a NaN out of inputs without one."""
        return self._watch.first if self._debug else None

    def twin(self) -> CudaBackend:
        """A backend on the same device with this one's physical orders and engines: equal ops give equal bits."""
        return CudaBackend(
            replay="eager", orders=self.orders, engines=self.engines, gpu=self._gpu, kernels=self._make_kernels
        )

    def memory(self) -> tuple[int, int]:
        """Bytes of the device that are free now, and in all."""
        with self._gpu.current():
            return self._gpu.memory()

    def bind(self, index: PlanIndex, *, taps: Collection[str]) -> None:
        """Take all memory, choose engines, compile kernels, and prepare every action.

        Raises RunError: SNP-R052 where the device has too little room, SNP-R053 the host, SNP-R054 to SNP-R056 for
        engines, ops and kernels that are not to be had here.
        """
        self._index = index
        with self._gpu.current():
            self._streams = make_streams(self._gpu)
            self._kernels = self._make_kernels(self._gpu, self._streams.compute, _mode(index))
            self._close = weakref.finalize(
                self, _give_back, self._gpu, self._memory, self._kernels, self._streams, self._held, self._flags
            )
            try:
                self._bind(index, taps)
            except BaseException:
                self._close()
                raise

    def begin(self, step: int, seed: int) -> None:
        """A training step starts. A captured step is launched here as a whole."""
        self._step = step
        with self._gpu.current():
            if self._bound.ahead.gates:
                # Inputs that were staged and then not sent may still be on their way into the arena.
                self._gpu.wait(self._streams.compute, self._arrived)
            self._set_step(step, seed)
            if self._eager or not self._capturing_next:
                self._replayed = False
                self._capturing_next = True
                self._begin_eager()
                return
            if self._graph is None:
                self._graph = self._capture()
            self._replayed = True
            self._gpu.replay(self._graph, self._streams.compute)

    def run(self, action: int) -> None:
        """Issue an action, unless the step was launched as a whole."""
        if self._replayed:
            return
        with self._gpu.current():
            if self._debug:
                self._watched(action)
            else:
                self._issuer.action(action)

    copy = run

    def free(self, action: int) -> None:
        """Nothing: in debug mode the last action that touches a buffer poisons it."""

    def synchronize(self) -> None:
        """Wait for the step. Raises RunError: SNP-R059 naming an op that met an index out of range."""
        with self._gpu.current():
            if not self._replayed:
                self._issuer.end()
            self._gpu.synchronize(self._streams.compute)
            fault = np.zeros(1, np.int64)
            self._gpu.get(fault, control_word(self._bound.control, "fault"))
        if fault[0]:
            op = self._index.plan.ops[int(fault[0]) - 1]
            message = f"step {self._step}: op {op.name} ({op.kind}) met an index out of range; check the inputs"
            raise RunError("SNP-R059", message, {"op": op.name})

    def tapped(self) -> Mapping[str, Array]:
        """Copies of the tapped tensors that the last step wrote."""
        return {name: self._from_bytes(name, block).copy() for name, block in self._bound.taps.items()}

    def read(self, place: Place) -> Array:
        """A copy of the tensor at `place`."""
        dtype, shape = layout(self._index.tensors[place.tensor])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        if place.slot is not None:
            return self._from_bytes(place.tensor, self._bound.host.bytes_of(self._slot(place), size)).copy()
        block = np.empty(size, np.uint8)
        with self._gpu.current():
            self._gpu.get(block, self._address(place))
        return self._from_bytes(place.tensor, block)

    def write(self, place: Place, value: Array) -> None:
        """Put `value` at `place`. Inputs go through pinned blocks, so that this returns before the copy is done."""
        if self._debug and has_nan(value):
            self._watch.known.add(place.tensor)
        if not value.nbytes:
            return
        if place.slot is not None:
            self._fill(place, value)
            self.send(place)
        elif place.tensor in self._bound.staging:
            self._fill(place, value)
            self._to_place(place)
        else:
            ordered = np.ascontiguousarray(to_device_order(value, self._bound.orders[place.tensor]))
            with self._gpu.current():
                self._gpu.put(self._address(place), ordered)

    def adopt(self, place: Place, value: DeviceArray) -> None:
        """Copy an input on the device, behind what its producer has put on its stream; no bytes go through the host.

        Raises RunError (SNP-R002) for one with gaps or in an order of its own.
        """
        order = self._bound.orders[place.tensor]
        held = held_order(value, prefer=order)
        if held is None:
            message = f"input {place.tensor} has strides {list(value.strides)}; make it contiguous or channels-last"
            raise RunError("SNP-R002", message)
        if not value.nbytes:
            return
        with self._gpu.current():
            if value.stream is not None:
                self._gpu.follow(self._streams.compute, value.stream)
            if place.slot is None:
                self._take(place, value, same=held == order)
                return
            self._gpu.synchronize(self._streams.compute)
            block = np.empty(value.nbytes, np.uint8)
            self._gpu.get(block, value.address)
        self.write(place, from_device_order(block.view(value.dtype), value.shape, held))

    def _take(self, place: Place, value: DeviceArray, *, same: bool) -> None:
        compute, target = self._streams.compute, self._address(place)
        if same:
            self._gpu.move(target, value.address, value.nbytes, compute)
            return
        for issue in self._kernels.reorder(place.tensor, value.address, target):
            issue()

    def stage(self, place: Place, value: Array) -> None:
        """Put a value of the next step into pinned memory; an input also goes on to the device, where it has room."""
        self._fill(place, value)
        if place.tensor in self._bound.ahead.addresses:
            with self._gpu.current():
                self._gpu.wait(self._streams.h2d, self._consumed)
                for flag in self._bound.ahead.gates.values():
                    self._gpu.wait_flag(self._streams.h2d, flag)
                self._gpu.to_device(self._bound.ahead.addresses[place.tensor], self._pinned(place), self._streams.h2d)
                self._gpu.record(self._arrived, self._streams.h2d)

    def send(self, place: Place) -> None:
        """Bring a staged value to its place, behind all that is on the compute stream."""
        if place.slot is not None and place.tensor in self._bound.staging:
            np.copyto(self._bound.host.bytes_of(self._slot(place), self._bytes(place)), self._pinned(place))
        elif place.tensor in self._bound.ahead.addresses:
            with self._gpu.current():
                compute = self._streams.compute
                self._gpu.wait(compute, self._arrived)
                source = self._bound.ahead.addresses[place.tensor]
                self._gpu.move(self._address(place), source, self._bytes(place), compute)
                self._gpu.record(self._consumed, compute)
        elif self._bytes(place) and place.slot is None:
            self._to_place(place)

    def blocks(self, place: Place) -> tuple[Array, Array]:
        """Two arrays in pinned memory for an input, used by steps in turn; their values are not copied on the host."""
        return self._view(place, 0), self._view(place, 1)

    def close(self) -> None:
        """Give all memory back; nothing is left on the context stack."""
        if self._graph is not None:
            with self._gpu.current():
                self._gpu.drop(self._graph)
            self._graph = None
        self._close()

    def _bind(self, index: PlanIndex, taps: Collection[str]) -> None:
        gpu, streams = self._gpu, self._streams
        _warn_of_versions(index)
        self._bound = bind_plan(
            index, gpu, streams, self._memory, self._kernels, taps, orders=self._orders, engines=self._engines
        )
        if not self._bound.is_resident:
            warnings.warn("the arena is not resident in device memory: steps will be slow", RuntimeWarning, 2)
        self._held.append(self._bound.work)
        gates = self._bound.ahead.gates
        self._flags += gates.values()
        self._arrived, self._consumed = gpu.event(), gpu.event()
        self._step_words = self._memory.pinned(16 * _STEP_WORDS).view(np.uint64).reshape(_STEP_WORDS, 2)
        delay = None if self._delays is None else Spin(gpu, self._delays)
        self._issuer = Issuer(gpu, streams, index, plan_edges(index.plan.actions), self._bound.work, delay, gates)
        if self._debug:
            self._watch = Watch(index, self._holds_nan)
            self._dead = Dead(index)
            self._poison([(0, index.plan.arena_bytes)])

    def _set_step(self, step: int, seed: int) -> None:
        """Seed and step number, which lie side by side, into the words that kernels read."""
        words = self._step_words[step % _STEP_WORDS]
        words[:] = seed & (2**64 - 1), step
        self._gpu.to_device(control_word(self._bound.control, "seed"), words.view(np.uint8), self._streams.compute)

    def _begin_eager(self) -> None:
        if self._debug:
            self._watch.carry(self._index.plan.persistent)
            self._dead.begin()
            self._poison(self._dead.at_start)
        self._issuer.begin()

    def _capture(self) -> Any:
        stream = self._streams.compute
        self._gpu.synchronize(stream)
        self._gpu.begin_capture(stream)
        try:
            self._issuer.whole_step()
        except BaseException:
            # The stream must leave capture mode, whatever it says about what was recorded.
            with contextlib.suppress(RunError):
                self._gpu.drop(self._gpu.end_capture(stream))
            raise
        return self._gpu.end_capture(stream)

    def _watched(self, action: int) -> None:
        """One action in debug mode."""
        self._watch.before(action)
        self._issuer.action(action)
        self._wait_all()
        self._watch.after(action)
        self._poison(self._dead.finished(action))

    def _poison(self, extents: Collection[tuple[int, int]]) -> None:
        for offset, size in extents:
            self._gpu.fill(self._bound.arena + offset, size, POISON, self._streams.compute)
        self._gpu.synchronize(self._streams.compute)

    def _wait_all(self) -> None:
        for stream in (self._streams.compute, self._streams.d2h, self._streams.h2d):
            self._gpu.synchronize(stream)

    def _holds_nan(self, name: str, buffer: int) -> bool:
        return has_nan(self.read(Place(tensor=name, buffer=buffer)))

    def _from_bytes(self, name: str, block: Array) -> Array:
        dtype, shape = layout(self._index.tensors[name])
        return from_device_order(block.view(dtype), shape, self._bound.orders[name])

    def _fill(self, place: Place, value: Array) -> None:
        """Copy a value into the pinned memory that the step in progress does not use, unless it is there already."""
        view = to_device_order(value, self._bound.orders[place.tensor])
        block = self._pinned(place).view(value.dtype).reshape(view.shape)
        if block.ctypes.data != view.ctypes.data or block.strides != view.strides:
            np.copyto(block, view)

    def _to_place(self, place: Place) -> None:
        with self._gpu.current():
            self._gpu.to_device(self._address(place), self._pinned(place), self._streams.compute)

    def _pinned(self, place: Place) -> Array:
        """The pinned bytes for the value of the next step; a tensor that is no input has its slot alone."""
        if place.tensor in self._bound.staging:
            return self._bound.staging[place.tensor].block(self._step)[: self._bytes(place)]
        return self._bound.host.bytes_of(self._slot(place), self._bytes(place))

    def _view(self, place: Place, number: int) -> Array:
        """One of an input's pinned blocks as an array of its logical shape."""
        dtype, shape = layout(self._index.tensors[place.tensor])
        block = self._bound.staging[place.tensor].blocks[number][: self._bytes(place)].view(dtype)
        if self._bound.orders[place.tensor] == "plain" or len(shape) < 3:
            return block.reshape(shape)
        return np.moveaxis(block.reshape((shape[0], *shape[2:], shape[1])), -1, 1)

    def _bytes(self, place: Place) -> int:
        return self._index.tensors[place.tensor].bytes

    def _address(self, place: Place) -> int:
        assert place.buffer is not None
        return self._bound.arena + self._index.buffers[place.buffer].offset

    def _slot(self, place: Place) -> int:
        assert place.slot is not None
        return self._index.slots[place.slot].offset


def _device() -> Gpu:
    from snplan.runtime.cuda.driver import DriverGpu

    return DriverGpu()


def _mode(index: PlanIndex) -> Mode:
    options = index.plan.options
    return Mode(tf32=options.get("precision") == "tf32", deterministic=bool(options.get("deterministic", False)))


def _warn_of_versions(index: PlanIndex) -> None:
    """Warn where engines and times were measured with another cuDNN: each engine's workspace is asked for again."""
    measured = index.plan.device.get("versions", {}).get("cudnn")
    here = None if measured is None else library_versions().get("cudnn")
    if measured != here:
        message = (
            f"the plan's profile was measured with cuDNN {measured}, this is {here or 'missing'}: its times may be "
            "off, and its engines may be refused; make a profile here (snplan profile) and compile with it"
        )
        warnings.warn(message, RuntimeWarning, 2)


def _give_back(
    gpu: Gpu, memory: Memory, kernels: Kernels, streams: Streams, held: list[dict[int, Any]], flags: list[Any]
) -> None:
    """Everything that a backend holds, given back; runs at the latest when the interpreter ends."""
    for work in held:
        work.clear()
    with gpu.current():
        for stream in (streams.compute, streams.d2h, streams.h2d):
            gpu.synchronize(stream)
        while flags:
            gpu.drop_flag(flags.pop())
        kernels.close()
        memory.release()
