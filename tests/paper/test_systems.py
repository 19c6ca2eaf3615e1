"""Tables 4 and 5: the search for the largest size, and the order of the systems' needs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from superneurons.speed import planned
from superneurons.steps import prepared
from superneurons.systems import (
    EVALUATED,
    PUBLISHED_BATCH,
    PUBLISHED_DEPTH,
    SYSTEMS,
    baseline_gib,
    depth_of,
    fig13,
    largest,
    needed_bytes,
    verified_gib,
)

from snplan.strategies.registry import STRATEGIES


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.integers(0, 900), st.integers(1, 60))
def test_largest_is_the_last_count_that_fits(growth: list[int], room: int, guess: int) -> None:
    """Needs that grow by any amounts, and by one afterwards."""
    needs = [sum(growth[: count + 1]) for count in range(len(growth))]

    def needed(count: int) -> int:
        return needs[count - 1] if count <= len(needs) else needs[-1] + count

    found = largest(needed, room, guess)
    assert found == 0 or needed(found) <= room
    assert needed(found + 1) > room


def test_largest_is_zero_when_nothing_fits() -> None:
    assert largest(lambda count: 10 + count, 5, 100) == 0


@pytest.mark.parametrize("name", ["vgg16", "resnet50"])
def test_systems_need_less_in_the_papers_order(name: str) -> None:
    step = prepared(name, 16)
    needs = {system: needed_bytes(system, step) for system in SYSTEMS}
    assert needs["superneurons"] <= needs["tensorflow"] < needs["mxnet"] < needs["caffe"] == needs["torch"]


@pytest.mark.parametrize("system", SYSTEMS)
def test_needs_grow_with_the_batch(system: str) -> None:
    needs = [needed_bytes(system, prepared("alexnet", batch)) for batch in (8, 16, 32)]
    assert needs == sorted(set(needs))


def test_systems_are_strategies() -> None:
    assert set(SYSTEMS) < set(STRATEGIES)
    assert set(PUBLISHED_DEPTH) == set(SYSTEMS)
    assert all(set(batches) == set(SYSTEMS) for batches in PUBLISHED_BATCH.values())


def test_depth() -> None:
    """3 (n1 + n2 + n3 + n4) + 2 with n1 = 6, n2 = 32, n4 = 6; the first depth from 1920 on is checked by itself."""
    assert depth_of(0) == 134
    assert depth_of(EVALUATED - 1) < PUBLISHED_DEPTH["superneurons"] <= depth_of(EVALUATED)


def test_needs_of_deep_networks_lie_on_a_line() -> None:
    for system in SYSTEMS:
        two, four, eight = (needed_bytes(system, prepared(f"resnet:1,1,{third},1", 2)) for third in (2, 4, 8))
        assert eight - four == 2 * (four - two)


def test_superneurons_reaches_the_published_batch_of_alexnet() -> None:
    arena = verified_gib("superneurons", prepared("alexnet", 1792))
    assert arena is not None
    assert arena <= 12


def test_too_large_a_batch_is_refused() -> None:
    assert verified_gib("superneurons", prepared("alexnet", 4096)) is None


def test_the_cache_moves_nothing_that_fits() -> None:
    cached, plain = planned("alexnet", "superneurons"), planned("alexnet", "superneurons:-cache")
    assert cached["offload_bytes"] == cached["prefetch_bytes"] == 0 < plain["offload_bytes"]
    assert cached["step_time_us"] <= plain["step_time_us"]


def test_baseline_of_alexnet() -> None:
    """Figure 10's 2189.437 MiB are of batch 200."""
    assert baseline_gib("alexnet", 200) == round(2189.437 / 1024, 1)
    assert baseline_gib("alexnet", None) is None


@pytest.mark.slow
def test_figure_13() -> None:
    assert fig13().passed
