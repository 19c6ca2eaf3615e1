"""Random sound step plans, made by a small planner of their own.

It works with no bound on memory and takes every freedom that the plan's rules leave at random: gaps, buffers that hold
several tensors one after another, in place, offload with or without keeping the buffer, recompute of whole chains,
algorithms with workspaces, tensors that live on the host. `after` edges are worked out from all earlier accesses to
the same bytes, by sets of ancestors: nothing is shared with the verifier's clocks and cells.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hypothesis import strategies as st

from snplan.plan.model import (
    FORMAT,
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    ModelRef,
    Offload,
    Persistent,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)

GRANULE = 512
ELEMENTS = (1, 100, 128, 129, 256, 300, 512)
UNARY = ("relu", "tanh", "exp", "neg")
HAS_STREAM = (Run, Recompute, Offload, Prefetch)


def tensor(name: str, elements: int, role: str) -> PlanTensor:
    """A float32 vector."""
    return PlanTensor(name=name, dtype="float32", shape=[elements], bytes=4 * elements, role=role)


def op(name: str, kind: str, phase: str, inputs: Iterable[str], outputs: Iterable[str]) -> PlanOp:
    """An op without attributes."""
    return PlanOp(
        name=name, kind=kind, phase=phase, inputs=list(inputs), outputs=list(outputs), attrs={}, nodes=[], rng=None
    )


def rounded(size: int) -> int:
    """A buffer's bytes for a tensor of `size` bytes."""
    return max(GRANULE, -(-size // GRANULE) * GRANULE)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """What a plan is for: tensors and ops, what persists, what is asked for."""

    tensors: dict[str, PlanTensor]
    ops: list[PlanOp]
    becomes: dict[str, str]
    outputs: list[str]

    @property
    def sources(self) -> list[str]:
        """Tensors that no op writes."""
        written = {name for row in self.ops for name in row.outputs}
        return [name for name in self.tensors if name not in written]


def random_problem(rng: random.Random) -> Problem:
    """A step of a few ops: forward, loss, backward, update."""
    sizes = rng.sample(ELEMENTS, 2)
    tensors: dict[str, PlanTensor] = {}
    ops: list[PlanOp] = []

    def add(name: str, role: str, elements: int | None = None) -> str:
        tensors[name] = tensor(name, rng.choice(sizes) if elements is None else elements, role)
        return name

    def emit(name: str, phase: str, inputs: Iterable[str], outputs: Sequence[str]) -> None:
        ops.append(op(name, rng.choice(UNARY), phase, inputs, outputs))

    inputs = [add(f"x{i}", "input") for i in range(rng.randint(1, 2))]
    weights = [add(f"w{i}", "parameter") for i in range(rng.randint(1, 3))]
    state = [add(f"s{i}", "state") for i in range(rng.randint(0, 1))]
    fixed = [add(f"c{i}", "constant") for i in range(rng.randint(0, 1))]
    forward: list[str] = []
    for i in range(rng.randint(1, 6)):
        earlier = rng.choice([*inputs, *forward[-2:]])
        outputs = [add(f"y{i}{part}", "activation") for part in ("", "b")[: rng.choice((1, 1, 2))]]
        emit(f"f{i}", "forward", dict.fromkeys([earlier, rng.choice([*weights, *fixed, *forward, *inputs])]), outputs)
        forward += outputs
    emit("loss", "forward", [forward[-1]], [add("loss", "loss", 1)])
    gradients: list[str] = []
    for i in range(rng.randint(1, 5)):
        read = dict.fromkeys([rng.choice([*forward, *inputs, *weights]), *gradients[-1:], rng.choice(forward)])
        emit(f"b{i}", "backward", read, [add(f"g{i}", "gradient")])
        gradients.append(f"g{i}")
    becomes = {name: name for name in (*weights, *state, *fixed)}
    for name in (*weights, *state):
        if rng.random() < 0.8:
            becomes[name] = add(f"{name}:next", tensors[name].role, tensors[name].shape[0])
            source = rng.choice(forward) if name in state else rng.choice(gradients)
            emit(f"u_{name}", "update", [name, source], [becomes[name]])
    outputs = ["loss", *(name for name in gradients if rng.random() < 0.3)]
    return Problem(tensors=tensors, ops=ops, becomes=becomes, outputs=outputs)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Bytes that an action touches: `host` or device, `[low, high)`."""

    host: bool
    low: int
    high: int
    write: bool

    def conflicts(self, other: Access) -> bool:
        """Whether both must be ordered."""
        shared = self.low < other.high and other.low < self.high
        return self.host == other.host and shared and (self.write or other.write)


@dataclass(kw_only=True)
class Script:
    """Actions written so far; `issue` works out what a stream action has to wait for."""

    rng: random.Random
    actions: list[Action] = field(default_factory=list)
    accesses: list[list[Access]] = field(default_factory=list)
    ancestors: list[int] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)

    def plain(self, action: Action) -> None:
        """An action of no stream."""
        self.actions.append(action)
        self.accesses.append([])
        self.ancestors.append(0)

    def waits(self, stream: str, accesses: Sequence[Access]) -> list[int]:
        """The latest actions that order all conflicting ones before a new action, and now and then one more."""
        number = len(self.actions)
        before = self.ancestors[self.last[stream]] if stream in self.last else 0
        after = []
        for earlier in reversed(range(number)):
            known = before >> earlier & 1
            if known and self.rng.random() > 0.05:
                continue
            if known or any(a.conflicts(b) for a in self.accesses[earlier] for b in accesses):
                if self.ancestors[earlier]:
                    after.append(earlier)
                before |= self.ancestors[earlier]
        self.ancestors.append(before | 1 << number)
        self.accesses.append(list(accesses))
        self.last[stream] = number
        return after


class Planner:
    """The state of a step while its plan is written."""

    def __init__(self, problem: Problem, rng: random.Random) -> None:
        self.problem = problem
        self.rng = rng
        self.script = Script(rng=rng)
        self.buffers: list[Extent] = []
        self.slots: list[Extent] = []
        self.live: dict[int, Extent] = {}
        self.holds: dict[int, str | None] = {}
        self.slot_of: dict[str, int] = {}
        self.home: dict[str, Place] = {}
        self.ran: set[str] = set()
        self.engines = {row.name: rng.choice((None, None, 0, 3)) for row in problem.ops}
        self.producer = {name: row for row in problem.ops for name in row.outputs}
        self.bytes = 0
        self.peak = 0
        self.no_recompute = False

    # Places

    def gap(self, taken: Iterable[Extent], size: int) -> int:
        """An offset where `size` bytes overlap none of the extents: the first, the last, or any."""
        rows = sorted(taken, key=lambda row: row.offset)
        ends = [0, *(row.offset + row.bytes for row in rows)]
        free = [end for end in ends if all(end + size <= row.offset or end >= row.offset + row.bytes for row in rows)]
        return self.rng.choice((free[0], free[-1], self.rng.choice(free)))

    def alloc(self, size: int, *, issue: bool = True) -> int:
        """A new live buffer; a dead buffer of the same bytes may live again."""
        size, offset = rounded(size), self.gap(self.live.values(), rounded(size))
        same = [row for row in self.buffers if (row.offset, row.bytes) == (offset, size) and row.id not in self.live]
        if same and self.rng.random() < 0.5:
            row = self.rng.choice(same)
        else:
            row = Extent(id=2 * len(self.buffers) + 1, offset=offset, bytes=size)
            self.buffers.append(row)
        self.live[row.id] = row
        self.holds[row.id] = None
        self.bytes += size
        self.peak = max(self.peak, self.bytes)
        if issue:
            self.script.plain(Alloc(buffer=row.id))
        return row.id

    def free(self, buffer: int) -> None:
        """The buffer dies."""
        self.bytes -= self.live.pop(buffer).bytes
        del self.holds[buffer]
        self.script.plain(Free(buffer=buffer))

    def new_slot(self, size: int) -> int:
        """A slot whose bytes hold nothing that is still of use."""
        used = [row for row in self.slots if row.id in self.slot_of.values() or row.id in self.home_slots()]
        offset = self.gap(used, rounded(size))
        same = [row for row in self.slots if (row.offset, row.bytes) == (offset, rounded(size))]
        if same and self.rng.random() < 0.5:
            return same[0].id
        self.slots.append(Extent(id=len(self.slots), offset=offset, bytes=rounded(size)))
        return self.slots[-1].id

    def home_slots(self) -> set[int]:
        """Slots that tensors which persist return to."""
        return {place.slot for place in self.home.values() if place.slot is not None}

    def span(self, buffer: int, write: bool) -> Access:
        """An access to a buffer."""
        row = self.live[buffer]
        return Access(host=False, low=row.offset, high=row.offset + row.bytes, write=write)

    def host_span(self, slot: int, write: bool) -> Access:
        """An access to a slot."""
        row = self.slots[slot]
        return Access(host=True, low=row.offset, high=row.offset + row.bytes, write=write)

    def buffer_of(self, name: str) -> int | None:
        """A live buffer that holds the tensor."""
        return next((buffer for buffer, held in self.holds.items() if held == name), None)

    # What is still needed

    def needed(self, next_op: int) -> set[str]:
        """Tensors that ops from `next_op` on, the next step or the user will look for."""
        later = self.problem.ops[next_op:]
        made = {name for row in later for name in row.outputs}
        read = {name for row in later for name in row.inputs}
        return (read | set(self.problem.outputs) | set(self.problem.becomes.values())) - made

    def reachable(self, name: str) -> bool:
        """Whether the tensor is somewhere, or can be computed again."""
        if self.buffer_of(name) is not None or name in self.slot_of:
            return True
        row = self.producer.get(name)
        if row is None or row.phase != "forward" or self.no_recompute:
            return False
        return row.name in self.ran and all(map(self.reachable, row.inputs))

    def safe_without(self, buffer: int, next_op: int) -> bool:
        """Whether everything that is needed can still be had once the buffer's content is gone."""
        held, self.holds[buffer] = self.holds[buffer], None
        safe = all(map(self.reachable, self.needed(next_op)))
        self.holds[buffer] = held
        return safe

    def is_home(self, buffer: int) -> bool:
        """Whether a tensor that persists has to end in the buffer."""
        return any(place.buffer == buffer for place in self.home.values())

    # Actions

    def place_sources(self) -> list[Place]:
        """Residents: most on the device, some on the host."""
        places = []
        for name in self.problem.sources:
            size = self.problem.tensors[name].bytes
            if self.rng.random() < 0.7:
                place = Place(tensor=name, buffer=self.alloc(size, issue=False))
                self.holds[place.buffer or 0] = name
            else:
                place = Place(tensor=name, slot=self.new_slot(size))
                self.slot_of[name] = place.slot or 0
            if name in self.problem.becomes:
                self.home[name] = place
            places.append(place)
        return places

    def ensure(self, name: str, pinned: set[int]) -> int:
        """A live buffer that holds the tensor, by prefetch or recompute where it has to be."""
        buffer = self.buffer_of(name)
        if buffer is not None:
            return buffer
        if name not in self.slot_of:
            self.execute(self.producer[name], None, pinned)
            found = self.buffer_of(name)
            assert found is not None
            return found
        buffer, slot = self.alloc(self.problem.tensors[name].bytes), self.slot_of[name]
        after = self.script.waits("h2d", [self.host_span(slot, False), self.span(buffer, True)])
        self.script.actions.append(Prefetch(tensor=name, slot=slot, buffer=buffer, after=after))
        self.holds[buffer] = name
        return buffer

    def offload(self, name: str, slot: int) -> None:
        """Copies a tensor out."""
        buffer = self.buffer_of(name)
        assert buffer is not None
        after = self.script.waits("d2h", [self.span(buffer, False), self.host_span(slot, True)])
        self.script.actions.append(Offload(tensor=name, buffer=buffer, slot=slot, after=after))
        self.slot_of = {held: at for held, at in self.slot_of.items() if at != slot} | {name: slot}

    def execute(self, row: PlanOp, number: int | None, pinned: set[int]) -> None:
        """The first execution of op `number`, or (None) a recompute of `row`."""
        reads = []
        for name in sorted(set(row.inputs)):
            reads.append((name, self.ensure(name, pinned)))
            pinned = pinned | {reads[-1][1]}
        workspace = None
        engine = self.engines[row.name]
        if engine is not None:
            workspace = self.alloc(self.rng.choice((1, 700))) if engine else None
            self.script.plain(Algorithm(op=row.name, engine=engine, workspace=workspace))
        writes = self.targets(row, number, reads, pinned | {workspace or -1})
        accesses = [self.span(buffer, False) for _, buffer in reads]
        accesses += [self.span(buffer, True) for _, buffer in writes]
        accesses += [] if workspace is None else [self.span(workspace, True)]
        after = self.script.waits("compute", accesses)
        record = Recompute if number is None else Run
        self.script.actions.append(record(op=row.name, reads=reads, writes=writes, after=after))
        self.holds.update({buffer: name for name, buffer in writes})
        self.ran.add(row.name)
        if workspace is not None and self.rng.random() < 0.7:
            self.free(workspace)

    def targets(
        self, row: PlanOp, number: int | None, reads: Sequence[tuple[str, int]], pinned: set[int]
    ) -> list[tuple[str, int]]:
        """Buffers for the outputs: updates go home, others in place, over a dead tensor, or into a new buffer."""
        writes: list[tuple[str, int]] = []
        for name in row.outputs:
            taken = {buffer for _, buffer in writes}
            choices = self.over(row, name, number, reads, pinned) if number is not None else []
            choices = [buffer for buffer in choices if buffer not in taken]
            home = [buffer for _, buffer in reads if row.phase == "update" and self.is_home(buffer)]
            if home:
                writes.append((name, home[0]))
            elif choices and self.rng.random() < 0.6:
                writes.append((name, self.rng.choice(choices)))
                self.holds[writes[-1][1]] = None  # gone, when the next output asks what may be lost
            else:
                writes.append((name, self.alloc(self.problem.tensors[name].bytes)))
        return writes

    def over(
        self, row: PlanOp, name: str, number: int, reads: Sequence[tuple[str, int]], pinned: set[int]
    ) -> list[int]:
        """Live buffers that may lose what they hold to this output, in place or not."""
        size = self.problem.tensors[name].bytes
        in_place = {buffer for read, buffer in reads if self.problem.tensors[read].bytes == size}
        return [
            buffer
            for buffer, extent in self.live.items()
            if extent.bytes >= size
            and (buffer in in_place or buffer not in pinned)
            and not self.is_home(buffer)
            and self.safe_without(buffer, number + 1)
            and self.safe_without(buffer, number)
        ]

    def tidy(self, next_op: int) -> None:
        """Frees some of what can be missed, and moves some of the rest to the host."""
        for buffer in list(self.live):
            name = self.holds[buffer]
            if name is not None and self.rng.random() < 0.2 and name not in self.slot_of:
                self.offload(name, self.new_slot(self.problem.tensors[name].bytes))
            if not self.is_home(buffer) and self.rng.random() < 0.4 and self.safe_without(buffer, next_op):
                self.free(buffer)
        needed = self.needed(next_op)
        for name in list(self.slot_of):
            if name not in needed and self.buffer_of(name) is None and self.slot_of[name] not in self.home_slots():
                self.forget(name, next_op)

    def forget(self, name: str, next_op: int) -> None:
        """Lets others have a slot's bytes, where nothing that is needed comes from it."""
        slot = self.slot_of.pop(name)
        if not all(map(self.reachable, self.needed(next_op))):
            self.slot_of[name] = slot

    def finish(self) -> None:
        """Brings results home and frees the rest."""
        for name, place in self.home.items():
            value = self.problem.becomes[name]
            if place.slot is not None and self.slot_of.get(value) != place.slot:
                self.ensure(value, set())
                self.offload(value, place.slot)
        for name in self.problem.outputs:
            if name not in self.slot_of:
                self.ensure(name, set())
        for buffer in list(self.live):
            held = self.holds[buffer]
            if not self.is_home(buffer) and (held not in self.problem.outputs or held in self.slot_of):
                self.free(buffer)

    def output_place(self, name: str) -> Place:
        """Where an output is at the end."""
        buffer = self.buffer_of(name)
        return Place(tensor=name, buffer=buffer) if buffer is not None else Place(tensor=name, slot=self.slot_of[name])


def random_plan(rng: random.Random) -> StepPlan:
    """A sound plan of a few dozen actions."""
    problem = random_problem(rng)
    planner = Planner(problem, rng)
    resident = planner.place_sources()
    for number, row in enumerate(problem.ops):
        if row.phase == "update" and not planner.no_recompute:
            for name in sorted(planner.needed(number)):
                if name not in planner.slot_of:
                    planner.ensure(name, set())
            planner.no_recompute = True
        planner.execute(row, number, set())
        planner.tidy(number + 1)
    planner.finish()
    outputs = [planner.output_place(name) for name in problem.outputs]
    persistent = [
        Persistent(tensor=name, becomes=problem.becomes[name], buffer=place.buffer, slot=place.slot)
        for name, place in planner.home.items()
    ]
    arena = max(row.offset + row.bytes for row in planner.buffers) if planner.buffers else 0
    return StepPlan(
        format=FORMAT,
        snplan_version="0.1.0",
        model=ModelRef(sha256="0" * 64, name="model.onnx"),
        options={"gpu_mem": "1G"},
        device={"name": "test", "capacity_bytes": 1 << 30},
        budget_bytes=arena + 1024,
        reserve_bytes=1024,
        arena_bytes=arena,
        peak_live_bytes=planner.peak,
        host_arena_bytes=max((row.offset + row.bytes for row in planner.slots), default=0),
        step_time_us=20,
        lower_bound_us=10,
        floor_bytes=GRANULE,
        tensors=list(problem.tensors.values()),
        ops=problem.ops,
        buffers=planner.buffers,
        slots=planner.slots,
        resident=resident,
        persistent=persistent,
        outputs=outputs,
        actions=planner.script.actions,
    )


def plans() -> st.SearchStrategy[StepPlan]:
    """Sound plans. They come from seeds: drawing every choice is slow, and small seeds are no simpler to read."""
    return st.integers(0, 2**32 - 1).map(lambda seed: random_plan(random.Random(seed)))
