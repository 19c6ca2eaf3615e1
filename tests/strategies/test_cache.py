"""The LRU tensor cache, replayed by hand: what leaves when, what is locked, and what cannot be helped."""

from __future__ import annotations

import numpy as np
from tests_support import Line, indexed_of, training_chain

from snplan.analysis.index import IndexedStep
from snplan.analysis.residency import Residency
from snplan.analysis.schedule import build_schedule
from snplan.ir import Phase, Role
from snplan.strategies.cache import replay_cache
from snplan.strategies.moves import Send

G = 512


def replay(step: IndexedStep, budget: int) -> tuple[dict[str, Send], Residency]:
    """When each tensor is sent with `budget` granules at every position, and the residency afterwards."""
    residency = Residency(build_schedule(step))
    forward = [v for v, value in enumerate(residency.schedule.values) if value.birth < step.backward]
    sends = replay_cache(residency, forward, np.full(residency.schedule.end, budget * G))
    return {step.names[residency.schedule.values[v].tensor]: send for v, send in sends.items()}, residency


def test_nothing_leaves_while_all_fits() -> None:
    sends, residency = replay(training_chain(), 5)
    assert sends == {}
    assert not any(residency.evicted)


def test_the_least_recently_used_tensor_leaves_when_an_allocation_does_not_fit() -> None:
    # a is last used at position 1, b at 2; at position 4 (a b c dc db) four granules are too few: a leaves.
    sends, residency = replay(training_chain(), 4)
    assert sends == {"a": Send(after=3, until=4)}
    assert int(residency.live.max()) == 4 * G


def test_tensors_leave_one_after_another_oldest_first() -> None:
    # position 3: a b c dc -> a leaves; position 4: b c dc db -> b leaves; then both are back when they are read.
    sends, residency = replay(training_chain(), 3)
    assert sends == {"a": Send(after=2, until=3), "b": Send(after=3, until=4)}
    assert int(residency.live.max()) == 3 * G


def test_what_the_op_reads_and_writes_is_locked() -> None:
    # position 4 reads c, dc and writes db: three granules cannot be had for less.
    _, residency = replay(training_chain(), 2)
    assert int(residency.live.max()) == 3 * G


def test_a_use_makes_a_tensor_recent() -> None:
    step = indexed_of(
        [
            Line(name="f1", reads=("x",), writes=("a",)),
            Line(name="f2", reads=("x",), writes=("b",)),
            Line(name="f3", reads=("a",), writes=("c",)),  # a is now more recent than b
            Line(name="f4", reads=("c",), writes=("d",)),
            Line(name="g1", reads=("d", "b"), writes=("e",), phase=Phase.BACKWARD),
            Line(name="g2", reads=("e", "a"), writes=("f",), phase=Phase.BACKWARD),
        ],
        sources={"x": Role.INPUT},
        outputs=("f",),
    )
    sends, _ = replay(step, 3)
    # position 3 (a b c d): b leaves, although a is older; position 4 (d b e, and a): a leaves as well.
    assert sends == {"b": Send(after=2, until=3), "a": Send(after=3, until=4)}


def test_an_input_leaves_as_well() -> None:
    step = indexed_of(
        [
            Line(name="f1", reads=("x",), writes=("a",)),
            Line(name="f2", reads=("a",), writes=("b",)),
            Line(name="g1", reads=("b", "x"), writes=("c",), phase=Phase.BACKWARD),
        ],
        sources={"x": Role.INPUT},
        outputs=("c",),
    )
    sends, residency = replay(step, 2)
    assert sends == {"x": Send(after=0, until=1)}
    assert residency.evicted[0] == {1}  # between f1 and g1


def test_a_tensor_that_leaves_twice_is_sent_once() -> None:
    step = indexed_of(
        [
            Line(name="f1", reads=("x",), writes=("a",)),
            Line(name="f2", reads=("x",), writes=("b",)),
            Line(name="f3", reads=("b",), writes=("c",)),
            Line(name="f4", reads=("a", "c"), writes=("d",)),
            Line(name="f5", reads=("d",), writes=("e",)),
            Line(name="f6", reads=("e",), writes=("h",)),
            Line(name="g1", reads=("h", "a"), writes=("i",), phase=Phase.BACKWARD),
        ],
        sources={"x": Role.INPUT},
        outputs=("i",),
        granules={"h": 2},
    )
    sends, residency = replay(step, 3)
    value = next(v for v, held in enumerate(residency.schedule.values) if step.names[held.tensor] == "a")
    assert sends["a"].until <= 6 if sends["a"].until is not None else False
    assert len(sends) == 1
    assert residency.evicted[value]
