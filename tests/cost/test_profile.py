"""Profiles: signatures, the file, and devices made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from snplan import models
from snplan.compiler import CompileOptions, compile_model
from snplan.cost.device import device_from, load_device, profile_names
from snplan.cost.profile import (
    FORMAT,
    Engine,
    MeasuredOp,
    Profile,
    load_profile,
    merged,
    pareto,
    profiled_device,
    save_profile,
    signature,
)
from snplan.errors import UsageError
from snplan.ir import DType, Spec
from snplan.plan.model import Algorithm

F = DType.FLOAT32


def engine(id: int, workspace: int, us: int) -> Engine:
    return Engine(id=id, workspace_bytes=workspace, us=us)


def profile(*ops: MeasuredOp) -> Profile:
    return Profile(format=FORMAT, device=load_device("h200").summary(), versions={"cudnn": "9.19"}, ops=list(ops))


def test_signature_names_all_that_decides_the_work() -> None:
    specs = [Spec(F, (8, 4)), Spec(F, (4, 2))]
    text = signature("matmul", specs, {"trans_b": False, "alpha": 1.0, "trans_a": False}, "tf32")
    assert text == 'matmul(float32[8, 4],float32[4, 2]){"alpha":1.0,"trans_a":false,"trans_b":false}/tf32'


def test_signature_does_not_depend_on_the_order_of_attributes_or_on_views() -> None:
    specs = [Spec(F, (8,))]
    assert signature("clip", specs, {"min": 0.0, "max": None}, "fp32") == signature(
        "clip", specs, {"max": None, "min": 0.0, "in_shapes": [[8]]}, "fp32"
    )


@pytest.mark.parametrize(
    ("kind", "specs", "attrs", "precision"),
    [
        ("tanh", [Spec(F, (8,))], {}, "fp32"),
        ("relu", [Spec(F, (9,))], {}, "fp32"),
        ("relu", [Spec(DType.FLOAT16, (8,))], {}, "fp32"),
        ("relu", [Spec(F, (8,))], {"alpha": 1}, "fp32"),
        ("relu", [Spec(F, (8,))], {}, "tf32"),
    ],
)
def test_signatures_differ(kind: str, specs: list[Spec], attrs: dict[str, int], precision: str) -> None:
    assert signature(kind, specs, attrs, precision) != signature("relu", [Spec(F, (8,))], {}, "fp32")  # type: ignore[arg-type]  # a parametrized literal


def test_pareto_keeps_what_nothing_beats() -> None:
    engines = [engine(5, 100, 10), engine(0, 0, 30), engine(1, 50, 30), engine(2, 50, 20), engine(3, 200, 10)]
    assert pareto(engines) == (engine(0, 0, 30), engine(2, 50, 20), engine(5, 100, 10))


def test_pareto_of_equal_engines_is_the_lowest_id() -> None:
    assert pareto([engine(7, 0, 5), engine(2, 0, 5)]) == (engine(2, 0, 5),)


def test_find() -> None:
    found = profile(MeasuredOp(signature="a", engines=[engine(1, 10, 5), engine(0, 0, 9)]))
    assert found.find("a") == (engine(0, 0, 9), engine(1, 10, 5))
    assert found.find("b") is None


def test_file_round_trip_is_canonical(tmp_path: Path) -> None:
    first = profile(
        MeasuredOp(signature="b", engines=[engine(0, 0, 9)]), MeasuredOp(signature="a", engines=[engine(0, 0, 1)])
    )
    save_profile(first, tmp_path / "p.json")
    again = load_profile(tmp_path / "p.json")
    assert [op.signature for op in again.ops] == ["a", "b"]
    assert again.device == first.device
    save_profile(again, tmp_path / "q.json")
    assert (tmp_path / "p.json").read_bytes() == (tmp_path / "q.json").read_bytes()


def test_device_of_a_profile(tmp_path: Path) -> None:
    save_profile(profile(MeasuredOp(signature="a", engines=[engine(0, 0, 9)])), tmp_path / "p.json")
    device = load_device(str(tmp_path / "p.json"))
    assert device.name == "h200"
    assert device.profile is not None
    assert device.profile.find("a") == (engine(0, 0, 9),)
    assert device.summary() == {**load_device("h200").summary(), "versions": {"cudnn": "9.19"}}


def test_profile_with_a_broken_device() -> None:
    broken = Profile(format=FORMAT, device={"name": "x"}, versions={}, ops=[])
    with pytest.raises(UsageError, match="the profile's device lacks title"):
        profiled_device(broken)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a profile"),
        ("[]", "is not a profile"),
        ('{"format": 1, "device": {}, "versions": {}, "ops": [], "more": 1}', "is not a profile"),
        ('{"format": 9, "device": {}, "versions": {}, "ops": []}', "has format 9, this snplan reads 1"),
        ('{"format": 1, "device": {}, "versions": {}, "ops": [{"signature": "s", "engines": []}]}', "s needs engines"),
        (
            '{"format": 1, "device": {}, "versions": {}, '
            '"ops": [{"signature": "s", "engines": [{"id": 0, "workspace_bytes": 0, "us": 0}]}]}',
            "of 1 to 1,000,000,000 us",
        ),
    ],
)
def test_broken_profiles_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "p.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match="SNP-U047") as caught:
        load_profile(path)
    assert message in caught.value.message


@pytest.mark.parametrize(
    "wrong", [{"us": 10**9 + 1}, {"us": -1}, {"workspace_bytes": 2**63 - 1}, {"workspace_bytes": -1}, {"id": -1}]
)
def test_engines_beyond_bounds_are_refused(wrong: dict[str, int], tmp_path: Path) -> None:
    engine = {"id": 0, "workspace_bytes": 0, "us": 1, **wrong}
    ops = [{"signature": "s", "engines": [engine]}]
    path = tmp_path / "p.json"
    path.write_text(json.dumps({"format": 1, "device": {}, "versions": {}, "ops": ops}), encoding="utf-8")
    with pytest.raises(UsageError, match=r"SNP-U047: .* s needs engines of 1 to 1,000,000,000 us"):
        load_profile(path)


def test_missing_profile(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"SNP-U047: profile .* cannot be read: No such file"):
        load_device(str(tmp_path / "none.json"))


def test_an_op_a_line(tmp_path: Path) -> None:
    """Files are compared and stored by line; what is read is what was written, in order of signature."""
    made = profile(
        MeasuredOp(signature="relu(float32[2]){}/fp32", engines=[engine(0, 0, 3)]),
        MeasuredOp(signature="add(float32[2]){}/fp32", engines=[engine(0, 0, 2)]),
    )
    path = tmp_path / "p.json"
    save_profile(made, path)
    lines = path.read_text().splitlines()
    assert ["add(" in lines[1], "relu(" in lines[2]] == [True, True]
    assert len(lines) == 4
    found = load_profile(path)
    assert (found.device, found.versions) == (made.device, made.versions)
    assert found.ops == [made.ops[1], made.ops[0]]
    save_profile(found, tmp_path / "q.json")
    assert (tmp_path / "q.json").read_bytes() == path.read_bytes()


def test_merged() -> None:
    """Ops of all, the first of those in several; engines that no plan would take are left out."""
    shaky = Engine(id=5, workspace_bytes=0, us=4, deterministic=False)
    conv = MeasuredOp(
        signature="conv", engines=[engine(1, 0, 9), engine(2, 0, 11), engine(3, 512, 5), engine(4, 512, 6), shaky]
    )
    first, second = (
        profile(conv),
        profile(
            MeasuredOp(signature="conv", engines=[engine(1, 0, 1)]),
            MeasuredOp(signature="relu", engines=[engine(0, 0, 2)]),
        ),
    )
    whole = merged([first, second])
    assert [op.signature for op in whole.ops] == ["conv", "relu"]
    assert {e.id for e in whole.ops[0].engines} == {5, 1, 3}
    assert [e.id for e in whole.find("conv") or ()] == [5]
    assert [e.id for e in whole.find("conv", deterministic=True) or ()] == [1, 3]


def test_profiles_of_different_libraries_are_not_merged() -> None:
    """Ids of engines mean nothing elsewhere."""
    other = Profile(format=FORMAT, device=load_device("h200").summary(), versions={"cudnn": "9.20"}, ops=[])
    with pytest.raises(UsageError, match=r"9\.20") as caught:
        merged([profile(), other])
    assert caught.value.code == "SNP-U047"


@pytest.mark.parametrize("name", profile_names())
def test_profiles_of_the_package(name: str) -> None:
    """Each can be read by its name, knows convolutions with a choice of engines, and says what it holds for."""
    device = load_device(name.upper())
    assert device.profile is not None
    assert {"driver", "cuda", "cudnn"} <= device.profile.versions.keys()
    assert device.summary()["versions"] == device.profile.versions
    assert device_from(device.summary(), "the plan's device").summary() == {
        key: value for key, value in device.summary().items() if key != "versions"
    }
    assert device.name == name.partition("-")[0]
    assert max(len(op.engines) for op in device.profile.ops if op.signature.startswith("conv")) > 1


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_a_profile_of_the_package_names_engines(precision: str, tmp_path: Path) -> None:
    """A zoo model that was measured is planned with what was seen, in either precision; its plan keeps the versions."""
    path = tmp_path / "alexnet.onnx"
    models.save(models.build("alexnet", batch=256), path)
    options: dict[str, Any] = {"precision": precision, "optimizer": "momentum", "budget_bytes": 1 << 40}
    plan = compile_model(path, CompileOptions(device="h200-measured", **options)).plan
    engines = [action.engine for action in plan.actions if isinstance(action, Algorithm)]
    assert engines
    assert all(engine >= 16 for engine in engines)
    assert plan.device["name"] == "h200"
    assert plan.device["versions"]["cudnn"] == "9.19.0"
