"""Index spaces: merged axes, vector widths, and the C++ that finds offsets (run here as Python)."""

from __future__ import annotations

import re

import numpy as np
import pytest

from snplan.codegen.operand import Operand, Order, broadcast, operand, part, row_major, transposed
from snplan.codegen.space import (
    Space,
    channel_width,
    coordinate_code,
    in_vectors,
    index_type,
    linear,
    logical_space,
    space_of,
    vector_width,
)
from snplan.ir import DType, Spec

F32 = DType.FLOAT32


def tensor(*shape: int, order: Order = "plain") -> Operand:
    """A float32 operand."""
    return operand(Spec(F32, shape), order)


def run(lines: list[str], **names: int) -> dict[str, int]:
    """The values that lines of `const int name = expression;` give."""
    values = dict(names)
    for line in lines:
        name, expression = re.fullmatch(r"const (?:int|i64) (\w+) = (.*);", line).groups()  # type: ignore[union-attr]
        values[name] = eval(expression.replace("(int)", "").replace("(i64)", "").replace("/", "//"), {}, values)
    return values


def test_what_lies_alike_is_one_axis() -> None:
    for order in ("plain", "channels_last"):
        space = space_of([tensor(2, 3, 4, 5, order=order)] * 3)
        assert space.sizes == (120,)
        assert space.strides == ((1,), (1,), (1,))


def test_a_vector_of_channels_leaves_two_axes_in_channels_last_order() -> None:
    x = tensor(2, 8, 4, 5, order="channels_last")
    space = space_of([x, broadcast(tensor(8, 1, 1), x.shape)])
    assert space.sizes == (40, 8)
    assert space.strides == ((8, 1), (0, 1))
    assert vector_width(space, 4) == 4
    plain = space_of([tensor(2, 8, 4, 5), broadcast(tensor(8, 1, 1), x.shape)])
    assert plain.sizes == (2, 8, 20)
    assert plain.strides == ((160, 20, 1), (0, 1, 0))


def test_the_outermost_size_is_no_parameter_of_the_text() -> None:
    a, b = (space_of([tensor(n, 8), broadcast(tensor(8), (n, 8))]) for n in (5, 50))
    assert a.params == b.params
    assert a != b


@pytest.mark.parametrize(
    ("space", "width"),
    [
        (Space(sizes=(101,), strides=((1,), (1,)), offsets=(0, 0)), 4),
        (Space(sizes=(101,), strides=((1,), (2,)), offsets=(0, 0)), 1),
        (Space(sizes=(101,), strides=((1,), (0,)), offsets=(0, 0)), 4),
        (Space(sizes=(5, 6), strides=((6, 1), (0, 1)), offsets=(0, 0)), 2),
        (Space(sizes=(5, 8), strides=((9, 1),), offsets=(0,)), 1),
        (Space(sizes=(5, 8), strides=((16, 1), (3, 0)), offsets=(0, 1)), 4),
        (Space(sizes=(5, 8), strides=((16, 1),), offsets=(2,)), 2),
        (Space(sizes=(8,), strides=((-1,),), offsets=(7,)), 1),
        (Space(sizes=(), strides=((),), offsets=(0,)), 1),
    ],
)
def test_neighbours_go_together_only_where_all_stay_aligned(space: Space, width: int) -> None:
    assert vector_width(space, 4) == width


def test_counting_in_vectors_keeps_strides_in_elements() -> None:
    space = in_vectors(Space(sizes=(3, 8), strides=((8, 1), (0, 1)), offsets=(0, 0)), 4)
    assert space.sizes == (3, 2)
    assert space.strides == ((8, 4), (0, 4))
    tail = in_vectors(Space(sizes=(10,), strides=((1,),), offsets=(0,)), 4)
    assert tail.count == 3


@pytest.mark.parametrize("order", ["plain", "channels_last"])
def test_offsets_in_code_are_the_operands(order: Order) -> None:
    x = tensor(2, 3, 4, 5, order=order)
    y = transposed(tensor(5, 3, 2, 4), (2, 1, 3, 0))
    z = part(tensor(2, 9, 4, 5), 1, 4, 3)
    space = space_of([x, y, z])
    found = [run(space.code("i", ["a", "b", "c"], "int"), i=i) for i in range(space.count)]
    triples = {(v["a"], v["b"], v["c"]) for v in found}
    grid = np.indices(x.shape).reshape(4, -1).T
    places = [[o.offset + int(np.dot(c, o.strides)) for o in (x, y, z)] for c in grid]
    assert triples == {tuple(p) for p in places}
    assert [v["a"] for v in found] == list(range(120)), "the first operand is walked along memory"


def test_a_logical_space_counts_row_major() -> None:
    x = tensor(2, 3, 4, order="channels_last")
    space = logical_space([x])
    found = [run(space.code("i", ["a"], "int"), i=i)["a"] for i in range(24)]
    grid = np.indices(x.shape).reshape(3, -1).T
    assert found == [int(np.dot(c, x.strides)) for c in grid]


@pytest.mark.parametrize(("order", "width"), [("plain", 1), ("channels_last", 4)])
def test_coordinates_are_logical(order: Order, width: int) -> None:
    x = tensor(2, 8, 3, 1, order=order)
    lines = coordinate_code(x, width, "int")
    for i in range(x.elements // width):
        values = run(lines, i=i)
        place = sum(values[f"c{k}"] * stride for k, stride in enumerate(x.strides))
        assert place == i * width
        assert all(values[f"c{k}"] < n for k, n in enumerate(x.shape))


def test_channel_width() -> None:
    assert channel_width([tensor(2, 8, 3, 3, order="channels_last")], 4) == 4
    assert channel_width([tensor(2, 6, 3, 3, order="channels_last")], 4) == 2
    assert channel_width([tensor(2, 8, 3, 3)], 4) == 1
    mixed = [tensor(2, 8, 3, 3, order="channels_last"), tensor(2, 8, 3, 3)]
    assert channel_width(mixed, 4) == 1


def test_indices_take_64_bits_only_where_they_must() -> None:
    assert index_type([tensor(1 << 15, 1 << 15)]) == "int"
    assert index_type([tensor(1 << 16, 1 << 15)]) == "i64"
    repeated = broadcast(tensor(1), (1 << 32,))
    assert index_type([repeated], 1 << 32) == "i64"
    assert index_type([]) == "int"


def test_linear_expressions() -> None:
    assert linear(["a", "b"], [1, 3]) == "(i64)(a + b * 3)"
    assert linear(["a", "b"], [0, 0], 0) == "0"
    assert linear(["a"], [1], 0) == "a"
    assert linear(["a"], [-2], 6, "int") == "(int)(a * -2 + 6)"
    assert row_major((2, 3, 4)) == (12, 4, 1)
