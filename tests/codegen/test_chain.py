"""Chains of elementwise ops in one kernel, and what kernels do with indices out of range (both emulated)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_emulator import Emulator, available
from kernel_harness import Case, run_case, sources_of
from runtime_support import normal, spec_of

from snplan.codegen.call import Access
from snplan.codegen.chain import Step, chain
from snplan.codegen.launch import Addresses, Input, Output, values
from snplan.codegen.operand import broadcast, operand
from snplan.codegen.pointwise import pointwise
from snplan.codegen.scalars import c_type
from snplan.errors import RunError
from snplan.runtime.numpy import Array

needs_compiler = pytest.mark.skipif(not available(), reason="g++ is not there")


def run_chain(folder: Path, steps: Sequence[Step], results: Sequence[str], inputs: Sequence[Array]) -> list[Array]:
    """The results of a chain, of the first input's shape and type."""
    x = operand(spec_of(inputs[0]))
    seen = [broadcast(operand(spec_of(a)), x.shape) for a in inputs]
    reads = [Access(argument=Input(k), operand=s, type=c_type(s.dtype)) for k, s in enumerate(seen)]
    writes = [Access(argument=Output(k), operand=x, type=c_type(x.dtype)) for k in range(len(results))]
    (launch,) = pointwise("chain", reads, writes, chain(steps, results, "float"))
    machine = Emulator([launch.source], folder)
    given = [machine.upload(a.tobytes()) for a in inputs]
    made = [machine.upload(bytes(inputs[0].nbytes)) for _ in results]
    machine.launch(launch.function, launch.grid, launch.block, values(launch, Addresses(inputs=given, outputs=made)), 0)
    data = [machine.download(address, inputs[0].nbytes) for address in made]
    return [np.frombuffer(d, inputs[0].dtype).reshape(inputs[0].shape) for d in data]


@needs_compiler
def test_a_chain_is_its_steps(tmp_path: Path) -> None:
    x, residual, scale = normal(4, 12), normal(4, 12, seed=1), normal(12, seed=2)
    steps = (
        Step(kind="mul", operands=("a0", "a2")),
        Step(kind="add", operands=("t0", "a1")),
        Step(kind="relu", operands=("t1",)),
        Step(kind="mul", operands=("t2",), attrs={"scalar": 0.5}),
        Step(kind="relu_grad", operands=("t2", "a1")),
    )
    found = run_chain(tmp_path, steps, ("t3", "t4"), (x, residual, scale))
    kept = np.maximum(x * scale + residual, 0)
    np.testing.assert_allclose(found[0], kept / 2, rtol=1e-6)
    np.testing.assert_allclose(found[1], np.where(kept > 0, residual, 0), rtol=1e-6)


@needs_compiler
def test_half_precision_rounds_once(tmp_path: Path) -> None:
    x = np.full((8,), 2048, np.float16)
    one = np.ones((8,), np.float16)
    steps = (Step(kind="add", operands=("a0", "a1")), Step(kind="sub", operands=("t0", "a0")))
    (found,) = run_chain(tmp_path, steps, ("t1",), (x, one))
    # float16 cannot hold 2049, so that separate ops would give 0.
    np.testing.assert_array_equal(found, one)


def test_only_elementwise_ops_chain() -> None:
    with pytest.raises(RunError, match="reduce_sum cannot be part of an elementwise chain"):
        chain([Step(kind="reduce_sum", operands=("a0",))], ["t0"], "float")


def _indexed() -> list[tuple[Case, Any]]:
    """Ops with indices out of range, and what they give where that is defined."""
    x, far = normal(4, 3), np.array([1, 9], np.int64)
    mean = {"axis": 1, "reduction": "mean", "ignore_index": None}
    table = {"axis": 0, "shape": [4, 3]}
    labels = np.array([0, 1, 7, 2], np.int64)
    return [
        (Case(kind="gather", inputs=(x, far), attrs={"axis": 0}), x[[1, 0]]),
        (Case(kind="gather_elements", inputs=(x, np.full((1, 3), -5)), attrs={"axis": 0}), x[:1]),
        (Case(kind="gather_nd", inputs=(x, far[:, None]), attrs={"batch_dims": 0}), x[[1, 0]]),
        (Case(kind="gather_grad", inputs=(far, x[:2]), attrs=table), np.stack([0 * x[0], x[0], 0 * x[0], 0 * x[0]])),
        (Case(kind="softmax_cross_entropy", inputs=(x, labels), attrs=mean), None),
        (Case(kind="softmax_cross_entropy_grad", inputs=(x, labels, normal()), attrs=mean), None),
        (Case(kind="nll_loss", inputs=(x, labels), attrs=mean), None),
        (
            Case(
                kind="nll_loss_grad",
                inputs=(labels, normal()),
                attrs={**mean, "shape": [4, 3], "dtype": "float32"},
            ),
            None,
        ),
    ]


@needs_compiler
def test_an_index_out_of_range_is_reported_and_touches_nothing_else(tmp_path: Path) -> None:
    cases = _indexed()
    machine = Emulator(sources_of([case for case, _ in cases]), tmp_path)
    for case, wanted in cases:
        result = run_case(machine, case, "plain")
        # The harness runs every op as number 3.
        assert result.fault == 4, case.name
        if wanted is not None:
            np.testing.assert_array_equal(result.outputs[0], wanted)


@needs_compiler
def test_ignored_labels_are_no_fault(tmp_path: Path) -> None:
    attrs = {"axis": 1, "reduction": "mean", "ignore_index": -100}
    case = Case(kind="softmax_cross_entropy", inputs=(normal(3, 4), np.array([1, -100, 2])), attrs=attrs)
    result = run_case(Emulator(sources_of([case]), tmp_path), case, "plain")
    assert result.fault == 0
    logs = case.inputs[0] - np.log(np.exp(case.inputs[0]).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(result.outputs[0], -(logs[0, 1] + logs[2, 2]) / 2, rtol=1e-5)
