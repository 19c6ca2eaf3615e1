"""Ops on small and odd shapes that every generated kernel is run on, in families."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from kernel_harness import Case

from kernel_cases import elementwise, fused, indices, moves, norms, others, reductions

FAMILIES: Mapping[str, Callable[[], Iterator[Case]]] = {
    "unary": elementwise.unary_cases,
    "binary": elementwise.binary_cases,
    "cast": elementwise.cast_cases,
    "reduction": reductions.reduction_cases,
    "loss": reductions.loss_cases,
    "softmax": reductions.softmax_cases,
    "random": others.random_cases,
    "update": others.update_cases,
    "constant": others.constant_cases,
    "move": moves.move_cases,
    "resize": moves.resize_cases,
    "index": indices.index_cases,
    "norm": norms.norm_cases,
    "pool": norms.pool_cases,
    "batch_norm": norms.batch_norm_cases,
    "fused": fused.fused_cases,
}
