"""The transformer block, GPT-2 and the vision transformer against plain float64 formulas of their own."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper

from snplan import models

Array = npt.NDArray[Any]
Weights = dict[str, Array]


def _weights(model: ModelProto) -> Weights:
    return {tensor.name: numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}


def _perturbed(model: ModelProto) -> ModelProto:
    """The model with random biases and norm scales, so that a forgotten one shows."""
    rng = np.random.default_rng(3)
    for tensor in model.graph.initializer:
        if len(tensor.dims) == 1:
            values = numpy_helper.to_array(tensor) + rng.normal(0, 0.2, tensor.dims).astype(np.float32)
            tensor.raw_data = values.tobytes()
    return model


def _run(model: ModelProto, **inputs: Array) -> Array:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, inputs)[0])


def _layer_norm(x: Array, weights: Weights, name: str, eps: float) -> Array:
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"])


def _linear(x: Array, weights: Weights, name: str) -> Array:
    return np.asarray(x @ weights[f"{name}.weight"] + weights[f"{name}.bias"])


def _softmax(x: Array) -> Array:
    shares = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(shares / shares.sum(-1, keepdims=True))


def _gelu_tanh(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def _attention(x: Array, weights: Weights, scope: str, heads: int, causal: bool) -> Array:
    """One sample at a time and one head at a time, as the papers write it."""
    out = np.empty_like(x)
    length, features = x.shape[1:]
    width = features // heads
    for sample, packed in enumerate(_linear(x, weights, f"{scope}.attn.qkv")):
        query, key, value = packed[:, :features], packed[:, features : 2 * features], packed[:, 2 * features :]
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = query[:, part] @ key[:, part].T / math.sqrt(width)
            if causal:
                scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
            out[sample][:, part] = _softmax(scores) @ value[:, part]
    return _linear(out, weights, f"{scope}.attn.out")


def _block(
    x: Array, weights: Weights, scope: str, *, heads: int, causal: bool, eps: float, gelu: Callable[[Array], Array]
) -> Array:
    x = x + _attention(_layer_norm(x, weights, f"{scope}.ln_1", eps), weights, scope, heads, causal)
    hidden = gelu(_linear(_layer_norm(x, weights, f"{scope}.ln_2", eps), weights, f"{scope}.mlp.fc"))
    return np.asarray(x + _linear(hidden, weights, f"{scope}.mlp.out"))


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("heads", [1, 3])
def test_gpt2_is_the_formula(tied: bool, heads: int) -> None:
    model = models.build("gpt2", batch=2, layers=2, heads=heads, embed=12, context=7, vocab=19, dropout=0, tied=tied)
    weights = _weights(_perturbed(model))
    tokens = np.random.default_rng(1).integers(0, 19, (2, 7))
    x = weights["wte.weight"][tokens] + weights["wpe.weight"]
    for layer in range(2):
        x = _block(x, weights, f"h.{layer}", heads=heads, causal=True, eps=1e-5, gelu=_gelu_tanh)
    x = _layer_norm(x, weights, "ln_f", 1e-5)
    expected = x @ (weights["wte.weight"].T if tied else weights["lm_head.weight"])
    np.testing.assert_allclose(_run(model, input_ids=tokens), expected, rtol=1e-4, atol=1e-5)


def test_vit_is_the_formula() -> None:
    model = models.build("vit_b16", batch=2, image=12, patch=4, layers=2, heads=2, embed=8, classes=5)
    weights = _weights(_perturbed(model))
    image = np.random.default_rng(1).standard_normal((2, 3, 12, 12), np.float32)
    kernel = weights["conv_proj.weight"].reshape(8, -1)
    patches = [image[:, :, y : y + 4, x : x + 4].reshape(2, -1) for y in (0, 4, 8) for x in (0, 4, 8)]
    rows = np.stack([patch @ kernel.T + weights["conv_proj.bias"] for patch in patches], axis=1)
    x = np.concatenate([np.repeat(weights["class_token"], 2, axis=0), rows], axis=1) + weights["pos_embedding"]
    for layer in range(2):
        x = _block(x, weights, f"encoder.{layer}", heads=2, causal=False, eps=1e-6, gelu=_gelu)
    first = _layer_norm(x, weights, "ln", 1e-6)[:, 0]
    expected = first @ weights["head.weight"].T + weights["head.bias"]
    np.testing.assert_allclose(_run(model, input=image), expected, rtol=1e-4, atol=1e-5)


def test_gpt2_weights_have_the_published_deviations() -> None:
    """0.02, and for the two weights that write to the residual stream 0.02 / sqrt(2 * layers)."""
    weights = _weights(models.build("gpt2", layers=8, heads=2, embed=64, context=16, vocab=300))
    assert weights["wte.weight"].std() == pytest.approx(0.02, rel=0.05)
    assert weights["h.0.attn.qkv.weight"].std() == pytest.approx(0.02, rel=0.05)
    assert weights["h.7.attn.out.weight"].std() == pytest.approx(0.005, rel=0.05)
    assert weights["h.7.mlp.out.weight"].std() == pytest.approx(0.005, rel=0.05)
