"""Training steps of the zoo's models with the paper's device: what the experiments plan."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from snplan import models
from snplan.compiler import CompileOptions, prepare
from snplan.frontend import load_model

if TYPE_CHECKING:
    from snplan.compiler import Prepared

DEVICE = "k40c"
"""A Tesla K40c: 12 GB, copies at the paper's 8 GB/s (snplan/cost/devices/k40c.toml says where its numbers are from)."""

PAPER_BATCH = {"alexnet": 128}
"""Batch of AlexNet in Table 2 and Figure 11; other networks have the experiment's own."""


def options(budget: int, strategy: str = "auto") -> CompileOptions:
    """How every experiment compiles: float32, plain SGD, the paper's device, every layer on its own."""
    return CompileOptions(
        budget_bytes=budget, device=DEVICE, precision="fp32", optimizer="sgd", strategy=strategy, fuse=False
    )


def blocks_of(name: str) -> dict[str, Any]:
    """The options that a name such as `resnet:6,32,20,6` adds to its model."""
    _, _, blocks = name.partition(":")
    return {"blocks": tuple(int(count) for count in blocks.split(","))} if blocks else {}


@cache
def prepared(name: str, batch: int) -> Prepared:
    """The training step of a model of the zoo, with what its ops cost; `resnet:n1,n2,n3,n4` has that many blocks."""
    model = name.partition(":")[0]
    form: dict[str, Any] = {"shortcut_norm": False} if "shortcut_norm" in models.options(model) else {}
    proto = models.build(model, batch=batch, light=True, loss=True, **form, **blocks_of(name))
    return prepare(load_model(proto.SerializeToString()), options(12 << 30))
