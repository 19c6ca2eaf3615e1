"""Special functions that NumPy lacks."""

from __future__ import annotations

import numpy as np

from snplan.runtime.numpy.base import Array

# W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969): three ranges of |x|.
_SMALL_NUM = (
    1.85777706184603153e-1,
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
)
_SMALL_DEN = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_MIDDLE_NUM = (
    2.15311535474403846e-8,
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
)
_MIDDLE_DEN = (
    1.0,
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_LARGE_NUM = (
    1.63153871373020978e-2,
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
)
_LARGE_DEN = (
    1.0,
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)

# Temporaries of one block stay in the second-level cache.
_BLOCK = 1 << 14


def erf(x: Array) -> Array:
    """The error function of `x`, in x's floating-point type; computed in float64, error below 1e-15."""
    result = np.empty(x.shape, x.dtype)
    source, target = x.reshape(-1), result.reshape(-1)
    for start in range(0, source.size, _BLOCK):
        target[start : start + _BLOCK] = _erf_block(source[start : start + _BLOCK].astype(np.float64))
    return result


def _erf_block(x: Array) -> Array:
    size = np.minimum(np.abs(x), 6.0)
    result = np.empty_like(x)
    small = size <= 0.46875
    large = size > 4.0
    middle = ~(small | large)
    result[small] = _erf_small(size[small])
    result[middle] = 1.0 - _erfc_middle(size[middle])
    result[large] = 1.0 - _erfc_large(size[large])
    return np.copysign(result, x)


def _erf_small(x: Array) -> Array:
    square = x * x
    return x * _polynomial(_SMALL_NUM, square) / _polynomial(_SMALL_DEN, square)


def _erfc_middle(x: Array) -> Array:
    return np.exp(-x * x) * _polynomial(_MIDDLE_NUM, x) / _polynomial(_MIDDLE_DEN, x)


def _erfc_large(x: Array) -> Array:
    inverse = 1.0 / (x * x)
    ratio = inverse * _polynomial(_LARGE_NUM, inverse) / _polynomial(_LARGE_DEN, inverse)
    return np.exp(-x * x) / x * (1.0 / np.sqrt(np.pi) - ratio)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    result = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        result *= x
        result += coefficient
    return result
