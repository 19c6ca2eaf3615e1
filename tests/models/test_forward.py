"""Forward runs of tiny models in onnxruntime: finite, and right where the value is known otherwise."""

import math
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, numpy_helper

from snplan import models

TINY: dict[str, dict[str, Any]] = {
    "alexnet": {"image": 67, "width": 0.1, "classes": 7},
    "densenet121": {"image": 32, "growth": 4, "classes": 7},
    "googlenet": {"image": 32, "width": 0.1, "classes": 7},
    "gpt2": {"layers": 2, "heads": 2, "embed": 8, "context": 10, "vocab": 7},
    "inception_v4": {"image": 75, "width": 0.1, "classes": 7, "blocks": (1, 1, 1)},
    "mobilenet_v2": {"image": 32, "width": 0.1, "classes": 7},
    "resnet": {"blocks": (1, 2, 1, 1), "image": 32, "width": 0.1, "classes": 7},
    "resnet18": {"image": 32, "width": 0.1, "classes": 7},
    "unet": {"image": 16, "width": 0.1, "levels": 2, "classes": 7},
    "vgg16": {"image": 32, "width": 0.05, "classes": 7},
    "vit_b16": {"image": 32, "layers": 2, "heads": 2, "embed": 8, "classes": 7},
}


def _run(model: ModelProto, **inputs: np.ndarray) -> list[np.ndarray]:
    settings = onnxruntime.SessionOptions()
    # onnxruntime's fusions take a BatchNormalization in training mode for one in inference mode.
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
    return [np.asarray(output) for output in session.run(None, inputs)]


def _random_inputs(model: ModelProto, classes: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    arrays = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        whole = value.name in ("input_ids", "target")
        arrays[value.name] = rng.integers(0, classes, shape) if whole else rng.standard_normal(shape, np.float32)
    return arrays


@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("light", [False, True])
def test_loss_and_logits_are_finite(name: str, light: bool) -> None:
    model = models.build(name, batch=3, loss=True, light=light, **TINY[name])
    loss, logits = _run(model, **_random_inputs(model, 7))
    assert np.isfinite(logits).all()
    assert loss.shape == ()
    assert 0 < float(loss) < 10


@pytest.mark.parametrize("name", TINY)
def test_scale_of_the_logits_is_about_one(name: str) -> None:
    """He-type weights keep the signal: neither vanished nor exploded after any depth."""
    model = models.build(name, batch=3, **TINY[name])
    (logits,) = _run(model, **_random_inputs(model, 7))
    assert 0.01 < float(logits.std()) < 10


def test_mlp_computes_what_its_weights_say() -> None:
    model = models.build("mlp", batch=4, widths=(5, 6, 3), loss=True)
    weights = {tensor.name: numpy_helper.to_array(tensor).astype(np.float64) for tensor in model.graph.initializer}
    inputs = _random_inputs(model, 3)
    hidden = np.maximum(inputs["input"] @ weights["fc1.weight"].T + weights["fc1.bias"], 0)
    expected = hidden @ weights["fc2.weight"].T + weights["fc2.bias"]
    shares = np.exp(expected) / np.exp(expected).sum(axis=1, keepdims=True)
    loss, logits = _run(model, **inputs)
    np.testing.assert_allclose(logits, expected, rtol=1e-5, atol=1e-6)
    assert float(loss) == pytest.approx(-np.log(shares[np.arange(4), inputs["target"]]).mean(), rel=1e-5)


def test_gpt2_sees_no_later_token() -> None:
    model = models.build("gpt2", batch=2, layers=2, heads=2, embed=8, context=10, vocab=31, dropout=0.0)
    tokens = np.random.default_rng(0).integers(0, 31, (2, 10))
    changed = tokens.copy()
    changed[:, 6] = (changed[:, 6] + 1) % 31
    (before,), (after,) = _run(model, input_ids=tokens), _run(model, input_ids=changed)
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert (np.abs(before[:, 6:] - after[:, 6:]).max(axis=(0, 2)) > 0).all()


def test_gpt2_loss_starts_near_that_of_a_uniform_guess() -> None:
    model = models.build("gpt2", batch=2, layers=2, heads=2, embed=32, context=16, vocab=200, loss=True)
    loss, _ = _run(model, **_random_inputs(model, 200))
    assert float(loss) == pytest.approx(math.log(200), abs=0.2)


def test_batch_norm_uses_the_batch_and_moves_the_statistics() -> None:
    """Population variance; running = 0.9 * running + 0.1 * batch, from mean 0 and variance 1."""
    model = models.build("resnet18", batch=2, image=32, width=0.1, classes=3)
    for name in ("conv1", "bn1", "bn1.running_mean_next", "bn1.running_var_next"):
        model.graph.output.add(name=name)
    _, x, y, mean, var = _run(model, **_random_inputs(model, 3))
    batch_mean, batch_var = x.mean(axis=(0, 2, 3)), x.var(axis=(0, 2, 3))
    np.testing.assert_allclose(mean, 0.1 * batch_mean, atol=1e-6)
    np.testing.assert_allclose(var, 0.9 + 0.1 * batch_var, rtol=1e-5)
    centred = (x - batch_mean[:, None, None]) / np.sqrt(batch_var + 1e-5)[:, None, None]
    np.testing.assert_allclose(y, centred, atol=1e-5)


def test_dropout_drops_about_its_share_and_rescales() -> None:
    model = models.build("mlp", batch=8, widths=(64, 512, 2), dropout=0.25)
    for name in ("relu1", "dropout1"):
        model.graph.output.add(name=name)
    _, before, after = _run(model, **_random_inputs(model, 2))
    alive = before > 0
    kept = alive & (after > 0)
    assert 0.7 < kept.sum() / alive.sum() < 0.8
    np.testing.assert_allclose(after[kept], before[kept] / 0.75, rtol=1e-5)
