"""Achieved bandwidth of the hot generated kernels on this GPU, beside a device copy.

    python benchmarks/kernels.py [WORD ...]     only the rows whose name has one of the words

Bytes are those that the kernels must move (x twice in a batch norm, whose statistics need a pass of their own), so
a share near 100% of the copy's bandwidth leaves nothing to gain but fusion.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gpu_common import provenance

from snplan.codegen.compile import compile_module
from snplan.codegen.driver import Driver
from snplan.codegen.kernels import kernel_for
from snplan.codegen.launch import CONTROL, Addresses, Launch, values
from snplan.codegen.operand import Order
from snplan.codegen.render import render
from snplan.ir import DType, Spec
from snplan.ops.table import infer
from snplan.plan.model import PlanOp

_REPEATS = 20
_IMAGE, _CHANNELS = (64, 256, 56, 56), (256,)
_STEM, _STEM_CHANNELS = (64, 64, 112, 112), (64,)
_SMALL, _SMALL_CHANNELS = (64, 2048, 7, 7), (2048,)
_WINDOW = {"kernel": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "dilations": [1, 1], "sizes": [56, 56]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One op to time. `twice` names inputs that are read twice; `label` is what a fused op does."""

    kind: str
    shapes: Sequence[tuple[int, ...] | Spec]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    order: Order = "channels_last"
    twice: Sequence[int] = ()
    dtype: DType = DType.FLOAT32
    label: str = ""

    @property
    def name(self) -> str:
        """What the row is called."""
        return self.label or self.kind

    @property
    def specs(self) -> list[Spec]:
        """Specs of the inputs."""
        return [s if isinstance(s, Spec) else Spec(self.dtype, s) for s in self.shapes]

    @property
    def outputs(self) -> tuple[Spec, ...]:
        """Specs of the outputs."""
        return infer(self.kind, self.specs, dict(self.attrs))

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Its launches."""
        op = PlanOp(
            name=self.kind,
            kind=self.kind,
            phase="forward",
            inputs=[f"x{k}" for k in range(len(self.shapes))],
            outputs=[f"y{k}" for k in range(len(self.outputs))],
            attrs=dict(self.attrs),
            nodes=[],
            rng=1,
        )
        return kernel_for(op, self.specs, self.outputs, [self.order] * (len(self.specs) + len(self.outputs)))

    @property
    def bytes(self) -> int:
        """Bytes that must be moved."""
        again = sum(self.specs[k].bytes for k in self.twice)
        return sum(s.bytes for s in (*self.specs, *self.outputs)) + again


def _norms(x: tuple[int, ...], c: tuple[int, ...], order: Order, dtype: DType = DType.FLOAT32) -> list[Row]:
    epsilon = {"epsilon": 1e-5}
    statistics = Spec(DType.FLOAT32, c)
    return [
        Row(kind="batch_norm_train", shapes=[x, c, c], attrs=epsilon, order=order, twice=[0], dtype=dtype),
        Row(
            kind="batch_norm_grad",
            shapes=[x, c, statistics, statistics, x],
            attrs=epsilon,
            order=order,
            twice=[0, 4],
            dtype=dtype,
        ),
    ]


def _fused(x: tuple[int, ...], order: Order, dtype: DType = DType.FLOAT32) -> list[Row]:
    """Batch normalisation in pieces and what fuses with them, the mask of a ReLU made again from x."""
    vector = Spec(DType.FLOAT32, (x[1], *(1,) * (len(x) - 2)))
    norm = ["batch_norm_apply", [0, 1, 2, 3, 4], {}]
    count = x[0] * x[2] * x[3]
    whole = Spec(dtype, x)

    def row(label: str, shapes: Sequence[Spec], parts: list[Any], results: list[int]) -> Row:
        attrs = {"parts": parts, "results": results}
        return Row(kind="fused", shapes=shapes, attrs=attrs, order=order, dtype=dtype, label=label)

    pieces = [whole, vector, vector, vector, vector]
    sums = [norm, ["relu", [6], {}], ["relu_grad", [7, 5], {}], ["batch_norm_grad_sums", [0, 1, 2, 8], {}]]
    last = ["batch_norm_grad_apply", [0, 3, 1, 2, 6, 7, 10], {"count": count}]
    apply = [norm, ["relu", [8], {}], ["relu_grad", [9, 5], {}], last]
    join = [norm, ["add", [6, 5], {}], ["relu", [7], {}]]
    return [
        Row(
            kind="batch_norm_statistics",
            shapes=[whole],
            attrs={"epsilon": 1e-5},
            order=order,
            dtype=dtype,
        ),
        Row(kind="batch_norm_grad_sums", shapes=[whole, vector, vector, whole], order=order, dtype=dtype),
        row("apply+relu", pieces, [norm, ["relu", [5], {}]], [6]),
        row("apply+add+relu", [*pieces, whole], join, [8]),
        row("mask+grad_sums", [*pieces, whole], sums, [9, 10]),
        row("mask+grad_apply", [*pieces, whole, vector, vector], apply, [11]),
        row("add+relu_grad", [whole, whole, whole], [["add", [0, 1], {}], ["relu_grad", [2, 3], {}]], [4]),
    ]


def rows() -> list[Row]:
    """What is timed."""
    labels = Spec(DType.INT64, (8192,))
    return [
        Row(kind="relu", shapes=[_IMAGE]),
        Row(kind="relu_grad", shapes=[_IMAGE, _IMAGE]),
        Row(kind="add", shapes=[_IMAGE, _IMAGE]),
        Row(kind="add", shapes=[_IMAGE, (256, 1, 1)]),
        Row(kind="relu", shapes=[_IMAGE], dtype=DType.BFLOAT16),
        *_norms(_IMAGE, _CHANNELS, "channels_last"),
        *_norms(_STEM, _STEM_CHANNELS, "channels_last"),
        *_norms(_SMALL, _SMALL_CHANNELS, "channels_last"),
        *_norms(_IMAGE, _CHANNELS, "channels_last", DType.BFLOAT16),
        *_norms(_IMAGE, _CHANNELS, "plain"),
        *_norms(_SMALL, _SMALL_CHANNELS, "plain"),
        *_fused(_IMAGE, "channels_last"),
        *_fused(_STEM, "channels_last"),
        *_fused(_SMALL, "channels_last"),
        *_fused(_IMAGE, "channels_last", DType.BFLOAT16),
        *_fused(_IMAGE, "plain"),
        *(row for order in ("channels_last", "plain") for row in _pools(order)),
        Row(kind="reduce_sum", shapes=[_IMAGE], attrs={"axes": [0, 2, 3], "keepdims": False}),
        Row(kind="reduce_mean", shapes=[_SMALL], attrs={"axes": [2, 3], "keepdims": True}),
        Row(kind="softmax", shapes=[(98304, 1024)], attrs={"axis": 1}, order="plain"),
        Row(kind="softmax_grad", shapes=[(98304, 1024)] * 2, attrs={"axis": 1}, order="plain"),
        Row(kind="softmax", shapes=[(8192, 50257)], attrs={"axis": 1}, order="plain"),
        Row(
            kind="layer_norm", shapes=[(65536, 768), (768,), (768,)], attrs={"axis": 1, "epsilon": 1e-5}, order="plain"
        ),
        Row(
            kind="layer_norm_grad",
            shapes=[(65536, 768), (768,), (65536, 1), (65536, 1), (65536, 768)],
            attrs={"axis": 1, "epsilon": 1e-5, "has_scale": True, "has_bias": True},
            order="plain",
        ),
        Row(kind="gelu", shapes=[(65536, 3072)], attrs={"approximate": "none"}, order="plain"),
        Row(kind="dropout", shapes=[(65536, 3072)], attrs={"ratio": 0.1}, order="plain"),
        Row(
            kind="softmax_cross_entropy",
            shapes=[(8192, 50257), labels],
            attrs={"axis": 1, "reduction": "mean", "ignore_index": None},
            order="plain",
        ),
        Row(
            kind="gather_grad",
            shapes=[labels, (8192, 768)],
            attrs={"axis": 0, "shape": [50257, 768]},
            order="plain",
        ),
        Row(kind="transpose", shapes=[_IMAGE], attrs={"perm": [0, 2, 3, 1]}, order="plain"),
        Row(kind="concat", shapes=[_IMAGE, (64, 32, 56, 56)], attrs={"axis": 1}),
        Row(
            kind="momentum_update",
            shapes=[(1 << 26,)] * 3,
            attrs={"lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
            order="plain",
        ),
    ]


def _pools(order: Order) -> list[Row]:
    pooled = (*_STEM[:2], 56, 56)
    back = {**_WINDOW, "shape": list(_STEM)}
    return [
        Row(kind="max_pool", shapes=[_STEM], attrs=_WINDOW, order=order),
        Row(kind="max_pool_grad", shapes=[Spec(DType.UINT8, pooled), pooled], attrs=back, order=order),
        Row(kind="average_pool", shapes=[_STEM], attrs=_WINDOW, order=order),
    ]


def measure(driver: Driver, row: Row) -> float:
    """Median milliseconds of one op; floats are zeros, indices run through a small range."""
    tensors = (*row.specs, *row.outputs)
    memory = [driver.allocate(max(spec.bytes, 512)) for spec in tensors]
    for address, spec in zip(memory, tensors, strict=True):
        driver.write(address, _content(spec))
    workspace = driver.allocate(max(512, *(launch.workspace for launch in row.launches)))
    control = driver.allocate(CONTROL.itemsize)
    driver.write(control, np.ones((), CONTROL).tobytes()[:32] + bytes(CONTROL.itemsize - 32))
    count = len(row.specs)
    at = Addresses(inputs=memory[:count], outputs=memory[count:], workspace=workspace, control=control)
    launches = [(x.function, x.grid, x.block, values(x, at), x.shared) for x in row.launches]

    def work() -> None:
        for launch in launches:
            driver.launch(*launch)

    driver.time(work, 3)
    elapsed = driver.time(work, _REPEATS)
    for address in (*memory, workspace, control):
        driver.free(address)
    return elapsed


def _content(spec: Spec) -> bytes:
    if spec.dtype.is_float:
        return bytes(spec.bytes)
    period = 9 if spec.dtype is DType.UINT8 else 10007
    return (np.arange(spec.elements) % period).astype(spec.dtype.value).tobytes()


def copy_bandwidth(driver: Driver) -> float:
    """GB/s, read and written, of a device copy of 1 GiB."""
    size = 1 << 30
    origin, target = driver.allocate(size), driver.allocate(size)
    elapsed = driver.time(lambda: driver.copy(target, origin, size), _REPEATS)
    driver.free(origin)
    driver.free(target)
    return 2 * size / elapsed / 1e6


def main() -> None:
    """Print one line an op."""
    driver, words = Driver(), sys.argv[1:]
    timed = [row for row in rows() if not words or any(word in row.name for word in words)]
    sources = [launch.source for row in timed for launch in row.launches]
    driver.load(compile_module(render(sources), driver.arch), sorted({source.name for source in sources}))
    top = copy_bandwidth(driver)
    print(f"{driver.name}: device copy {top:.0f} GB/s")
    for row in timed:
        elapsed = measure(driver, row)
        rate = row.bytes / elapsed / 1e6
        shape = "x".join(map(str, row.specs[0].shape))
        print(
            f"{row.name:24} {row.order:14} {row.dtype:9} {shape:16} {elapsed * 1e3:9.1f} us {rate:7.0f} GB/s"
            f" {rate / top:5.0%}"
        )
    print(provenance())


if __name__ == "__main__":
    main()
