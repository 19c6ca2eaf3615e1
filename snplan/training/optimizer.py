"""The optimiser: its options, the state that it keeps for a parameter, and its update op."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import isfinite

from snplan.errors import UsageError
from snplan.ir import Attrs

NAMES = ("sgd", "momentum", "adam", "none")
_RATES = {"sgd": 0.01, "momentum": 0.01, "adam": 0.001, "none": 0.0}
_STATES: dict[str, tuple[str, ...]] = {"sgd": (), "momentum": ("momentum",), "adam": ("m", "v"), "none": ()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """An optimiser and its options; `none` leaves parameters as they are and makes the gradients results.

    `weight_decay` is added to the gradient for sgd and momentum (L2), and decoupled for adam.
    """

    name: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    weight_decay: float = 0.0

    @property
    def states(self) -> tuple[str, ...]:
        """Names of the tensors of a parameter's type and shape that are kept for each parameter."""
        return _STATES[self.name]

    @property
    def kind(self) -> str:
        """The kind of the update op."""
        return f"{self.name}_update"

    @property
    def attrs(self) -> Attrs:
        """Attributes of the update op."""
        if self.name == "adam":
            keys: tuple[str, ...] = ("lr", "beta1", "beta2", "epsilon", "weight_decay")
        else:
            keys = ("lr", "momentum", "weight_decay") if self.name == "momentum" else ("lr", "weight_decay")
        return {key: getattr(self, key) for key in keys}


def make_optimizer(name: str, **options: float) -> Optimizer:
    """The optimiser `name` with its default learning rate, changed by `options`.

    Raises UsageError (SNP-U040) for a name or option that is unknown, (SNP-U041) for a value that is out of range.
    """
    if name not in NAMES:
        raise UsageError("SNP-U040", f"optimizer {name!r} is unknown; use one of {', '.join(NAMES)}")
    known = [field.name for field in fields(Optimizer) if field.name != "name"]
    unknown = sorted(options.keys() - known)
    if unknown:
        raise UsageError(
            "SNP-U040", f"optimizer options {', '.join(unknown)} are unknown; there are {', '.join(known)}"
        )
    for key, value in options.items():
        _check(key, value)
    return Optimizer(name=name, **{"lr": _RATES[name], **options})


def _check(key: str, value: float) -> None:
    limit = 1.0 if key in ("momentum", "beta1", "beta2") else float("inf")
    if not (isfinite(value) and 0 <= value < limit):
        bound = "0 or more" if limit > 1 else "at least 0 and less than 1"
        raise UsageError("SNP-U041", f"optimizer option {key} is {value}; it must be {bound}")
