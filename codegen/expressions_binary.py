"""Elementwise functions of two and three inputs as CUDA C++ expressions (see `expressions.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snplan.codegen.expressions import Attrs, Expression, fixed
from snplan.codegen.scalars import literal


def operands(attrs: Attrs, names: Sequence[str]) -> tuple[str, str]:
    """Both operands: two names, or one and the attribute `scalar` (first with `reverse`)."""
    if len(names) == 2:
        return names[0], names[1]
    scalar = f"A({literal(attrs['scalar'])})"
    return (scalar, names[0]) if attrs.get("reverse") else (names[0], scalar)


def _both(text: str) -> Expression:
    def expression(attrs: Attrs, names: Sequence[str]) -> str:
        a, b = operands(attrs, names)
        return text.format(a=a, b=b)

    return expression


# Powers that need no `pow`: {a} is the base.
_POWERS = {1.0: "{a}", 2.0: "{a} * {a}", 3.0: "{a} * {a} * {a}", 0.5: "sqrt({a})"}


def _powered(a: str, exponent: float) -> str:
    return _POWERS.get(exponent, f"power({{a}}, {literal(exponent)})").format(a=a)


def _pow(attrs: Attrs, names: Sequence[str]) -> str:
    a, b = operands(attrs, names)
    if len(names) == 1 and not attrs.get("reverse") and (attrs["scalar"] in (1, 2, 3) or attrs["scalar"] == 0.5):
        return _powered(a, attrs["scalar"])
    return f"power({a}, {b})"


def _mod(attrs: Attrs, names: Sequence[str]) -> str:
    a, b = operands(attrs, names)
    return f"{'truncated' if attrs.get('fmod') else 'floored'}_modulo({a}, {b})"


def _pow_grad_a(attrs: Attrs, names: Sequence[str]) -> str:
    *base, dy = names
    if len(base) == 2:
        a, b = base
        return f"{dy} * ({b} == A(0) ? A(0) : {b} * power({a}, {b} - A(1)))"
    exponent = float(attrs["scalar"])
    if exponent == 0:
        return f"{dy} * A(0)"
    return f"{dy} * ({literal(exponent)} * ({_powered(base[0], exponent - 1)}))"


def _pow_grad_b(attrs: Attrs, names: Sequence[str]) -> str:
    y, dy = names[-2:]
    a = names[0] if len(names) == 3 else f"A({literal(attrs['scalar'])})"
    return f"{dy} * ({a} > A(0) ? {y} * log({a}) : A(0))"


def _extremum_grad(attrs: Attrs, names: Sequence[str]) -> str:
    *rest, dy = names
    pair = operands(attrs, rest)
    mine, other = pair if attrs.get("input", 0) == 0 else pair[::-1]
    relation = ">" if attrs["of"] == "max" else "<"
    return f"({mine} {relation} {other} ? {dy} : {mine} == {other} ? {dy} * A(0.5) : A(0))"


def _reverse_div_grad(attrs: Attrs, names: Sequence[str]) -> str:
    x, dy = names
    return f"-{dy} * {literal(float(attrs['scalar']))} / ({x} * {x})"


def _mask(attrs: Attrs, names: Sequence[str]) -> str:
    c, x = names
    zero = f"decltype({x})()"
    return f"({c} ? {x} : {zero})" if attrs["keep"] else f"({c} ? {zero} : {x})"


ARITHMETIC: Mapping[str, Expression] = {
    "add": _both("{a} + {b}"),
    "sub": _both("{a} - {b}"),
    "mul": _both("{a} * {b}"),
    "div": _both("quotient({a}, {b})"),
    "pow": _pow,
    "max": _both("largest({a}, {b})"),
    "min": _both("smallest({a}, {b})"),
    "mod": _mod,
    "equal": _both("({a} == {b})"),
    "less": _both("({a} < {b})"),
    "less_equal": _both("({a} <= {b})"),
    "greater": _both("({a} > {b})"),
    "greater_equal": _both("({a} >= {b})"),
    "and": _both("({a} != A(0) && {b} != A(0))"),
    "or": _both("({a} != A(0) || {b} != A(0))"),
    "xor": _both("(({a} != A(0)) != ({b} != A(0)))"),
}

GRADIENTS: Mapping[str, Expression] = {
    "div_grad_b": fixed("-{z} * {y} / {x}"),
    "reverse_div_grad": _reverse_div_grad,
    "pow_grad_a": _pow_grad_a,
    "pow_grad_b": _pow_grad_b,
    "extremum_grad": _extremum_grad,
    "prelu": fixed("({x} >= A(0) ? {x} : {x} * {y})"),
    "prelu_grad_x": fixed("({x} >= A(0) ? {z} : {z} * {y})"),
    "prelu_grad_slope": fixed("({x} < A(0) ? {y} * {x} : A(0))"),
}

# Operands are elements as stored, not widened: what is chosen keeps its bits.
CHOICES: Mapping[str, Expression] = {"where": fixed("({x} ? {y} : {z})"), "mask": _mask}
