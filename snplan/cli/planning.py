"""The options that decide a plan, for every command that plans: read once, checked once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

from snplan.cli import arguments, options

if TYPE_CHECKING:
    from snplan.compiler import CompileOptions

_DEFAULTED = frozenset({"loss", "optimizer", "time_limit_s"})
"""Options whose default the compiler decides: they are passed on only where they are given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Planning:
    """Fields of `CompileOptions` as given, the budget left out, and what the user should be told about them."""

    fields: dict[str, Any]
    notes: list[str]

    def options(self, budget_bytes: int, **changes: Any) -> CompileOptions:
        """The options for one budget; `changes` replace fields."""
        from snplan.compiler import CompileOptions

        given = {name: value for name, value in self.fields.items() if value is not None or name not in _DEFAULTED}
        return CompileOptions(budget_bytes=budget_bytes, **{**given, **changes})


_TRAINING_ONLY = ("--loss", "--optimizer", "--freeze", "--train-batchnorm")


def read_planning(
    batch: options.Batch = None,
    dim: options.Dim = None,
    mode: options.Mode = "train",
    loss: options.Loss = None,
    optimizer: options.Optimizer = None,
    precision: options.Precision = "fp32",
    strategy: options.Strategy = "auto",
    device: options.Device = "h200",
    host_mem: options.HostMem = None,
    pinned_limit: options.PinnedLimit = None,
    reserve: options.Reserve = None,
    solver: options.Solver = "off",
    time_limit: options.TimeLimit = None,
    deterministic: options.Deterministic = False,
    freeze: options.Freeze = None,
    train_batchnorm: options.TrainBatchnorm = False,
    fuse: options.Fuse = True,
    pool: options.Pools = None,
    conv_pieces: options.ConvPieces = 1,
) -> Planning:
    """What the planning options say. Raises UsageError for values that are wrong or exclude each other."""
    if mode == "infer":
        training = [loss, optimizer, freeze, train_batchnorm]
        arguments.refuse_together("--mode infer", dict(zip(_TRAINING_ONLY, map(bool, training), strict=True)))
    if solver == "off":
        arguments.refuse_together("--solver off", {"--time-limit": time_limit is not None})
    if pool:
        pinned = {"--host-mem": host_mem is not None, "--pinned-limit": pinned_limit is not None}
        arguments.refuse_together("--pool", pinned)
    arguments.at_least("--batch", batch, 1)
    arguments.at_least("--conv-pieces", conv_pieces, 1)
    arguments.at_least("--time-limit", time_limit, 0.001)
    notes: list[str] = []
    limits = [("--host-mem", host_mem), ("--pinned-limit", pinned_limit)]
    sizes = [arguments.size(name, text, notes, allow_zero=True) for name, text in limits]
    fields: dict[str, Any] = {
        "reserve_bytes": arguments.size("--reserve", reserve, notes, allow_zero=True),
        "host_bytes": min((size for size in sizes if size is not None), default=None),
        "batch": batch,
        "dims": arguments.dimensions(dim or ()),
        "mode": arguments.one_of("--mode", mode, options.MODES),
        "loss": loss,
        "optimizer": optimizer and arguments.one_of("--optimizer", optimizer, options.OPTIMIZERS),
        "precision": arguments.one_of("--precision", precision, options.PRECISIONS),
        "strategy": arguments.strategy("--strategy", strategy, options.STRATEGIES),
        "device": device,
        "solver": arguments.one_of("--solver", solver, options.SOLVERS),
        "time_limit_s": time_limit,
        "deterministic": deterministic,
        "freeze": tuple(freeze or ()),
        "train_batchnorm": train_batchnorm,
        "fuse": fuse,
        "pools": tuple(pool or ()),
        "conv_pieces": conv_pieces,
    }
    return Planning(fields=fields, notes=notes)


def takes_planning(*, without: Collection[str] = ()) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """A decorator: the command also takes the options of `read_planning` but `without` some, read as `planning`.

    typer learns a command's options from its signature, so the decorator writes the joint one.
    """
    own = inspect.signature(read_planning, eval_str=True).parameters
    if unknown := sorted(set(without) - set(own)):
        raise ValueError(f"no planning options {unknown}")
    shared = {name: parameter for name, parameter in own.items() if name not in without}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(command, eval_str=True)
        rest = [parameter for parameter in signature.parameters.values() if parameter.name != "planning"]
        before = [p for p in rest if p.name not in ("json", "quiet")]
        joint = [*before, *shared.values(), *(p for p in rest if p.name in ("json", "quiet"))]

        @wraps(command)
        def run(**given: Any) -> int:
            taken = {name: given.pop(name) for name in shared}
            return command(planning=read_planning(**taken), **given)

        run.__signature__ = signature.replace(parameters=joint)  # type: ignore[attr-defined]  # read by typer
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in joint}
        return run

    return decorate
