"""Every generated kernel, compiled as C++ and run on fibres, against the NumPy kernels (see kernel_emulator.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from kernel_cases import FAMILIES
from kernel_emulator import Emulator, available
from kernel_harness import Case, check_case, sources_of

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not available(), reason="g++ is not there")]


class AlternatingEmulator(Emulator):
    """Resumes threads, and runs blocks, in another order at every launch."""

    def launch(self, *args: object) -> None:
        self.order += 1
        super().launch(*args)  # type: ignore[arg-type]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_family(family: Callable[[], Iterator[Case]], tmp_path_factory: pytest.TempPathFactory) -> None:
    cases = list(family())
    machine = AlternatingEmulator(sources_of(cases), tmp_path_factory.mktemp("kernels"))
    failures = []
    for case in cases:
        for order in case.orders:
            try:
                check_case(machine, case, order)
            except AssertionError as error:
                failures.append(f"{case.name} [{order}]: {str(error).strip()[:700]}")
    assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures[:12])
