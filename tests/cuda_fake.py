"""A GPU that is not there: memory as byte arrays, streams that run late and in random order, kernels by NumPy.

Work on a stream runs when somebody waits for it, streams take turns at random, and only events order them: what a plan
or the backend forgets to order comes out in a wrong order sooner or later. Calls that a real driver refuses raise here.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snplan.codegen.launch import CONTROL, Launch
from snplan.codegen.operand import Operand, Order, operand
from snplan.errors import RunError
from snplan.plan.index import PlanIndex
from snplan.plan.model import PlanOp
from snplan.runtime.cuda.calls import DeviceCall
from snplan.runtime.cuda.cudnn import Mode
from snplan.runtime.cuda.gpu import Array, Gpu, Issue, Stream
from snplan.runtime.dtypes import numpy_dtype
from snplan.runtime.layout import Orders, spec_of
from snplan.runtime.numpy import KERNELS, Context

_FIRST_ADDRESS = 1 << 40


@dataclass(eq=False)
class Marker:
    """One recording of an event."""

    done: bool = False


@dataclass(eq=False)
class FakeEvent:
    """An event: its latest recording."""

    marker: Marker = field(default_factory=lambda: Marker(done=True))


@dataclass(eq=False)
class FakeFlag(FakeEvent):
    """An event that recordings raise; each replay does."""


@dataclass(eq=False)
class FakeStream:
    """Work that waits: functions to run, markers to set, or markers to wait for."""

    handle: int
    queue: deque[tuple[str, Any]] = field(default_factory=deque)


@dataclass(eq=False)
class FakeGraph:
    """Recorded work by stream, and the flags that it raises with the markers that stand for them."""

    queues: dict[int, list[tuple[str, Any]]]
    flags: list[tuple[FakeFlag, Marker]]


class FakeGpu:
    """Stands in for a device of `total` bytes, of which others hold `used`."""

    def __init__(self, *, total: int = 1 << 30, used: int = 0, seed: int = 0, pin_limit: int | None = None) -> None:
        self.title, self.architecture = "fake GPU", 90
        self.total, self.used, self.pin_limit = total, used, pin_limit
        self.blocks: dict[int, Array] = {}
        self.pinned: list[Array] = []
        self.streams: list[FakeStream] = []
        self.followed: list[int] = []
        self.launchers: list[tuple[Launch, tuple[Any, ...]]] = []
        self.depth = self.pushes = self.launches = self.graphs = self.flags = 0
        self.capturing: dict[int, list[tuple[str, Any]]] | None = None
        self.raised: list[tuple[FakeFlag, Marker]] = []
        self._next = _FIRST_ADDRESS
        self._dice = random.Random(seed)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Count how deep the context is pushed."""
        self.depth += 1
        self.pushes += 1
        try:
            yield
        finally:
            self.depth -= 1

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        self._check("memory")
        return self.total - self.used - sum(block.nbytes for block in self.blocks.values()), self.total

    def allocate(self, size: int) -> int:
        """A block of bytes that hold rubbish."""
        self._check("allocate", size)
        if size > self.memory()[0]:
            raise MemoryError("out of memory")
        address, self._next = self._next, self._next + size + (-size % 512) + 512
        self.blocks[address] = np.full(size, 0xA5, np.uint8)
        return address

    def release(self, address: int) -> None:
        """Forget a block."""
        del self.blocks[address]

    def pin(self, size: int) -> Array:
        """A host block."""
        self._check("pin", size)
        if self.pin_limit is not None and size > self.pin_limit:
            raise MemoryError("cuMemHostAlloc failed: out of memory")
        block = np.full(size, 0xA5, np.uint8)
        self.pinned.append(block)
        return block

    def unpin(self, block: Array) -> None:
        """Forget a host block."""
        self.pinned = [other for other in self.pinned if other is not block]

    def stream(self) -> FakeStream:
        """A new stream."""
        self.streams.append(FakeStream(len(self.streams)))
        return self.streams[-1]

    def event(self, *, timing: bool = False) -> FakeEvent:
        """A new event."""
        return FakeEvent()

    def record(self, event: FakeEvent, stream: Any) -> None:
        """Queue a marker."""
        event.marker = Marker()
        self._push(stream, "mark", event.marker)

    def wait(self, stream: Any, event: FakeEvent) -> None:
        """Queue a wait for the latest marker."""
        self._push(stream, "wait", event.marker)

    def follow(self, stream: Any, handle: int) -> None:
        """Count who is waited for."""
        self.followed.append(handle)

    def elapsed_us(self, start: FakeEvent, end: FakeEvent) -> float:
        """Always the same."""
        return 10.0

    def synchronize(self, stream: Any) -> None:
        """Run streams at random until this one is empty."""
        self._check("synchronize")
        self._run({s.handle: s.queue for s in self.streams}, stream.queue)

    def to_device(self, address: int, block: Array, stream: Any) -> None:
        """Queue a copy; it reads the block when it runs."""
        assert any(np.shares_memory(block, pinned) for pinned in self.pinned), "asynchronous copies need pinned memory"
        target = self.bytes_at(address, block.nbytes)
        self._push(stream, "call", lambda: np.copyto(target, block.view(np.uint8).reshape(-1)))

    def to_host(self, block: Array, address: int, stream: Any) -> None:
        """Queue a copy."""
        assert any(np.shares_memory(block, pinned) for pinned in self.pinned), "asynchronous copies need pinned memory"
        source = self.bytes_at(address, block.nbytes)
        self._push(stream, "call", lambda: np.copyto(block.view(np.uint8).reshape(-1), source))

    def put(self, address: int, block: Array) -> None:
        """Copy now: what is queued has not run yet."""
        self._check("put", block.nbytes)
        np.copyto(self.bytes_at(address, block.nbytes), block.view(np.uint8).reshape(-1))

    def get(self, block: Array, address: int) -> None:
        """Copy now."""
        self._check("get", block.nbytes)
        np.copyto(block.view(np.uint8).reshape(-1), self.bytes_at(address, block.nbytes))

    def move(self, target: int, source: int, size: int, stream: Any) -> None:
        """Queue a copy on the device."""
        a, b = self.bytes_at(target, size), self.bytes_at(source, size)
        self._push(stream, "call", lambda: np.copyto(a, b))

    def fill(self, address: int, size: int, value: int, stream: Any) -> None:
        """Queue a fill."""
        block = self.bytes_at(address, size)
        self._push(stream, "call", lambda: block.fill(value))

    def load(self, binary: bytes, what: str) -> Any:
        """Nothing is compiled here."""
        raise AssertionError("the fake device runs no binaries")

    def launcher(self, module: Any, launch: Launch, values: Sequence[Any], stream: Any) -> Issue:
        """A launch that only counts."""
        self.launchers.append((launch, tuple(values)))
        return lambda: self._push(stream, "call", lambda: None)

    def versions(self) -> dict[str, str]:
        """Made up."""
        return {"driver": "1", "cuda": "2"}

    def flag(self) -> FakeFlag:
        """A new flag."""
        self.flags += 1
        return FakeFlag()

    def raise_flag(self, flag: FakeFlag, stream: Any) -> None:
        """Queue its marker, which a recording keeps."""
        if self.capturing is None:
            flag.marker = Marker()
        else:
            self.raised.append((flag, flag.marker))
        self._push(stream, "mark", flag.marker)

    def wait_flag(self, stream: Any, flag: FakeFlag) -> None:
        """Queue a wait."""
        assert self.capturing is None
        self._push(stream, "wait", flag.marker)

    def drop_flag(self, flag: FakeFlag) -> None:
        """Count it."""
        self.flags -= 1

    def begin_capture(self, stream: Any) -> None:
        """Record from now on."""
        assert self.capturing is None
        self.capturing, self.raised = {stream.handle: []}, []

    def end_capture(self, stream: Any) -> FakeGraph:
        """What was recorded; every stream must have come back to `stream`."""
        assert self.capturing is not None
        queues, self.capturing = self.capturing, None
        joined = {id(item) for kind, item in queues[stream.handle] if kind == "wait"}
        for handle, queue in queues.items():
            kind, item = queue[-1] if queue else ("mark", None)
            if handle != stream.handle and (kind != "mark" or id(item) not in joined):
                raise RunError("SNP-R058", "a stream was not joined")
        self.graphs += 1
        return FakeGraph(queues, self.raised)

    def replay(self, graph: FakeGraph, stream: Any) -> None:
        """Queue all of it as one piece of work; who waits for its flags from now on waits for this replay."""
        fresh = {}
        for flag, recorded in graph.flags:
            flag.marker = fresh[id(recorded)] = Marker()
        self._push(stream, "call", lambda: self._replay(graph, fresh))

    def drop(self, graph: FakeGraph) -> None:
        """Forget it."""
        self.graphs -= 1

    def bytes_at(self, address: int, size: int) -> Array:
        """Bytes of the device; outside of blocks there are none."""
        assert size > 0, "nothing of zero bytes may reach a driver"
        base = max(start for start in self.blocks if start <= address)
        block = self.blocks[base][address - base : address - base + size]
        assert block.nbytes == size, "an access outside of what was allocated"
        return block

    def call(self, stream: Any, function: Callable[[], object]) -> None:
        """Queue a kernel."""
        self._push(stream, "call", function)

    def _push(self, stream: Any, kind: str, item: Any) -> None:
        assert self.depth > 0, "the context is not current"
        if self.capturing is None:
            stream.queue.append((kind, item))
            return
        if stream.handle not in self.capturing:
            assert kind == "wait", "a stream in a capture must first wait for one that is in it"
            self.capturing[stream.handle] = []
        self.capturing[stream.handle].append((kind, item))

    def _check(self, what: str, size: int = 1) -> None:
        assert self.depth > 0, f"{what}: the context is not current"
        assert self.capturing is None, f"{what} while a stream is captured"
        assert size > 0, f"{what} of zero bytes"

    def _replay(self, graph: FakeGraph, fresh: Mapping[int, Marker]) -> None:
        for queue in graph.queues.values():
            for kind, item in queue:
                if kind == "mark":
                    item.done = False
        queues = {
            handle: deque((kind, fresh.get(id(item), item)) for kind, item in queue)
            for handle, queue in graph.queues.items()
        }
        while any(queues.values()):
            self._run(queues, max(queues.values(), key=len))

    def _run(self, queues: Mapping[int, deque[tuple[str, Any]]], until: deque[tuple[str, Any]]) -> None:
        while until:
            ready = [q for q in queues.values() if q and (q[0][0] != "wait" or q[0][1].done)]
            assert ready, "streams wait for each other"
            kind, item = self._dice.choice(ready).popleft()
            if kind == "mark":
                item.done = True
            elif kind == "call":
                self.launches += 1
                item()


@dataclass(eq=False)
class FakeOperationGraph:
    """The operation graph of a fake engine: its issues are queued, and counted by place."""

    gpu: FakeGpu
    stream: Any
    separate_bias: bool
    workspaces: Sequence[int | None]
    issued: list[tuple[int, Mapping[str, int], int]] = field(default_factory=list)
    fails: frozenset[int] = frozenset()

    def build(self, place: int) -> int | None:
        """Its workspace."""
        return self.workspaces[place]

    def is_deterministic(self, place: int) -> bool:
        """All but the last."""
        return place < len(self.workspaces) - 1

    def issue(self, place: int, addresses: Mapping[str, int], workspace: int) -> Issue:
        """A call that counts."""

        def run() -> None:
            if place in self.fails:
                raise ValueError("CUDNN_STATUS_NOT_SUPPORTED")
            self.issued.append((place, dict(addresses), workspace))
            self.gpu.call(self.stream, lambda: None)

        return run


class NumpyOnDevice:
    """NumPy's kernels over the memory of a fake GPU, by the operands' strides."""

    def __init__(self, gpu: Gpu, stream: Stream, mode: Mode) -> None:
        assert isinstance(gpu, FakeGpu)
        assert isinstance(stream, FakeStream)
        self.gpu, self.stream, self.mode = gpu, stream, mode
        self.loaded: Mapping[int, DeviceCall] = {}
        self.control = 0
        self.closed = False
        self.fail_at: int | None = None
        self.engines: Mapping[str, int] = {}
        self.unsteady: tuple[str, ...] = ()

    def prepare(self, index: PlanIndex, orders: Orders) -> int:
        """No scratch."""
        self.index, self.orders = index, orders
        return 0

    def load(self, calls: Mapping[int, DeviceCall], *, scratch: int, control: int, engines: Mapping[str, int]) -> None:
        """Keep the calls."""
        self.loaded, self.control, self.engines = calls, control, engines

    def issues(self, action: int) -> list[Issue]:
        """One call."""
        call = self.loaded[action]

        def issue() -> None:
            if action == self.fail_at:
                raise ValueError("injected failure")
            self.gpu.call(self.stream, lambda: self._execute(call))

        return [issue]

    def reorder(self, name: str, source: int, target: int) -> list[Issue]:
        """A copy between the orders."""
        own = self.orders[name]
        other: Order = "plain" if own == "channels_last" else "channels_last"
        spec = spec_of(self.index, name)

        def move() -> None:
            _array(self.gpu, operand(spec, own), target)[...] = _array(self.gpu, operand(spec, other), source)

        return [lambda: self.gpu.call(self.stream, move)]

    def close(self) -> None:
        """Note it."""
        self.closed = True

    def _execute(self, call: DeviceCall) -> None:
        control = self.gpu.bytes_at(self.control, CONTROL.itemsize).view(CONTROL)[0]
        context = Context(seed=int(control["seed"]), step=int(control["step"]), stream=call.op.rng or 0)
        inputs = [
            np.ascontiguousarray(_array(self.gpu, x, at)) for x, at in zip(call.inputs, call.at_inputs, strict=True)
        ]
        results = self.compute(call, inputs, context)
        for y, at, result in zip(call.outputs, call.at_outputs, results, strict=True):
            if at:
                _array(self.gpu, y, at)[...] = result

    def compute(self, call: DeviceCall, inputs: list[Array], context: Context) -> Sequence[Array]:
        """What the op computes."""
        return KERNELS[call.op.kind](inputs, call.op.attrs, context)


def mixed(call: PlanOp, inputs: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Outputs that depend on every bit of the inputs, for ops that only stand for something."""
    digest = hashlib.sha256(call.name.encode())
    for x in inputs:
        digest.update(x.tobytes())
    dice = np.random.default_rng(list(digest.digest()))
    return [dice.standard_normal(shape).astype(np.float32) for shape in shapes]


class MixedOnDevice(NumpyOnDevice):
    """Ops that mix their inputs' bits."""

    def compute(self, call: DeviceCall, inputs: list[Array], context: Context) -> Sequence[Array]:
        """Outputs of float32."""
        return mixed(call.op, inputs, [y.shape for y in call.outputs])


def _array(gpu: FakeGpu, x: Operand, address: int) -> Array:
    """An operand as an array over device memory."""
    dtype = numpy_dtype(x.dtype.value)
    if not x.elements:
        return np.empty(x.shape, dtype)
    block = gpu.bytes_at(address, (x.extent() + 1) * dtype.itemsize).view(dtype)
    return np.lib.stride_tricks.as_strided(block, x.shape, [stride * dtype.itemsize for stride in x.strides])
