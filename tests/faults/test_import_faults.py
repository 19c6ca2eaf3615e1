"""Import: what exporters, converters and downloads get wrong, and what importers of others got wrong about it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from faults.support import made, replay, saved, squeezed
from frontend_support import BOOL, INT64, imported, info, ints, model, node, ort_run, tensor
from onnx import ModelProto, TensorProto, helper, numpy_helper

from snplan.cli import main
from snplan.ir import DType, nbytes
from snplan.plan.file import encode_plan
from snplan.units import round_up

FLOAT16 = TensorProto.FLOAT16


def as_if_of(plan: Any, other: Any) -> bytes:
    """A plan's bytes, with the model of another plan: models in two files have two hashes."""
    return encode_plan(msgspec.structs.replace(plan, model=other.model))


# -- order and names of nodes ------------------------------------------------------------------------------------------


def two_layers(*, reverse: bool) -> ModelProto:
    """relu(x @ w) summed, its nodes in either order."""
    nodes = [
        node("MatMul", ["x", "w"], ["h"], "product"),
        node("Relu", ["h"], ["a"], "act"),
        node("ReduceSum", ["a"], ["loss"], "sum", keepdims=0),
    ]
    weight = tensor("w", np.arange(64).reshape(8, 8) - 30.0)
    return model(nodes[::-1] if reverse else nodes, [info("x", [4, 8])], ["loss"], [weight])


def test_reversed_nodes_make_the_plan_of_sorted_ones_and_a_note(tmp_path: Path) -> None:
    straight = made(two_layers(reverse=False), tmp_path)
    turned = made(two_layers(reverse=True), tmp_path)
    assert as_if_of(turned.plan, straight.plan) == encode_plan(straight.plan)
    assert any("sorted" in warning for warning in turned.report["warnings"])
    assert straight.report["warnings"] == []


def test_a_node_that_only_a_loop_body_needs_may_come_after_the_loop() -> None:
    """The body reads `h`, which the graph writes further down: the loop comes after it all the same."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["go2"]), node("Add", ["a", "h"], ["a2"])],
        "body",
        [info("i", [], INT64), info("go", [], BOOL), info("a", [2])],
        [info("go2", [], BOOL), info("a2", None)],
    )
    nodes = [node("Loop", ["m", "", "x"], ["y"], "loop", body=body), node("Neg", ["x"], ["h"], "late")]
    proto = model(nodes, [info("x", [2])], ["y"], [tensor("m", 3, np.int64)])
    forward = imported(proto)
    assert [op.kind for op in forward.graph.ops] == ["neg", "add", "add", "add"]
    assert any("sorted" in warning for warning in forward.warnings)


def one_of_each_optional(folder: Path) -> Any:
    """Dropout, Clip and Resize with left-out inputs and outputs, all called ''."""
    nodes = [
        node("Dropout", ["a", "", ""], ["b", ""]),
        node("Clip", ["b", "", "most"], ["c"]),
        node("Resize", ["c", "", "twice"], ["y"], mode="nearest"),
        node("Mul", ["y", "w"], ["z"]),
    ]
    stored = [tensor("most", 3.0), tensor("twice", [1, 1, 2, 2]), tensor("w", np.ones((4, 4)))]
    return made(model(nodes, [info("a", [1, 1, 2, 2])], ["z"], stored), folder, loss="sum")


def test_left_out_inputs_and_outputs_take_no_bytes(tmp_path: Path) -> None:
    plan = one_of_each_optional(tmp_path).plan
    assert "" not in {tensor.name for tensor in plan.tensors}
    assert all("" not in (*op.inputs, *op.outputs) for op in plan.ops)


# -- weights -----------------------------------------------------------------------------------------------------------


def mlp(*, ir: int, listed: bool) -> ModelProto:
    """A two-layer network; its weights are `listed` as graph inputs or not."""
    rng = np.random.default_rng(0)
    stored = [tensor("w1", rng.standard_normal((4, 3))), tensor("b1", np.zeros(3)), tensor("w2", np.ones((3, 2)))]
    inputs = [info("x", [5, 4])] + ([info(t.name, list(t.dims)) for t in stored] if listed else [])
    nodes = [node("Gemm", ["x", "w1", "b1"], ["h"]), node("Relu", ["h"], ["r"]), node("MatMul", ["r", "w2"], ["y"])]
    return model(nodes, inputs, ["y"], stored, ir=ir)


def test_weights_listed_as_inputs_are_weights_and_counted_once(tmp_path: Path) -> None:
    """As IR 3 demands and IR 8 does not: one plan, one data input, one set of trained weights."""
    old = made(mlp(ir=3, listed=True), tmp_path, loss="sum").plan
    new = made(mlp(ir=8, listed=False), tmp_path, loss="sum").plan
    assert as_if_of(old, new) == encode_plan(new)
    roles = {tensor.name: tensor.role for tensor in old.tensors}
    assert [name for name, role in roles.items() if role == "input"] == ["x"]
    assert sum(t.bytes for t in old.tensors if t.name in ("w1", "b1", "w2")) == (12 + 3 + 6) * 4
    assert {entry.tensor: entry.becomes for entry in old.persistent} == {n: f"{n}:next" for n in ("w1", "b1", "w2")}


def language_model(copy: str | None) -> ModelProto:
    """Table W[1000, 64] gathered from and multiplied by: one weight, or as exporters fold it (`copy`) two."""
    table = np.random.default_rng(3).standard_normal((1000, 64)).astype(np.float32)
    nodes = [node("Gather", ["W", "x"], ["h"])]
    stored = [tensor("W", table)]
    if copy is None:
        nodes += [node("Transpose", ["W"], ["Wt"], perm=[1, 0]), node("MatMul", ["h", "Wt"], ["y"])]
    elif copy == "transposed":
        nodes += [node("MatMul", ["h", "head"], ["y"])]
        stored += [tensor("other", np.ones((64, 1000))), tensor("head", table.T)]
        nodes += [node("MatMul", ["h", "other"], ["y2"]), node("Add", ["y", "y2"], ["both"])]
    else:
        nodes += [node("Transpose", ["head"], ["Wt"], perm=[1, 0]), node("MatMul", ["h", "Wt"], ["y"])]
        stored.append(tensor("head", table))
    output = "both" if copy == "transposed" else "y"
    return model(nodes, [info("x", [2, 5], INT64)], [output], stored)


def test_a_tied_weight_is_one_weight_with_one_gradient(tmp_path: Path) -> None:
    """256,000 bytes of weight and 256,000 of gradient, not twice that."""
    plan = made(language_model(None), tmp_path, loss="sum", optimizer="none").plan
    assert {t.name: t.bytes for t in plan.tensors if t.role == "parameter"} == {"W": 256_000}
    assert {t.name: t.bytes for t in plan.tensors if t.name.endswith(":grad") and t.bytes >= 256_000} == {
        "W:grad": 256_000
    }
    assert [place.tensor for place in plan.outputs if place.tensor != "loss"] == ["W:grad"]


@pytest.mark.parametrize("copy", ["transposed", "plain"])
@pytest.mark.parametrize("stored", ["raw", "typed", "external"])
def test_a_tied_weight_that_the_exporter_copied_is_noted(copy: str, stored: str, tmp_path: Path) -> None:
    """512,000 bytes, and a warning that names both, wherever the data is and whatever other matrices there are."""
    proto = language_model(copy)
    for weight in proto.graph.initializer:
        if stored == "typed":
            values = numpy_helper.to_array(weight)
            weight.CopyFrom(helper.make_tensor(weight.name, TensorProto.FLOAT, values.shape, values.reshape(-1)))
        elif stored == "external":
            (tmp_path / f"{weight.name}.bin").write_bytes(bytes(512) + weight.raw_data)
            weight.ClearField("raw_data")
            weight.data_location = TensorProto.EXTERNAL
            weight.external_data.add(key="location", value=f"{weight.name}.bin")
            weight.external_data.add(key="offset", value="512")
    found = made(proto, tmp_path, loss="sum", optimizer="none")
    sizes = {t.name: t.bytes for t in found.plan.tensors if t.role == "parameter" and t.name in ("W", "head")}
    assert sizes == {"W": 256_000, "head": 256_000}
    relation = "W transposed" if copy == "transposed" else "a copy of W"
    assert len([w for w in found.report["warnings"] if f"head is {relation}" in w and "256,000 bytes" in w]) == 1
    assert not any("other is" in warning for warning in found.report["warnings"])


# -- control flow and functions ----------------------------------------------------------------------------------------


def test_a_branch_that_returns_an_outer_value_frees_it_once(tmp_path: Path) -> None:
    """The taken branch has no node; what it returns has other readers as well, and its gradients are both."""
    then = helper.make_graph([node("Exp", ["h"], ["t"])], "then", [], [info("t", None)])
    other = helper.make_graph([], "else", [], [info("h", None)])
    nodes = [
        node("Mul", ["x", "w"], ["h"]),
        node("If", ["c"], ["r"], "if", then_branch=then, else_branch=other),
        node("Mul", ["r", "h"], ["p"]),
        node("ReduceSum", ["p"], ["loss"], keepdims=0),
    ]
    stored = [tensor("c", False, np.bool_), tensor("w", np.full((64, 64), 3.0))]
    proto = model(nodes, [info("x", [64, 64])], ["loss"], stored)
    x = np.full((64, 64), 2.0, np.float32)
    for share in (0.0, 1.0):
        found = squeezed(proto, tmp_path, share, optimizer="none")
        result = replay(found, {"x": x}, steps=2)
        # loss = sum (x w)^2, so its gradient is 2 x^2 w = 24
        assert result.losses == [36.0 * 64 * 64] * 2
        np.testing.assert_array_equal(result.gradients["w"], np.full((64, 64), 24.0, np.float32))


def twice_through_a_function() -> tuple[ModelProto, ModelProto]:
    """g calls f twice, with [768, 3072] and [3072, 50]; and the same by hand."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    f = helper.make_function(
        "f", "f", ["x", "w"], ["y"], [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])], imports
    )
    calls = [
        helper.make_node("f", ["x", "a"], ["h"], "one", domain="f"),
        helper.make_node("f", ["h", "b"], ["y"], "two", domain="f"),
    ]
    g = helper.make_function("f", "g", ["x", "a", "b"], ["y"], calls, imports)
    stored = [tensor("a", np.ones((768, 3072))), tensor("b", np.ones((3072, 50)))]
    top = [helper.make_node("g", ["x", "a", "b"], ["y"], "call", domain="f")]
    inputs = [info("x", [2, 768])]
    by_hand = [
        node("MatMul", ["x", "a"], ["h1"]),
        node("Relu", ["h1"], ["h2"]),
        node("MatMul", ["h2", "b"], ["h3"]),
        node("Relu", ["h3"], ["y"]),
    ]
    return (
        model(top, inputs, ["y"], stored, functions=[f, g], domains={"f": 1}),
        model(by_hand, inputs, ["y"], stored),
    )


def test_two_instances_of_a_function_share_no_buffer_by_name(tmp_path: Path) -> None:
    """The plan is that of the model inlined by hand, but for names."""
    with_functions, by_hand = twice_through_a_function()
    plans = [made(proto, tmp_path, loss="sum").plan for proto in (with_functions, by_hand)]
    assert plans[0].buffers == plans[1].buffers
    assert plans[0].peak_live_bytes == plans[1].peak_live_bytes
    kinds = [[(op.kind, op.phase) for op in plan.ops] for plan in plans]
    assert kinds[0] == kinds[1]
    assert [t.bytes for t in plans[0].tensors] == [t.bytes for t in plans[1].tensors]


# -- element types -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "elements", "exact", "buffer"),
    [
        (DType.BFLOAT16, 2, 4, 512),
        (DType.INT4, 3, 2, 512),
        (DType.INT4, 0, 0, 0),
        (DType.INT4, 2048, 1024, 1024),
        (DType.UINT4, 2049, 1025, 1536),
    ],
)
def test_small_elements_are_packed_before_sizes_are_rounded(
    dtype: DType, elements: int, exact: int, buffer: int
) -> None:
    assert nbytes(dtype, (elements,)) == exact
    assert round_up(nbytes(dtype, (elements,))) == buffer


def masked(constant: TensorProto, *, cast: bool) -> ModelProto:
    """softmax(where(keep, x, constant)) in half precision; with `cast` the constant is float32 and cast first."""
    nodes = [node("Cast", ["low"], ["low16"], "cast", to=FLOAT16)] if cast else []
    nodes += [
        node("Where", ["keep", "x", "low16" if cast else "low"], ["m"], "mask"),
        node("Softmax", ["m"], ["s"], "attention"),
        node("Mul", ["s", "w"], ["y"], "scale"),
    ]
    inputs = [info("x", [2, 4], FLOAT16), info("keep", [2, 4], BOOL)]
    return model(nodes, inputs, [info("y", None, FLOAT16)], [constant, tensor("w", np.ones(4), np.float16)])


LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize(
    ("constant", "cast"),
    [
        (tensor("low", LOWEST), True),
        (tensor("low", -np.inf, np.float16), False),
        (tensor("low", [[-np.inf]], np.float16), False),
    ],
    ids=["cast of float32's lowest", "stored as -inf", "stored as -inf, of rank 2"],
)
def test_a_mask_that_overflows_in_half_precision_is_noted(constant: TensorProto, cast: bool, tmp_path: Path) -> None:
    """The warning names the constant and who reads it; NaN of a row that is masked throughout is the softmax's."""
    proto = masked(constant, cast=cast)
    if cast:
        proto.graph.node.insert(0, node("Constant", [], ["low"], value=constant))
        del proto.graph.initializer[0]
    found = made(proto, tmp_path, loss="sum")
    noted = [warning for warning in found.report["warnings"] if "-inf" in warning]
    assert len(noted) == 1
    assert ("low16" if cast else "low") in noted[0]
    assert "'mask'" in noted[0]
    assert "float16" in noted[0]
    feeds = {"x": np.ones((2, 4), np.float16), "keep": np.array([[True] * 4, [False] * 4])}
    result = replay(found, feeds)
    assert np.isnan(result.losses[0])
    first = next(op for op in found.plan.ops if op.name == result.first_nan)
    assert any("softmax" in str(part) for part in (first.kind, *first.attrs.values()))


@pytest.mark.parametrize("value", [-1e4, -65504.0])
def test_a_mask_that_fits_half_precision_is_not_noted(value: float, tmp_path: Path) -> None:
    found = made(masked(tensor("low", value, np.float16), cast=False), tmp_path, loss="sum")
    assert not any("inf" in warning for warning in found.report["warnings"])
    feeds = {"x": np.ones((2, 4), np.float16), "keep": np.array([[True] * 4, [False] * 4])}
    assert replay(found, feeds).losses == [2.0]


# -- modes -------------------------------------------------------------------------------------------------------------


def normalised(opset: int, outputs: int, **attributes: Any) -> ModelProto:
    """One BatchNormalization of x[4, 3, 2] in one of its forms."""
    stored = [tensor(name, [1.0, 2.0, 3.0]) for name in ("scale", "bias", "mean", "var")]
    names = ["y", "mean2", "var2", "m", "v"][:outputs]
    nodes = [node("BatchNormalization", ["x", "scale", "bias", "mean", "var"], names, "bn", **attributes)]
    return model(nodes, [info("x", [4, 3, 2])], ["y"], stored, opset=opset)


@pytest.mark.parametrize(
    ("opset", "outputs", "attributes", "training"),
    [
        (9, 5, {}, True),
        (13, 1, {}, False),
        (15, 1, {"training_mode": 0}, False),
        (15, 3, {"training_mode": 1}, True),
    ],
)
def test_the_mode_of_every_batch_norm_is_shown(
    opset: int,
    outputs: int,
    attributes: dict[str, Any],
    training: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Flag set, unset or implied by the outputs: `inspect` tells by layer which ones update their statistics."""
    path, plan = saved(normalised(opset, outputs, **attributes), tmp_path), tmp_path / "p.plan.json"
    assert main(["compile", str(path), "--gpu-mem", "1G", "--loss", "sum", "-o", str(plan), "--json"]) == 0
    warnings = json.loads(capsys.readouterr().out)["warnings"]
    assert any("evaluation mode" in warning for warning in warnings) != training
    assert main(["inspect", str(plan), "--text"]) == 0
    text = capsys.readouterr().out
    assert bool(re.search(r"\bbn\b.*batch_norm_update", text)) == training


# -- codes -------------------------------------------------------------------------------------------------------------


def external(folder: Path, size: int, **entries: object) -> ModelProto:
    """A product with w[3, 4], whose data is in a file of `size` bytes."""
    (folder / "data.bin").write_bytes(bytes(size))
    stored = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=(3, 4), data_location=TensorProto.EXTERNAL)
    for key, value in {"location": "data.bin", **entries}.items():
        stored.external_data.add(key=key, value=str(value))
    return model([node("MatMul", ["x", "w"], ["y"])], [info("x", [2, 3])], ["y"], [stored])


def unary(op: str, **attributes: Any) -> ModelProto:
    """One node over x[3, 4]."""
    return model([node(op, ["x"], ["y"], "n", **attributes)], [info("x", [3, 4])], ["y"])


def reshaped(*target: int) -> ModelProto:
    """x[3, 4] under another shape."""
    return model([node("Reshape", ["x", "s"], ["y"], "r")], [info("x", [3, 4])], ["y"], [ints("s", *target)])


def wired(*wires: tuple[str, str]) -> ModelProto:
    """Relu nodes from and to these names."""
    nodes = [node("Relu", [start], [end], f"n{i}") for i, (start, end) in enumerate(wires)]
    return model(nodes, [info("x", [2])], [wires[-1][1]])


FAILURES: dict[str, tuple[Callable[[Path], ModelProto], str, str]] = {
    "a dimension without a size": (
        lambda folder: model([node("Relu", ["x"], ["y"])], [info("x", ["N", 2])], ["y"]),
        "SNP-I012",
        "'N'",
    ),
    "two -1 in a Reshape": (lambda folder: reshaped(-1, 3, -1), "SNP-I016", "[-1, 3, -1]"),
    "data outside the folder": (lambda folder: external(folder, 48, location="../x.bin"), "SNP-I006", "'w'"),
    "data cut short": (lambda folder: external(folder, 36), "SNP-I007", "36"),
    "a cycle": (lambda folder: wired(("a", "b"), ("b", "a")), "SNP-I009", "n0"),
    "a name written twice": (lambda folder: wired(("x", "b"), ("x", "b")), "SNP-I010", "'n1'"),
    "a name that nothing writes": (lambda folder: wired(("gone", "y")), "SNP-I011", "'gone'"),
    "an operator that there is not": (lambda folder: unary("Strange"), "SNP-I014", "Strange x1"),
    "the form of another opset": (lambda folder: unary("Squeeze", axes=[1]), "SNP-I015", "'n'"),
    "a domain that is not imported": (
        lambda folder: model([helper.make_node("f", ["x"], ["y"], "c", domain="f")], [info("x", [2])], ["y"]),
        "SNP-I017",
        "'f'",
    ),
    "training mode without outputs": (lambda folder: normalised(15, 1, training_mode=1), "SNP-I019", "'bn'"),
}


@pytest.mark.parametrize("case", FAILURES)
def test_import_failures_have_a_documented_code_and_no_traceback(
    case: str, tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build, code, part = FAILURES[case]
    path = saved(build(tmp_path), tmp_path)
    words = ["compile", str(path), "--gpu-mem", "1G", "--json", "-o", str(tmp_path / "p.plan.json")]
    assert main(words) == 3
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert (found["status"], found["code"]) == ("rejected", code)
    assert part in found["message"]
    assert "Traceback" not in shown.err + shown.out
    assert f"| {code} |" in (checkout / "docs" / "errors.md").read_text()
    assert not (tmp_path / "p.plan.json").exists()


def test_half_precision_masks_agree_with_onnxruntime() -> None:
    """The NaN above is what the graph says, not what this importer made of it."""
    proto = masked(tensor("low", -np.inf, np.float16), cast=False)
    feeds = {"x": np.ones((2, 4), np.float16), "keep": np.array([[True] * 4, [False] * 4])}
    y = ort_run(proto, feeds)["y"]
    assert np.isnan(y[1]).all()
    np.testing.assert_array_equal(y[0], np.full(4, 0.25, np.float16))
