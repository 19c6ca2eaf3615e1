"""What the runtime's tests share: kernels called under a watch, ONNX operators as oracles, small plans by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.helper
import onnxruntime

from snplan.ir import DType, Spec
from snplan.ops.table import infer
from snplan.runtime.numpy import KERNELS, Array, Context

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def spec_of(x: Array) -> Spec:
    """The spec of an array."""
    return Spec(DType(x.dtype.name), x.shape)


def run_kernel(
    kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None, context: Context | None = None
) -> tuple[Array, ...]:
    """A kernel's outputs, with everything checked that holds for all kernels.

    Inputs stay as they were, outputs share no memory with them, outputs are what the op table says, and the same
    values at other addresses give the same bits.
    """
    arrays = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in inputs]
    before = [x.copy() for x in arrays]
    context = context or Context()
    outputs = KERNELS[kind](arrays, attrs or {}, context)
    for x, old in zip(arrays, before, strict=True):
        assert x.tobytes() == old.tobytes(), f"{kind} changed an input"
    for y in outputs:
        assert isinstance(y, np.ndarray)
        assert y.flags.c_contiguous
        assert not any(np.shares_memory(x, y) for x in arrays), f"{kind} gave out an input's memory"
    assert [spec_of(y) for y in outputs] == list(infer(kind, [spec_of(x) for x in arrays], dict(attrs or {})))
    again = KERNELS[kind]([elsewhere(x) for x in arrays], attrs or {}, context)
    assert [y.tobytes() for y in outputs] == [y.tobytes() for y in again], f"{kind}: bits depend on addresses"
    return outputs


def elsewhere(x: Array) -> Array:
    """The same values at an address that is aligned to the element only."""
    block = np.empty(x.nbytes + 64 + x.itemsize, np.uint8)
    start = -block.ctypes.data % 64 + x.itemsize
    copy = block[start : start + x.nbytes].view(x.dtype).reshape(x.shape)
    copy[...] = x
    return copy


def one(
    kind: str, inputs: Sequence[Any], attrs: Mapping[str, Any] | None = None, context: Context | None = None
) -> Array:
    """The only output of a kernel."""
    (y,) = run_kernel(kind, inputs, attrs, context)
    return y


def onnx_run(
    op: str, inputs: Sequence[Array | None], *, opset: int = 18, outputs: int = 1, **attributes: Any
) -> list[Array]:
    """What onnxruntime computes for one node; an input None is left out."""
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = onnx.helper.make_node(op, names, results, **attributes)
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in given.items()
    ]
    graph = onnx.helper.make_graph([node], "g", values, [onnx.ValueInfoProto(name=name) for name in results])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[Array] = session.run(None, given)
    return found


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> Array:
    """Seeded normal numbers."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def close(a: Array, b: Array, tolerance: float = 1e-5) -> None:
    """Assert equal shapes and a small relative L2 distance."""
    assert a.shape == b.shape
    x, y = a.astype(np.float64), b.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
    distance = np.linalg.norm(np.nan_to_num(x - y).reshape(-1))
    assert distance <= tolerance * max(np.linalg.norm(np.nan_to_num(y).reshape(-1)), 1e-30), distance
