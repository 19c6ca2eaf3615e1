"""What builders promise: every kind has kernels, launches are plain data, texts are few and always the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from kernel_cases import FAMILIES
from kernel_harness import Case, sources_of
from runtime_support import normal

from snplan.codegen.call import BUILDERS, builds
from snplan.codegen.kernels import LIBRARY, kernel_for, workspace_bytes
from snplan.codegen.launch import (
    CONTROL,
    TICKETS,
    Addresses,
    Control,
    Input,
    Launch,
    OpNumber,
    Output,
    Scalar,
    Workspace,
    source,
    values,
)
from snplan.codegen.operand import Order
from snplan.codegen.render import TEMPLATES, kernel_text, render
from snplan.errors import RunError
from snplan.ir import DType, Spec
from snplan.ops.base import KINDS
from snplan.plan.model import PlanOp

F32 = DType.FLOAT32


def op_of(kind: str, inputs: int, outputs: int, **attrs: Any) -> PlanOp:
    """An op as a plan has it."""
    return PlanOp(
        name="the_op",
        kind=kind,
        phase="forward",
        inputs=[f"x{k}" for k in range(inputs)],
        outputs=[f"y{k}" for k in range(outputs)],
        attrs=attrs,
        nodes=[],
        rng=None,
    )


def launches_of(
    kind: str, inputs: Sequence[Spec], outputs: Sequence[Spec], order: Order = "plain", **attrs: Any
) -> tuple[Launch, ...]:
    """The launches of an op whose tensors all have one order."""
    op = op_of(kind, len(inputs), len(outputs), **attrs)
    return kernel_for(op, inputs, outputs, [order] * (len(inputs) + len(outputs)))


def f32(*shape: int) -> Spec:
    """A float32 spec."""
    return Spec(F32, shape)


def test_every_kind_has_kernels_or_a_library() -> None:
    assert set(BUILDERS) & LIBRARY == set()
    assert set(BUILDERS) | LIBRARY == set(KINDS)


def test_every_kind_is_run_by_the_cases_and_every_template_is_used() -> None:
    cases = [case for family in FAMILIES.values() for case in family()]
    assert {case.kind for case in cases} == set(BUILDERS)
    used = {
        f"{source.template}.cu.j2"
        for source in sources_of([*cases[::3], *{case.kind: case for case in cases}.values()])
    }
    fragments = {"intrinsics.cu.j2", "prelude.cu.j2", "spin.cu.j2", "taps.j2", "windows.j2", "replay.py.j2"}
    assert used | fragments == {path.name for path in TEMPLATES.iterdir()}


def test_a_kind_is_built_once() -> None:
    with pytest.raises(ValueError, match="relu are built twice"):
        builds("relu")(lambda call: ())


def test_an_elementwise_launch_by_hand() -> None:
    (launch,) = launches_of("relu", [f32(3, 5)], [f32(3, 5)])
    assert launch.grid == (1, 1, 1)
    assert launch.block == (256, 1, 1)
    assert launch.arguments == (Output(0), Input(0), Scalar("int32", 4), Scalar("int32", 15))
    assert launch.workspace == launch.shared == 0
    assert launch.function.startswith("relu_")


def test_arguments_become_numpy_scalars() -> None:
    launch = Launch(
        source=source("pointwise", "x"),
        grid=(1, 1, 1),
        block=(1, 1, 1),
        arguments=(
            Input(1),
            Output(0),
            Workspace(64),
            Control(),
            OpNumber(),
            Scalar("float32", 0.1),
            Scalar("int64", 7),
        ),
    )
    at = Addresses(inputs=[10, 20], outputs=[30], workspace=1000, control=5, op_number=9)
    found = values(launch, at)
    assert [str(x.dtype) for x in found] == ["uint64"] * 4 + ["int32", "float32", "int64"]
    assert found == (20, 30, 1064, 5, 9, np.float32(0.1), 7)


def test_control_words_are_laid_out_as_the_kernels_read_them() -> None:
    offsets = [CONTROL.fields[name][1] for name in ("seed", "step", "fault", "spare", "tickets")]  # type: ignore[index]
    assert offsets == [0, 8, 16, 24, 32]
    assert CONTROL.itemsize == 32 + 4 * TICKETS
    assert f"u32 tickets[{TICKETS}];" in render([])


def test_the_same_text_for_any_batch() -> None:
    (a,), (b,) = (launches_of("relu", [f32(n, 64)], [f32(n, 64)]) for n in (8, 16))
    assert a.source == b.source
    assert a.arguments != b.arguments
    image, vectors = (64, 7, 7), [f32(64)] * 4
    norms = [
        launches_of("batch_norm_eval", [f32(n, *image), *vectors], [f32(n, *image)], "channels_last", epsilon=1e-5)
        for n in (2, 9)
    ]
    assert [x.source for x in norms[0]] == [x.source for x in norms[1]]


def test_texts_are_rendered_once_and_in_order() -> None:
    first, second = (
        launches_of("relu", [f32(64)], [f32(64)])[0].source,
        launches_of("exp", [f32(64)], [f32(64)])[0].source,
    )
    text = render([first, second, first])
    assert text == render([second, first])
    assert text.count(f" {first.name}(") == text.count(f" {second.name}(") == 1
    assert text.index(first.name) > text.index(second.name)


def test_names_follow_from_everything_that_the_text_depends_on() -> None:
    texts: dict[str, str] = {}
    for found in sources_of([case for family in FAMILIES.values() for case in family()][::5]):
        assert texts.setdefault(found.name, kernel_text(found)) == kernel_text(found)


@pytest.mark.parametrize(("count", "kind"), [((1 << 31) - 8192, "int"), (1 << 31, "i64")])
def test_large_tensors_are_indexed_with_64_bits(count: int, kind: str) -> None:
    (launch,) = launches_of("relu", [f32(count)], [f32(count)])
    assert dict(launch.source.params)["kind"] == kind
    assert launch.grid[0] * 256 * 4 >= count
    assert launch.arguments[-1] == Scalar("int32" if kind == "int" else "int64", count)


def test_nothing_is_launched_for_empty_results() -> None:
    assert launches_of("add", [f32(0, 3), f32(3)], [f32(0, 3)]) == ()
    assert launches_of("reduce_sum", [f32(0, 3)], [f32(0)], axes=[1], keepdims=False) == ()
    (launch,) = launches_of("reduce_sum", [f32(0, 3)], [f32(3)], axes=[0], keepdims=False)
    assert launch.grid[0] > 0, "a sum of nothing is written"


def test_most_ops_need_no_workspace_and_one_launch() -> None:
    image = f32(4, 64, 14, 14)
    for kind, inputs in (("relu", 1), ("add", 2), ("relu_grad", 2), ("softmax_grad", 2)):
        launches = launches_of(kind, [image] * inputs, [image], "channels_last", axis=1)
        assert len(launches) == 1
        assert launches[0].workspace == 0


def test_workspace_holds_partial_sums_and_is_reported() -> None:
    op = op_of("batch_norm_train", 3, 3, epsilon=1e-5)
    inputs, outputs = [f32(64, 64, 56, 56), f32(64), f32(64)], [f32(64, 64, 56, 56), f32(64), f32(64)]
    layouts: list[Order] = ["channels_last"] * 6
    launches = kernel_for(op, inputs, outputs, layouts)
    assert len(launches) == 2, "one pass for statistics, one to apply them"
    splits = launches[0].grid[1]
    # Two vectors of channels, and for each block the two float32 sums of a channel.
    assert launches[0].workspace == 2 * 64 * 4 + splits * 64 * 2 * 4
    assert workspace_bytes(op, inputs, outputs, layouts) == launches[0].workspace
    assert launches[0].grid[0] <= TICKETS
    assert any(isinstance(argument, Control) for argument in launches[0].arguments)


def test_batch_norm_passes_over_memory_twice() -> None:
    image, vector = f32(64, 64, 56, 56), f32(64)
    forward = launches_of("batch_norm_train", [image, vector, vector], [image, vector, vector], epsilon=1e-5)
    backward = launches_of("batch_norm_grad", [image, *[vector] * 3, image], [image, vector, vector], epsilon=1e-5)
    for launches, whole in ((forward, {0}), (backward, {0, 4})):
        assert len(launches) == 2
        for launch in launches:
            read = [a.index for a in launch.arguments if isinstance(a, Input)]
            assert whole <= set(read)


@pytest.mark.parametrize("kind", sorted(LIBRARY))
def test_library_kinds_are_refused_by_name(kind: str) -> None:
    with pytest.raises(RunError, match=f"the_op is of kind {kind}, which the CUDA backend has no kernel for"):
        kernel_for(op_of(kind, 0, 0), [], [])


def test_errors_name_the_op() -> None:
    complexes = Spec(DType.COMPLEX64, (4,))
    with pytest.raises(
        RunError, match=r"op the_op \(neg\): the CUDA backend has no arithmetic for complex64"
    ) as caught:
        launches_of("neg", [complexes], [complexes])
    assert caught.value.code == "SNP-R040"
    with pytest.raises(RunError, match=r"op the_op \(relu\): .*keep the tensor plain"):
        launches_of("relu", [f32(2, 8, 3, 3)], [f32(2, 72)], "channels_last", in_shapes=[[2, 72]])
    packed = Spec(DType.INT4, (4,))
    with pytest.raises(RunError, match="cannot move elements of type int4"):
        launches_of("copy", [packed], [packed])


def test_types_that_only_move_need_no_arithmetic() -> None:
    for dtype in (DType.FLOAT8E4M3FN, DType.COMPLEX64, DType.BOOL):
        (launch,) = launches_of("copy", [Spec(dtype, (9,))], [Spec(dtype, (9,))])
        assert launch.grid == (1, 1, 1)


def test_more_parts_than_parameters_allow_are_joined_one_by_one() -> None:
    parts = [f32(2, 1, 3)] * 70
    assert len(launches_of("concat", parts, [f32(2, 70, 3)], axis=1)) == 70
    assert len(launches_of("concat", parts[:64], [f32(2, 64, 3)], axis=1)) == 1


def test_turning_two_axes_goes_through_tiles() -> None:
    (launch,) = kernel_for(op_of("copy", 1, 1), [f32(2, 64, 14, 14)], [f32(2, 64, 14, 14)], ["plain", "channels_last"])
    assert launch.source.template == "tiles"
    assert launch.grid == (2 * 2 * 7, 1, 1)


def test_case_names_are_distinct_enough() -> None:
    case = Case(kind="relu", inputs=(normal(2, 3),), label="x")
    assert case.name == "relu-x-float32-2x3"
