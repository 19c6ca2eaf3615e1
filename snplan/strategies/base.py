"""What a strategy is: a rule that turns a step, costs and a budget into a candidate, or refuses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

from snplan.analysis.floor import Floor, baseline_bytes
from snplan.analysis.index import IndexedStep
from snplan.cost.device import Device
from snplan.errors import InfeasibleError
from snplan.passes.realise import Candidate, Costs
from snplan.units import format_bytes


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a strategy plans: a step, what it costs, `budget` bytes for the arena and the `floor`.

    `reserve` is what the user's budget has beside the arena: for messages only.
    """

    step: IndexedStep
    costs: Costs
    budget: int
    floor: Floor
    reserve: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy(ABC):
    """A rule for plans. Its fields are its parts, each of them a switch that is on unless it is switched off.

    `name` is what `--strategy` takes, `summary` one line about the rule.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def plan(self, task: Task) -> Candidate:
        """The candidate that the rule gives. Raises InfeasibleError (SNP-P004) where it needs more than the budget."""

    def device(self, device: Device) -> Device:
        """The device as the strategy uses it."""
        return device

    @classmethod
    def parts(cls) -> tuple[str, ...]:
        """Names of the parts that can be switched off."""
        return tuple(field.name for field in fields(cls))

    @property
    def spec(self) -> str:
        """The text that `--strategy` takes for this strategy: its name, and the parts that are off."""
        off = "".join(f"-{part}" for part in self.parts() if not getattr(self, part))
        return f"{self.name}:{off}" if off else self.name

    def refusal(self, task: Task, needed: int, *, placed: bool = False) -> InfeasibleError:
        """The refusal of a budget; `needed` bytes of arena, with `placed` those of the addresses that were found."""
        why = "its tensors fit, but not side by side: fragmentation" if placed else "live bytes alone"
        return InfeasibleError(
            "SNP-P004",
            f"strategy {self.spec} needs {format_bytes(needed)} ({why}), and the budget less the reserve is "
            f"{format_bytes(task.budget)}. Give at least {format_bytes(needed + task.reserve)}, a smaller batch, or "
            "another strategy: auto plans every budget from the floor up",
            details={
                "strategy": self.spec,
                "wanted_bytes": needed,
                "budget_bytes": task.budget + task.reserve,
                "reserve_bytes": task.reserve,
                "floor_bytes": task.floor.bytes,
                "baseline_bytes": baseline_bytes(task.step),
            },
        )
