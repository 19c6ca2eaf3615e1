"""Figures 2, 8 and 12: memory and time by layer type, workspaces in what functional tensors leave free."""

from __future__ import annotations

import pytest
from superneurons.breakdown import SHOWN, memory_shares, time_shares
from superneurons.layers import MIB, Kind
from superneurons.steps import DEVICE, prepared
from superneurons.workspaces import POOL_BYTES, assign, fig12

from snplan.cost.device import load_device


def test_the_papers_device() -> None:
    device = load_device(DEVICE)
    assert device.capacity_bytes == 12 << 30
    assert device.h2d_bytes_per_s == device.d2h_bytes_per_s == 8 * 10**9


def test_titan_xp_has_12_gib() -> None:
    assert load_device("titan-xp").capacity_bytes == 12 << 30


def test_memory_shares_of_vgg() -> None:
    """Pools of VGG16 hold a quarter of what their inputs do: of five stages, one tensor in 2 n + 1/4 each."""
    shares = memory_shares("vgg16", 2)
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[Kind.ACT] > shares[Kind.CONV] > shares[Kind.POOL] > shares[Kind.FC]
    assert shares[Kind.BN] == shares[Kind.LRN] == 0


def test_time_shares_of_alexnet() -> None:
    shares = time_shares(prepared("alexnet", 8).indexed)
    assert sum(shares.values()) == pytest.approx(1)
    assert set(shares) == set(SHOWN)
    assert shares[Kind.CONV] > 0.5


def test_all_convolutions_get_their_fastest_engine_at_batch_100() -> None:
    assert all(each.given == each.fastest for each in assign(100))


def test_conv5_backward_gives_way_at_batch_300() -> None:
    """Free there: 3072 MiB less liveness's tensors, the input batch, and twice the parameters."""
    found = {each.name: each for each in assign(300)}
    conv5 = found["5b"]
    stem, second, middle = (300 * 4 * count / MIB for count in (96 * 55 * 55, 256 * 27 * 27, 384 * 13 * 13))
    pools = 300 * 4 * (96 * 27 * 27 + 256 * 13 * 13) / MIB
    live = 3 * stem + 3 * second + pools + 4 * middle + middle + 256 * 13 * 13 * 300 * 4 / MIB
    held = (300 * 3 * 227 * 227 * 4 + 2 * 4 * 62_378_344) / MIB
    assert conv5.free / MIB == pytest.approx(POOL_BYTES / MIB - live - held, abs=0.01)
    assert conv5.given <= conv5.free < conv5.fastest
    assert [name for name, each in found.items() if each.given < each.fastest] == ["5b"]


def test_functional_tensors_come_first() -> None:
    """A pool that just holds them leaves no workspace at the fullest convolution."""
    tight = POOL_BYTES - min(each.free for each in assign(300))
    assert min(each.given for each in assign(300, tight)) == 0


def test_figure_12_passes() -> None:
    assert fig12().passed
