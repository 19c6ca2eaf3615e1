"""Philox against its published known answers; what the kernels draw depends on seed, stream, step and element only."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from runtime_support import BFLOAT16, normal, one, run_kernel

from snplan.runtime import rng
from snplan.runtime.numpy import Context

# Known answers of Philox4x32-10 from the Random123 distribution: counter, key, output.
KNOWN = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    (
        (0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
        (0xFFFFFFFF, 0xFFFFFFFF),
        (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    ),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]) -> None:
    c0, c1, c2, c3 = (np.array([word], np.uint64) for word in counter)
    assert tuple(int(word[0]) for word in rng.philox((c0, c1, c2, c3), key)) == expected


def test_words_follow_the_documented_mapping() -> None:
    seed, stream, step = 0x1234567890ABCDEF, 7, 3
    found = rng.words(4 * 20_000 + 3, seed=seed, stream=stream, step=step)
    for element in (0, 1, 2, 3, 4, 4 * 16384 - 1, 4 * 16384, 4 * 20_000 + 2):
        block = [np.array([word], np.uint64) for word in (element // 4, 0, stream, step)]
        output = rng.philox((block[0], block[1], block[2], block[3]), (0x90ABCDEF, 0x12345678))
        assert found[element] == output[element % 4][0]


def test_fewer_numbers_are_the_first_of_more() -> None:
    more = rng.normal(101, seed=5, stream=1, step=2)
    for count in (0, 1, 2, 7, 100):
        np.testing.assert_array_equal(rng.normal(count, seed=5, stream=1, step=2), more[:count])


def test_each_coordinate_changes_the_numbers() -> None:
    base = {"seed": 1, "stream": 2, "step": 3}
    draws = [rng.uniform(64, **base)] + [rng.uniform(64, **{**base, key: 9}) for key in base]
    draws.append(rng.uniform(64, **{**base, "seed": 1 + (1 << 32)}))
    for a, b in itertools.combinations(draws, 2):
        assert not np.any(a == b)


def test_moments() -> None:
    u = rng.uniform(1 << 18, seed=0, stream=0, step=1)
    assert u.min() >= 0
    assert u.max() < 1
    np.testing.assert_allclose([u.mean(), u.var()], [0.5, 1 / 12], rtol=5e-3)
    z = rng.normal(1 << 18, seed=0, stream=0, step=1)
    np.testing.assert_allclose([z.var(), (z**4).mean()], [1.0, 3.0], rtol=2e-2)
    assert abs(z.mean()) < 5e-3
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 1e-2


def test_dropout_its_gradient_and_its_mask_are_one_mask() -> None:
    context = Context(seed=3, step=4, stream=5)
    ratio = {"ratio": 0.25}
    x = np.ones((32, 32), np.float32)
    y = one("dropout", [x], ratio, context)
    dx = one("dropout_grad", [x], ratio, context)
    mask = one("dropout_mask", [], {**ratio, "shape": [32, 32]}, context)
    np.testing.assert_array_equal(y, dx)
    np.testing.assert_array_equal(y, np.where(mask, np.float32(1 / 0.75), np.float32(0)))
    assert abs(mask.mean() - 0.75) < 0.05
    assert not np.array_equal(y, one("dropout", [x], ratio, Context(seed=3, step=5, stream=5)))


def test_dropout_of_nothing() -> None:
    x = normal(100)
    np.testing.assert_array_equal(one("dropout", [x], {"ratio": 0.0}), x)


def test_dropout_of_halves() -> None:
    y = one("dropout", [np.ones(64, BFLOAT16)], {"ratio": 0.5})
    assert y.dtype == BFLOAT16
    assert set(y.astype(np.float64).tolist()) == {0.0, 2.0}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_random_tensors(dtype: str) -> None:
    context = Context(seed=1, step=2, stream=3)
    u = one("random_uniform", [], {"dtype": dtype, "shape": [50, 40], "low": -2.0, "high": 4.0}, context)
    expected = -2.0 + 6.0 * rng.uniform(2000, seed=1, stream=3, step=2)
    np.testing.assert_array_equal(u.reshape(-1), expected.astype(u.dtype))
    z = one("random_normal", [], {"dtype": dtype, "shape": [50, 40], "mean": 1.0, "scale": 0.5}, context)
    assert abs(float(z.astype(np.float64).mean()) - 1.0) < 0.05
    assert u.dtype.name == z.dtype.name == dtype


def test_updates_by_hand() -> None:
    w, g = np.array([1.0, -2.0], np.float32), np.array([0.5, 0.25], np.float32)
    sgd = one("sgd_update", [w, g], {"lr": 0.1, "weight_decay": 0.01})
    np.testing.assert_allclose(sgd, [1 - 0.1 * 0.51, -2 - 0.1 * 0.23], rtol=1e-6)
    m = np.array([0.2, 0.4], np.float32)
    after = run_kernel("momentum_update", [w, g, m], {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0})
    np.testing.assert_allclose(after[1], [0.68, 0.61], rtol=1e-6)
    np.testing.assert_allclose(after[0], [1 - 0.068, -2 - 0.061], rtol=1e-6)


def test_adam_is_the_published_recursion() -> None:
    attrs = {"lr": 0.01, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-8, "weight_decay": 0.1}
    w = normal(5, dtype=np.float64)
    m, v = np.zeros(5), np.zeros(5)
    state = (w.astype(np.float32), np.zeros(5, np.float32), np.zeros(5, np.float32))
    for step in (1, 2, 3):
        g = normal(5, seed=step, dtype=np.float64)
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        hats = m / (1 - 0.9**step), v / (1 - 0.99**step)
        w = w * (1 - 0.01 * 0.1) - 0.01 * hats[0] / (np.sqrt(hats[1]) + 1e-8)
        inputs = [state[0], g.astype(np.float32), *state[1:]]
        state = run_kernel("adam_update", inputs, attrs, Context(step=step))  # type: ignore[assignment]
        np.testing.assert_allclose(state[0], w, rtol=1e-5)


def test_updates_of_halves_keep_each_type() -> None:
    w, g, m = np.ones(3, np.float32), np.ones(3, BFLOAT16), np.zeros(3, np.float32)
    after = run_kernel("momentum_update", [w, g, m], {"lr": 0.5, "momentum": 0.9, "weight_decay": 0.0})
    assert [x.dtype for x in after] == [np.float32, np.float32]
    half = one("sgd_update", [w.astype(BFLOAT16), g], {"lr": 0.5, "weight_decay": 0.0})
    assert half.dtype == BFLOAT16
    assert half.tolist() == [0.5] * 3
