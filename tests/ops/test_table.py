"""The op table as a whole: its page, what kinds declare, in-place pairs, questions about one op."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from op_cases import Case, differentiable_cases

from snplan.ir import DType, Op, Spec, Tensor
from snplan.ops import KINDS, Kind, ShapeError, infer, inplace_pairs, input_specs, register
from snplan.ops.base import no_flops
from snplan.ops.shapes import same_as
from snplan.ops.unary import SAVES_X, SAVES_Y
from snplan.runtime.numpy import KERNELS, Context

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"
TWO_PASSES = ("softmax", "norm", "cross_entropy", "log_sum_exp")
"""Kinds (by part of the name) that reduce first and then write each element from the one they read there."""


def kinds_of_page() -> set[str]:
    """The kinds that docs/ops.md names: first cells of its tables, and lists of the sections without a table."""
    text = PAGE.read_text(encoding="utf-8")
    kinds: set[str] = set()
    for line in text.splitlines():
        if line.startswith("| `"):
            kinds.update(re.findall(r"`([a-z0-9_]+)`", line.split("|")[1]))
    unary = text.split("## Elementwise, one input")[1].split("## Elementwise, two inputs")[0]
    binary = text.split("## Elementwise, two inputs")[1].split("| kind |")[0]
    reductions = text.split("## Reductions")[1].split("| kind |")[0]
    for section in (unary, binary, reductions):
        body = section.split("\n", 1)[1]
        # What stands in parentheses are attributes.
        kinds.update(re.findall(r"`([a-z0-9_]+)`", re.sub(r"\([^)]*\)", "", body)))
    kinds -= {"fmod", "scalar", "reverse"}
    return kinds | {f"{kind}_grad" for kind in (*SAVES_X, *SAVES_Y)}


def test_page_and_table_name_the_same_kinds() -> None:
    assert kinds_of_page() == set(KINDS)


def test_every_kind_has_a_numpy_kernel() -> None:
    assert {name for name, kind in KINDS.items() if not kind.view} <= set(KERNELS)


def test_a_kind_is_declared_once() -> None:
    with pytest.raises(ValueError, match="copy is declared twice"):
        register(Kind(name="copy", infer=same_as(0, 1), flops=no_flops))


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_declarations_are_consistent(kind: Kind) -> None:
    assert not (kind.view and kind.inplace)
    assert len({*kind.inplace}) == len(kind.inplace)
    if kind.refuses is not None:
        assert kind.gradient is not None
    if kind.name.endswith("_grad"):
        assert kind.gradient is None


def test_random_kinds() -> None:
    random = {name for name, kind in KINDS.items() if kind.random}
    assert random == {"dropout", "dropout_grad", "dropout_mask", "random_uniform", "random_normal"}


def test_unknown_kind() -> None:
    with pytest.raises(ShapeError, match="there is no op kind nonsense"):
        infer("nonsense", [], {})


def tensor(name: str, *shape: int, dtype: DType = DType.FLOAT32) -> Tensor:
    return Tensor(name=name, spec=Spec(dtype, shape))


def test_inputs_are_seen_through_views() -> None:
    tensors = {"a": tensor("a", 2, 3, 4), "w": tensor("w", 4, 5)}
    op = Op(
        name="m",
        kind="matmul",
        inputs=("a", "w"),
        outputs=("y",),
        attrs={"trans_a": False, "trans_b": False, "alpha": 1.0, "in_shapes": [[6, 4], None]},
    )
    specs = input_specs(op, tensors)
    assert [spec.shape for spec in specs] == [(6, 4), (4, 5)]
    assert infer(op.kind, [t.spec for t in tensors.values()], op.attrs)[0].shape == (6, 5)
    assert KINDS["matmul"].flops(specs, [Spec(DType.FLOAT32, (6, 5))], op.attrs) == 2 * 6 * 4 * 5


@pytest.mark.parametrize("shapes", [[[6, 5]], [[6, 4], None, None], "6x4"])
def test_views_must_fit(shapes: object) -> None:
    attrs = {"trans_a": False, "trans_b": False, "alpha": 1.0, "in_shapes": shapes}
    with pytest.raises(ShapeError):
        infer("matmul", [Spec(DType.FLOAT32, (2, 3, 4)), Spec(DType.FLOAT32, (4, 5))], attrs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "inputs", "output", "expected"),
    [
        ("add", [tensor("a", 2, 3), tensor("b", 2, 3)], tensor("y", 2, 3), [(0, 0), (0, 1)]),
        ("add", [tensor("a", 2, 3), tensor("b", 3)], tensor("y", 2, 3), [(0, 0)]),
        ("add", [tensor("a", 1, 3), tensor("b", 3, 1)], tensor("y", 3, 3), []),
        ("is_nan", [tensor("a", 4)], tensor("y", 4, dtype=DType.BOOL), []),
        ("cast", [tensor("a", 4)], tensor("y", 4, dtype=DType.INT32), []),
        ("relu_grad", [tensor("s", 4), tensor("dy", 4)], tensor("y", 4), [(0, 1), (0, 0)]),
        ("concat", [tensor("a", 4)], tensor("y", 4), []),
        ("reduce_sum", [tensor("a", 1)], tensor("y", 1), []),
        ("adam_update", [tensor(n, 4) for n in "wgmv"], tensor("y", 4), [(0, 0)]),
    ],
)
def test_inplace_pairs(kind: str, inputs: list[Tensor], output: Tensor, expected: list[tuple[int, int]]) -> None:
    op = Op(name="op", kind=kind, inputs=tuple(t.name for t in inputs), outputs=("y",))
    assert inplace_pairs(op, {t.name: t for t in (*inputs, output)}) == expected


def test_updates_overwrite_each_state() -> None:
    tensors = {name: tensor(name, 4) for name in ("w", "g", "m", "v", "w'", "m'", "v'")}
    op = Op(name="u", kind="adam_update", inputs=("w", "g", "m", "v"), outputs=("w'", "m'", "v'"))
    assert inplace_pairs(op, tensors) == [(0, 0), (1, 2), (2, 3)]


ELEMENTWISE = [
    case
    for case in differentiable_cases()
    if KINDS[case.kind].inplace and not any(part in case.kind for part in TWO_PASSES) and "scatter" not in case.kind
]


@pytest.mark.parametrize("case", ELEMENTWISE, ids=str)
def test_in_place_outputs_depend_on_the_same_element_alone(case: Case) -> None:
    """What an executor relies on that overwrites the input element by element."""

    def run(inputs: list[np.ndarray]) -> np.ndarray:
        return KERNELS[case.kind](inputs, case.attrs, Context(stream=case.rng or 0))[0]

    before = run([*case.inputs])
    for _, index in KINDS[case.kind].inplace:
        if index >= len(case.inputs) or case.inputs[index].shape != before.shape or not before.size:
            continue
        for element in range(0, before.size, 3):
            inputs = [x.copy() for x in case.inputs]
            inputs[index].reshape(-1)[element] += 0.1
            changed = np.flatnonzero(run(inputs).reshape(-1) != before.reshape(-1))
            assert set(changed.tolist()) <= {element}
