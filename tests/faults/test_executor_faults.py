"""Executors: contexts left behind, kernels for another GPU, captured graphs that remember, failures that last."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_fake import FakeGpu, NumpyOnDevice
from faults.support import made, saved, squeezed
from frontend_support import info, model, node, tensor
from onnx import ModelProto

import snplan.runtime.cuda.packages as packages
from snplan.cli import main
from snplan.errors import InfeasibleError, RunError
from snplan.plan.model import Offload, Run
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.driver import DriverGpu
from snplan.runtime.session import TrainingSession


def network(rows: int | str = 64) -> ModelProto:
    """Three products and tanh."""
    nodes, last = [], "x"
    for i in range(3):
        nodes += [node("MatMul", [last, f"w{i}"], [f"z{i}"]), node("Tanh", [f"z{i}"], [f"a{i}"])]
        last = f"a{i}"
    nodes.append(node("ReduceMean", [last], ["loss"], keepdims=0))
    dice = np.random.default_rng(0)
    stored = [tensor(f"w{i}", dice.standard_normal((32, 32)) * 0.2) for i in range(3)]
    return model(nodes, [info("x", [rows, 32])], ["loss"], stored)


def feed(number: int) -> dict[str, Any]:
    """The inputs of a step."""
    return {"x": np.random.default_rng(number).standard_normal((64, 32)).astype(np.float32)}


# -- contexts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["first", "middle", "last"])
def test_a_failure_at_any_action_leaves_the_context_stack_as_it_was(place: str, tmp_path: Path) -> None:
    """The error names the action; nothing stays pushed or taken, and the same device serves the next session."""
    found = squeezed(network(), tmp_path, 0.2)
    runs = [i for i, action in enumerate(found.plan.actions) if isinstance(action, Run)]
    failing = {"first": runs[0], "middle": runs[len(runs) // 2], "last": runs[-1]}[place]
    gpu = FakeGpu()
    backend = CudaBackend(gpu=gpu, kernels=NumpyOnDevice)
    with TrainingSession(found.plan, found.weights, backend=backend) as session:
        backend._kernels.fail_at = failing  # type: ignore[attr-defined]
        with pytest.raises(RunError, match=f"action {failing}"):
            session.step(feed(0))
        assert gpu.depth == 0
    assert (gpu.depth, gpu.blocks, gpu.pinned) == (0, {}, [])
    with TrainingSession(found.plan, found.weights, backend=CudaBackend(gpu=gpu, kernels=NumpyOnDevice)) as session:
        assert np.isfinite(session.step(feed(0)))


def test_a_session_that_nobody_closes_gives_everything_back() -> None:
    """Held by a module until the interpreter ends: exit code 0 and nothing on standard error."""
    program = (
        "import sys, tempfile\n"
        f"sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path\n"
        "from cuda_fake import FakeGpu, NumpyOnDevice\n"
        "from faults.support import made\n"
        "from faults.test_executor_faults import feed, network\n"
        "from snplan.runtime.cuda.backend import CudaBackend\n"
        "from snplan.runtime.session import TrainingSession\n"
        "found = made(network(), Path(tempfile.mkdtemp()))\n"
        "kept = TrainingSession(found.plan, found.weights, backend=CudaBackend(gpu=FakeGpu(), kernels=NumpyOnDevice))\n"
        "print(kept.step(feed(0)) == kept.step(feed(0)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


# -- packages, compilers, kernels --------------------------------------------------------------------------------------


def test_a_plan_needs_no_gpu_package_and_a_run_says_which_one_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planning, checking and looking work without; only the CUDA backend reports what is not there, in one message."""

    def missing(name: str) -> None:
        raise ImportError(f"no module named {name}")

    monkeypatch.setattr(packages, "import_module", missing)
    path, plan = saved(network(), tmp_path), tmp_path / "p.plan.json"
    assert main(["compile", str(path), "--gpu-mem", "1G", "-o", str(plan), "-q"]) == 0
    assert main(["verify", str(plan)]) == 0
    assert main(["inspect", str(plan)]) == 0
    assert main(["run", str(plan), "--backend", "numpy", "-q"]) == 0
    capsys.readouterr()
    assert main(["run", str(plan), "--backend", "cuda"]) == 7
    shown = capsys.readouterr()
    assert "SNP-R050" in shown.err
    assert "pycuda" in shown.err
    assert "snplan[cuda]" in shown.err
    assert "Traceback" not in shown.err


class FakeDriver:
    """The part of PyCUDA that loads modules, and refuses to."""

    class Error(Exception):
        """As PyCUDA's."""

    @staticmethod
    def get_driver_version() -> int:
        """A number."""
        return 12040

    def module_from_buffer(self, binary: bytes) -> None:
        """Not this one."""
        raise self.Error("cuModuleLoadDataEx failed: device kernel image is invalid")


def test_kernels_built_for_another_gpu_are_named_with_both_versions() -> None:
    """ "Kernel image is invalid" alone helps nobody: the message has the module, the GPU, its sm, and the driver."""
    gpu = object.__new__(DriverGpu)
    gpu._cu, gpu.title, gpu.architecture = FakeDriver(), "NVIDIA H200", 90
    with pytest.raises(RunError) as caught:
        gpu.load(b"\x7fELF", "the module of generated kernels")
    assert caught.value.code == "SNP-R056"
    for part in ("generated kernels", "NVIDIA H200", "sm_90", "12040", "image is invalid", "built for another GPU"):
        assert part in caught.value.message


# -- captured steps ----------------------------------------------------------------------------------------------------


def test_a_captured_step_replayed_100_times_reads_new_inputs(tmp_path: Path) -> None:
    """Addresses are baked in, values are not: inputs, random numbers and state of each step are its own.

    The stand-in refuses memory calls while a stream is captured, and lets streams run in random order.
    """
    found = squeezed(network(), tmp_path, 0.2, optimizer="momentum")
    assert any(isinstance(action, Offload) for action in found.plan.actions)
    runs = []
    for replay in ("graph", "eager"):
        gpu = FakeGpu(seed=7)
        backend = CudaBackend(gpu=gpu, kernels=NumpyOnDevice, replay=replay)
        with TrainingSession(found.plan, found.weights, backend=backend) as session:
            losses = [session.step(feed(number)) for number in range(100)]
            assert gpu.graphs == (replay == "graph")
            runs.append((losses, {name: value.tobytes() for name, value in session.state().items()}))
    assert runs[0] == runs[1]
    assert len(set(runs[0][0])) == 100


# -- one after another -------------------------------------------------------------------------------------------------


def test_after_a_budget_that_does_not_fit_a_smaller_batch_does(tmp_path: Path) -> None:
    """In one process: batch 64 is refused, then planned and run with batch 8; nothing is left of the first attempt."""
    proto = network("N")
    budget = made(proto, tmp_path, batch=8).report["keep_all_bytes"]
    with pytest.raises(InfeasibleError):
        made(proto, tmp_path, budget // 2, batch=64)
    found = made(proto, tmp_path, budget, batch=8)
    gpu = FakeGpu(total=1 << 20)
    large = made(proto, tmp_path, batch=4096)
    with pytest.raises(RunError, match="does not fit"):
        TrainingSession(large.plan, large.weights, backend=CudaBackend(gpu=gpu, kernels=NumpyOnDevice))
    assert (gpu.blocks, gpu.pinned) == ({}, [])
    gpu.total = 1 << 30
    with TrainingSession(found.plan, found.weights, backend=CudaBackend(gpu=gpu, kernels=NumpyOnDevice)) as session:
        assert np.isfinite(session.step({"x": feed(0)["x"][:8]}))
    assert importlib.import_module("snplan.runtime.session").TrainingSession is TrainingSession


def test_a_budget_above_what_others_leave_is_refused_before_the_first_step(tmp_path: Path) -> None:
    """Budget 12 GiB, free 11.2 GiB: the message has both, what others hold, and the budget that would do."""
    import msgspec

    from snplan.runtime.cuda.memory import check_room

    gib = 1 << 30
    plan = msgspec.structs.replace(
        made(network(), tmp_path).plan, budget_bytes=12 * gib, arena_bytes=23 * gib // 2, reserve_bytes=gib // 2
    )
    gpu = FakeGpu(total=16 * gib, used=16 * gib - 112 * gib // 10)
    with gpu.current(), pytest.raises(RunError) as caught:
        check_room(gpu, plan, 0)
    for part in ("11.50 GiB", "11.20 GiB", "16.00 GiB", "4.80 GiB", "--gpu-mem 11980M", "512.00 MiB"):
        assert part in caught.value.message
    assert gpu.blocks == {}
