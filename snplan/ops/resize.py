"""`resize` and its gradient."""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_choice, get_shape
from snplan.ops.base import Kind, Specs, register
from snplan.ops.shapes import need, need_count, need_number

MODES = ("nearest", "linear", "cubic")


def infer_resize(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`sizes` of the input's type."""
    need_count(specs, 1)
    x = specs[0]
    need_number(x)
    get_choice(attrs, "mode", MODES)
    sizes, scales = get_shape(attrs, "sizes"), attrs.get("scales")
    need(len(sizes) == x.rank, f"sizes must have {x.rank} entries, it is {list(sizes)}")
    need(isinstance(scales, (list, tuple)) and len(scales) == x.rank, f"scales must have {x.rank} entries")
    need(all(dim or not size for dim, size in zip(x.shape, sizes, strict=True)), "an empty axis cannot grow")
    return (Spec(x.dtype, sizes),)


register(Kind(name="resize", infer=infer_resize))
