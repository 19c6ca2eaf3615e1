"""Table 3: bytes moved without and with the tensor cache."""

from __future__ import annotations

import pytest
from superneurons.layers import FLOAT, Kind, Layer, make_network
from superneurons.networks import network
from superneurons.trace import trace
from superneurons.traffic import (
    GB,
    POOL_BYTES,
    PUBLISHED,
    TensorCache,
    conv_output_bytes,
    moved_with_cache,
    moved_without_cache,
    table3,
)


@pytest.mark.parametrize("batch", PUBLISHED)
def test_without_cache_as_published(batch: int) -> None:
    step = trace(network("alexnet", batch))
    convs = 96 * 55 * 55 + 256 * 27 * 27 + (384 + 384 + 256) * 13 * 13
    by_hand = FLOAT * batch * (3 * convs + 2 * 3 * 227 * 227) + step.network.parameter_bytes
    assert moved_without_cache(step) == by_hand
    assert round(by_hand / GB, 2) == PUBLISHED[batch][0]


def test_conv_outputs() -> None:
    step = trace(network("alexnet", 2))
    assert conv_output_bytes(step) == 2 * FLOAT * (96 * 55 * 55 + 256 * 27 * 27 + (384 + 384 + 256) * 13 * 13)


@pytest.mark.parametrize("batch", [256, 384, 512, 640, 896])
def test_nothing_moves_while_all_fits(batch: int) -> None:
    assert moved_with_cache(trace(network("alexnet", batch)), POOL_BYTES) == 0


def test_order_of_magnitude_at_1024() -> None:
    assert 0.3 < moved_with_cache(trace(network("alexnet", 1024)), POOL_BYTES) / GB < 3


def _chain(*kinds: Kind) -> TensorCache:
    """The cache of a chain of layers whose tensors take 4 bytes each, without room yet."""
    layers = [Layer(name="data", kind=Kind.DATA, inputs=(), shape=(1,))]
    for index, kind in enumerate(kinds):
        layers.append(Layer(name=f"l{index}", kind=kind, inputs=(layers[-1].name,), shape=(1,)))
    return TensorCache(step=trace(make_network("chain", layers)), room=0)


def test_cache_of_a_chain_by_hand() -> None:
    """DATA, CONV, CONV, SOFTMAX: the data, three outputs, one gradient; four of five fit.

    The gradient of the first CONV evicts the least recently used tensor that is not locked, the data, which the host
    has. The data come back for the first CONV, and the second CONV's output, long dead, goes out for them.
    """
    cache = _chain(Kind.CONV, Kind.CONV, Kind.SOFTMAX)
    cache.room = 4 * FLOAT
    cache.run()
    assert (cache.fetched, cache.offloaded) == (FLOAT, FLOAT)


def test_cache_with_room_moves_nothing() -> None:
    cache = _chain(Kind.CONV, Kind.CONV, Kind.SOFTMAX)
    cache.room = 5 * FLOAT
    cache.run()
    assert (cache.fetched, cache.offloaded) == (0, 0)


def test_locked_tensors_stay() -> None:
    cache = _chain(Kind.CONV, Kind.ACT, Kind.SOFTMAX)
    cache.room = 2 * FLOAT
    with pytest.raises(MemoryError, match="beside the tensors of one layer"):
        cache.run()


def test_table_passes() -> None:
    assert table3().passed
