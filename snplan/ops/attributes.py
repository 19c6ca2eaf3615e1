"""Typed reads of op attributes; a missing or mistyped one is a ShapeError that names it."""

from __future__ import annotations

from snplan.ir import Attrs, DType
from snplan.ops.base import ShapeError


def get_int(attrs: Attrs, key: str) -> int:
    """The integer attribute `key`."""
    value = attrs.get(key)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ShapeError(f"attribute {key} must be an integer, it is {value!r}")


def get_float(attrs: Attrs, key: str) -> float:
    """The number attribute `key` as a float."""
    value = attrs.get(key)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    raise ShapeError(f"attribute {key} must be a number, it is {value!r}")


def get_bool(attrs: Attrs, key: str) -> bool:
    """The truth value of attribute `key`; False where it is absent."""
    value = attrs.get(key, False)
    if isinstance(value, (bool, int)):
        return bool(value)
    raise ShapeError(f"attribute {key} must be true or false, it is {value!r}")


def get_str(attrs: Attrs, key: str) -> str:
    """The text attribute `key`."""
    value = attrs.get(key)
    if isinstance(value, str):
        return value
    raise ShapeError(f"attribute {key} must be a string, it is {value!r}")


def get_ints(attrs: Attrs, key: str) -> tuple[int, ...]:
    """The attribute `key`, a list of integers."""
    value = attrs.get(key)
    if not isinstance(value, (list, tuple)):
        raise ShapeError(f"attribute {key} must be a list of integers, it is {value!r}")
    numbers = tuple(item for item in value if isinstance(item, int) and not isinstance(item, bool))
    if len(numbers) != len(value):
        raise ShapeError(f"attribute {key} must be a list of integers, it is {value!r}")
    return numbers


def get_shape(attrs: Attrs, key: str = "shape") -> tuple[int, ...]:
    """The attribute `key`, a list of sizes of at least 0."""
    shape = get_ints(attrs, key)
    if any(size < 0 for size in shape):
        raise ShapeError(f"attribute {key} has a negative size: {list(shape)}")
    return shape


def get_dtype(attrs: Attrs, key: str = "dtype") -> DType:
    """The element type that attribute `key` names."""
    name = get_str(attrs, key)
    try:
        return DType(name)
    except ValueError:
        raise ShapeError(f"attribute {key} names an unknown element type {name!r}") from None


def get_choice(attrs: Attrs, key: str, choices: tuple[str, ...]) -> str:
    """The text attribute `key`, one of `choices`."""
    value = get_str(attrs, key)
    if value not in choices:
        raise ShapeError(f"attribute {key} is {value!r}; it must be one of {', '.join(choices)}")
    return value
