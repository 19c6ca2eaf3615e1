"""Slots that name their pool: in files, in text, and what the verifier says of wrong ones."""

from __future__ import annotations

from typing import Any

import pytest
from cli.plans import SIZE, small_plan

from snplan.plan.file import decode_plan, encode_plan
from snplan.plan.model import Extent, StepPlan
from snplan.plan.text import from_text, to_text
from snplan.plan.verify import verify


def pooled(slots: list[Extent], pools: Any, **changes: Any) -> StepPlan:
    """The small plan with other slots on a device with pools."""
    device = {"name": "h200", "capacity_bytes": 1 << 37, "pools": pools}
    return small_plan(slots=slots, device=device, **changes)


PEER = {"name": "peer", "bytes": SIZE}
HOST = {"name": "host", "bytes": 1 << 30}
SLOT = Extent(id=0, offset=0, bytes=SIZE, pool="peer")


def rules(plan: StepPlan) -> list[str]:
    """Rule and message of each finding."""
    return [f"{finding.rule}: {finding.message}" for finding in verify(plan)]


def test_pools_survive_files_and_text() -> None:
    plan = pooled([SLOT], [PEER])
    assert rules(plan) == []
    assert decode_plan(encode_plan(plan)) == plan
    assert from_text(to_text(plan)) == plan
    assert "s0 offset 0 bytes 4096 pool peer" in to_text(plan)


def test_plans_without_pools_are_as_they_were() -> None:
    plan = small_plan()
    assert b"pool" not in encode_plan(plan)
    assert "pool" not in to_text(plan)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (pooled([SLOT], [HOST]), "is in pool 'peer', which the device does not have"),
        (pooled([SLOT], "none"), "is in pool 'peer', which the device does not have"),
        (pooled([Extent(id=0, offset=0, bytes=SIZE)], [HOST]), "is in pool '', which the device does not have"),
        (pooled([SLOT], [{"name": "peer", "bytes": SIZE - 512}]), "its slots take 4096 bytes, it has 3584"),
        (
            pooled(
                [SLOT, Extent(id=1, offset=SIZE - 512, bytes=512, pool="host")],
                [PEER, HOST],
            ),
            "shares bytes of the host arena with pool",
        ),
    ],
)
def test_wrong_pools_are_found(plan: StepPlan, message: str) -> None:
    assert any(found.startswith("A: ") and message in found for found in rules(plan))


def test_buffers_have_no_pool() -> None:
    plan = small_plan()
    first = Extent(id=0, offset=0, bytes=SIZE, pool="peer")
    assert rules(small_plan(buffers=[first, *plan.buffers[1:]])) == ["A: is in a pool; only slots are"]
