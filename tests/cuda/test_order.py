"""Events from `after` edges: what is waited for, what is implied."""

from __future__ import annotations

from hypothesis import given
from property.plans import plans

from snplan.plan.model import Action, Alloc, Offload, Prefetch, Recompute, Run, StepPlan
from snplan.runtime.cuda.order import plan_edges


def run(*after: int) -> Run:
    """An op."""
    return Run(op="op", reads=[], writes=[], after=list(after))


def out(*after: int) -> Offload:
    """A copy out."""
    return Offload(tensor="t", buffer=0, slot=0, after=list(after))


def back(*after: int) -> Prefetch:
    """A copy in."""
    return Prefetch(tensor="t", buffer=0, slot=0, after=list(after))


def test_waits_across_streams_only() -> None:
    """An edge within a stream needs no event; an alloc has no stream."""
    actions: list[Action] = [Alloc(buffer=0), run(), run(1), out(2), back(3, 2)]
    edges = plan_edges(actions)
    assert dict(edges.waits) == {3: (2,), 4: (2, 3)}
    assert edges.records == {2, 3}
    assert dict(edges.last) == {"compute": 2, "d2h": 3, "h2d": 4}


def test_only_the_latest_of_a_stream() -> None:
    """Waiting for an action of an in-order stream waits for all before it."""
    actions: list[Action] = [run(), run(), run(), out(0, 2, 1)]
    assert dict(plan_edges(actions).waits) == {3: (2,)}


def test_nothing_twice() -> None:
    """What a stream has waited for, it need not wait for again."""
    actions: list[Action] = [run(), run(), out(1), out(0), out(1)]
    edges = plan_edges(actions)
    assert dict(edges.waits) == {2: (1,)}
    assert edges.records == {1}


@given(plan=plans())
def test_every_edge_is_kept(plan: StepPlan) -> None:
    """Order of streams and waits together still order every pair that `after` lists."""
    edges = plan_edges(plan.actions)
    before: dict[int, set[int]] = {}
    latest: dict[str, int] = {}
    for number, action in enumerate(plan.actions):
        if not isinstance(action, (Run, Recompute, Offload, Prefetch)):
            continue
        direct = [*edges.waits.get(number, ()), *([latest[action.stream]] if action.stream in latest else [])]
        before[number] = {other for found in direct for other in (found, *before[found])}
        latest[action.stream] = number
        assert before[number].issuperset(action.after)
    assert all(len(found) <= 2 for found in edges.waits.values())
