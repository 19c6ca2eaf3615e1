"""What holds for the whole registry of kernels."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from snplan.ops import KINDS
from snplan.runtime.numpy import KERNELS, Context
from snplan.runtime.numpy.base import define


def test_every_kind_has_a_kernel_and_no_kernel_is_left_over() -> None:
    assert sorted(KERNELS) == sorted(KINDS)


def test_the_op_table_names_every_kernel(checkout: Path) -> None:
    words = set(re.findall(r"`([a-z_0-9]+)`", (checkout / "docs" / "ops.md").read_text()))
    assert sorted(name for name in KERNELS if not {name, name.removesuffix("_grad")} & words) == []


def test_a_kernel_is_defined_once() -> None:
    with pytest.raises(ValueError, match="relu is defined twice"):
        define("relu", lambda inputs, attrs, context: inputs[0])


def test_warnings_of_infinite_results_are_quiet() -> None:
    (y,) = KERNELS["log"]([np.array([0.0, -1.0])], {}, Context())
    assert np.isneginf(y[0])
    assert np.isnan(y[1])
