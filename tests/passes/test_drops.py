"""What to drop: orders, bottlenecks, and what is left to the link."""

from __future__ import annotations

from tests_support import Line, indexed_of, training_chain

from snplan.analysis.index import IndexedStep
from snplan.ir import Phase, Role
from snplan.passes.recompute import Dropper, bottlenecks, drop_order, worth_moving


def names(step: IndexedStep, tensors: object) -> list[str]:
    """Names of tensors, in their order, or sorted where there is none."""
    assert isinstance(tensors, list | frozenset)
    found = [step.names[t] for t in tensors]
    return found if isinstance(tensors, list) else sorted(found)


def two_costs() -> IndexedStep:
    """Forward a (10 us, 1 granule), b (80 us, 2 granules), c (10 us, 4 granules) in a chain; all saved."""
    return indexed_of(
        [
            Line(name="fa", reads=("x",), writes=("a",)),
            Line(name="fb", reads=("a",), writes=("b",), us=80),
            Line(name="fc", reads=("b",), writes=("c",)),
            Line(name="top", reads=("c",), writes=("dc",), phase=Phase.BACKWARD),
            Line(name="gc", reads=("c", "dc"), writes=("db",), phase=Phase.BACKWARD),
            Line(name="gb", reads=("b", "db"), writes=("da",), phase=Phase.BACKWARD),
            Line(name="ga", reads=("a", "da"), writes=("dx",), phase=Phase.BACKWARD),
        ],
        granules={"b": 2, "c": 4},
        sources={"x": Role.INPUT},
        outputs=("dx",),
    )


def test_drops_come_from_cheap_to_dear_for_a_byte() -> None:
    # c: 10 us for 4 granules, a: 10 for 1, b: 80 for 2
    assert names(two_costs(), drop_order(two_costs())) == ["c", "a", "b"]


def test_protected_tensors_are_never_dropped() -> None:
    step = two_costs()
    assert names(step, drop_order(step, protected={step.names.index("a")})) == ["c", "b"]


def test_a_drop_after_others_costs_what_has_to_run_again_besides() -> None:
    step = two_costs()
    a, c = step.names.index("a"), step.names.index("c")
    assert Dropper(step).ratio(c) == 10 / 2048
    assert Dropper(step, dropped=[step.names.index("b")]).ratio(c) == 10 / 2048
    dropped = Dropper(step, dropped=[a])
    assert sorted(step.ops[op].name for op in dropped.again) == ["fa"]
    assert sum(step.cost[op] for op in dropped.closure(step.names.index("b"))) == 80


def test_all_goes_through_every_tensor_of_a_chain() -> None:
    step = training_chain()
    assert names(step, bottlenecks(step)) == ["a", "b"]  # nothing reads c in the forward pass


def test_the_link_is_left_the_dearest_that_it_can_move_in_time() -> None:
    step = two_costs()
    # The forward pass ends at 100 us; a is there at 10, b at 90, c at 100.
    assert names(step, worth_moving(step, 0.0)) == []
    assert names(step, worth_moving(step, 1024 / 10)) == ["a", "b"]  # b just fits into the last 10 us, a before them
    assert names(step, worth_moving(step, 1024 / 11)) == ["a"]
