"""Saved models: the same bytes, whole or not at all, large weights beside the file."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, checker, numpy_helper

from snplan import models
from snplan.models import files


@pytest.fixture
def model() -> ModelProto:
    return models.build("mlp", widths=(20, 40, 3), loss=True)


def _values(model: ModelProto) -> dict[str, list[float]]:
    return {tensor.name: numpy_helper.to_array(tensor).ravel().tolist() for tensor in model.graph.initializer}


def test_a_saved_model_loads_as_it_was(model: ModelProto, tmp_path: Path) -> None:
    models.save(model, tmp_path / "m.onnx")
    assert onnx.load(tmp_path / "m.onnx") == model
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_saving_twice_gives_the_same_bytes(model: ModelProto, tmp_path: Path) -> None:
    for name in ("a.onnx", "b.onnx"):
        models.save(model, str(tmp_path / name))
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_large_weights_go_beside_the_file(model: ModelProto, tmp_path: Path) -> None:
    before = model.SerializeToString()
    path = tmp_path / "m.onnx"
    files.save(model, path, external_above=1000)
    assert sorted(part.name for part in tmp_path.iterdir()) == ["m.onnx", "m.onnx.data"]
    assert model.SerializeToString() == before
    checker.check_model(path, full_check=True)
    loaded = onnx.load(path)
    assert _values(loaded) == _values(model)
    assert loaded.graph.node == model.graph.node
    assert loaded.metadata_props == model.metadata_props
    assert loaded.opset_import == model.opset_import


def test_external_offsets_are_aligned_and_within_the_data_file(tmp_path: Path) -> None:
    """3200 bytes of the first weight, then the second of 6400 at the next multiple of 4096; biases stay in the file."""
    model = models.build("mlp", widths=(20, 40, 40))
    files.save(model, tmp_path / "m.onnx", external_above=0)
    slim = onnx.load(tmp_path / "m.onnx", load_external_data=False)
    places = {
        tensor.name: {entry.key: entry.value for entry in tensor.external_data}
        for tensor in slim.graph.initializer
        if tensor.data_location == TensorProto.EXTERNAL
    }
    assert places == {
        "fc1.weight": {"location": "m.onnx.data", "offset": "0", "length": "3200"},
        "fc2.weight": {"location": "m.onnx.data", "offset": "4096", "length": "6400"},
    }
    assert (tmp_path / "m.onnx.data").stat().st_size == 4096 + 6400
    data = np.fromfile(tmp_path / "m.onnx.data", "<f4", count=800)
    assert data.tolist() == _values(model)["fc1.weight"]


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    model: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"old")

    def fail(*_: object) -> bytes:
        raise OSError("disk full")

    monkeypatch.setattr(files, "_serialized", fail)
    with pytest.raises(OSError, match="disk full"):
        models.save(model, path)
    assert path.read_bytes() == b"old"
    assert [part.name for part in tmp_path.iterdir()] == ["m.onnx"]


def test_a_missing_folder_is_an_error_of_the_file_system(model: ModelProto, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        models.save(model, tmp_path / "nowhere" / "m.onnx")
