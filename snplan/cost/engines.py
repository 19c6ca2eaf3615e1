"""Engines of matrix products and convolutions: measured ones from a profile, else a model of workspace against speed.

The model is fitted to convolutions measured on an H200 (docs/cost.md). Factors are times relative to the fastest
engine's arithmetic; memory traffic bounds all engines alike.

On tensor cores:
- Engine 0 has no workspace. A forward convolution or data gradient without one takes 1.1 to 1.8 times as long (4.6
  with TF32 and a spatial filter, whose operands would be rearranged). A filter gradient loses what cutting the
  reduction over batch and positions into pieces would win: up to 4 or 15 times, and no more than there are pieces.
- Engine 1 is the fastest, and its workspace small: 512 bytes of descriptors forward, 2 MiB for a data gradient, and for
  a filter gradient one float32 copy of the filter for each piece, as many pieces as keep all processors busy.
- Engine 2 of filter gradients makes a quarter of the pieces.

On vector units (float32 without TF32, and devices without tensor cores), as cuDNN's classic algorithms:
- Engine 0, implicit product, no workspace, 1.6 times; engine 1 with precomputed offsets (4 bytes for each position of
  the inner size), or for filter gradients with pieces.
- Engine 3, Winograd F(4x4, 3x3): stride-1 3x3 filters; 0.55 times; transformed input and result take 36/16 of their
  bytes, the filter 36/9.
- Engine 4, FFT: stride-1 filters of 5 or more; 0.45 times; half spectra of input and result on a padded grid take twice
  their bytes, those of the filter as much as one image for each pair of channels.

An engine may also run in pieces of the batch (`snplan.ops.pieces`), with the workspace of one of them. Each piece takes
what the engine takes for its images, which counts the filter, fewer tiles, shorter sums and a launch once a piece, and
together never less than the whole. Each further piece launches three kernels more (engines 3 and 4 have four), and what
does not shrink with the batch, as the transform of a filter, is made again: written and read. Filter gradients keep one
partial filter beside the workspace, and add each to the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, prod

from snplan.cost.device import Device, Precision
from snplan.cost.gemm import Product, is_tensor_core, product_of, reached_flops
from snplan.cost.profile import Engine, pareto, signature
from snplan.ir import Attrs, Op, Spec
from snplan.ops import KINDS
from snplan.ops.base import ShapeError, Specs
from snplan.ops.pieces import check_pieces, piece_of, piece_sizes
from snplan.plan.pieces import PIECES, in_pieces
from snplan.units import round_up

__all__ = ["Engine", "engines", "launch_us", "memory_us"]

_FILTER_GRADIENT_SPEED = 0.5
_DATA_WORKSPACE = 2 << 20
_FORWARD_WORKSPACE = 512
# Kernels of an engine with transforms, less the one whose launch every op is charged with.
_MORE_KERNELS = 3
# (kind, filter is spatial, operands of 4 bytes or more) -> time without workspace / fastest time, as measured.
_NO_WORKSPACE = {
    ("conv", True, True): 4.6,
    ("conv", True, False): 1.4,
    ("conv", False, True): 1.2,
    ("conv", False, False): 1.3,
    ("conv_transpose", True, True): 1.75,
    ("conv_transpose", True, False): 1.4,
    ("conv_transpose", False, True): 1.45,
    ("conv_transpose", False, False): 1.1,
    ("conv_filter", True, True): 3.8,
    ("conv_filter", True, False): 14.5,
    ("conv_filter", False, True): 4.7,
    ("conv_filter", False, False): 9.0,
}


def engines(
    op: Op, specs: Specs, device: Device, precision: Precision, *, deterministic: bool = False, pieces: int = 1
) -> tuple[Engine, ...]:
    """Engines of a matmul or convolution: by workspace from 0 bytes up, each faster than all before it.

    `specs` are the inputs as the op reads them. Measured engines come first where the device's profile has them; they
    may lack one without workspace when the library has none. With `deterministic` only those that give the same bits in
    every run. Convolutions may be cut into 2, 4 or 8 pieces of the batch, and into at most `pieces`.
    """
    if device.profile is not None:
        key = signature(op.kind, specs, op.attrs, precision)
        measured = device.profile.find(key, deterministic=deterministic, pieces=pieces)
        if measured is not None:
            return measured
    whole = _modelled(op, specs, device, precision)
    if op.kind == "matmul":
        return pareto(whole)
    cut = (_cut(op, specs, device, precision, whole, count) for count in PIECES if count <= pieces)
    return pareto([*whole, *(engine for found in cut for engine in found)])


def _modelled(op: Op, specs: Specs, device: Device, precision: Precision) -> list[Engine]:
    """Engines of the whole op by the model."""
    outputs = KINDS[op.kind].infer(specs, op.attrs)
    product = product_of(op.kind, specs, outputs[0], op.attrs)
    compute = _compute_us(op, specs, outputs, product, device, precision)
    memory = memory_us(KINDS[op.kind].traffic(specs, outputs, op.attrs), device)
    if op.kind == "matmul":
        return [Engine(id=0, workspace_bytes=0, us=launch_us(max(compute, memory), device))]
    tensor = is_tensor_core(specs[0].dtype, device, precision)
    options = (
        _tensor(op, specs, outputs[0], product, device) if tensor else _vector(op, specs, outputs[0], product, device)
    )
    return [
        Engine(id=number, workspace_bytes=workspace, us=launch_us(max(compute * factor, memory), device))
        for number, workspace, factor in options
    ]


def _cut(
    op: Op, specs: Specs, device: Device, precision: Precision, whole: Sequence[Engine], pieces: int
) -> Iterator[Engine]:
    """Engines that run `pieces` pieces of the batch: those that have a workspace; none where it cannot be cut."""
    try:
        check_pieces(op.kind, specs, op.attrs, pieces)
    except ShapeError:
        return
    sizes = piece_sizes(specs[0].shape[0], pieces)
    parts = {size: _part(op, specs, device, precision, size) for size in dict.fromkeys(sizes)}
    more_us, more_bytes = (pieces - 1) * _MORE_KERNELS * device.graph_launch_us, 0
    if op.kind == "conv_filter":
        filter_bytes = KINDS[op.kind].infer(specs, op.attrs)[0].bytes
        more_us += (pieces - 1) * launch_us(memory_us(3 * filter_bytes, device), device)
        more_bytes = round_up(filter_bytes)
    for engine in whole:
        if not engine.workspace_bytes:
            continue
        run = [parts[size][engine.id] for size in sizes]
        again = max(0, sum(part.workspace_bytes for part in run) - engine.workspace_bytes)
        us = max(sum(part.us for part in run), engine.us) + ceil(memory_us(2 * again, device)) + more_us
        workspace = more_bytes + max(part.workspace_bytes for part in run)
        yield Engine(id=in_pieces(engine.id, pieces), workspace_bytes=workspace, us=us)


def _part(op: Op, specs: Specs, device: Device, precision: Precision, images: int) -> dict[int, Engine]:
    """Engines of a piece by id."""
    cut, attrs = piece_of(op.kind, specs, op.attrs, images)
    return {engine.id: engine for engine in _modelled(replace(op, attrs=attrs), cut, device, precision)}


def memory_us(traffic: int, device: Device) -> float:
    """Microseconds to move `traffic` bytes of device memory."""
    return traffic * 1e6 / (device.memory_bytes_per_s * device.memory_percent / 100)


def launch_us(kernel: float, device: Device) -> int:
    """Whole microseconds of a kernel and its launch, at least 1."""
    return max(1, ceil(kernel) + device.graph_launch_us)


def _compute_us(op: Op, specs: Specs, outputs: Specs, product: Product, device: Device, precision: Precision) -> float:
    rate = reached_flops(product, specs[0].dtype, device, precision)
    if op.kind == "conv_filter":
        rate *= _FILTER_GRADIENT_SPEED
    return KINDS[op.kind].flops(specs, outputs, op.attrs) * 1e6 / rate if rate else 0.0


def _filter(op: Op, specs: Specs, output: Spec) -> Spec:
    return output if op.kind == "conv_filter" else specs[1]


def _pieces(product: Product, device: Device) -> int:
    """Pieces of a filter gradient's reduction that keep all processors busy."""
    return max(1, min(product.splits, device.processors // max(1, product.tiles)))


def _tensor(op: Op, specs: Specs, output: Spec, product: Product, device: Device) -> Iterator[tuple[int, int, float]]:
    """(id, workspace, factor) of each engine on tensor cores."""
    w = _filter(op, specs, output)
    slow = _NO_WORKSPACE[op.kind, prod(w.shape[2:]) > 1, specs[0].dtype.bits >= 32]
    if op.kind != "conv_filter":
        yield 0, 0, slow
        yield 1, _FORWARD_WORKSPACE if op.kind == "conv" else _DATA_WORKSPACE, 1.0
        return
    pieces = _pieces(product, device)
    yield 0, 0, max(1.0, min(slow, pieces))
    yield 2, 4 * w.elements * max(1, pieces // 4), min(slow, 1.6)
    yield 1, 4 * w.elements * pieces, 1.0


def _vector(op: Op, specs: Specs, output: Spec, product: Product, device: Device) -> Iterator[tuple[int, int, float]]:
    """(id, workspace, factor) of each engine on vector units."""
    w = _filter(op, specs, output)
    yield 0, 0, 1.6
    yield 1, 4 * (w.elements * _pieces(product, device) if op.kind == "conv_filter" else product.k), 1.0
    if not _is_plain(op.attrs, w):
        return
    images = sum(spec.bytes for spec in (*specs, output)) - w.bytes
    if w.shape[2:] == (3, 3):
        yield 3, images * 36 // 16 + w.bytes * 36 // 9, 0.55
    elif min(w.shape[2:]) >= 5:
        image = max(prod(spec.shape[2:]) for spec in (*specs, output))
        yield 4, images * 2 + w.shape[0] * w.shape[1] * image * w.dtype.bits // 8, 0.45


def _is_plain(attrs: Attrs, w: Spec) -> bool:
    """Whether fast algorithms take the convolution: two spatial axes, one group, strides and dilations of 1."""
    return w.rank == 4 and attrs["group"] == 1 and attrs["strides"] == [1, 1] == attrs["dilations"]
