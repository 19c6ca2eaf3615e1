"""The step, replayed on paper: rules L (live intervals), V (values), O (executions), R (races), A (sizes), P (peak)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    Offload,
    Place,
    PlanOp,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.plan.pieces import PIECES, is_engine
from snplan.plan.verifier.findings import Findings
from snplan.plan.verifier.inplace import why_not_in_place
from snplan.plan.verifier.lifetimes import LiveBuffers
from snplan.plan.verifier.memory import Cell, Memory
from snplan.plan.verifier.order import STREAMS, Clock, clocks, stream_of
from snplan.plan.verifier.tables import Tables

Execution: TypeAlias = Run | Recompute


class Replay:
    """The state of a step between two actions, and the rules that each action has to keep.

    Executors give every access the bytes that the issue order says, because all conflicting accesses are ordered
    (R); so contents may be simulated in issue order (V).
    """

    def __init__(self, plan: StepPlan, tables: Tables, found: Findings) -> None:
        """Nothing has happened yet; `place_residents` comes first, then `replay`."""
        self.plan = plan
        self.tables = tables
        self.found = found
        self.device = Memory(tables.buffers.values())
        self.host = Memory(tables.slots.values())
        self.live = LiveBuffers(tables.buffers, self.device.span)
        self.ran: dict[str, int] = {}
        self._engines: dict[str, int | None] = {}
        self._workspaces: dict[str, int | None] = {}
        self._chosen: dict[str, int] = {}
        self._expected = {op.name: (sorted(set(op.inputs)), sorted(op.outputs)) for op in tables.ops.values()}
        self._action = -1
        self._clock: Clock = (-1, -1, -1)
        self._stream = 0

    def place_residents(self) -> None:
        """Makes the plan's resident buffers live and gives each place its tensor."""
        for place in self.plan.resident:
            where = f"resident {place.tensor}"
            memory, extent, rows = self._memory(place)
            if extent not in memory.span:
                continue
            if memory is self.device:
                self._birth(extent, where)
            if memory.cell(extent) is not None:
                self.found.add("L", where, f"shares {_place(place)} with {self._content(memory, extent)}")
            elif memory is self.host and any(cell.value is not None for cell in memory.history(extent)):
                self.found.add("L", where, f"slot {extent} overlaps another resident slot")
            self._fits(place.tensor, rows[extent], where, _place(place))
            memory.place(extent, Cell(owner=extent, value=place.tensor))

    def _memory(self, place: Place) -> tuple[Memory, int, Any]:
        if place.slot is not None:
            return self.host, place.slot, self.tables.slots
        return self.device, -1 if place.buffer is None else place.buffer, self.tables.buffers

    def replay(self) -> None:
        """Every action in issue order."""
        rules: dict[type[Action], Callable[[Any], None]] = {
            Alloc: self._alloc,
            Free: self._free,
            Run: self._run,
            Recompute: self._recompute,
            Algorithm: self._algorithm,
            Offload: self._offload,
            Prefetch: self._prefetch,
        }
        for i, (action, clock) in enumerate(zip(self.plan.actions, clocks(self.plan.actions, self.found), strict=True)):
            self._action = i
            if clock is not None:
                self._clock, self._stream = clock, stream_of(action) or 0
            rules[type(action)](action)

    def _bad(self, rule: str, message: str) -> None:
        self.found.at(self._action, rule, message)

    # Live intervals

    def _alloc(self, action: Alloc) -> None:
        if action.buffer not in self.device.span:
            self._bad("F", f"allocates buffer {action.buffer}, which is unknown")
            return
        self._birth(action.buffer, f"action {self._action}")

    def _birth(self, buffer: int, where: str) -> None:
        if buffer in self.live:
            self.found.add("L", where, f"buffer {buffer} is live already")
            return
        other = self.live.birth(buffer)
        if other is not None:
            held = self._content(self.device, other)
            self.found.add("L", where, f"buffer {buffer} overlaps live buffer {other}, which holds {held}")

    def _free(self, action: Free) -> None:
        if action.buffer not in self.live:
            self._bad("L", f"frees buffer {action.buffer}, which is not live")
            return
        self.live.death(action.buffer)
        self.device.forget(action.buffer)

    # Executions

    def _algorithm(self, action: Algorithm) -> None:
        if action.op not in self.tables.ops:
            self._bad("F", f"chooses an algorithm for op {action.op}, which is unknown")
            return
        if action.engine < 0:
            self._bad("F", f"engine {action.engine} is negative")
        elif not is_engine(action.engine):
            self._bad("F", f"engine {action.engine} is none in 1, {', '.join(map(str, PIECES))} pieces")
        if action.workspace is not None and action.workspace not in self.device.span:
            self._bad("F", f"workspace buffer {action.workspace} is unknown")
            return
        if self._engines.setdefault(action.op, action.engine) != action.engine:
            self._bad("O", f"{action.op} changes its algorithm from {self._engines[action.op]} to {action.engine}")
        self._workspaces[action.op] = action.workspace
        self._chosen[action.op] = self._action

    def _run(self, action: Run) -> None:
        op = self.tables.ops.get(action.op)
        if op is None:
            self._bad("F", f"runs op {action.op}, which is unknown")
            return
        self.ran[op.name] = self.ran.get(op.name, 0) + 1
        if self.ran[op.name] > 1:
            self._bad("O", f"{op.name} runs a second time; only a recompute may")
        self._execute(op, action)

    def _recompute(self, action: Recompute) -> None:
        op = self.tables.ops.get(action.op)
        if op is None:
            self._bad("F", f"recomputes op {action.op}, which is unknown")
            return
        if op.name not in self.ran:
            self._bad("O", f"{op.name} is recomputed before it ran")
        if op.phase != "forward":
            self._bad("O", f"{op.name} of phase {op.phase} is recomputed; only forward ops may be")
        self._execute(op, action)

    def _execute(self, op: PlanOp, action: Execution) -> None:
        inputs, outputs = self._expected[op.name]
        if sorted(tensor for tensor, _ in action.reads) != inputs:
            self._bad("V", f"{op.name} reads {[name for name, _ in action.reads][:4]}, its op says {inputs[:4]}")
        if sorted(tensor for tensor, _ in action.writes) != outputs:
            self._bad("V", f"{op.name} writes {[name for name, _ in action.writes][:4]}, its op says {outputs[:4]}")
        self._engines.setdefault(op.name, None)
        self._chosen.pop(op.name, None)
        workspace = self._workspaces.get(op.name)
        self._check_sharing(op, action, workspace)
        for tensor, buffer in action.reads:
            self._read_buffer(op.name, tensor, buffer)
        if workspace is not None:
            self._write_buffer(op.name, None, workspace)
        for tensor, buffer in action.writes:
            self._write_buffer(op.name, tensor, buffer)

    def _check_sharing(self, op: PlanOp, action: Execution, workspace: int | None) -> None:
        written: dict[int, str | None] = {} if workspace is None else {workspace: None}
        read = {buffer: tensor for tensor, buffer in action.reads}
        if workspace is not None and workspace in read:
            self._bad("V", f"{op.name} reads {read[workspace]} from buffer {workspace}, which is its workspace")
        for tensor, buffer in action.writes:
            if buffer in written:
                other = written[buffer] or "its workspace"
                self._bad("V", f"{op.name} writes {tensor} to buffer {buffer}, and {other} too")
            written[buffer] = tensor
            if buffer in read:
                reason = why_not_in_place(op, self.tables.tensors.get(read[buffer]), self.tables.tensors.get(tensor))
                if reason is not None:
                    self._bad("V", f"{op.name} writes {tensor} in place of {read[buffer]}: {reason}")

    # Copies

    def _offload(self, action: Offload) -> None:
        if not self._known(action):
            return
        self._read_buffer("offload", action.tensor, action.buffer)
        self._fits(action.tensor, self.tables.slots[action.slot], f"action {self._action}", f"slot {action.slot}")
        unordered = self.host.write(action.slot, action.tensor, self._action, self._clock, self._stream)
        self._race(unordered, f"writes slot {action.slot}")

    def _prefetch(self, action: Prefetch) -> None:
        if not self._known(action):
            return
        held = self._content(self.host, action.slot)
        cell = self.host.cell(action.slot)
        if cell is None or cell.value != action.tensor:
            self._bad("V", f"prefetch reads {action.tensor} from slot {action.slot}, which holds {held}")
        if cell is not None:
            self._race(cell.unordered_write(self._clock), f"reads slot {action.slot}")
            cell.reads[self._stream] = self._action
        self._write_buffer("prefetch", action.tensor, action.buffer)

    def _known(self, action: Offload | Prefetch) -> bool:
        if action.tensor not in self.tables.tensors:
            self._bad("F", f"copies {action.tensor}, which is not a tensor of the plan")
            return False
        if action.slot not in self.host.span:
            self._bad("F", f"slot {action.slot} is unknown")
            return False
        if action.buffer not in self.device.span:
            self._bad("F", f"buffer {action.buffer} is unknown")
            return False
        return True

    # Accesses

    def _read_buffer(self, who: str, tensor: str, buffer: int) -> None:
        if not self._usable(who, buffer):
            return
        cell = self.device.cell(buffer)
        if cell is None or cell.value != tensor:
            held = self._content(self.device, buffer)
            self._bad("V", f"{who} reads {tensor} from buffer {buffer}, which holds {held}")
        if cell is not None:
            unordered = cell.unordered_write(self._clock)
            if unordered >= 0:  # texts are made for findings only: there are many accesses
                self._race(unordered, f"{who} reads buffer {buffer}")
            cell.reads[self._stream] = self._action

    def _write_buffer(self, who: str, tensor: str | None, buffer: int) -> None:
        if not self._usable(who, buffer):
            return
        if tensor is not None and self.tables.size(tensor) > self.tables.buffers[buffer].bytes:
            self._fits(tensor, self.tables.buffers[buffer], f"action {self._action}", f"buffer {buffer}")
        unordered = self.device.write(buffer, tensor, self._action, self._clock, self._stream)
        if unordered >= 0:
            self._race(unordered, f"{who} writes buffer {buffer}")

    def _usable(self, who: str, buffer: int) -> bool:
        if buffer in self.live:
            return True
        if buffer not in self.device.span:
            self._bad("F", f"{who} uses buffer {buffer}, which is unknown")
        else:
            self._bad("L", f"{who} uses buffer {buffer}, which is not live")
        return False

    def _race(self, unordered: int, what: str) -> None:
        if unordered < 0:
            return
        stream = stream_of(self.plan.actions[unordered]) or 0
        self._bad("R", f"{what} without waiting for action {unordered} ({STREAMS[stream]}), which uses its bytes")

    def _fits(self, tensor: str, extent: Extent, where: str, what: str) -> None:
        size = self.tables.size(tensor)
        if size > extent.bytes:
            self.found.add("A", where, f"{tensor} takes {size} bytes, {what} has {extent.bytes}")

    @staticmethod
    def _content(memory: Memory, extent: int) -> str:
        cell = memory.cell(extent)
        return "nothing" if cell is None or cell.value is None else cell.value

    # What is left when the last action is done

    def check_totals(self) -> None:
        """Reports ops that did not run, algorithms that no execution used, and a wrong peak."""
        for name in self.tables.ops:
            if name not in self.ran:
                self.found.add("O", f"op {name}", "never runs")
        for name, action in self._chosen.items():
            self.found.at(action, "O", f"chooses an algorithm for {name}, which is not executed after it")
        plan = self.plan
        if self.live.peak != plan.peak_live_bytes:
            message = f"the actions give peak_live_bytes {self.live.peak}, the plan says {plan.peak_live_bytes}"
            self.found.add("P", "plan", message)
        if self.live.peak > plan.arena_bytes:
            self.found.add("P", "plan", f"peak_live_bytes {self.live.peak} is above arena_bytes {plan.arena_bytes}")

    def content(self, place: Place) -> str | None:
        """The tensor that a place holds, or None: nothing of use, or the buffer is not live."""
        memory, extent, _ = self._memory(place)
        if extent not in memory.span or (memory is self.device and extent not in self.live):
            return None
        cell = memory.cell(extent)
        return None if cell is None else cell.value


def _place(place: Place) -> str:
    return f"slot {place.slot}" if place.slot is not None else f"buffer {place.buffer}"
