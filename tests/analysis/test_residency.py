"""Residency: live bytes, evicted gaps, isolation, in-place pairs; and the floor."""

from __future__ import annotations

import pytest
from tests_support import Line, indexed_of, training_chain

from snplan.analysis.floor import baseline_bytes, floor, working_set
from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.ir import Phase, Role

G = 512


def value_of(residency: Residency, name: str) -> int:
    """The first value of a tensor."""
    names = residency.schedule.step.names
    return next(i for i, v in enumerate(residency.schedule.values) if names[v.tensor] == name)


def granules(residency: Residency) -> list[int]:
    return [int(live) // G for live in residency.live]


def updating() -> IndexedStep:
    """A parameter read by an op and updated in place by the next: positions 0 use, 1 update, 2 rest."""
    return indexed_of(
        [
            Line(name="use", reads=("x", "w"), writes=("g",)),
            Line(name="update", reads=("w", "g"), writes=("w:next",), phase=Phase.UPDATE, kind="sgd_update"),
            Line(name="rest", reads=("x",), writes=("y",), phase=Phase.BACKWARD),
        ],
        sources={"x": Role.INPUT, "w": Role.PARAMETER},
        outputs=("y",),
        becomes={"w": "w:next"},
    )


def test_keep_all_live_bytes_by_hand() -> None:
    # x a | a b | a b c | a b c dc | a b c dc db | a b db da | a da dx
    assert granules(Residency(build_schedule(training_chain()))) == [2, 2, 3, 4, 5, 4, 3]


def test_evicting_a_gap_frees_the_positions_between_its_uses() -> None:
    residency = Residency(build_schedule(training_chain()))
    residency.evict(value_of(residency, "a"), 1)  # between fb and ga
    assert granules(residency) == [2, 2, 2, 3, 4, 3, 3]
    stays = residency.stays(value_of(residency, "a"))
    assert [(stay.start, stay.stop) for stay in stays] == [(0, 1), (6, 6)]
    residency.restore(value_of(residency, "a"), 1)
    assert granules(residency) == [2, 2, 3, 4, 5, 4, 3]


def test_isolating_everything_leaves_working_sets() -> None:
    step = training_chain()
    residency = Residency(build_schedule(step))
    residency.isolate(range(7))
    assert residency.live.tolist() == [working_set(step, op) for op in range(7)]


def test_an_update_in_place_counts_the_parameter_once() -> None:
    residency = Residency(build_schedule(updating()))
    # x w g | x w g (w:next over w) | x w:next y
    assert granules(residency) == [3, 3, 3]


def test_a_parameter_that_leaves_the_device_starts_and_ends_in_host_memory() -> None:
    residency = Residency(build_schedule(updating()))
    last = value_of(residency, "w:next")
    residency.evict(last, 0)  # from the update to the end
    assert residency.starts_in_host(value_of(residency, "w"))
    assert residency.ends_in_host(last)
    assert granules(residency) == [3, 3, 2]


def test_the_floor_is_the_largest_working_set() -> None:
    step = training_chain()
    assert floor(step).bytes == 3 * G
    assert step.ops[floor(step).op].name == "gc"
    assert baseline_bytes(step) == 8 * G


@pytest.mark.parametrize(("kind", "expected"), [("relu", 1), ("concat", 2)])
def test_in_place_kinds_lower_the_floor(kind: str, expected: int) -> None:
    step = indexed_of(
        [Line(name="f", reads=("x",), writes=("y",), kind=kind)], sources={"x": Role.INPUT}, outputs=("y",)
    )
    assert floor(step).bytes == expected * G


def test_sizes_round_up_to_the_granule_and_empty_tensors_take_one() -> None:
    step = indexed_of(
        [Line(name="f", reads=("x",), writes=("y",))],
        granules={"x": 0, "y": 3},
        sources={"x": Role.INPUT},
        outputs=("y",),
    )
    assert step.size == [G, 3 * G]


@pytest.mark.parametrize("kept", [None, frozenset[int]()])
def test_rows_of_gaps_are_the_gaps(kept: frozenset[int] | None) -> None:
    residency = Residency(build_schedule(training_chain(), kept))
    assert [*zip(*residency.all_gaps().tolist(), strict=True)] == [tuple(gap) for gap in residency.gaps()]
