"""Engines in pieces of the batch by number: in plans, in the text form, and what the verifier takes."""

from __future__ import annotations

import msgspec
import pytest
from plan_sample import SAMPLE

from snplan.plan.model import Algorithm
from snplan.plan.pieces import PIECES, in_pieces, is_engine, pieces_of
from snplan.plan.text import action_text, from_text, to_text
from snplan.plan.verify import verify

LARGEST = 16 + 2**32 - 1  # the largest id that the backend makes of an engine's name


@pytest.mark.parametrize(
    ("engine", "pieces", "number"),
    [(3, 1, 3), (3, 4, 40_000_000_003), (0, 2, 20_000_000_000), (LARGEST, 8, 84_294_967_311)],
)
def test_names(engine: int, pieces: int, number: int) -> None:
    assert in_pieces(engine, pieces) == number
    assert pieces_of(number) == (engine, pieces)
    assert is_engine(number)


@pytest.mark.parametrize("number", [-1, -(10**10), 10_000_000_003, 30_000_000_003, 160_000_000_000])
def test_numbers_that_name_no_engine(number: int) -> None:
    """One piece has no number of its own, and there are no 3 or 16 pieces."""
    assert not is_engine(number)


@pytest.mark.parametrize("engine", [0, 3, LARGEST])
def test_exact_in_json(engine: int) -> None:
    """Readers that keep numbers as doubles read the same number."""
    for pieces in PIECES:
        assert int(float(in_pieces(engine, pieces))) == in_pieces(engine, pieces)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (40_000_000_003, "algorithm mul engine 3 pieces 4 workspace b3"),
        (10_000_000_003, "algorithm mul engine 10000000003 workspace b3"),
        (-3, "algorithm mul engine -3 workspace b3"),
    ],
)
def test_text(number: int, text: str) -> None:
    action = Algorithm(op="mul", engine=number, workspace=3)
    assert action_text(action) == text
    plan = from_text(SAMPLE)
    actions = [action if isinstance(row, Algorithm) else row for row in plan.actions]
    changed = msgspec.structs.replace(plan, actions=actions)
    assert from_text(to_text(changed)) == changed


@pytest.mark.parametrize(("number", "sound"), [(80_000_000_001, True), (30_000_000_001, False), (10**10 + 1, False)])
def test_verifier(number: int, sound: bool) -> None:
    """The bytewise rules ask for a number of pieces that there is; rule K for more."""
    plan = from_text(SAMPLE)
    actions = [
        msgspec.structs.replace(row, engine=number) if isinstance(row, Algorithm) else row for row in plan.actions
    ]
    found = verify(msgspec.structs.replace(plan, actions=actions))
    assert [str(finding) for finding in found if finding.rule == "F"] == [str(finding) for finding in found], (
        "nothing else is wrong"
    )
    assert (found == []) is sound
