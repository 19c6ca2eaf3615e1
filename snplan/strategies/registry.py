"""All strategies by name, and the text that chooses one: `NAME`, or `NAME:-PART-PART` with parts switched off."""

from __future__ import annotations

from collections.abc import Iterator

from snplan.errors import InfeasibleError, UsageError
from snplan.passes.realise import Candidate
from snplan.strategies.base import Strategy, Task
from snplan.strategies.baseline import Baseline
from snplan.strategies.caffe import Caffe
from snplan.strategies.chen import Chen
from snplan.strategies.liveness import Liveness
from snplan.strategies.mxnet import Mxnet
from snplan.strategies.superneurons import Superneurons
from snplan.strategies.tensorflow import Tensorflow
from snplan.strategies.torch import Torch
from snplan.strategies.vdnn_all import VdnnAll
from snplan.strategies.vdnn_conv import VdnnConv

AUTO = "auto"
_ALL: tuple[type[Strategy], ...] = (
    *(Baseline, Liveness, Caffe, Torch, Mxnet, Tensorflow, Chen, VdnnAll, VdnnConv, Superneurons),
)
STRATEGIES = {strategy.name: strategy for strategy in _ALL}


def parse_strategy(text: str) -> Strategy | None:
    """The strategy that `text` chooses; None for `auto`, the planner's own search.

    Raises UsageError (SNP-U003) for a name or a part that is not known; the message lists those that are.
    """
    name, colon, switches = text.partition(":")
    if text == AUTO:
        return None
    if name not in STRATEGIES:
        known = ", ".join((AUTO, *STRATEGIES))
        raise UsageError("SNP-U003", f"--strategy {text!r} is not known; choose one of {known}")
    chosen = STRATEGIES[name]
    off = switches.split("-")[1:]
    if colon and (not switches.startswith("-") or set(off) - set(chosen.parts()) or len(set(off)) < len(off)):
        parts = ", ".join(f"-{part}" for part in chosen.parts()) or "none"
        raise UsageError(
            "SNP-U003",
            f"--strategy {text!r}: after the colon come parts to switch off, each once, such as "
            f"superneurons:-cache-recompute; {name} has {parts}",
        )
    return chosen(**dict.fromkeys(off, False))


def candidates(task: Task) -> Iterator[Candidate]:
    """The candidate of each strategy whose rule fits the budget of `task`."""
    for strategy in STRATEGIES.values():
        try:
            yield strategy().plan(task)
        except InfeasibleError:
            continue
