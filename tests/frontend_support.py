"""Tiny ONNX models by hand, imported and evaluated with the NumPy kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import (
    FunctionProto,
    ModelProto,
    NodeProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from snplan.frontend import LoadedModel, import_model, load_model, read_weights
from snplan.ir import Forward, problems
from snplan.runtime.numpy import KERNELS, Array, Context

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
Shape = Sequence[int | str | None]


def info(name: str, shape: Shape | None, dtype: int = FLOAT) -> ValueInfoProto:
    """A graph input or output."""
    return helper.make_tensor_value_info(name, dtype, shape)


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any) -> NodeProto:
    """A node; attributes that are None are left out."""
    return helper.make_node(op, inputs, outputs, name or None, **attributes)


def tensor(name: str, values: Any, dtype: Any = np.float32) -> TensorProto:
    """A stored tensor."""
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def ints(name: str, *values: int) -> TensorProto:
    """A stored int64 vector."""
    return tensor(name, list(values), np.int64)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[ValueInfoProto | str],
    initializers: Sequence[TensorProto] = (),
    *,
    opset: int = 17,
    ir: int = 8,
    functions: Sequence[FunctionProto] = (),
    domains: Mapping[str, int] | None = None,
    value_info: Sequence[ValueInfoProto] = (),
) -> ModelProto:
    """A model; outputs given by name are declared float of unknown shape."""
    declared = [info(o, None) if isinstance(o, str) else o for o in outputs]
    graph = helper.make_graph(
        list(nodes), "g", list(inputs), declared, initializer=list(initializers), value_info=list(value_info)
    )
    imports = [helper.make_opsetid("", opset)]
    imports += [helper.make_opsetid(domain, version) for domain, version in (domains or {}).items()]
    return helper.make_model(graph, ir_version=ir, opset_imports=imports, functions=list(functions))


def load(proto: ModelProto) -> LoadedModel:
    """The model through its bytes, as a file would come."""
    return load_model(proto.SerializeToString())


def imported(proto: ModelProto, **options: Any) -> Forward:
    """The forward graph, checked to be well formed."""
    forward = import_model(load(proto), **options)
    assert problems(forward.graph) == []
    return forward


def kinds(forward: Forward) -> list[str]:
    """Kinds of the ops in order."""
    return [op.kind for op in forward.graph.ops]


def evaluate(forward: Forward, given: Mapping[str, Array], seed: int = 0) -> dict[str, Array]:
    """All tensors of the graph by name, from arrays for all sources."""
    values = {name: np.asarray(given[name]) for name in forward.graph.sources}
    for op in forward.graph.ops:
        context = Context(seed=seed, step=1, stream=op.rng or 0)
        results = KERNELS[op.kind]([values[name] for name in op.inputs], op.attrs, context)
        for name, result in zip(op.outputs, results, strict=True):
            spec = forward.graph.tensors[name].spec
            assert result.shape == spec.shape, (op, result.shape, spec)
            assert result.dtype.name == str(spec.dtype), (op, result.dtype, spec)
            values[name] = result
    return values


def weights_of(loaded: LoadedModel, forward: Forward) -> dict[str, Array]:
    """Values of all sources that are not inputs."""
    return read_weights(loaded, [name for name in forward.graph.sources if name not in forward.inputs])


def run(proto: ModelProto, feeds: Mapping[str, Any], **options: Any) -> dict[str, Array]:
    """Results of a model by output name, evaluated with the NumPy kernels."""
    loaded = load(proto)
    forward = import_model(loaded, **{"mode": "infer", **options})
    assert problems(forward.graph) == []
    values = evaluate(forward, {**feeds, **weights_of(loaded, forward)})
    return {name: values[name] for name in forward.graph.outputs}


def ort_run(proto: ModelProto | Path, feeds: Mapping[str, Any]) -> dict[str, Array]:
    """Results of a model by output name as onnxruntime has them, without its graph optimisations."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    source = str(proto) if isinstance(proto, Path) else proto.SerializeToString()
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feeds)), strict=True))


def assert_same_as_ort(proto: ModelProto, feeds: Mapping[str, Any], *, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """Imported and evaluated, the model gives what onnxruntime gives."""
    ours, theirs = run(proto, feeds), ort_run(proto, feeds)
    assert list(ours) == list(theirs)
    for name, wanted in theirs.items():
        np.testing.assert_allclose(ours[name], wanted, rtol=rtol, atol=atol, err_msg=name)
        assert ours[name].dtype == wanted.dtype


def shapes(forward: Forward, names: Iterable[str]) -> list[tuple[int, ...]]:
    """Shapes of some tensors."""
    return [forward.graph.tensors[name].shape for name in names]
