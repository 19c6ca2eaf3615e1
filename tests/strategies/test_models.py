"""Every strategy on small models of the zoo: judged, verified and checked bit for bit, or refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_strategy_models import LOOSE, SMALL, SPECS, TIGHT, checked, planned, planned_or_refused, prepared

from snplan.compiler import CompileOptions, compile_model, plan_prepared
from snplan.errors import ExitCode, InfeasibleError, UsageError
from snplan.plan.file import encode_plan

Judge = Callable[[dict[str, Any], int], tuple[list[Any], dict[str, Any]]]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", SMALL)
def test_plans_are_judged_verified_and_checked_or_refused(name: str, spec: str, judge: Judge) -> None:
    found = planned_or_refused(name, spec, TIGHT)
    if isinstance(found, InfeasibleError):
        assert found.code == "SNP-P004"
        assert found.exit_code == ExitCode.INFEASIBLE
        assert f"strategy {spec} needs" in found.message
        assert found.details["wanted_bytes"] > found.details["budget_bytes"]
        found = planned(name, spec, LOOSE)
    plan, report = found
    assert judge(json.loads(encode_plan(plan)), plan.budget_bytes)[0] == []
    assert report["strategy"] == spec == plan.options["strategy"]
    assert checked(name, plan)


@pytest.mark.parametrize("name", SMALL)
def test_a_refused_budget_that_the_message_asks_for_is_enough(name: str) -> None:
    _, found = prepared(name)
    for spec in ("baseline", "caffe", "mxnet"):
        with pytest.raises(InfeasibleError) as refused:
            planned(name, spec, 0.0)
        needed = refused.value.details["wanted_bytes"]
        options = CompileOptions(budget_bytes=needed, reserve_bytes=0, strategy=spec, device="k40c")
        if spec != "mxnet":  # the buffers of the other two lie side by side: live bytes are arena bytes
            assert plan_prepared(found, options).plan.arena_bytes == needed


@pytest.mark.parametrize("share", [0.3, TIGHT])
def test_auto_is_at_least_as_fast_as_every_strategy_that_fits(share: float) -> None:
    best = planned("resnet", "auto", share)[0].step_time_us
    for spec in SPECS:
        found = planned_or_refused("resnet", spec, share)
        assert isinstance(found, InfeasibleError) or best <= found[0].step_time_us, spec


def test_the_plan_of_a_strategy_is_the_same_every_time() -> None:
    for spec in ("caffe", "chen", "vdnn-all", "superneurons"):
        assert encode_plan(planned("mlp", spec, LOOSE)[0]) == encode_plan(planned("mlp", spec, LOOSE)[0])


def test_host_memory_that_a_strategy_lacks_is_refused() -> None:
    _, found = prepared("resnet")
    options = CompileOptions(
        budget_bytes=found.everything.body.arena_bytes * 8, reserve_bytes=0, strategy="vdnn-all", host_bytes=512
    )
    with pytest.raises(InfeasibleError) as refused:
        plan_prepared(found, options)
    assert refused.value.code == "SNP-P004"
    assert refused.value.details["binding"] == "host memory"


def test_a_wrong_strategy_is_refused_before_the_model_is_read() -> None:
    with pytest.raises(UsageError, match="superneuron"):
        compile_model(Path("absent.onnx"), CompileOptions(budget_bytes=1 << 30, strategy="superneuron"))
