"""What can be cut into pieces of the batch, and rule K for engines that run so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from cuda_ops import op_plan
from runtime_support import normal

from snplan.ir import DType, Spec
from snplan.ops.base import ShapeError
from snplan.ops.pieces import check_pieces, piece_of, piece_sizes
from snplan.plan.model import StepPlan
from snplan.plan.pieces import in_pieces
from snplan.verify import verify

F = DType.FLOAT32
WINDOW: dict[str, Any] = {"strides": [1, 1], "pads": [1] * 4, "dilations": [1, 1], "group": 1}


@pytest.mark.parametrize(
    ("batch", "pieces", "sizes"),
    [(8, 2, (4, 4)), (11, 2, (6, 5)), (11, 4, (3, 3, 3, 2)), (8, 8, (1,) * 8), (9, 8, (2,) * 7 + (-5,)), (7, 1, (7,))],
)
def test_sizes(batch: int, pieces: int, sizes: Sequence[int]) -> None:
    assert piece_sizes(batch, pieces) == sizes
    assert sum(sizes) == batch


def specs(
    kind: str, n: int, c: int = 4, size: int = 4, k: int = 8, dtype: DType = F
) -> tuple[list[Spec], dict[str, Any]]:
    """Inputs and attributes of a 3x3 convolution that keeps the size."""
    x, y, w = Spec(dtype, (n, c, size, size)), Spec(dtype, (n, k, size, size)), Spec(dtype, (k, c, 3, 3))
    rows = {"conv": [x, w], "conv_transpose": [y, w], "conv_filter": [x, y]}
    shapes = {"conv": {}, "conv_transpose": {"shape": list(x.shape)}, "conv_filter": {"shape": list(w.shape)}}
    return rows[kind], {**WINDOW, **shapes[kind]}


def test_a_piece() -> None:
    """What has the batch gets the piece's; filters and their shape stay."""
    x, y, w = Spec(F, (2, 4, 4, 4)), Spec(F, (2, 8, 4, 4)), Spec(F, (8, 4, 3, 3))
    assert piece_of("conv", *specs("conv", 8), images=2) == ((x, w), WINDOW)
    assert piece_of("conv_transpose", *specs("conv_transpose", 8), images=2) == (
        (y, w),
        {**WINDOW, "shape": [2, 4, 4, 4]},
    )
    assert piece_of("conv_filter", *specs("conv_filter", 8), images=2) == ((x, y), {**WINDOW, "shape": [8, 4, 3, 3]})


@pytest.mark.parametrize("kind", ["conv", "conv_transpose", "conv_filter"])
def test_what_can_be_cut(kind: str) -> None:
    for batch, pieces in ((8, 8), (11, 2), (11, 4)):
        check_pieces(kind, *specs(kind, batch), pieces)


@pytest.mark.parametrize(
    ("kind", "given", "pieces", "reason"),
    [
        ("matmul", ([Spec(F, (8, 4)), Spec(F, (4, 4))], {}), 2, "matmul is not run in pieces"),
        ("conv", specs("conv", 9), 8, "batch of 9 cannot be cut into 8 pieces"),
        ("conv", specs("conv", 0), 2, "batch of 0"),
        # A piece of 3 x 5 x 5 floats is 300 bytes: the second one would start in the middle of 16.
        ("conv", specs("conv", 2, c=3, size=5), 2, "1 images takes 300 bytes"),
        ("conv_filter", specs("conv_filter", 8, dtype=DType.BFLOAT16), 2, "partial filters of bfloat16"),
    ],
)
def test_what_cannot(kind: str, given: tuple[list[Spec], dict[str, Any]], pieces: int, reason: str) -> None:
    with pytest.raises(ShapeError, match=reason):
        check_pieces(kind, *given, pieces)


def test_half_precision_is_cut_where_nothing_is_summed() -> None:
    for kind in ("conv", "conv_transpose"):
        check_pieces(kind, *specs(kind, 8, dtype=DType.FLOAT16), 8)


def plan_of(kind: str, *, pieces: int, workspace: int, batch: int = 4) -> StepPlan:
    """A plan of one op in pieces."""
    rows, attrs = specs(kind, batch)
    arrays = [normal(*spec.shape, seed=number) for number, spec in enumerate(rows)]
    return op_plan(kind, arrays, attrs, workspace=workspace, engine=in_pieces(3, pieces))


def findings(plan: StepPlan) -> list[str]:
    return [f"{finding.rule} {finding.message}" for finding in verify(plan) if finding.rule in "FK"]


@pytest.mark.parametrize("kind", ["conv", "conv_transpose", "conv_filter"])
def test_rule_k_of_a_sound_plan(kind: str) -> None:
    assert findings(plan_of(kind, pieces=4, workspace=1152)) == []


def test_rule_k() -> None:
    """Nine images have no eight pieces; a partial filter of 8 x 4 x 3 x 3 floats is 1152 bytes."""
    (found,) = findings(plan_of("conv", pieces=8, workspace=512, batch=9))
    assert found.startswith("K op: a batch of 9 cannot be cut into 8 pieces")
    (found,) = findings(plan_of("conv_filter", pieces=2, workspace=512))
    assert found == "K op: 2 pieces need 1152 bytes for a partial filter, the workspace has 512"
    plan = op_plan("relu", [np.ones((4, 4), np.float32)], {}, workspace=512, engine=in_pieces(3, 2))
    assert findings(plan) == ["K op: a relu is not run in pieces of the batch; only convolutions are"]


def test_a_wrong_op_is_told_once() -> None:
    plan = plan_of("conv", pieces=2, workspace=512)
    wrong = [msgspec.structs.replace(plan.ops[0], attrs={**plan.ops[0].attrs, "group": 3})]
    assert len(findings(msgspec.structs.replace(plan, ops=wrong))) == 1
