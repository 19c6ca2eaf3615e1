"""What batch normalisation does to each element, as CUDA C++ expressions (see `expressions.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snplan.codegen.expressions import Attrs, Expression


def _apply(attrs: Attrs, names: Sequence[str]) -> str:
    x, mean, inverse, scale, bias = names
    return f"({x} - {mean}) * ({inverse} * {scale}) + {bias}"


def _grad_apply(attrs: Attrs, names: Sequence[str]) -> str:
    x, scale, mean, inverse, dscale, dbias, dy = names
    share = f"A({1.0 / max(int(attrs['count']), 1)!r})"
    along = f"({x} - {mean}) * ({inverse} * {dscale} * {share})"
    return f"({dy} - {along} - {dbias} * {share}) * ({inverse} * {scale})"


NORMS: Mapping[str, Expression] = {"batch_norm_apply": _apply, "batch_norm_grad_apply": _grad_apply}
