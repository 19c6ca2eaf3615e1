"""The op table: every kind of op with its shape rule, cost, gradient rule and in-place rule."""

from snplan.ops.base import KINDS, Backward, Kind, ShapeError, register

__all__ = ["KINDS", "Backward", "Kind", "ShapeError", "register"]
