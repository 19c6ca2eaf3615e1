"""Rule E: the step starts with every source in one place, and ends so that the next step can start; L's leaks."""

from __future__ import annotations

from collections import Counter

from snplan.ir import Phase, Role
from snplan.plan.model import Extent, Persistent, Place, StepPlan
from snplan.plan.verifier.findings import Findings
from snplan.plan.verifier.replay import Replay
from snplan.plan.verifier.tables import Tables

_PERSIST = frozenset({Role.PARAMETER, Role.STATE, Role.OPTIMIZER, Role.CONSTANT})


def check_start(plan: StepPlan, tables: Tables, found: Findings) -> None:
    """Reports sources that are not resident exactly once, what should persist or be an output, and is not, or twice."""
    resident = dict(Counter(place.tensor for place in plan.resident))
    persistent = dict(Counter(entry.tensor for entry in plan.persistent))
    asked = dict(Counter(place.tensor for place in plan.outputs))
    for name, tensor in tables.tensors.items():
        listed, held, kept = asked.get(name, 0), resident.get(name, 0), persistent.get(name, 0)
        if listed > 1:
            found.add("E", f"output {name}", f"is listed {listed} times")
        if tensor.role == Role.LOSS and not listed:
            found.add("E", f"tensor {name}", "is the loss, and no output")
        source = name not in tables.producer
        if source and held != 1:
            found.add("E", f"tensor {name}", f"no op writes it, and it is resident {held} times, not once")
        if not source and held:
            found.add("E", f"tensor {name}", f"is resident and written by {tables.producer[name].name}")
        if source and tensor.role in _PERSIST and kept != 1:
            found.add("E", f"tensor {name}", f"a {tensor.role} needs one entry in persistent, not {kept}")
        if kept and (not source or tensor.role not in _PERSIST):
            found.add("E", f"tensor {name}", "is in persistent, and is no parameter, state or constant at the start")


def check_end(replay: Replay) -> None:
    """Reports persistent values and outputs that are not where the plan says, and buffers that nobody freed."""
    plan, found = replay.plan, replay.found
    starts = {place.tensor: place for place in plan.resident}
    for entry in plan.persistent:
        held = replay.content(_as_place(entry))
        if held != entry.becomes:
            found.add("E", f"persistent {entry.tensor}", f"ends as {held or 'nothing'} instead of {entry.becomes}")
        _check_next_step(entry, starts.get(entry.tensor), replay.tables, found)
    for place in plan.outputs:
        held = replay.content(place)
        if held != place.tensor:
            found.add("E", f"output {place.tensor}", f"its place holds {held or 'nothing'} when the step ends")
    places: tuple[Place | Persistent, ...] = (*plan.resident, *plan.persistent, *plan.outputs)
    kept = {place.buffer for place in places}
    for buffer in replay.live.ids:
        if buffer not in kept:
            found.add("L", f"buffer {buffer}", "is never freed, and holds no result")


def _as_place(entry: Persistent) -> Place:
    return Place(tensor=entry.becomes, buffer=entry.buffer, slot=entry.slot)


def _check_next_step(entry: Persistent, start: Place | None, tables: Tables, found: Findings) -> None:
    where = f"persistent {entry.tensor}"
    if start is not None and _bytes_of(start, tables) != _bytes_of(entry, tables):
        message = f"ends in {_name(entry)}, the next step looks for it in {_name(start)}"
        found.add("E", where, message)
    old, new = tables.tensors.get(entry.tensor), tables.tensors.get(entry.becomes)
    if old is None or new is None or entry.tensor == entry.becomes:
        return
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        found.add("E", where, f"{old.dtype}{old.shape} becomes {entry.becomes}, {new.dtype}{new.shape}")
    writer = tables.producer.get(entry.becomes)
    if writer is None or writer.phase != Phase.UPDATE:
        found.add("E", where, f"becomes {entry.becomes}, which no op of phase update writes")


def _bytes_of(place: Place | Persistent, tables: Tables) -> tuple[str, int] | None:
    extent: Extent | None
    if place.slot is not None:
        extent = tables.slots.get(place.slot)
        return None if extent is None else ("host", extent.offset)
    extent = None if place.buffer is None else tables.buffers.get(place.buffer)
    return None if extent is None else ("device", extent.offset)


def _name(place: Place | Persistent) -> str:
    return f"slot {place.slot}" if place.slot is not None else f"buffer {place.buffer}"
