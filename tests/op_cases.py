"""Inputs and attributes for op kinds: what the tests of shapes and gradients go through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from snplan.ops.unary import GRADIENT_ZERO, SAVES_X, SAVES_Y
from snplan.runtime.numpy import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One op: its kind, inputs and attributes. `rng` is its random stream."""

    kind: str
    inputs: tuple[Array, ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    rng: int | None = None
    note: str = ""

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, x.shape)) or "scalar" for x in self.inputs)
        return "-".join(part for part in (self.kind, shapes, self.note) if part)


def values(*shape: int, seed: int = 0) -> Array:
    """Distinct float64 values between -2 and 2, none near 0 or near another."""
    count = int(np.prod(shape, dtype=np.int64))
    order = np.random.default_rng(seed + count).permutation(count)
    return (((order + 0.5) / max(count, 1) - 0.5) * 3.9 + 0.013).reshape(shape)


def positive(*shape: int, seed: int = 0) -> Array:
    """Values between 0.3 and 2.3."""
    return np.abs(values(*shape, seed=seed)) + 0.3


def inside(*shape: int, seed: int = 0) -> Array:
    """Values between -0.8 and 0.8."""
    return values(*shape, seed=seed) * 0.4


def ids(*shape: int, below: int, seed: int = 0) -> Array:
    """Integers in [0, below)."""
    return np.random.default_rng(seed).integers(0, below, shape, np.int64)


UNARY_ATTRS: dict[str, list[dict[str, Any]]] = {
    "leaky_relu": [{"alpha": 0.1}],
    "elu": [{"alpha": 1.3}],
    "celu": [{"alpha": 1.3}],
    "selu": [{"alpha": 1.6, "gamma": 1.05}],
    "thresholded_relu": [{"alpha": 0.7}],
    "hard_sigmoid": [{"alpha": 0.3, "beta": 0.45}],
    "gelu": [{"approximate": "none"}, {"approximate": "tanh"}],
    "clip": [{"min": -0.7, "max": 0.9}, {"min": None, "max": 0.9}, {"min": -0.7, "max": None}],
    "shrink": [{"bias": 0.2, "lambd": 0.6}],
    "swish": [{"alpha": 1.0}, {"alpha": 1.7}],
}
_DOMAIN: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("sqrt", "log", "reciprocal"), positive),
    **dict.fromkeys(("asin", "acos", "atanh", "tan"), inside),
    "acosh": lambda *shape: positive(*shape) + 1.0,
}


def unary_cases() -> list[Case]:
    """One or more of each kind of one input."""
    return [
        Case(kind=kind, inputs=(_DOMAIN.get(kind, values)(3, 7),), attrs=attrs)
        for kind in (*SAVES_Y, *SAVES_X, "neg")
        for attrs in UNARY_ATTRS.get(kind, [{}])
    ]


def flat_cases() -> list[Case]:
    """Kinds whose gradient is zero."""
    return [Case(kind=kind, inputs=(values(3, 4),)) for kind in GRADIENT_ZERO]


_PAIRS = (((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1, 3), (4, 1)), ((), (2, 2)), ((1, 3), (2, 1)), ((0, 3), (1, 3)))


def binary_cases() -> list[Case]:
    """Two broadcasting inputs, and one with a scalar."""
    cases = []
    for kind in ("add", "sub", "mul", "div", "pow", "max", "min"):
        left = positive if kind == "pow" else values
        right = positive if kind == "div" else values
        cases += [Case(kind=kind, inputs=(left(*a), right(*b, seed=1))) for a, b in _PAIRS]
        for reverse in (False, True):
            attrs: dict[str, Any] = {"scalar": 1.7, "reverse": reverse}
            x = positive(2, 3) if kind in ("div", "pow") else values(2, 3)
            cases.append(Case(kind=kind, inputs=(x,), attrs=attrs, note="reverse" if reverse else "scalar"))
    cases.append(Case(kind="mod", inputs=(values(2, 3), positive(3, seed=1)), attrs={"fmod": True}))
    cases.append(Case(kind="mod", inputs=(values(2, 3),), attrs={"fmod": True, "scalar": 0.7}, note="scalar"))
    condition = values(2, 3) > 0
    cases.append(Case(kind="where", inputs=(condition, values(2, 3), values(2, 3, seed=1))))
    cases.append(Case(kind="where", inputs=(condition, values(4, 1, 3), values(1, seed=1))))
    cases += [
        Case(kind="mask", inputs=(condition, values(*s)), attrs={"keep": k})
        for s in ((2, 3), (3,))
        for k in (True, False)
    ]
    cases += [Case(kind="prelu", inputs=(values(2, 3, 4), values(*s, seed=1))) for s in ((2, 3, 4), (3, 1), (1,))]
    return cases


def reduction_cases() -> list[Case]:
    """Every reduction over some, all and no axes."""
    cases = []
    for kind in ("sum", "mean", "max", "min", "prod", "log_sum_exp"):
        for axes in ([1], [0, 2], [0, 1, 2], []):
            attrs = {"axes": axes, "keepdims": len(axes) != 1}
            cases.append(Case(kind=f"reduce_{kind}", inputs=(values(2, 3, 4),), attrs=attrs, note=f"axes{axes}"))
        cases.append(
            Case(kind=f"reduce_{kind}", inputs=(values(2, 3),), attrs={"axes": [0, 1], "keepdims": False}, note="all")
        )
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
            cases.append(Case(kind="cum_sum", inputs=(values(2, 4),), attrs=attrs, note=f"{exclusive}-{reverse}"))
    cases += [
        Case(kind="top_k", inputs=(values(3, 5),), attrs={"axis": axis, "k": 2, "largest": largest, "sorted": True})
        for axis, largest in ((1, True), (0, False))
    ]
    return cases


def movement_cases() -> list[Case]:
    """Kinds that move elements by position."""
    x = values(2, 3, 4)
    cases = [
        Case(kind="view", inputs=(x,), attrs={"shape": [6, 4]}),
        Case(kind="copy", inputs=(x,)),
        Case(kind="cast", inputs=(x,), attrs={"to": "float64"}),
        Case(kind="transpose", inputs=(x,), attrs={"perm": [2, 0, 1]}),
        Case(kind="concat", inputs=(x, values(2, 1, 4, seed=1), values(2, 2, 4, seed=2)), attrs={"axis": 1}),
        Case(kind="concat", inputs=(values(0, 4), values(3, 4)), attrs={"axis": 0}, note="empty"),
        Case(kind="concat", inputs=(x,), attrs={"axis": 0}),
        Case(kind="concat", inputs=(values(2, 2), ids(2, 2, below=3).astype(np.float64)), attrs={"axis": 1}),
        Case(kind="split", inputs=(x,), attrs={"axis": 2, "sizes": [1, 3]}),
        Case(kind="split", inputs=(x,), attrs={"axis": 1, "sizes": [1, 0, 2]}),
        Case(kind="split", inputs=(x,), attrs={"axis": 0, "sizes": [2]}),
        Case(kind="slice", inputs=(x,), attrs={"starts": [0, 2, 1], "steps": [1, -1, 2], "sizes": [2, 3, 2]}),
        Case(kind="slice", inputs=(x,), attrs={"starts": [1, 0, 0], "steps": [1, 1, 1], "sizes": [1, 3, 0]}),
        Case(kind="expand", inputs=(values(3, 1),), attrs={"shape": [2, 3, 4]}),
        Case(kind="expand", inputs=(values(1),), attrs={"shape": [1, 1]}),
        Case(kind="tile", inputs=(values(2, 3),), attrs={"repeats": [3, 2]}),
        Case(kind="tile", inputs=(values(2, 3),), attrs={"repeats": [1, 1]}),
    ]
    cases += [
        Case(kind="trilu", inputs=(values(2, 3, 4),), attrs={"upper": upper, "k": k}, note=f"{upper}{k}")
        for upper, k in ((True, 0), (False, 1), (True, -1))
    ]
    pads = {"before": [1, 2], "after": [2, 1], "value": 0.5}
    cases += [
        Case(kind="pad", inputs=(values(4, 5),), attrs={**pads, "mode": mode}, note=mode)
        for mode in ("constant", "reflect", "edge", "wrap")
    ]
    cropped = {"before": [-1, 1], "after": [2, -2], "mode": "constant", "value": 0.0}
    return [*cases, Case(kind="pad", inputs=(values(4, 5),), attrs=cropped, note="crop")]


def indexing_cases() -> list[Case]:
    """Kinds that move elements by index."""
    x = values(4, 3)
    unique = np.array([[3], [0]], np.int64)
    cases = [
        Case(kind="gather", inputs=(x, np.array([[0, -1], [2, 0]])), attrs={"axis": 0}),
        Case(kind="gather", inputs=(x, ids(5, below=3)), attrs={"axis": 1}),
        Case(kind="gather", inputs=(x, np.array(2)), attrs={"axis": 0}),
        Case(kind="gather_elements", inputs=(x, ids(2, 3, below=4)), attrs={"axis": 0}),
        Case(kind="gather_elements", inputs=(x, ids(4, 5, below=3)), attrs={"axis": 1}),
        Case(kind="gather_nd", inputs=(x, ids(2, 2, 1, below=4)), attrs={"batch_dims": 0}),
        Case(kind="gather_nd", inputs=(x, ids(5, 2, below=3)), attrs={"batch_dims": 0}),
        Case(kind="gather_nd", inputs=(values(2, 3, 4), ids(2, 2, 1, below=3)), attrs={"batch_dims": 1}),
    ]
    for reduction in ("none", "add", "max", "min"):
        attrs = {"reduction": reduction}
        updates = values(2, 3, seed=1) * 1.1
        cases.append(Case(kind="scatter_nd", inputs=(x, unique, updates), attrs=attrs, note=reduction))
        elements = (x, np.array([[2, 0, 1]]), values(1, 3, seed=3) * 1.2)
        cases.append(Case(kind="scatter_elements", inputs=elements, attrs={**attrs, "axis": 1}, note=reduction))
    for reduction in ("add", "max", "min"):
        repeated = (x, np.array([[1], [1], [2]]), values(3, 3, seed=1) * 1.1)
        cases.append(
            Case(kind="scatter_nd", inputs=repeated, attrs={"reduction": reduction}, note=f"{reduction}-twice")
        )
    return cases


def resize_cases() -> list[Case]:
    """Modes, up and down."""
    common = {"cubic_coeff": -0.75, "exclude_outside": False, "nearest_mode": "round_prefer_floor"}
    cases = []
    for mode in ("nearest", "linear", "cubic"):
        for coordinates in ("half_pixel", "align_corners", "asymmetric"):
            for sizes in ([1, 2, 7, 6], [1, 2, 2, 3]):
                scales = [1.0, 1.0, sizes[2] / 4, sizes[3] / 3]
                attrs = {**common, "sizes": sizes, "scales": scales, "mode": mode, "coordinate_mode": coordinates}
                cases.append(
                    Case(
                        kind="resize",
                        inputs=(values(1, 2, 4, 3),),
                        attrs=attrs,
                        note=f"{mode}-{coordinates}-{sizes[2]}",
                    )
                )
    return cases


def _matmul(a: Array, b: Array, *bias: Array, trans_a: bool = False, trans_b: bool = False, alpha: float = 1.0) -> Case:
    attrs = {"trans_a": trans_a, "trans_b": trans_b, "alpha": alpha}
    return Case(kind="matmul", inputs=(a, b, *bias), attrs=attrs, note=f"{trans_a:d}{trans_b:d}")


def linear_cases() -> list[Case]:
    """Matrix products with all flags and broadcasts, convolutions of one to three axes."""
    cases = []
    for trans_a in (False, True):
        for trans_b in (False, True):
            a, b = (4, 3) if trans_a else (3, 4), (2, 4) if trans_b else (4, 2)
            flags = {"trans_a": trans_a, "trans_b": trans_b}
            cases += [
                _matmul(values(*a), values(*b, seed=1), values(2, seed=2), alpha=0.7, **flags),
                _matmul(values(2, *a), values(*b, seed=1), **flags),
                _matmul(values(2, 2, *a), values(1, 1, *b, seed=1), values(3, 1, seed=2), **flags),
                _matmul(values(*a), values(3, *b, seed=1), **flags),
                _matmul(values(2, 1, *a), values(1, 3, *b, seed=1), values(1, seed=2), alpha=2.0, **flags),
            ]
    plain = {"strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], "group": 1}
    odd = {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2], "group": 2}
    cases += [
        Case(kind="conv", inputs=(values(2, 2, 4, 4), values(3, 2, 2, 2, seed=1)), attrs=plain),
        Case(kind="conv", inputs=(values(1, 4, 5, 6), values(4, 2, 3, 2, seed=1), values(4, seed=2)), attrs=odd),
        Case(
            kind="conv",
            inputs=(values(2, 3, 6), values(3, 1, 3, seed=1)),
            attrs={"strides": [2], "pads": [1, 1], "dilations": [1], "group": 3},
        ),
        Case(
            kind="conv",
            inputs=(values(1, 1, 3, 3, 3), values(2, 1, 2, 2, 2, seed=1)),
            attrs={"strides": [1] * 3, "pads": [0] * 6, "dilations": [1] * 3, "group": 1},
        ),
        Case(
            kind="conv_transpose",
            inputs=(values(1, 4, 3, 3), values(4, 1, 3, 2, seed=1)),
            attrs={"strides": [2, 1], "pads": [1, 0, 1, 0], "dilations": [1, 1], "group": 2, "shape": [1, 2, 6, 4]},
        ),
    ]
    return cases


def pooling_cases() -> list[Case]:
    """Windows with strides, pads, dilations and a last window that is cut off."""
    plain = {"kernel": [2, 2], "strides": [2, 2], "pads": [0] * 4, "dilations": [1, 1], "sizes": [2, 2]}
    odd = {"kernel": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "dilations": [1, 2], "sizes": [3, 4]}
    ceil = {"kernel": [3], "strides": [2], "pads": [0, 0], "dilations": [1], "sizes": [3]}
    cases = []
    for kind in ("max_pool", "average_pool"):
        for include in (False, True) if kind == "average_pool" else (None,):
            more = {} if include is None else {"count_include_pad": include}
            cases += [
                Case(kind=kind, inputs=(values(1, 2, 4, 5),), attrs={**plain, **more}, note=f"{include}"),
                Case(kind=kind, inputs=(values(1, 2, 5, 5),), attrs={**odd, **more}, note=f"odd-{include}"),
                Case(kind=kind, inputs=(values(2, 1, 6),), attrs={**ceil, **more}, note=f"ceil-{include}"),
            ]
    return cases


def norm_cases() -> list[Case]:
    """Every normalisation, with and without weights."""
    e = {"epsilon": 1e-3}
    c3 = (positive(3, seed=1), values(3, seed=2))
    cases = [
        Case(kind="batch_norm_train", inputs=(values(4, 3), *c3), attrs=e),
        Case(kind="batch_norm_train", inputs=(values(2, 3, 2, 2), *c3), attrs=e),
        Case(kind="batch_norm_eval", inputs=(values(2, 3, 4), *c3, values(3, seed=3), positive(3, seed=4)), attrs=e),
        Case(kind="group_norm", inputs=(values(2, 3, 4), *c3), attrs={**e, "groups": 3}),
        Case(kind="group_norm", inputs=(values(2, 3, 2, 2), *c3), attrs={**e, "groups": 1}),
        Case(kind="lrn", inputs=(values(2, 5, 3),), attrs={"size": 3, "alpha": 0.3, "beta": 0.75, "bias": 1.0}),
        Case(kind="lrn", inputs=(values(1, 4, 2),), attrs={"size": 2, "alpha": 0.3, "beta": 0.5, "bias": 2.0}),
    ]
    weights = (positive(3, 4, seed=1), values(3, 4, seed=2))
    for count in range(3):
        attrs = {**e, "axis": 1}
        cases.append(Case(kind="layer_norm", inputs=(values(2, 3, 4), *weights[:count]), attrs=attrs))
        if count < 2:
            cases.append(Case(kind="rms_norm", inputs=(values(2, 3, 4), *weights[:count]), attrs=attrs))
    return cases


def loss_cases() -> list[Case]:
    """Softmax and losses with every reduction, with weights and ignored labels."""
    cases = [
        Case(kind=kind, inputs=(values(2, 3, 4),), attrs={"axis": axis}, note=f"axis{axis}")
        for kind in ("softmax", "log_softmax")
        for axis in (0, 1, 2)
    ]
    labels = np.array([[0, 2], [1, 2]])
    for kind in ("softmax_cross_entropy", "nll_loss"):
        for reduction in ("mean", "sum", "none"):
            attrs = {"axis": 1, "reduction": reduction, "ignore_index": None}
            some = {"axis": 2, "reduction": reduction, "ignore_index": 2}
            cases += [
                Case(kind=kind, inputs=(values(4, 3), ids(4, below=3)), attrs=attrs, note=reduction),
                Case(kind=kind, inputs=(values(2, 2, 3), labels, positive(3)), attrs=some, note=reduction),
            ]
    return cases


def random_cases() -> list[Case]:
    """Dropout."""
    return [Case(kind="dropout", inputs=(values(4, 8),), attrs={"ratio": 0.4}, rng=3)]


def differentiable_cases() -> list[Case]:
    """At least one case of every kind with a gradient."""
    return [
        *unary_cases(),
        *binary_cases(),
        *reduction_cases(),
        *movement_cases(),
        *indexing_cases(),
        *resize_cases(),
        *linear_cases(),
        *pooling_cases(),
        *norm_cases(),
        *loss_cases(),
        *random_cases(),
    ]
