"""Matrix products as library calls: done here by NumPy from the column-major description, on the same bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runtime_support import normal

from snplan.codegen.operand import Operand, operand, row_major
from snplan.errors import RunError
from snplan.ir import DType, Spec
from snplan.runtime.cuda.products import Matrix, Product, products
from snplan.runtime.numpy import Array


def plain(*shape: int) -> Operand:
    """A row-major operand."""
    return operand(Spec(DType.FLOAT32, shape))


def stored(block: Array, matrix: Matrix, offset: int, number: int) -> Array:
    """One column-major matrix in a flat array, transposed where it says so."""
    start = offset + number * matrix.batch
    view = np.lib.stride_tricks.as_strided(
        block[start:], (matrix.rows, matrix.columns), (block.itemsize, block.itemsize * matrix.ld)
    )
    return view.T if matrix.transposed else view


def execute(calls: list[Product], a: Array, b: Array, y: Array) -> None:
    """What the library does."""
    for call in calls:
        offset_b, offset_a, offset_y = call.offsets
        for number in range(call.count):
            result = stored(y, call.result, offset_y, number)
            result[...] = stored(b, call.first, offset_b, number) @ stored(a, call.second, offset_a, number)


def product(a_shape: tuple[int, ...], b_shape: tuple[int, ...], **flags: bool) -> tuple[Array, Array, list[Product]]:
    """Result by the calls, result by NumPy, and the calls."""
    flags = {"trans_a": False, "trans_b": False, **flags}
    a, b = normal(*a_shape), normal(*b_shape, seed=1)
    right = (np.swapaxes(a, -1, -2) if flags["trans_a"] else a) @ (np.swapaxes(b, -1, -2) if flags["trans_b"] else b)
    calls = products(plain(*a_shape), plain(*b_shape), plain(*right.shape), **flags)
    y = np.full(right.size, np.nan, np.float32)
    execute(calls, a.reshape(-1), b.reshape(-1), y)
    return y.reshape(right.shape), right, calls


CASES: list[tuple[Any, Any, dict[str, bool], int]] = [
    ((3, 4), (4, 5), {}, 1),
    ((4, 3), (4, 5), {"trans_a": True}, 1),
    ((3, 4), (5, 4), {"trans_b": True}, 1),
    ((4, 3), (5, 4), {"trans_a": True, "trans_b": True}, 1),
    ((2, 3, 4), (4, 5), {}, 1),
    ((6, 2, 3, 4), (4, 5), {}, 1),
    ((2, 3, 4), (2, 4, 5), {}, 1),
    ((2, 6, 3, 4), (2, 6, 4, 5), {}, 1),
    ((3, 4), (7, 4, 5), {}, 1),
    ((2, 1, 3, 4), (1, 6, 4, 5), {}, 2),
    ((2, 1, 3, 4), (6, 4, 5), {}, 2),
    ((3, 1, 5, 1, 2, 4), (2, 5, 7, 4, 3), {}, 30),
    ((2, 4, 3), (4, 5), {"trans_a": True}, 1),
    ((1, 4), (4, 5), {}, 1),
    ((3, 4), (4, 1), {}, 1),
    ((1, 4), (4, 1), {}, 1),
    ((3, 1), (1, 5), {}, 1),
    ((1, 1), (1, 1), {}, 1),
    ((3, 4), (1, 4), {"trans_b": True}, 1),
    ((4, 1), (4, 5), {"trans_a": True}, 1),
]


@pytest.mark.parametrize(("a", "b", "flags", "count"), CASES)
def test_as_numpy(a: tuple[int, ...], b: tuple[int, ...], flags: dict[str, bool], count: int) -> None:
    """Every element is written once, in as few calls as the strides allow."""
    found, right, calls = product(a, b, **flags)
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    assert len(calls) == count


SIZE = st.integers(1, 4)


@given(
    m=SIZE, n=SIZE, k=SIZE, lead=st.lists(st.tuples(SIZE, st.sampled_from("abo")), max_size=3), flags=st.integers(0, 3)
)
def test_random_shapes(m: int, n: int, k: int, lead: list[tuple[int, str]], flags: int) -> None:
    """Leading axes that both have, or one of them has with one entry."""
    trans_a, trans_b = bool(flags & 1), bool(flags & 2)
    a = tuple(1 if who == "b" else size for size, who in lead) + ((k, m) if trans_a else (m, k))
    b = tuple(1 if who == "a" else size for size, who in lead) + ((n, k) if trans_b else (k, n))
    found, right, _ = product(a, b, trans_a=trans_a, trans_b=trans_b)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-5)


def test_leading_dimensions_are_legal() -> None:
    """The library refuses a leading dimension below the rows."""
    for a, b, flags, _ in CASES:
        for call in product(a, b, **flags)[2]:
            assert all(matrix.ld >= matrix.rows for matrix in (call.first, call.second, call.result))


def test_strided_operand() -> None:
    """Channels-last bytes of [2, 3, 8], read as matrices of 3 by 8, are transposed matrices: no copy is needed."""
    x = Operand(dtype=DType.FLOAT32, shape=(2, 3, 8), strides=(24, 1, 3))
    (call,) = products(x, plain(8, 5), plain(2, 3, 5), trans_a=False, trans_b=False)
    block, b = normal(48), normal(8, 5, seed=1)
    y = np.zeros(30, np.float32)
    execute([call], block, b.reshape(-1), y)
    right = np.moveaxis(block.reshape(2, 8, 3), 1, 2) @ b
    np.testing.assert_allclose(y.reshape(2, 3, 5), right, rtol=1e-5)


def test_empty_result_needs_no_call() -> None:
    """Nothing to write, nothing to do."""
    assert products(plain(0, 4), plain(4, 5), plain(0, 5), trans_a=False, trans_b=False) == []


def test_gaps_are_refused() -> None:
    """A matrix with gaps both ways is no library's."""
    x = Operand(dtype=DType.FLOAT32, shape=(3, 4), strides=(8, 2))
    with pytest.raises(RunError, match="gaps in both axes") as caught:
        products(x, plain(4, 5), plain(3, 5), trans_a=False, trans_b=False)
    assert caught.value.code == "SNP-R055"
    y = Operand(dtype=DType.FLOAT32, shape=(3, 5), strides=(1, 3))
    with pytest.raises(RunError, match="rows are not contiguous"):
        products(plain(3, 4), plain(4, 5), y, trans_a=False, trans_b=False)


def test_row_major_helper() -> None:
    """The oracle's own strides."""
    assert row_major((2, 3, 4)) == (12, 4, 1)
