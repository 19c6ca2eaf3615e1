"""The zoo's ONNX graphs in PyTorch: an independent execution of the forward pass, differentiated by autograd.

Every operator is one PyTorch call in the type that the caller asks for; BatchNorm uses the batch's statistics, as the
zoo's training graphs say. Dropout is not covered: build the models without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import numpy_helper

Tensor: TypeAlias = torch.Tensor
Attrs: TypeAlias = Mapping[str, Any]
Rule: TypeAlias = Callable[[list[Any], Attrs], Any]
# Operators that decide which elements gradients flow through.
KINKS = ("Relu", "MaxPool")


def gradients_of(
    model: onnx.ModelProto,
    feeds: Mapping[str, Any],
    target: Any,
    dtype: torch.dtype,
    device: str = "cuda",
    decisions: list[Decision] | None = None,
    given: Sequence[Tensor] | None = None,
) -> tuple[float, dict[str, Any]]:
    """Mean cross-entropy of the model's first output against `target`, and its gradients by initializer name.

    `decisions` receives what every ReLU and every max pool read, in order. With `given` these decide nothing: elements
    pass, and are taken, as the tensors say, which are of the form that `Decision.made` has.
    """
    ready = None if given is None else iter(given)
    values = _initial(model, dtype, device)
    for name, array in feeds.items():
        tensor = torch.as_tensor(np.asarray(array), device=device)
        values[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
    for node in model.graph.node:
        if ready is not None and node.op_type in KINKS:
            values[node.output[0]] = _decided(values[node.input[0]], next(ready))
            continue
        _run(node, values)
        if decisions is not None and node.op_type in KINKS:
            decisions.append(Decision(values[node.input[0]].detach(), _attrs(node)))
    logits = values[model.graph.output[0].name]
    labels = torch.as_tensor(np.asarray(target), device=device).long()
    if logits.ndim == labels.ndim + 1 and logits.shape[:-1] == labels.shape and logits.ndim > 2:
        logits = logits.movedim(-1, 1)
    loss = F.cross_entropy(logits, labels)
    loss.backward()
    found = {
        name: value.grad.cpu().numpy() for name, value in values.items() if value.is_leaf and value.grad is not None
    }
    return float(loss.detach()), found


def _initial(model: onnx.ModelProto, dtype: torch.dtype, device: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for proto in model.graph.initializer:
        tensor = torch.as_tensor(numpy_helper.to_array(proto).copy(), device=device)
        if tensor.is_floating_point():
            tensor = tensor.to(dtype).requires_grad_(True)
        values[proto.name] = tensor
    return values


def _run(node: onnx.NodeProto, values: dict[str, Any]) -> None:
    attrs = _attrs(node)
    inputs = [values[name] if name else None for name in node.input]
    if node.op_type == "Constant":
        result: Any = torch.as_tensor(numpy_helper.to_array(attrs["value"]).copy(), device=_device(values))
        result = result.to(_dtype(values)) if result.is_floating_point() else result
    else:
        result = RULES[node.op_type](inputs, attrs)
    results = result if isinstance(result, (tuple, list)) else [result]
    values.update(zip([name for name in node.output if name], results, strict=False))


def _decided(x: Tensor, decision: Tensor) -> Tensor:
    """`x` where the decision lets it pass, or the elements at its places."""
    if decision.dtype == torch.bool:
        return x * decision
    return x.flatten(2).gather(2, decision.flatten(2).long()).reshape(decision.shape)


def _attrs(node: onnx.NodeProto) -> Attrs:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def places_of(node: onnx.NodeProto, positions: Tensor, width: int) -> Tensor:
    """Places in the planes of a max pool's input, `width` elements a row, of row-major positions in its windows."""
    attrs = _attrs(node)
    kernel = list(attrs["kernel_shape"])
    strides, pads = list(attrs.get("strides", [1] * len(kernel))), _halves(attrs.get("pads"), len(kernel))
    rows, columns = (torch.arange(size, device=positions.device) for size in positions.shape[2:])
    y = rows[:, None] * strides[0] - pads[0] + positions // kernel[1]
    x = columns * strides[1] - pads[1] + positions % kernel[1]
    return (y * width + x).to(torch.int32)


class Decision:
    """What a ReLU or (where there is a window) a max pool has to decide over."""

    def __init__(self, x: Tensor, attrs: Attrs) -> None:
        self.x, self._attrs = x, attrs

    def made(self) -> Tensor:
        """Which elements pass, or the position of the largest of each window."""
        if "kernel_shape" not in self._attrs:
            return self.x > 0
        _, places = F.max_pool2d(self.x, self._kernel, **self._window, return_indices=True)
        return places.to(torch.int32)

    def ties(self, other: Decision, reach: float) -> int:
        """Decisions that `reach` times the usual distance of `other` from this may turn; exact ties are none."""
        margin, again = self._margins(), other._margins()
        error = (other.x.double() - self.x).square().mean().sqrt()
        return int(((margin.abs() < reach * error) & ((margin != 0) | (again != 0))).sum())

    def _margins(self) -> Tensor:
        """How far each decision is from being another one."""
        if "kernel_shape" not in self._attrs:
            return self.x
        pads = [pad for pad in reversed(self._window["padding"]) for _ in range(2)]
        padded = F.pad(self.x, pads, value=-float("inf"))
        windows = F.unfold(padded.flatten(0, 1).unsqueeze(1), self._kernel, stride=self._window["stride"])
        top = windows.topk(2, dim=1).values
        return top[:, 0] - top[:, 1]

    @property
    def _kernel(self) -> list[int]:
        return list(self._attrs["kernel_shape"])

    @property
    def _window(self) -> dict[str, list[int]]:
        count = len(self._kernel)
        strides = list(self._attrs.get("strides", [1] * count))
        return {"stride": strides, "padding": _halves(self._attrs.get("pads"), count)}


def _device(values: Mapping[str, Any]) -> torch.device:
    return next(iter(values.values())).device  # type: ignore[no-any-return]


def _dtype(values: Mapping[str, Any]) -> torch.dtype:
    return next(value.dtype for value in values.values() if value.is_floating_point())  # type: ignore[no-any-return]


def _halves(pads: Sequence[int] | None, axes: int) -> list[int]:
    """The padding that both ends have; the zoo pads evenly."""
    pads = list(pads or [0] * 2 * axes)
    assert pads[:axes] == pads[axes:], "uneven pads"
    return pads[:axes]


def _conv(x: list[Any], a: Attrs) -> Tensor:
    axes = x[0].ndim - 2
    function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
    return function(
        x[0],
        x[1],
        x[2] if len(x) > 2 else None,
        stride=list(a.get("strides", [1] * axes)),
        padding=_halves(a.get("pads"), axes),
        dilation=list(a.get("dilations", [1] * axes)),
        groups=a.get("group", 1),
    )


def _conv_transpose(x: list[Any], a: Attrs) -> Tensor:
    strides = list(a.get("strides", [1, 1]))
    return F.conv_transpose2d(
        x[0], x[1], x[2] if len(x) > 2 else None, stride=strides, padding=_halves(a.get("pads"), 2)
    )


def _pool(function: Callable[..., Tensor], **fixed: Any) -> Rule:
    def rule(x: list[Any], a: Attrs) -> Tensor:
        kernel = list(a["kernel_shape"])
        extra = dict(fixed)
        if "count_include_pad" in extra:
            extra["count_include_pad"] = bool(a.get("count_include_pad", 0))
        strides = list(a.get("strides", [1] * len(kernel)))
        return function(x[0], kernel, stride=strides, padding=_halves(a.get("pads"), len(kernel)), **extra)

    return rule


def _batch_norm(x: list[Any], a: Attrs) -> Tensor:
    assert a.get("training_mode", 0) == 1
    return F.batch_norm(x[0], None, None, x[1], x[2], training=True, eps=a["epsilon"])


def _layer_norm(x: list[Any], a: Attrs) -> Tensor:
    axis = a.get("axis", -1) % x[0].ndim
    return F.layer_norm(x[0], x[0].shape[axis:], x[1], x[2] if len(x) > 2 else None, a.get("epsilon", 1e-5))


def _lrn(x: list[Any], a: Attrs) -> Tensor:
    return F.local_response_norm(x[0], a["size"], alpha=a["alpha"], beta=a["beta"], k=a["bias"])


def _gemm(x: list[Any], a: Attrs) -> Tensor:
    left = x[0].mT if a.get("transA") else x[0]
    right = x[1].mT if a.get("transB") else x[1]
    y = a.get("alpha", 1.0) * (left @ right)
    return y + a.get("beta", 1.0) * x[2] if len(x) > 2 else y


def _reshape(x: list[Any], a: Attrs) -> Tensor:
    sizes = [x[0].shape[i] if size == 0 else size for i, size in enumerate(x[1].tolist())]
    return x[0].reshape(sizes)


def _shape(x: list[Any], a: Attrs) -> Tensor:
    sizes = list(x[0].shape)[a.get("start", 0) : a.get("end", x[0].ndim)]
    return torch.tensor(sizes, device=x[0].device)


def _split(x: list[Any], a: Attrs) -> Any:
    if len(x) > 1:
        return torch.split(x[0], x[1].tolist(), a.get("axis", 0))
    return torch.chunk(x[0], a["num_outputs"], a.get("axis", 0))


def _gather(x: list[Any], a: Attrs) -> Tensor:
    axis = a.get("axis", 0)
    flat = x[0].index_select(axis, x[1].reshape(-1))
    return flat.reshape(*x[0].shape[:axis], *x[1].shape, *x[0].shape[axis + 1 :])


def _expand(x: list[Any], a: Attrs) -> Tensor:
    shape = torch.broadcast_shapes(x[0].shape, tuple(x[1].tolist()))
    return x[0].expand(shape)


def _constant_of_shape(x: list[Any], a: Attrs) -> Tensor:
    raise NotImplementedError("models with weights are wanted, not light ones")


RULES: dict[str, Rule] = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _pool(F.max_pool2d),
    "AveragePool": _pool(F.avg_pool2d, count_include_pad=False),
    "GlobalAveragePool": lambda x, a: x[0].mean(dim=tuple(range(2, x[0].ndim)), keepdim=True),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "LRN": _lrn,
    "Softplus": lambda x, a: F.softplus(x[0]),
    "Relu": lambda x, a: torch.relu(x[0]),
    "Gelu": lambda x, a: F.gelu(x[0], approximate=a.get("approximate", b"none").decode()),
    "Softmax": lambda x, a: torch.softmax(x[0], a.get("axis", -1)),
    "Add": lambda x, a: x[0] + x[1],
    "Mul": lambda x, a: x[0] * x[1],
    "GreaterOrEqual": lambda x, a: x[0] >= x[1],
    "Where": lambda x, a: torch.where(x[0], x[1], x[2]),
    "MatMul": lambda x, a: x[0] @ x[1],
    "Gemm": _gemm,
    "Flatten": lambda x, a: x[0].reshape(int(np.prod(x[0].shape[: a.get("axis", 1)], dtype=np.int64)), -1),
    "Reshape": _reshape,
    "Transpose": lambda x, a: x[0].permute(list(a["perm"])),
    "Concat": lambda x, a: torch.cat(x, dim=a["axis"]),
    "Split": _split,
    "Gather": _gather,
    "Shape": _shape,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
}
