"""Figure 10 and Table 1, to every printed digit; the sizes are summed by hand from AlexNet's feature maps."""

from __future__ import annotations

import itertools

import pytest
from superneurons.layers import MIB
from superneurons.memory import baseline, in_out_sets, peak, profile
from superneurons.memory_figures import fig10, mib, table1
from superneurons.networks import network
from superneurons.segments import (
    Mode,
    extra_runs,
    largest_layer,
    segment_bytes,
    segment_modes,
    segments,
)
from superneurons.trace import Trace, trace

# MiB of one float32 tensor of 200 images, by output shape.
STEM = 200 * 4 * 96 * 55 * 55 / MIB
POOL1 = 200 * 4 * 96 * 27 * 27 / MIB
SECOND = 200 * 4 * 256 * 27 * 27 / MIB
POOL2 = 200 * 4 * 256 * 13 * 13 / MIB
MIDDLE = 200 * 4 * 384 * 13 * 13 / MIB
POOL5 = 200 * 4 * 256 * 6 * 6 / MIB


@pytest.fixture(scope="module")
def alexnet() -> Trace:
    return trace(network("alexnet", 200))


def _names(step: Trace, tensors: tuple[int, ...]) -> list[str]:
    return [step.tensors[t].name for t in tensors]


def test_sizes_of_convolutions_as_printed() -> None:
    """Section 4.1: CONV1 to CONV4 consume 221.56, 142.38, 49.51 and 49.51 MB."""
    assert [round(size, 2) for size in (STEM, SECOND, MIDDLE)] == [221.56, 142.38, 49.51]


def test_baseline(alexnet: Trace) -> None:
    whole = baseline(alexnet)
    assert (len(whole.tensors), mib(whole.bytes)) == (36, 2189.437)


def test_liveness_peak(alexnet: Trace) -> None:
    top = peak(profile(alexnet))
    assert (top.step, len(top.tensors), mib(top.bytes)) == (32, 17, 1489.355)
    # Fourteen outputs up to RELU5, POOL5's, and the gradients on both sides of POOL5.
    by_hand = 3 * STEM + POOL1 + 3 * SECOND + POOL2 + 4 * MIDDLE + 2 * POOL2 + POOL5 + (POOL5 + POOL2)
    assert mib(top.bytes) == round(by_hand, 3)


def test_offload_peak(alexnet: Trace) -> None:
    top = peak(profile(alexnet, offload=True))
    assert (top.step, len(top.tensors), mib(top.bytes)) == (39, 9, 1132.056)
    assert _names(alexnet, top.tensors) == [
        *("relu1", "lrn1", "pool1", "conv2", "relu2", "lrn2", "pool2"),
        *("pool2:grad", "lrn2:grad"),
    ]


@pytest.mark.parametrize("mode", [Mode.COST, Mode.MEMORY])
def test_recompute_peak(alexnet: Trace, mode: Mode) -> None:
    top = peak(profile(alexnet, offload=True, recompute=mode))
    assert (top.step, len(top.tensors), mib(top.bytes)) == (44, 4, 886.230)
    assert _names(alexnet, top.tensors) == ["conv1", "relu1", "lrn1", "lrn1:grad"]


def test_speed_centric_peak(alexnet: Trace) -> None:
    top = peak(profile(alexnet, offload=True, recompute=Mode.SPEED))
    assert (top.step, len(top.tensors), mib(top.bytes)) == (43, 6, 993.018)


def test_memory_centric_chain_is_counted(alexnet: Trace) -> None:
    """CONV2's backward recomputes POOL1: with CONV1 and its own gradient, two neighbours at a time."""
    usage = profile(alexnet, offload=True, recompute=Mode.MEMORY)[alexnet.backward_of("conv2")]
    assert _names(alexnet, usage.tensors) == ["conv1", "lrn2:grad", "relu1", "lrn1"]


def test_curves_lie_in_order(alexnet: Trace) -> None:
    liveness = profile(alexnet)
    offload = profile(alexnet, offload=True)
    recompute = profile(alexnet, offload=True, recompute=Mode.COST)
    for low, middle, high in zip(recompute, offload, liveness, strict=True):
        assert low.bytes <= middle.bytes <= high.bytes


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "inception_v4"])
def test_out_set_is_the_next_in_set(name: str) -> None:
    sets = in_out_sets(trace(network(name, 2)))
    assert sets[0][0] == sets[-1][1] == ()
    assert all(after == following for (_, after), (following, _) in itertools.pairwise(sets))


@pytest.mark.parametrize(
    ("name", "lengths"),
    [
        ("alexnet", [3, 3, 1, 1, 2, 2, 2]),
        ("resnet50", [2, *([2, 2, 1] * 16), 2]),
        ("resnet101", [2, *([2, 2, 1] * 33), 2]),
    ],
)
def test_segments(name: str, lengths: list[int]) -> None:
    found = segments(network(name, 2))
    assert sorted(len(part.layers) for part in found) == sorted(lengths)


@pytest.mark.parametrize(
    ("name", "counts"), [("alexnet", (14, 23, 17)), ("resnet50", (84, 118, 85)), ("resnet101", (169, 237, 170))]
)
def test_extra_runs(name: str, counts: tuple[int, int, int]) -> None:
    step = trace(network(name, 32))
    parts = segments(step.network)
    found = [extra_runs(segment_modes(step, parts, mode)) for mode in (Mode.SPEED, Mode.MEMORY, Mode.COST)]
    assert tuple(found) == counts


@pytest.mark.parametrize("name", ["alexnet", "resnet50"])
def test_only_the_stem_turns_memory_centric(name: str) -> None:
    step = trace(network(name, 32))
    parts = segments(step.network)
    limit = largest_layer(step, parts)
    assert [part for part in parts if segment_bytes(step, part, Mode.SPEED) > limit] == [parts[0]]


def test_largest_layer_is_the_recompute_peak(alexnet: Trace) -> None:
    assert mib(largest_layer(alexnet, segments(alexnet.network))) == 886.230


def test_figures_pass_their_checks() -> None:
    assert fig10().passed
    assert table1().passed
    assert set(fig10().charts) == {"fig10-bytes", "fig10-tensors"}
