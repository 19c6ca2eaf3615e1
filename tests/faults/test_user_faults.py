"""What users of planners complain of: no effect, no plan, no reason, no numbers, names that matter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from faults.support import PLENTY, Made, device_file, made, replay, saved, squeezed
from frontend_support import info, model, node, tensor
from onnx import ModelProto, NodeProto, TensorProto

from snplan import models
from snplan.cli import main
from snplan.errors import InfeasibleError
from snplan.plan.file import encode_plan
from snplan.plan.model import Offload, Prefetch, Recompute, Run, StepPlan
from snplan.plan.timeline import breakdown, live_set, peak_moment
from snplan.plan.verify import verify
from snplan.report.compiled import compile_tables

GIB = 1 << 30


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    """Seeded numbers of modest size."""
    return (np.random.default_rng(seed).standard_normal(shape) * 0.2).astype(np.float32)


def layers(count: int = 6, *, rows: int = 256, width: int = 32, names: str = "") -> ModelProto:
    """Products and tanh; node and tensor names start with `names`."""
    nodes, last = [], f"{names}x"
    for i in range(count):
        nodes.append(node("MatMul", [last, f"{names}w{i}"], [f"{names}z{i}"], f"{names}product{i}"))
        nodes.append(node("Tanh", [f"{names}z{i}"], [f"{names}a{i}"], f"{names}tanh{i}"))
        last = f"{names}a{i}"
    nodes.append(node("ReduceMean", [last], [f"{names}loss"], f"{names}mean", keepdims=0))
    stored = [tensor(f"{names}w{i}", numbers(width, width, seed=i)) for i in range(count)]
    return model(nodes, [info(f"{names}x", [rows, width])], [f"{names}loss"], stored)


# -- budgets -----------------------------------------------------------------------------------------------------------


def test_there_is_no_guessed_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --gpu-mem nothing is planned: a default from a helper that mixes MB and bytes cannot happen."""
    assert main(["compile", str(saved(layers(), tmp_path)), "-o", str(tmp_path / "p.plan.json")]) == 2
    assert "--gpu-mem" in capsys.readouterr().err
    assert not (tmp_path / "p.plan.json").exists()


def test_sizes_are_bytes_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """11.9 GiB is told in bytes and GiB, and recorded in bytes."""
    plan = tmp_path / "p.plan.json"
    assert main(["compile", str(saved(layers(), tmp_path)), "--gpu-mem", "11.9G", "-o", str(plan)]) == 0
    assert "11.90 GiB (12,777,527,705 B)" in " ".join(capsys.readouterr().err.split())
    assert json.loads(plan.read_text())["budget_bytes"] == 12_777_527_705


def test_100_megabytes_are_a_limit_and_not_a_hint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ResNet-50 with 115 images in 100 MiB: infeasible, with the floor in bytes and the op where it binds."""
    path = tmp_path / "resnet50.onnx"
    models.save(models.build("resnet50", batch=115, light=True), path)
    words = ["compile", str(path), "--gpu-mem", "100M", "--reserve", "0", "--json", "-o", str(tmp_path / "p.plan.json")]
    assert main(words) == 4
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["status"] == "infeasible"
    assert found["floor_bytes"] > found["budget_bytes"] == 100 << 20
    assert f"{found['floor_bytes']:,} B" in shown.err
    assert found["binding"] in shown.err
    assert not (tmp_path / "p.plan.json").exists()


def test_a_refusal_says_what_was_asked_what_holds_the_memory_and_what_to_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Budget, reserve, floor, keep-all or baseline, the five largest tensors there, and batch, budget and precision."""
    path = saved(layers(rows=4096), tmp_path)
    words = [
        "compile",
        str(path),
        "--gpu-mem",
        "1M",
        "--reserve",
        "512K",
        "--json",
        "-o",
        str(tmp_path / "p.plan.json"),
    ]
    assert main(words) == 4
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    for key in ("budget_bytes", "reserve_bytes", "floor_bytes", "baseline_bytes"):
        assert f"({found[key]:,} B)" in shown.err, key
    live = found["live_at_binding"]
    assert 1 <= len(live) <= 5
    assert [row["bytes"] for row in live] == sorted((row["bytes"] for row in live), reverse=True)
    for row in live:
        assert f"{row['tensor']}: " in shown.err
    for option in ("--gpu-mem", "--batch", "--precision"):
        assert option in shown.err


# -- effects -----------------------------------------------------------------------------------------------------------


def executed(found: Made) -> tuple[int, int]:
    """How often a replay ran ops, and how often the plan says it does."""
    from snplan.runtime.numpy.backend import NumpyBackend
    from snplan.runtime.session import TrainingSession

    backend = NumpyBackend()
    ran: list[int] = []
    run = backend.run
    backend.run = lambda action: (ran.append(action), run(action))[1]  # type: ignore[method-assign, func-returns-value]
    with TrainingSession(found.plan, found.weights, backend=backend) as session:
        session.step({"x": numbers(256, 32, seed=9)})
    return len(ran), sum(isinstance(action, Run | Recompute) for action in found.plan.actions)


def test_planned_recomputes_are_executed_and_lower_the_measured_peak(tmp_path: Path) -> None:
    """No optimizer of graphs merges them again: as many runs as planned, and the peak falls by what was predicted."""
    slow = str(device_file(tmp_path, copies=10**6))
    found = squeezed(layers(), tmp_path, 0.6, device=slow, optimizer="none")
    everything = made(layers(), tmp_path, device=slow, optimizer="none")
    assert found.recomputed
    ran, planned = executed(found)
    assert ran == planned > len(found.plan.ops)
    x = {"x": numbers(256, 32, seed=9)}
    low, high = replay(found, x).peak_bytes, replay(everything, x).peak_bytes
    assert high - low == everything.plan.arena_bytes - found.plan.arena_bytes > 0


def test_a_net_with_skips_gets_a_lower_peak_and_all_its_figures(tmp_path: Path) -> None:
    """U-Net with four skips: the planned peak is at most the keep-all one, and keep-all, peak and floor are told."""
    path = tmp_path / "unet.onnx"
    models.save(models.build("unet", batch=2, image=16, width=0.1, levels=4, light=True), path)
    found = squeezed(path, tmp_path, 0.8)
    report = found.report
    assert report["floor_bytes"] <= report["peak_live_bytes"] <= report["arena_bytes"] < report["keep_all_bytes"]
    assert verify(found.plan) == []
    shown: dict[str, str] = {}
    for table in compile_tables(found.plan, {**report, "plan": "p"}):
        cells = [[str(cell) for cell in column.cells] for column in table.columns]
        shown.update(zip(*cells[:2], strict=True))
    for name, key in (("keep-all", "keep_all_bytes"), ("arena", "arena_bytes"), ("floor", "floor_bytes")):
        assert f"({report[key]:,} B)" in shown[name]


def ladder(rows: int, width: int = 32) -> ModelProto:
    """Four layers down and four up, each of which reads the one below and, across, the one on its level."""
    nodes: list[NodeProto] = []
    stored: list[TensorProto] = []

    def layer(name: str, source: str, columns: int) -> str:
        stored.append(tensor(f"w_{name}", numbers(columns, width, seed=len(stored))))
        nodes.append(node("MatMul", [source, f"w_{name}"], [f"z_{name}"], f"product_{name}"))
        nodes.append(node("Tanh", [f"z_{name}"], [name], f"tanh_{name}"))
        return name

    last = "x"
    for i in range(4):
        last = layer(f"down{i}", last, width)
    last = layer("bottom", last, width)
    for i in reversed(range(4)):
        nodes.append(node("Concat", [last, f"down{i}"], [f"both{i}"], f"join{i}", axis=1))
        last = layer(f"up{i}", f"both{i}", 2 * width)
    nodes.append(node("ReduceMean", [last], ["loss"], keepdims=0))
    return model(nodes, [info("x", [rows, width])], ["loss"], stored)


def test_a_net_with_skips_gets_a_larger_batch_than_keeping_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the bytes that keeping everything takes for 256 rows more than 256 fit; the number is printed."""
    budget = made(ladder(256), tmp_path).report["keep_all_bytes"]
    words = ["max-batch", str(saved(ladder(256), tmp_path)), "--gpu-mem", str(budget), "--reserve", "0", "--step", "64"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["batch"] > 256
    assert main(words) == 0
    assert f"{found['batch']:,}" in capsys.readouterr().err


def dense_block(count: int = 8, growth: int = 16, rows: int = 256) -> ModelProto:
    """Every layer reads all earlier ones: no single tensor cuts the graph."""
    nodes: list[NodeProto] = []
    stored: list[TensorProto] = []
    parts = ["x"]
    for i in range(count):
        joined = parts[0] if len(parts) == 1 else f"c{i}"
        if len(parts) > 1:
            nodes.append(node("Concat", parts, [joined], f"concat{i}", axis=1))
        stored.append(tensor(f"w{i}", numbers(growth * len(parts), growth, seed=i)))
        nodes.append(node("MatMul", [joined, f"w{i}"], [f"z{i}"], f"product{i}"))
        nodes.append(node("Tanh", [f"z{i}"], [f"a{i}"], f"tanh{i}"))
        parts.append(f"a{i}")
    nodes += [node("Concat", parts, ["all"], axis=1), node("ReduceMean", ["all"], ["loss"], keepdims=0)]
    return model(nodes, [info("x", [rows, growth])], ["loss"], stored)


@pytest.mark.parametrize("copies", [10**6, 10**11], ids=["slow link", "fast link"])
def test_a_graph_that_no_single_tensor_cuts_is_planned_at_70_percent(copies: int, tmp_path: Path) -> None:
    device = str(device_file(tmp_path, copies=copies))
    everything = made(dense_block(), tmp_path, device=device)
    budget = everything.report["keep_all_bytes"] * 7 // 10
    found = made(dense_block(), tmp_path, budget, device=device)
    assert found.plan.arena_bytes <= budget
    x = {"x": numbers(256, 16, seed=3)}
    assert replay(found, x).bits() == replay(everything, x).bits()


def half_precision() -> ModelProto:
    """Scores in float16, cast to float32 for the softmax, and cast back."""
    nodes = [
        node("MatMul", ["x", "w"], ["scores"], "scores"),
        node("Tanh", ["scores"], ["narrow"], "narrow"),
        node("Cast", ["narrow"], ["wide"], "widen", to=TensorProto.FLOAT),
        node("Exp", ["wide"], ["p"], "exp"),
        node("Cast", ["p"], ["q"], "back", to=TensorProto.FLOAT16),
        node("MatMul", ["q", "v"], ["y"], "mix"),
        node("Tanh", ["y"], ["z"], "last"),
        node("ReduceMean", ["z"], ["loss"], keepdims=0),
    ]
    half = np.float16
    stored = [tensor("w", numbers(64, 64), half), tensor("v", numbers(64, 64, seed=1), half)]
    inputs = [info("x", [256, 64], TensorProto.FLOAT16)]
    return model(nodes, inputs, [info("loss", [], TensorProto.FLOAT16)], stored)


def held_over_the_turn(plan: StepPlan) -> set[str]:
    """Tensors whose first values wait on the device from the forward into the backward pass."""
    phases = {op.name: op.phase for op in plan.ops}
    runs = [(i, a) for i, a in enumerate(plan.actions) if isinstance(a, Run | Recompute)]
    turn = next(i for i, a in runs if phases[a.op] == "backward")
    again = {name for i, a in runs if isinstance(a, Recompute) for name, _ in a.writes}
    read = {name for i, a in runs if i >= turn for name, _ in a.reads}
    written = {name for i, a in runs if i < turn and not isinstance(a, Recompute) for name, _ in a.writes}
    away = {a.tensor for a in plan.actions if isinstance(a, Offload | Prefetch)}
    return (read & written) - again - away


def test_the_narrow_side_of_a_cast_is_kept_and_the_cast_runs_again(tmp_path: Path) -> None:
    """Of a value in float16 and its copy in float32 the planner keeps the two bytes, not the four."""
    found = squeezed(half_precision(), tmp_path, 0.9, device=str(device_file(tmp_path, copies=10**6)))
    assert found.recomputed
    types = {t.name: t.dtype for t in found.plan.tensors}
    kept = held_over_the_turn(found.plan)
    # What the narrow side is made from has two bytes too.
    assert kept & {"narrow", "scores"}
    assert not [name for name in kept if types[name] == "float32"]


# -- reasons and numbers -----------------------------------------------------------------------------------------------


def renamed(plan: StepPlan, names: Mapping[str, str]) -> StepPlan:
    """The plan of another model, in this one's words."""
    text = encode_plan(plan).decode()
    for old, new in names.items():
        text = text.replace(old, new)
    return msgspec.json.decode(text, type=StepPlan)


@pytest.mark.parametrize("share", [0.2, 0.6, 1.0])
def test_names_decide_nothing(share: float, tmp_path: Path) -> None:
    """The same graph under other names of nodes and tensors has the same plan, action for action."""
    plain = squeezed(layers(), tmp_path, share).plan
    odd = squeezed(layers(names="zz_"), tmp_path, share).plan
    back = renamed(odd, {"zz_": ""})
    assert back.actions == plain.actions
    assert back.buffers == plain.buffers
    assert back.slots == plain.slots
    assert (back.step_time_us, back.arena_bytes) == (plain.step_time_us, plain.arena_bytes)


def test_a_plan_tells_whether_and_how_much_it_moves_and_recomputes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`inspect` counts tensors kept, moved and recomputed; their sum is what the backward pass needs."""
    path, plan = saved(layers(), tmp_path), tmp_path / "p.plan.json"
    budget = squeezed(layers(), tmp_path, 0.4).plan.budget_bytes
    words = ["compile", str(path), "--gpu-mem", str(budget), "--reserve", "0", "-o", str(plan), "-q"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["inspect", str(plan), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    told = found["fates"]
    assert found["offload_bytes"] + found["actions"]["recompute"] > 0
    assert told["moved"]["tensors"] + told["recomputed"]["tensors"] > 0
    assert sum(told[name]["tensors"] for name in ("kept", "moved", "recomputed")) >= 6


def test_the_peak_is_split_by_what_holds_it_and_the_parts_add_up(tmp_path: Path) -> None:
    """Weights, gradients, optimizer state, activations, inputs, workspace; the context is the reserve beside them."""
    found = squeezed(layers(), tmp_path, 0.7, optimizer="adam")
    parts = breakdown(live_set(found.plan, peak_moment(found.plan)))
    assert found.report["breakdown_bytes"] == parts
    assert sum(parts.values()) == found.report["peak_live_bytes"] == found.plan.peak_live_bytes
    assert {"parameters", "gradients", "optimizer", "activations", "inputs", "workspace", "other"} == {*parts}
    assert parts["optimizer"] > 0
    assert found.report["reserve_bytes"] == 0
    assert found.plan.arena_bytes + found.plan.reserve_bytes <= found.plan.budget_bytes


def test_300_nodes_are_planned_without_any_solver(tmp_path: Path) -> None:
    """Neither a commercial solver nor a free one with a limit is needed: planning loads none."""
    path = saved(layers(150, rows=64), tmp_path)
    floor = made(path, tmp_path).report
    budget = (floor["floor_bytes"] + floor["keep_all_bytes"]) // 2
    program = (
        "import sys\n"
        "sys.modules.update({name: None for name in ('ortools', 'gurobipy', 'cplex', 'highspy', 'pulp', 'mosek')})\n"
        "from snplan.cli import main\n"
        f"sys.exit(main(['compile', {str(path)!r}, '--gpu-mem', '{budget}', '--reserve', '0', '-q', '-o', "
        f"{str(tmp_path / 'p.plan.json')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "p.plan.json").exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--mode", "infer", "--optimizer", "adam"], "--optimizer"),
        (["--mode", "infer", "--freeze", "w*"], "--freeze"),
        (["--time-limit", "5"], "--time-limit"),
        (["--gpu-mem", "2G"], "--gpu-mem"),
        (["--batch", "4", "--batch", "8"], "--batch"),
    ],
)
def test_an_option_without_effect_is_an_error(
    words: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One setting never disables another silently."""
    path = saved(layers(), tmp_path)
    assert main(["compile", str(path), "--gpu-mem", "1G", "-o", str(tmp_path / "p.plan.json"), *words]) == 2
    assert named in capsys.readouterr().err


def test_a_budget_sweep_is_monotone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """More memory is never predicted to be slower."""
    path = saved(layers(), tmp_path)
    assert main(["sweep", str(path), "--points", "5", "--reserve", "0", "--json", "-q"]) == 0
    points = json.loads(capsys.readouterr().out)["points"]
    pairs = [(p["budget_bytes"], p["step_time_us"]) for p in points if p["step_time_us"] is not None]
    assert len(pairs) >= 3
    assert [time for _, time in sorted(pairs)] == sorted((time for _, time in pairs), reverse=True)


def test_refusals_are_errors_of_one_kind(tmp_path: Path) -> None:
    """The floor is proven, and one granule above it there is a plan."""
    lowest = made(layers(), tmp_path, PLENTY).report["floor_bytes"]
    with pytest.raises(InfeasibleError):
        made(layers(), tmp_path, lowest - 1)
    assert made(layers(), tmp_path, lowest).plan.arena_bytes <= lowest < GIB
