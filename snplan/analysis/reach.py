"""How much of a step must run before and after each op, whatever the order of the ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

WINDOW = 1024  # ops before an op whose relation to it is known exactly


def ancestor_us(preds: Sequence[Sequence[int]], us: Sequence[int]) -> list[int]:
    """For each op the microseconds of the ops that it depends on, or less where more than `WINDOW` ops lie between.

    `preds` are, for each op, ops before it that it depends on directly. Each op counts what its predecessor with the
    most counted, that predecessor, and those of its last `WINDOW` ancestors that are no ancestors of it: so nothing is
    counted twice, and the sum of a branch is only left out where it is longer than the window.
    """
    totals: list[int] = []
    masks: list[int] = []  # bit k of masks[i]: op i - 1 - k is an ancestor of i
    for op, direct in enumerate(preds):
        mask, total = 0, 0
        if direct:
            nearest = max(direct, key=lambda p: totals[p] + us[p])
            known = _shifted(masks[nearest], op - nearest)
            mask = _joined(masks, op, direct)
            total = totals[nearest] + us[nearest] + sum(us[op - 1 - k] for k in _bits(mask & ~known))
        totals.append(total)
        masks.append(mask)
    return totals


def descendant_us(preds: Sequence[Sequence[int]], us: Sequence[int]) -> list[int]:
    """For each op the microseconds of the ops that depend on it, or less as for `ancestor_us`."""
    last = len(preds) - 1
    following: list[list[int]] = [[] for _ in preds]
    for op, direct in enumerate(preds):
        for p in direct:
            following[last - p].append(last - op)
    return ancestor_us(following, us[::-1])[::-1]


def _shifted(mask: int, distance: int) -> int:
    """The ancestors of the op `distance` before, and it itself, as seen from here."""
    return ((mask << 1 | 1) << (distance - 1)) & ((1 << WINDOW) - 1) if distance <= WINDOW else 0


def _joined(masks: Sequence[int], op: int, direct: Iterable[int]) -> int:
    found = 0
    for p in direct:
        found |= _shifted(masks[p], op - p)
    return found


def _bits(mask: int) -> Iterable[int]:
    """Positions of the ones."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
