"""Physical orders of tensors: what they are for the zoo, where they stop, and that they change no value."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_fake import FakeGpu, NumpyOnDevice
from cuda_zoo import TINY, planned
from runtime_support import Draft, normal

from snplan.codegen.operand import operand
from snplan.plan.index import PlanIndex, index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.layout import (
    CONVOLUTIONS,
    assign_orders,
    from_device_order,
    op_operands,
    spec_of,
    to_device_order,
)
from snplan.runtime.protocol import Backend
from snplan.runtime.session import TrainingSession


def one_step(plan: StepPlan, weights: dict[str, Any], backend: str | Backend) -> dict[str, Any]:
    """Everything that two steps leave."""
    with TrainingSession(plan, weights, backend=backend, seed=3) as session:
        feed = random_data(session.index, seed=1)
        for number in (1, 2):
            session.step(feed.step(number))
        return {**session.outputs(), **session.state(), **{f"{k}:grad": v for k, v in session.gradients().items()}}


@pytest.mark.parametrize(
    ("name", "share"), [*((name, 1.0) for name in sorted(TINY)), ("resnet", 0.3), ("vgg16", 0.3), ("unet", 0.3)]
)
def test_zoo(name: str, share: float, tmp_path: Path) -> None:
    """Convolutions get operands of one order, channels-last where that differs; no bit changes."""
    plan, weights = planned(name, tmp_path, share=share, optimizer="momentum")
    index = index_plan(plan)
    orders = assign_orders(index)
    for op in index.ops.values():
        inputs, outputs = op_operands(op, index, orders)
        if op.kind in CONVOLUTIONS:
            assert all(x.channels_last for x in (*inputs[:2], *outputs)), op.name
    device = one_step(plan, weights, CudaBackend(gpu=FakeGpu(total=1 << 32), kernels=NumpyOnDevice))
    host = one_step(plan, weights, "numpy")
    assert device.keys() == host.keys()
    assert all(device[key].tobytes() == host[key].tobytes() for key in host)


def chain(*kinds: str, view: list[int] | None = None, in_place: bool = False) -> PlanIndex:
    """A convolution of x [2, 3, 4, 4] followed by ops; the last one reads its input under `view`."""
    d = Draft()
    where = {"x": d.source("x", 2, 3, 4, 4, role="input"), "w": d.source("w", 5, 3, 1, 1, role="parameter")}
    d.tensor("y0", 2, 5, 4, 4)
    window: dict[str, Any] = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "group": 1}
    d.op("conv", "conv", "x w", "y0", **window)
    for number, kind in enumerate(kinds):
        last = number == len(kinds) - 1
        shape = tuple(view) if view and last else (2, 5, 4, 4)
        d.tensor(f"y{number + 1}", *shape)
        attrs: dict[str, Any] = {"in_shapes": [view]} if view and last else {}
        d.op(f"op{number}", kind, f"y{number}", f"y{number + 1}", **attrs)
    for number in range(len(kinds) + 1):
        shared = in_place and number == len(kinds) and number > 0
        where[f"y{number}"] = where[f"y{number - 1}"] if shared else d.buffer(1024)
        if not shared:
            d.alloc(where[f"y{number}"])
    for name in d.ops:
        d.run(name, where)
    return index_plan(d.plan())


def test_spreads_along_elementwise_ops() -> None:
    """Everything that looks like a convolution's operand follows it; what is the same in both orders stays plain."""
    orders = assign_orders(chain("relu", "tanh"))
    assert [orders[name] for name in ("x", "y0", "y1", "y2")] == ["channels_last"] * 4
    assert orders["w"] == "plain"


def test_flatten_holds_plain() -> None:
    """Channels-last bytes cannot be read as [2, 80]: the tensor before is plain, those before that are not."""
    orders = assign_orders(chain("relu", "tanh", view=[2, 80]))
    assert [orders[name] for name in ("x", "y0", "y1", "y2")] == ["channels_last", "channels_last", "plain", "plain"]


def test_convolution_whose_result_is_flattened() -> None:
    """No library convolves channels-last into plain: image and result are both plain, and what follows them too."""
    orders = assign_orders(chain("tanh", view=[2, 80]))
    assert [orders[name] for name in ("x", "y0", "y1")] == ["plain"] * 3


def test_joined_space_stays() -> None:
    """[2, 5, 16] keeps the channels apart, so channels-last bytes can be read so; the result is plain."""
    orders = assign_orders(chain("relu", "tanh", view=[2, 5, 16]))
    assert [orders[name] for name in ("y1", "y2")] == ["channels_last", "plain"]


def test_in_place_keeps_one_order() -> None:
    """An op that overwrites its input under another order would read what it has written: both become plain."""
    orders = assign_orders(chain("relu", "tanh", view=[2, 5, 16], in_place=True))
    assert [orders[name] for name in ("y0", "y1", "y2")] == ["channels_last", "plain", "plain"]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 3, 4), (2, 3, 4, 5), (2, 3, 1, 2, 2), (0, 3, 2)])
def test_to_and_from_device_order(shape: tuple[int, ...]) -> None:
    """Elements lie on the device where the operand's strides say, and come back."""
    x = normal(*shape)
    for order in ("plain", "channels_last"):
        block = np.ascontiguousarray(to_device_order(x, order)).reshape(-1)
        strides = operand(spec_of(_index_of(shape), "x"), order).strides
        for place in np.ndindex(*shape):
            assert block[sum(i * s for i, s in zip(place, strides, strict=True))] == x[place]
        np.testing.assert_array_equal(from_device_order(block, shape, order), x)


def _index_of(shape: tuple[int, ...]) -> PlanIndex:
    d = Draft()
    d.source("x", *shape, role="input")
    return index_plan(d.plan())
