"""Signatures: equal for ops that do the same work, so that what holds for one of a network's repeated blocks is shared.

A signature has the kind, the attributes and the element types and shapes of what an op reads and writes, no names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, TypeVar

import msgspec

from snplan.ir.op import Attrs, Op
from snplan.ir.tensor import Spec, Tensor

Signature: TypeAlias = tuple[object, ...]
T = TypeVar("T")

_encode = msgspec.json.Encoder().encode


def signature(kind: str, attrs: Attrs, inputs: Iterable[Spec], outputs: Iterable[Spec]) -> Signature:
    """The signature of an op; `inputs` are the specs of the tensors that it reads, before `in_shapes`."""
    return (kind, _encode(attrs), *inputs, None, *outputs)


def classes_of(ops: Sequence[Op], tensors: Mapping[str, Tensor]) -> list[int]:
    """For each op the index of the first op with its signature: ops of one class."""
    first: dict[Signature, int] = {}
    spec = {name: tensor.spec for name, tensor in tensors.items()}.__getitem__
    return [
        first.setdefault(signature(op.kind, op.attrs, map(spec, op.inputs), map(spec, op.outputs)), index)
        for index, op in enumerate(ops)
    ]


def by_class(classes: Sequence[int], answer: Callable[[int], T]) -> list[T]:
    """`answer` for each op, asked once a class, with the index of the class."""
    known = {index: answer(index) for index in dict.fromkeys(classes)}
    return [known[index] for index in classes]
