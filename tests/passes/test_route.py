"""Algorithm 1: the order of forward ops."""

from __future__ import annotations

from hypothesis import given, settings
from property.graphs import forwards
from tests_support import chain_of, forward_of

from snplan.ir import Forward, problems
from snplan.passes.route import route


def names(forward: Forward) -> list[str]:
    return [op.name for op in route(forward.graph).ops]


def test_a_fan_goes_deep_first_and_waits_at_the_join() -> None:
    forward = forward_of(
        {"a": ("x",), "b1": ("a",), "b2": ("b1",), "c1": ("a",), "join": ("b2", "c1"), "end": ("join",)}
    )
    assert names(forward) == ["a", "b1", "b2", "c1", "join", "end"]


def test_branches_listed_level_by_level_are_walked_one_after_another() -> None:
    forward = forward_of({"a": ("x",), "b1": ("a",), "c1": ("a",), "b2": ("b1",), "c2": ("c1",), "join": ("b2", "c2")})
    assert names(forward) == ["a", "b1", "b2", "c1", "c2", "join"]


def test_a_chain_keeps_its_order() -> None:
    forward = chain_of(5)
    assert names(forward) == [op.name for op in forward.graph.ops]


@given(forwards())
@settings(max_examples=40, deadline=None)
def test_the_route_is_a_topological_order_of_the_same_ops(forward: Forward) -> None:
    routed = route(forward.graph)
    assert problems(routed) == []
    assert sorted(op.name for op in routed.ops) == sorted(op.name for op in forward.graph.ops)
