"""`build`, `names`, `options` and `summary`: what they list, and how they refuse."""

import subprocess
import sys

import pytest

from snplan import models


def test_names_are_sorted_and_include_the_papers_networks() -> None:
    listed = models.names()
    assert list(listed) == sorted(listed)
    assert {"alexnet", "vgg16", "inception_v4", "resnet50", "resnet101", "resnet152", "resnet"} <= set(listed)
    assert {"densenet121", "googlenet", "mobilenet_v2", "unet", "vit_b16", "gpt2", "mlp"} <= set(listed)


@pytest.mark.parametrize("name", models.names())
def test_options_describe_themselves_and_defaults_are_valid(name: str) -> None:
    assert models.summary(name)
    for option_name, option in models.options(name).items():
        assert option_name.isidentifier()
        assert option.help
        assert option.read(option_name, option.default) == option.default


@pytest.mark.parametrize(("alias", "name"), [("mobilenetv2", "mobilenet_v2"), ("inceptionv4", "inception_v4")])
def test_alias_builds_the_same_model(alias: str, name: str) -> None:
    assert models.build(alias, light=True) == models.build(name, light=True)
    assert alias not in models.names()


def test_options_may_be_given_as_text() -> None:
    as_text = models.build("resnet", light=True, blocks="1,1,2,1", width="0.5", shortcut_norm="false")
    assert as_text == models.build("resnet", light=True, blocks=(1, 1, 2, 1), width=0.5, shortcut_norm=False)


def test_unknown_model_lists_the_valid_ones() -> None:
    for refused in (models.build, models.options, models.summary):
        with pytest.raises(ValueError, match=r"no model 'resnet51'; the models are alexnet, densenet121, "):
            refused("resnet51")


def test_unknown_option_lists_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="model mlp has no option 'image'; its options are widths, dropout"):
        models.build("mlp", image=32)


def test_settled_options_cannot_be_given() -> None:
    with pytest.raises(ValueError, match="model resnet50 has no option 'blocks'"):
        models.build("resnet50", blocks=(1, 1, 1, 1))
    with pytest.raises(ValueError, match="model resnet has no option 'bottleneck'"):
        models.build("resnet", bottleneck=False)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mlp", {"batch": 0}, "batch is 0; the smallest batch is 1"),
        ("mlp", {"seed": -1}, "seed is -1; the smallest seed is 0"),
        ("mlp", {"widths": (5,)}, "needs the input's features and the classes"),
        ("unet", {"image": 100}, "image is 100; 4 levels need a multiple of 16"),
        ("unet", {"classes": 1}, "option classes is 1; the smallest value is 2"),
        ("vit_b16", {"image": 100}, "patches of 16 do not divide"),
        ("vit_b16", {"heads": 7}, "embed is 768, which 7 heads do not divide"),
        ("gpt2", {"embed": 100}, "embed is 100, which 12 heads do not divide"),
        ("gpt2", {"dropout": 1.0}, "option dropout is 1.0; it must be below 1"),
        ("inception_v4", {"blocks": (1, 1)}, "it needs three counts"),
        ("alexnet", {"image": 40}, "pool5: side 1 with padding 0 is below kernel 3; use a larger image"),
    ],
)
def test_values_that_make_no_model_are_refused(name: str, arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        models.build(name, light=True, **arguments)  # type: ignore[arg-type]  # options mixed with keywords


def test_listing_the_models_loads_neither_onnx_nor_numpy() -> None:
    script = (
        "import sys; from snplan import models;"
        "[models.options(name) for name in models.names()];"
        "assert not {'onnx', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
