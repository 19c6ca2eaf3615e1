"""`resize` and its gradient."""

from __future__ import annotations

from snplan.ir import Attrs, Spec
from snplan.ops.attributes import get_choice, get_shape
from snplan.ops.base import Kind, ShapeError, Specs, register
from snplan.ops.forms import FLAG, NUMBER, NUMBERS, SHAPE, choice, takes
from snplan.ops.gradients import shaped_gradient
from snplan.ops.shapes import Shape, need, need_count, need_float, need_number, need_shape

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    *("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric", "align_corners", "asymmetric"),
    "tf_half_pixel_for_nn",
)
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def infer_resize(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`sizes` of the input's type."""
    need_count(specs, 1)
    need_number(specs[0])
    return (Spec(specs[0].dtype, _resized(specs[0].shape, attrs)),)


def infer_resize_grad(specs: Specs, attrs: Attrs) -> tuple[Spec, ...]:
    """`shape` of dy's type, which resized would have dy's shape."""
    need_count(specs, 1)
    need_float(specs[0], "dy")
    shape = get_shape(attrs)
    need_shape(specs[0], _resized(shape, attrs), "dy")
    return (Spec(specs[0].dtype, shape),)


def _resized(shape: Shape, attrs: Attrs) -> Shape:
    """`sizes`, checked to fit `shape`, as must `scales`."""
    get_choice(attrs, "mode", MODES)
    sizes, scales = get_shape(attrs, "sizes"), attrs.get("scales")
    need(len(sizes) == len(shape), f"sizes must have {len(shape)} entries, it is {list(sizes)}")
    if not isinstance(scales, (list, tuple)) or len(scales) != len(shape):
        raise ShapeError(f"scales must have {len(shape)} entries, it is {scales!r:.80}")
    rows = zip(sizes, scales, strict=True)
    need(
        all(isinstance(scale, float | int) and (scale > 0 or not size) for size, scale in rows),
        "scales must be above 0",
    )
    need(all(dim or not size for dim, size in zip(shape, sizes, strict=True)), "an empty axis cannot grow")
    return sizes


_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


def resize_flops(inputs: Specs, outputs: Specs, attrs: Attrs) -> int:
    """Two for each element that one of the larger side is mixed from: taps to the power of the resized axes."""
    axes = sum(a != b for a, b in zip(inputs[0].shape, outputs[0].shape, strict=True))
    return 2 * int(_TAPS[get_choice(attrs, "mode", MODES)] ** axes) * max(inputs[0].elements, outputs[0].elements)


register(
    Kind(name="resize", infer=infer_resize, gradient=shaped_gradient("resize_grad"), flops=resize_flops),
    Kind(name="resize_grad", infer=infer_resize_grad, flops=resize_flops),
)

takes(
    *("resize", "resize_grad"),
    sizes=SHAPE,
    scales=NUMBERS,
    mode=choice(*MODES),
    coordinate_mode=choice(*COORDINATES),
    nearest_mode=choice(*ROUNDINGS),
    cubic_coeff=NUMBER,
    exclude_outside=FLAG,
)
takes("resize_grad", shape=SHAPE)
