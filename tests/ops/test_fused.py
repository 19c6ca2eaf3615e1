"""Kind `fused`: its shape rule and refusals, what it may overwrite, its cost."""

from __future__ import annotations

from typing import Any

import pytest

from snplan.ir import DType, Op, Spec, Tensor
from snplan.ops import KINDS, ShapeError, infer, inplace_pairs
from snplan.ops.fused import ELEMENTWISE, REDUCING, ROWS

SUM = ["reduce_sum", [2], {"axes": [1], "keepdims": False}]


def f32(*shape: int) -> Spec:
    return Spec(DType.FLOAT32, shape)


def attrs(parts: Any, results: Any) -> dict[str, Any]:
    return {"parts": parts, "results": results}


def test_results_in_any_number() -> None:
    parts = [["add", [0, 1], {}], ["greater", [2, 0], {}], ["mask", [3, 2], {"keep": True}]]
    row = f32(3)
    assert infer("fused", [f32(2, 3), row], attrs(parts, [4])) == (f32(2, 3),)
    assert infer("fused", [f32(2, 3), row], attrs(parts, [2, 3])) == (f32(2, 3), Spec(DType.BOOL, (2, 3)))


def test_a_sum_at_the_end() -> None:
    parts = [["mul", [0, 1], {}], SUM]
    assert infer("fused", [f32(2, 3), f32(3)], attrs(parts, [3])) == (f32(2),)
    x, vector = f32(4, 3, 2, 2), f32(3, 1, 1)
    norm = [["relu_grad", [0, 3], {}], ["batch_norm_grad_sums", [0, 1, 2, 4], {}]]
    assert infer("fused", [x, vector, vector, x], attrs(norm, [5, 6])) == (f32(3), f32(3))


@pytest.mark.parametrize(
    ("specs", "attributes", "reason"),
    [
        ([f32(2)], {"results": [1]}, "parts must list"),
        ([f32(2)], attrs([], [1]), "parts must list"),
        ([f32(2)], attrs([["relu"]], [1]), "a part must be"),
        ([f32(2)], attrs([["relu", ["x"], {}]], [1]), "needs numbers of values"),
        ([f32(2)], attrs([["relu", [True], {}]], [1]), "needs numbers of values"),
        ([f32(2)], attrs([["relu", [0], []]], [1]), "needs numbers of values"),
        ([f32(2)], attrs([["cum_sum", [0], {"axis": 0}]], [1]), "cannot be part"),
        ([f32(2)], attrs([["fused", [0], {}]], [1]), "cannot be part"),
        ([f32(2)], attrs([["relu", [1], {}]], [1]), "reads a later value"),
        ([f32(2)], attrs([["relu", [0], {}]], []), "results must list"),
        ([f32(2)], attrs([["relu", [0], {}]], [0]), "are not what the parts give"),
        ([f32(2)], attrs([["relu", [0], {}]], [7]), "are not what the parts give"),
        ([f32(2, 3), f32(3)], attrs([["relu", [1], {}], ["add", [0, 2], {}]], [3]), "the op works on"),
        ([f32(2, 3), f32(3)], attrs([["mul", [0, 1], {}], SUM], [2]), "are not what the parts give"),
        ([f32(2, 3), f32(2)], attrs([[*SUM[:1], [0], SUM[2]], ["relu", [2], {}]], [3]), "only the last part"),
        ([f32(2, 3), f32(2, 2)], attrs([["add", [0, 1], {}]], [2]), "do not broadcast"),
        ([f32(2, 3)], attrs([["softmax", [0], {"axis": 1}], ["softmax", [1], {"axis": 0}]], [2]), "only one part"),
        ([f32(2, 3)], attrs([["softmax", [0], {"axis": 1}], [*SUM[:1], [1], SUM[2]]], [2]), "only one part"),
        ([Spec(DType.INT64, (2,))], attrs([["neg", [0], {}]], [1]), "floating-point types"),
        ([f32(2)], attrs([["cast", [0], {"to": "float64"}]], [1]), "floating-point types"),
    ],
)
def test_refusals(specs: list[Spec], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeError, match=f"fused: .*{reason}"):
        infer("fused", specs, attributes)


def test_every_part_is_a_kind() -> None:
    assert {*ELEMENTWISE, *ROWS, *REDUCING} <= set(KINDS)


def op(parts: Any, results: list[int], inputs: int) -> Op:
    names = tuple(f"x{k}" for k in range(inputs))
    outputs = tuple(f"y{k}" for k in range(len(results)))
    return Op(name="op", kind="fused", inputs=names, outputs=outputs, attrs=attrs(parts, results))


def test_outputs_may_overwrite_inputs_of_their_size() -> None:
    tensors = {
        "x0": Tensor(name="x0", spec=f32(2, 3)),
        "x1": Tensor(name="x1", spec=f32(3)),
        "x2": Tensor(name="x2", spec=Spec(DType.FLOAT16, (2, 3))),
        "x3": Tensor(name="x3", spec=f32(2, 3)),
        "y0": Tensor(name="y0", spec=f32(2, 3)),
        "y1": Tensor(name="y1", spec=f32(2, 3)),
    }
    chain = op([["add", [0, 1], {}], ["add", [4, 3], {}]], [4, 5], 4)
    assert inplace_pairs(chain, tensors) == [(0, 0), (0, 3), (1, 0), (1, 3)]


def test_sums_overwrite_nothing() -> None:
    tensors = {"x0": Tensor(name="x0", spec=f32(3)), "y0": Tensor(name="y0", spec=f32(3))}
    last = ["reduce_sum", [1], {"axes": [], "keepdims": True}]
    assert inplace_pairs(op([["relu", [0], {}], last], [2], 1), tensors) == []


def test_cost() -> None:
    kind = KINDS["fused"]
    specs, own = [f32(10, 20), f32(20)], attrs([["mul", [0, 1], {}], ["relu", [2], {}], ["mul", [3, 0], {}]], [4])
    outputs = infer("fused", specs, own)
    assert kind.flops(specs, outputs, own) == 600
    # Each operand once: what the parts hand on costs nothing.
    assert kind.traffic(specs, outputs, own) == 4 * (200 + 20 + 200)
