"""Tests marked `cuda` run where a device is, and say so where none is."""

from __future__ import annotations

from functools import cache

import pytest

from snplan.errors import RunError


@cache
def _missing() -> str | None:
    """Why there is no device to test on; None where there is one."""
    from snplan.runtime.cuda.driver import DriverGpu

    try:
        DriverGpu()
    except RunError as error:
        return error.message
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a device that is not there."""
    for item in items:
        if item.get_closest_marker("cuda") is not None:
            reason = _missing()
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
