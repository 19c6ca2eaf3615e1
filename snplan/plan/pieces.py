"""Engines that run a convolution in pieces of its batch, as one number: the `engine` of an `algorithm` action.

    engine = pieces x 10^10 + the engine of each piece, where there are pieces; else the engine itself

Engines of libraries are below 10^10, so that 4 pieces of engine 3 are 40000000003, in plans as in profiles.
"""

from __future__ import annotations

PIECES = (2, 4, 8)
"""Numbers of pieces that there are."""

_UNIT = 10**10


def in_pieces(engine: int, pieces: int) -> int:
    """The number that names `pieces` pieces of an engine; the engine itself for one piece."""
    return engine if pieces == 1 else pieces * _UNIT + engine


def pieces_of(engine: int) -> tuple[int, int]:
    """The engine of each piece, and how many pieces there are: 1 where the batch is not cut."""
    pieces, each = divmod(engine, _UNIT)
    return each, max(1, pieces)


def is_engine(engine: int) -> bool:
    """Whether the number names an engine, in one piece or in a number of pieces that there is."""
    each, pieces = pieces_of(engine)
    return in_pieces(each, pieces) == engine and pieces in (1, *PIECES)
