"""Rule K: a plan's ops are what the op table says, and the verifier of the command line asks for it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ops.test_forms import JSON
from plan_sample import SAMPLE

from snplan.errors import PlanError
from snplan.ir import DType, Spec
from snplan.ops.check import why_wrong
from snplan.plan import verify as bytewise
from snplan.plan.model import PlanOp, StepPlan
from snplan.plan.text import from_text
from snplan.verify import ensure_verified, verify

SPECS = {
    "x": Spec(DType.FLOAT32, (2, 3)),
    "y": Spec(DType.FLOAT32, (2, 3)),
    "z": Spec(DType.FLOAT32, (3, 2)),
    "i": Spec(DType.INT64, (2, 3)),
    "s": Spec(DType.FLOAT32, (2,)),
}


def op(kind: str, inputs: str, outputs: str, rng: int | None = None, **attrs: Any) -> PlanOp:
    return PlanOp(
        name="op",
        kind=kind,
        phase="forward",
        inputs=inputs.split(),
        outputs=outputs.split(),
        attrs=attrs,
        nodes=[],
        rng=rng,
    )


@pytest.mark.parametrize(
    "sound",
    [
        op("relu", "x", "y"),
        op("transpose", "x", "z", perm=[1, 0]),
        op("mul", "x", "y", scalar=2),
        op("sub", "x", "y", scalar=2.5, reverse=True),
        op("dropout", "x", "y", 0, ratio=0.5),
        op("reduce_sum", "z", "s", axes=[0], keepdims=False),
        op("reduce_sum", "x", "s", axes=[0], keepdims=False, in_shapes=[[3, 2]]),
        op("fused", "x y", "y", parts=[["add", [0, 1], {}], ["elu", [2], {"alpha": 1.0}]], results=[3]),
        op("fused", "x", "y", 3, parts=[["dropout", [0], {"ratio": 0.1}]], results=[1]),
    ],
    ids=lambda row: row.kind,
)
def test_sound_ops(sound: PlanOp) -> None:
    assert why_wrong(sound, SPECS) is None


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (op("nonsense", "x", "y"), "there is no op kind 'nonsense'"),
        (op("", "x", "y"), "there is no op kind ''"),
        (op("view", "x", "z", shape=[3, 2]), "a view is no op of a plan"),
        (op("relu", "x", "y", alpha=1.0), "attribute 'alpha' is unknown; relu has none"),
        (op("elu", "x", "y"), "attribute alpha is missing"),
        (op("elu", "x", "y", alpha="1"), "attribute alpha must be a finite number, it is '1'"),
        (op("transpose", "x", "z", perm=[0, 0]), "perm [0, 0] does not fit"),
        (op("relu", "x y", "y"), "takes 1 inputs, got 2"),
        (op("relu", "x", "y z"), "gives 1 outputs (float32[2, 3]), not 2"),
        (op("relu", "x", "z"), "gives float32[2, 3], the plan says float32[3, 2]"),
        (op("cast", "x", "y", to="int64"), "gives int64[2, 3], the plan says float32[2, 3]"),
        (op("dropout", "x", "y", ratio=0.5), "rng must be the number of its stream"),
        (op("dropout", "x", "y", 0, ratio=1.5), "ratio must be in [0, 1)"),
        (op("matmul", "x y", "s", trans_a=False, trans_b=False, alpha=1.0), "inner sizes 3 of a [2, 3] and 2 of b"),
        (op("gather", "x y", "x", axis=0), "indices must be int64 or int32"),
        (op("fused", "x", "y", parts=[["elu", [0], {}]], results=[1]), "attribute alpha is missing"),
        (op("fused", "x", "y", parts=[["elu", [0], {"alpha": []}]], results=[1]), "attribute alpha must be"),
        (op("fused", "x", "y", parts=[["relu", [7], {}]], results=[1]), "part relu reads a later value"),
        (op("fused", "x", "y", parts=[["conv", [0], {}]], results=[1]), "'conv' cannot be part of a fused op"),
        (op("fused", "x", "y", parts=[["dropout", [0], {"ratio": 0.1}]], results=[1]), "rng must be the number"),
        (op("fused", "x", "y", parts={}, results=[1]), "attribute parts must be a list"),
        (op("fused", "x", "y", parts=[], results=[1]), "must list at least one part"),
        (op("fused", "x", "y", parts=[["relu", [0], {}]], results=[9]), "results [9] are not what the parts give"),
    ],
    ids=lambda value: value.kind or "empty" if isinstance(value, PlanOp) else None,
)
def test_reasons(wrong: PlanOp, reason: str) -> None:
    found = why_wrong(wrong, SPECS)
    assert found is not None
    assert reason in found


def changed(name: str, **fields: Any) -> StepPlan:
    """The sample plan with fields of one op replaced."""
    plan = from_text(SAMPLE)
    ops = [msgspec.structs.replace(row, **fields) if row.name == name else row for row in plan.ops]
    return msgspec.structs.replace(plan, ops=ops)


def test_the_sample_is_sound() -> None:
    assert verify(from_text(SAMPLE)) == []


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("sum", {"kind": "reduce_total"}),
        ("sum", {"attrs": {"axes": [0]}}),
        ("sum", {"attrs": {"axes": "0", "keepdims": False}}),
        ("drop", {"rng": None}),
        ("update", {"attrs": {"lr": 0.1, "momentum": 0.9}}),
    ],
)
def test_what_only_the_op_table_knows(name: str, fields: dict[str, Any]) -> None:
    """The bytes are sound: the rules that follow them find nothing, rule K names the op."""
    plan = changed(name, **fields)
    assert bytewise.verify(plan) == []
    assert [(found.rule, found.where) for found in verify(plan)] == [("K", f"op {name}")]
    with pytest.raises(PlanError, match=f"K at op {name}") as error:
        ensure_verified(plan)
    assert error.value.code == "SNP-V010"
    assert error.value.exit_code == 6


def test_ops_are_asked_beside_broken_bytes_but_not_beside_broken_names() -> None:
    short = msgspec.structs.replace(changed("sum", kind="none"), arena_bytes=512)
    assert {"A", "K"} <= {found.rule for found in verify(short)}
    unnamed = changed("sum", kind="none", outputs=["nowhere"])
    rules = {found.rule for found in verify(unnamed)}
    assert "F" in rules
    assert "K" not in rules


def test_no_more_findings_than_asked_for() -> None:
    plan = from_text(SAMPLE)
    broken = msgspec.structs.replace(plan, ops=[msgspec.structs.replace(row, kind="none") for row in plan.ops])
    assert len(verify(broken)) == len(plan.ops)
    assert len(verify(broken, limit=2)) == 2


@given(st.data())
def test_any_attribute_of_any_form(data: st.DataObject) -> None:
    """Whatever a file says in `attrs`, verifying ends with findings or none."""
    plan = from_text(SAMPLE)
    row = data.draw(st.sampled_from(plan.ops))
    names = st.sampled_from([*row.attrs, "in_shapes", "scalar", "parts"])
    attrs = {**row.attrs, data.draw(names): data.draw(JSON)}
    verify(changed(row.name, attrs=attrs))


@given(st.sampled_from(["x", "y", "z", "i", "s"]), st.data())
def test_any_kind_with_any_inputs(output: str, data: st.DataObject) -> None:
    """Kinds of the table over tensors that they do not take: a reason, never another exception."""
    from snplan.ops import KINDS
    from snplan.ops.forms import ATTRIBUTES

    kind = data.draw(st.sampled_from(sorted(KINDS)))
    inputs = data.draw(st.lists(st.sampled_from(sorted(SPECS)), max_size=4))
    numbers = st.integers(-3, 3) | st.floats(-2, 2) | st.booleans() | st.lists(st.integers(-3, 3), max_size=4)
    words = st.sampled_from(["none", "max", "mean", "nearest", "float32", "constant", "half_pixel", "floor"])
    attrs = {}
    for name, form in ATTRIBUTES.get(kind, {}).items():
        attrs[name] = data.draw((numbers | words | st.none()).filter(form.fits)) if kind != "fused" else []
    why_wrong(op(kind, " ".join(inputs), output, 0, **attrs), SPECS)
