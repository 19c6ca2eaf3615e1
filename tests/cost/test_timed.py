"""A plan's timeline from the plan alone is what the planner's simulator said when the plan was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from snplan import models
from snplan.compiler import CompileOptions, plan_prepared, prepare
from snplan.cost.device import load_device
from snplan.cost.timed import device_of, graph_of, plan_timeline
from snplan.frontend import load_model
from snplan.ir import problems

SMALL: dict[str, Any] = {"image": 32, "width": 0.25, "classes": 10}


@pytest.mark.parametrize(
    ("device", "share", "precision"), [("h200", 0.4, "fp32"), ("k40c", 0.6, "fp32"), ("h200", 1.0, "tf32")]
)
def test_the_step_time_is_the_plans(device: str, share: float, precision: str) -> None:
    built = models.build("resnet18", batch=4, light=True, **SMALL)
    options = CompileOptions(budget_bytes=1, reserve_bytes=0, device=device, precision=precision)  # type: ignore[arg-type]  # parametrised
    prepared = prepare(load_model(built.SerializeToString()), options)
    low, high = prepared.lowest.bytes, prepared.everything.body.arena_bytes
    chosen = CompileOptions(
        budget_bytes=int(low + share * (high - low)),
        reserve_bytes=0,
        device=device,
        precision=precision,  # type: ignore[arg-type]  # parametrised
    )
    plan = plan_prepared(prepared, chosen).plan
    timeline = plan_timeline(plan)
    assert timeline.step_time_us == plan.step_time_us
    assert device_of(plan) == load_device(device)
    assert problems(graph_of(plan)) == []
    assert plan_timeline(plan, load_device("titan-xp")).step_time_us > timeline.step_time_us or device == "k40c"


def test_devices_from_files(tmp_path: Path) -> None:
    """A device that was a file when the plan was made is described in the plan."""
    source = Path(__file__).resolve().parents[2] / "snplan" / "cost" / "devices" / "h200.toml"
    file = tmp_path / "mine.toml"
    file.write_text(source.read_text().replace('name = "h200"', 'name = "mine"'))
    built = models.build("mlp", batch=4, widths=(8, 8, 4))
    options = CompileOptions(budget_bytes=1 << 30, device=str(file))
    plan = plan_prepared(prepare(load_model(built.SerializeToString()), options), options).plan
    assert device_of(plan).name == "mine"
    assert plan_timeline(plan).step_time_us == plan.step_time_us
