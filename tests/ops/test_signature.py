"""Classes of ops that do the same work."""

from __future__ import annotations

from typing import Any

from snplan.ir import DType, Graph, Op, Spec, Tensor
from snplan.ir.signature import by_class, classes_of, signature

SPEC = Spec(DType.FLOAT32, (2, 3))


def tensors(*names: str, **shapes: tuple[int, ...]) -> dict[str, Tensor]:
    found = {name: Tensor(name=name, spec=SPEC) for name in names}
    return {**found, **{name: Tensor(name=name, spec=Spec(DType.FLOAT32, shape)) for name, shape in shapes.items()}}


def op(name: str, source: str, **attrs: Any) -> Op:
    return Op(name=name, kind="relu", inputs=(source,), outputs=(name,), attrs=attrs)


def test_names_play_no_part() -> None:
    ops = [op("b", "a"), op("c", "b"), op("d", "c")]
    assert classes_of(ops, tensors("a", "b", "c", "d")) == [0, 0, 0]


def test_shapes_attributes_and_kinds_do() -> None:
    named = tensors("a", "b", "c", "d", wide=(2, 9), out=(2, 9))
    ops = [op("b", "a"), op("out", "wide"), op("c", "b", axis=1), op("d", "c", axis=1)]
    assert classes_of(ops, named) == [0, 1, 2, 2]
    assert signature("relu", {}, [SPEC], [SPEC]) != signature("neg", {}, [SPEC], [SPEC])


def test_what_is_read_is_not_what_is_written() -> None:
    assert signature("split", {}, [SPEC, SPEC], [SPEC]) != signature("split", {}, [SPEC], [SPEC, SPEC])


def test_numbers_of_other_types_are_other_attributes() -> None:
    found = [signature("clip", {"min": value}, [SPEC], [SPEC]) for value in (1, 1.0, True, None, "1")]
    assert len(set(found)) == len(found)


def test_each_class_is_asked_once() -> None:
    asked: list[int] = []

    def answer(index: int) -> str:
        asked.append(index)
        return f"of {index}"

    assert by_class([0, 1, 0, 3, 1], answer) == ["of 0", "of 1", "of 0", "of 3", "of 1"]
    assert asked == [0, 1, 3]


def test_a_graph_knows_its_classes() -> None:
    graph = Graph(tensors=tensors("a", "b", "c"), ops=(op("b", "a"), op("c", "b")), sources=("a",), outputs=("c",))
    assert graph.classes == [0, 0]
