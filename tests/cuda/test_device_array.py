"""Inputs that are in device memory already: what they say of themselves, and how they get to their places."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_fake import FakeGpu, NumpyOnDevice
from cuda_zoo import planned

from snplan.errors import RunError
from snplan.plan.model import StepPlan
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.data import random_data
from snplan.runtime.device_array import device_array
from snplan.runtime.layout import held_order
from snplan.runtime.numpy import Array
from snplan.runtime.session import TrainingSession


class Described:
    """An object with `__cuda_array_interface__`."""

    def __init__(self, **described: Any) -> None:
        self.__cuda_array_interface__ = described


class Shy:
    """A tensor that cannot describe itself, as PyTorch's that require gradients."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")


class Exported:
    """Host memory that says through DLPack that it is a device's."""

    def __init__(self, array: Array, kind: int = 2) -> None:
        self.array, self.kind = array, kind
        self.asked: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, *, stream: int | None = None) -> Any:
        self.asked.append(stream)
        return self.array.__dlpack__()


def test_interface() -> None:
    """Strides are in bytes there and in elements here; a stream is named from version 3 on."""
    given = {"shape": (2, 3), "typestr": "<f4", "data": (4096, False)}
    found = device_array(Described(version=3, stream=7, strides=None, **given))
    assert found is not None
    assert (found.address, found.shape, found.strides, found.stream, found.nbytes) == (4096, (2, 3), (3, 1), 7, 24)
    turned = device_array(Described(version=3, stream=None, strides=(4, 8), **given))
    assert turned is not None
    assert (turned.strides, turned.stream) == ((1, 2), None)
    old = device_array(Described(version=2, **given))
    assert old is not None
    assert old.stream == 1
    assert old.dtype == np.float32


def test_what_is_in_host_memory() -> None:
    """Arrays, lists, and objects that cannot describe themselves."""
    for value in (np.zeros(3), [1.0], None, Shy(), Exported(np.zeros(3, np.float32), kind=1)):
        assert device_array(value) is None


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "uint8", "bool"])
def test_dlpack(dtype: str) -> None:
    """Pointer, type, shape and strides are read from the capsule; the producer is told which stream waits."""
    array = np.arange(24).astype(dtype).reshape(2, 3, 4)
    source = Exported(array.transpose(0, 2, 1))
    found = device_array(source)
    assert found is not None
    assert (found.address, found.dtype) == (array.ctypes.data, array.dtype)
    assert (found.shape, found.strides) == ((2, 4, 3), (12, 1, 4))
    assert source.asked == [1]


def test_orders() -> None:
    """Both orders are recognised; where one axis has one element both are the same bytes."""
    for strides, order in (((48, 16, 4, 1), "plain"), ((48, 1, 12, 3), "channels_last"), ((96, 16, 4, 1), None)):
        value = device_array(
            Described(
                version=3, shape=(2, 3, 4, 4), typestr="<f4", data=(512, False), strides=tuple(4 * n for n in strides)
            )
        )
        assert value is not None
        assert held_order(value, prefer="plain") == order
    flat = device_array(Described(version=3, shape=(2, 1, 4, 4), typestr="<f4", data=(512, False)))
    assert flat is not None
    assert held_order(flat, prefer="channels_last") == "channels_last"


def on_device(gpu: FakeGpu, array: Array, order: str) -> Described:
    """An array put into the fake device's memory, in an order."""
    view = np.moveaxis(array, 1, -1) if order == "channels_last" and array.ndim > 2 else array
    held = np.ascontiguousarray(view)
    with gpu.current():
        address = gpu.allocate(max(held.nbytes, 1))
        gpu.put(address, held)
    strides = np.moveaxis(held, -1, 1).strides if view is not array else held.strides
    return Described(
        version=3, stream=5, shape=array.shape, typestr=array.dtype.str, data=(address, False), strides=strides
    )


def losses(
    plan: StepPlan, weights: dict[str, Array], order: str | None, *, staged: bool = False
) -> tuple[list[float], FakeGpu]:
    """Losses of three steps with inputs in host memory, or on the device in an order."""
    gpu = FakeGpu(total=1 << 34)
    with TrainingSession(plan, weights, backend=CudaBackend(gpu=gpu, kernels=NumpyOnDevice), seed=3) as session:
        feed = random_data(session.index, seed=1).step(1)
        feeds: list[dict[str, Any]] = [{name: value * k for name, value in feed.items()} for k in (1, 0, 1, 1)]
        if order is not None:
            feeds = [{name: on_device(gpu, value, order) for name, value in each.items()} for each in feeds]
        found = [session.step(each, following if staged else None) for each, following in pairwise(feeds)]
        return found, gpu


@pytest.mark.parametrize("staged", [False, True])
@pytest.mark.parametrize("order", ["plain", "channels_last"])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_as_from_the_host(order: str, share: float, staged: bool, tmp_path: Path) -> None:
    """The same losses, in both orders, whether the input's place is on the device or on the host."""
    plan, weights = planned("resnet", tmp_path, share=share, optimizer="momentum")
    right, _ = losses(plan, weights, None)
    found, gpu = losses(plan, weights, order, staged=staged)
    assert found == right
    assert gpu.followed == [5] * 6


def test_what_does_not_fit(tmp_path: Path) -> None:
    """Another type, shape, or gaps: refused with what is wanted, before anything runs."""
    plan, weights = planned("resnet", tmp_path, optimizer="momentum")
    gpu = FakeGpu(total=1 << 34)
    with TrainingSession(plan, weights, backend=CudaBackend(gpu=gpu, kernels=NumpyOnDevice)) as session:
        feed: dict[str, Any] = dict(random_data(session.index, seed=1).step(1))
        image = feed["input"]
        for wrong, text in (
            (on_device(gpu, image.astype(np.float64), "plain"), r"must be float32.*it is float64.*not converted"),
            (on_device(gpu, image[:1], "plain"), r"float32\[1, 3, 32, 32\]"),
        ):
            with pytest.raises(RunError, match=text) as caught:
                session.step({**feed, "input": wrong})
            assert caught.value.code == "SNP-R002"
        gaps = on_device(gpu, image, "plain")
        gaps.__cuda_array_interface__["strides"] = tuple(2 * n for n in image.strides)
        with pytest.raises(RunError, match="contiguous"):
            session.step({**feed, "input": gaps})


def test_numpy_backend_has_no_device(tmp_path: Path) -> None:
    """Refused, with what to do."""
    plan, weights = planned("resnet", tmp_path, optimizer="momentum")
    with TrainingSession(plan, weights) as session:
        feed: dict[str, Any] = dict(random_data(session.index, seed=1).step(1))
        feed["input"] = on_device(FakeGpu(), feed["input"], "plain")
        with pytest.raises(RunError, match="copy it to the host") as caught:
            session.step(feed)
    assert caught.value.code == "SNP-R002"
