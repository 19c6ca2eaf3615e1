"""Every generated kernel on the GPU against the NumPy kernels: values, in place, guards, and the same bits again.

One test a family. Compiling all of them takes minutes the first time; `prebuild.py` beside this file fills the cache
on a machine without a GPU.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from kernel_cases import FAMILIES
from kernel_harness import Case, check_case, compile_cases

from snplan.codegen.driver import Driver, available
from snplan.errors import RunError

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(available() is not None, reason=str(available()))]

_GUARD = 512
_ARENA = 256 << 20


class Gpu:
    """Device memory as one arena: every tensor with a guard before and after it."""

    name = "cuda"

    def __init__(self) -> None:
        self.driver = Driver()
        self._base = self.driver.allocate(_ARENA)
        self._used = 0

    def upload(self, data: bytes) -> int:
        """Address of a copy of `data`."""
        padded = -len(data) % 512
        image = b"\xff" * _GUARD + data + b"\xff" * (padded + _GUARD)
        address = self._base + self._used
        self._used += len(image)
        assert self._used <= _ARENA
        self.driver.write(address, image)
        return address + _GUARD

    def download(self, address: int, size: int) -> bytes:
        """The bytes at `address`; the guards must be as they were."""
        image = self.driver.read(address - _GUARD, size + 2 * _GUARD)
        assert image[:_GUARD] == b"\xff" * _GUARD, "a kernel wrote before its output"
        assert image[_GUARD + size :] == b"\xff" * _GUARD, "a kernel wrote past its output"
        return image[_GUARD : _GUARD + size]

    def launch(
        self, function: str, grid: Sequence[int], block: Sequence[int], arguments: Sequence[Any], shared: int
    ) -> None:
        """Queue one launch."""
        self.driver.launch(function, grid, block, arguments, shared)

    def release(self) -> None:
        """Forget all memory."""
        self._used = 0


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu()


def failure_of(gpu: Gpu, case: Case, order: str) -> str | None:
    """What is wrong with one case; a device error ends the test, for nothing runs after it."""
    try:
        check_case(gpu, case, order)
    except AssertionError as error:
        gpu.release()
        return f"{case.name} [{order}]: {str(error).strip()[:600]}"
    except RunError as error:
        pytest.fail(f"{case.name} [{order}]: {error}")
    return None


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_family(family: Callable[[], Iterator[Case]], gpu: Gpu) -> None:
    cases = list(family())
    # One of N: a quick look.
    step = int(os.environ.get("SNPLAN_KERNEL_STEP", "1"))
    for cubin, names in compile_cases(cases, gpu.driver.arch):
        gpu.driver.load(cubin, names)
    found = [failure_of(gpu, case, order) for case in cases[::step] for order in case.orders]
    failures = [text for text in found if text is not None]
    assert not failures, f"{len(failures)} of {len(found)}:\n" + "\n".join(failures[:20])
