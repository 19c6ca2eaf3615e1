"""Operands: strides of both physical orders, and of what views, broadcasts and slices make of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snplan.codegen.operand import (
    Operand,
    Order,
    broadcast,
    operand,
    part,
    sliced,
    strides_of,
    transposed,
    viewed_strides,
    with_ones,
    without,
)
from snplan.errors import RunError
from snplan.ir import DType, Spec
from snplan.runtime.numpy import Array

F32 = DType.FLOAT32


def memory_of(shape: Sequence[int], order: Order) -> Array:
    """For each element of a tensor, in logical order, where it is in memory."""
    count = np.arange(np.prod(shape, dtype=int))
    if order == "plain" or len(shape) < 3:
        return count.reshape(shape)
    return np.moveaxis(count.reshape(shape[0], *shape[2:], shape[1]), -1, 1)


def places(x: Operand) -> Array:
    """For each element of an operand where it is, by its strides."""
    grids = np.indices(x.shape)
    return sum((g * s for g, s in zip(grids, x.strides, strict=True)), np.full(x.shape, x.offset))


@pytest.mark.parametrize("order", ["plain", "channels_last"])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (2, 3, 4), (2, 3, 4, 5), (2, 3, 1, 4, 5)])
def test_strides_are_where_elements_lie(shape: tuple[int, ...], order: Order) -> None:
    x = operand(Spec(F32, shape), order)
    np.testing.assert_array_equal(places(x), memory_of(shape, order))
    assert x.extent() == max(x.elements - 1, 0)


def test_channels_last_strides_by_hand() -> None:
    assert strides_of((2, 3, 4, 5), "channels_last") == (60, 1, 15, 3)
    assert strides_of((2, 3), "channels_last") == (3, 1)


def test_an_operand_may_be_in_both_orders() -> None:
    x = operand(Spec(F32, (7, 4, 1, 1)), "channels_last")
    assert x.plain
    assert x.channels_last
    y = operand(Spec(F32, (7, 4, 2, 1)), "channels_last")
    assert not y.plain
    assert y.channels_last


@pytest.mark.parametrize(
    ("shape", "view"),
    [
        ((2, 8, 3, 5), (2, 2, 4, 3, 5)),
        ((2, 8, 3, 5), (2, 8, 15)),
        ((2, 8, 1, 1), (2, 8)),
        ((2, 8, 3, 5), (1, 2, 8, 3, 1, 5)),
        ((2, 8, 3, 5), (2, 8, 3, 5)),
    ],
)
def test_views_of_channels_last_tensors(shape: tuple[int, ...], view: tuple[int, ...]) -> None:
    x = operand(Spec(F32, shape), "channels_last", view)
    np.testing.assert_array_equal(places(x), memory_of(shape, "channels_last").reshape(view))


def test_a_view_that_would_need_a_copy_is_refused() -> None:
    with pytest.raises(RunError, match=r"\[2, 8, 3, 5\] in channels-last order cannot be read as \[2, 120\]") as caught:
        operand(Spec(F32, (2, 8, 3, 5)), "channels_last", (2, 120))
    assert caught.value.code == "SNP-R040"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.data())
def test_views_agree_with_numpy_or_are_refused(shape: list[int], data: st.DataObject) -> None:
    order = data.draw(st.sampled_from(["plain", "channels_last"]))
    view = list(shape)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(view) - 1))
        if at + 1 < len(view) and data.draw(st.booleans()):
            view[at : at + 2] = [view[at] * view[at + 1]]
        else:
            divisor = data.draw(st.sampled_from([d for d in range(1, view[at] + 1) if view[at] % d == 0]))
            view[at : at + 1] = [divisor, view[at] // divisor]
    x = operand(Spec(F32, tuple(shape)), order)  # type: ignore[arg-type]
    strides = viewed_strides(x, tuple(view))
    wanted = memory_of(shape, order).reshape(view)  # type: ignore[arg-type]
    if strides is not None:
        found = Operand(dtype=F32, shape=tuple(view), strides=strides)
        np.testing.assert_array_equal(places(found), wanted)
    else:
        assert order == "channels_last"


@pytest.mark.parametrize("order", ["plain", "channels_last"])
def test_broadcasts_slices_and_transposes(order: Order) -> None:
    x = operand(Spec(F32, (2, 1, 3, 4)), order)
    where = memory_of((2, 1, 3, 4), order)
    wide = (5, 2, 6, 3, 4)
    np.testing.assert_array_equal(places(broadcast(x, wide)), np.broadcast_to(where, wide))
    y, where = operand(Spec(F32, (2, 6, 3, 4)), order), memory_of((2, 6, 3, 4), order)
    np.testing.assert_array_equal(places(transposed(y, (2, 0, 3, 1))), where.transpose(2, 0, 3, 1))
    np.testing.assert_array_equal(places(part(y, 1, 2, 3)), where[:, 2:5])
    cut = sliced(y, (1, 5, 0, 3), (1, -2, 2, -1), (1, 3, 2, 4))
    np.testing.assert_array_equal(places(cut), where[1:, 5::-2, ::2, ::-1])
    np.testing.assert_array_equal(places(without(y, [0, 3])), where[0, :, :, 0])


def test_reduced_axes_come_back_as_ones() -> None:
    y = operand(Spec(F32, (3, 5)))
    assert with_ones(y, [1, 2], 4).shape == (3, 1, 1, 5)
    assert with_ones(y, [1], 2) is y
