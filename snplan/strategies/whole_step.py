"""Layouts whose buffers are never freed: every tensor has its place for the whole step, some take over another's."""

from __future__ import annotations

from collections.abc import Mapping

from snplan.analysis.residency import Live, Residency
from snplan.analysis.schedule import Schedule
from snplan.passes.layout import Buffer, Layout, add_workspaces, upgrade_engines
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.moves import lean_residency, peak, settle


def whole_step(strategy: Strategy, task: Task, schedule: Schedule, heirs: Mapping[int, int]) -> Candidate:
    """The candidate in which each value has a buffer for the whole step, its own or that of the value in `heirs`.

    Engines get what is free beside. Raises InfeasibleError (SNP-P004).
    """

    def layout_for(target: Live) -> Layout:
        layout = _layout(schedule, heirs)
        if peak(layout.residency) > task.budget:
            raise strategy.refusal(task, peak(layout.residency))
        upgrade_engines(layout.residency, task.budget)
        add_workspaces(layout)
        return layout

    return settle(strategy, task, schedule.end, layout_for)


def updates_in_place(residency: Residency) -> dict[int, int]:
    """For each value that replaces a persistent one the value that it replaces: the next step looks for it there."""
    return {
        written: read
        for pairs in residency.joins
        for written, read in pairs
        if residency.partner.get(written) == (read, written)
    }


def _layout(schedule: Schedule, heirs: Mapping[int, int]) -> Layout:
    """The layout without workspaces; live bytes are those of all buffers, and of the smallest workspace."""
    residency = lean_residency(schedule)
    layout = Layout(residency=residency)
    layout.stays = [residency.stays(value) for value in range(len(residency.events))]
    layout.stay_buffer = [[] for _ in layout.stays]
    for value in (v for v, stays in enumerate(layout.stays) if stays):
        if value in heirs:
            layout.stay_buffer[value] = layout.stay_buffer[heirs[value]]
            continue
        size = residency.size[schedule.values[value].tensor]
        layout.stay_buffer[value] = [len(layout.buffers)]
        resident = value if value < len(schedule.step.sources) else None
        layout.buffers.append(Buffer(size, 0, schedule.end, resident))
    residency.live[:] = sum(buffer.size for buffer in layout.buffers)
    for position in range(schedule.end):
        residency.live[position] += residency.workspace(position)
    return layout
