"""What an initializer is to the training step: parameter, running statistic or constant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from snplan.errors import UsageError
from snplan.ir import Forward, Role
from snplan.training.paths import Paths, paths_to

_RUNNING_STATISTICS = (3, 4)
"""Inputs of `batch_norm_eval` that are mean and variance."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters of a model in the order of its initializers, and the role of every initializer."""

    trained: tuple[str, ...]
    frozen: tuple[str, ...]
    roles: dict[str, Role]
    warnings: tuple[str, ...] = ()


def find_parameters(forward: Forward, freeze: Sequence[str] = (), paths: Paths | None = None) -> Parameters:
    """The parameters of `forward`: floating-point initializers that reach the loss through differentiable inputs.

    Those whose names match one of the globs `freeze` stay as they are. Running statistics of BatchNorm are state, all
    other initializers constants. Raises UsageError (SNP-U043) where a glob matches no parameter.
    """
    loss = forward.loss
    if paths is None and loss is not None:
        paths = paths_to(forward.graph, loss)
    onward = paths.onward if paths is not None else {}
    state = {*forward.state_updates}
    candidates = [name for name in forward.initializers if name in onward and name not in state]
    frozen = _frozen(candidates, freeze)
    return Parameters(
        trained=tuple(name for name in candidates if name not in frozen),
        frozen=tuple(name for name in candidates if name in frozen),
        roles=_roles(forward, set(candidates), state),
        warnings=tuple(
            f"{name} is a running statistic and a weight at once: it is updated as a statistic and not trained"
            for name in forward.initializers
            if name in state and name in onward
        ),
    )


def _frozen(candidates: Sequence[str], globs: Sequence[str]) -> set[str]:
    """The candidates that match one of `globs`; each glob must match some."""
    frozen: set[str] = set()
    unmatched = []
    for glob in globs:
        matched = [name for name in candidates if fnmatchcase(name, glob)]
        frozen.update(matched)
        unmatched += [] if matched else [glob]
    if unmatched:
        known = ", ".join(candidates[:8]) + (f", ... ({len(candidates)} in all)" if len(candidates) > 8 else "")
        raise UsageError(
            "SNP-U043", f"--freeze {' '.join(unmatched)} matches no parameter; there are: {known or 'none'}"
        )
    return frozen


def _roles(forward: Forward, parameters: set[str], state: set[str]) -> dict[str, Role]:
    running = state | {
        op.inputs[i] for op in forward.graph.ops if op.kind == "batch_norm_eval" for i in _RUNNING_STATISTICS
    }

    def role(name: str) -> Role:
        if name in parameters:
            return Role.PARAMETER
        return Role.STATE if name in running else Role.CONSTANT

    return {name: role(name) for name in forward.initializers}
