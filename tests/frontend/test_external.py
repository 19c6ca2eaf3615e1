"""External data: only inside the model's folder, all of it there, and never read for a plan."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frontend_support import FLOAT, INT64, info, model, node
from onnx import TensorProto

from snplan.errors import ModelError
from snplan.frontend import import_model, load_model, read_weights

VALUES = np.arange(12, dtype=np.float32).reshape(3, 4)


def external(name: str = "w", dtype: int = FLOAT, dims: tuple[int, ...] = (3, 4), **entries: object) -> TensorProto:
    """A tensor whose data is elsewhere."""
    found = TensorProto(name=name, data_type=dtype, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        found.external_data.add(key=key, value=str(value))
    return found


def write(folder: Path, stored: TensorProto, name: str = "m.onnx") -> Path:
    """A model file with one MatMul that reads `stored`."""
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [2, 3])], ["y"], [stored])
    path = folder / name
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths that are opened while a test runs."""
    paths: list[str] = []
    real_open, real_os_open = builtins.open, os.open

    def spy(real: Callable[..., Any]) -> Callable[..., Any]:
        def opening(path: object, *args: Any, **kwargs: Any) -> Any:
            paths.append(os.path.realpath(str(path)))
            return real(path, *args, **kwargs)

        return opening

    monkeypatch.setattr(builtins, "open", spy(real_open))
    monkeypatch.setattr(os, "open", spy(real_os_open))
    return paths


def symlink_out(folder: Path, secret: Path) -> TensorProto:
    (folder / "link.bin").symlink_to(secret)
    return external(location="link.bin")


def linked_folder(folder: Path, secret: Path) -> TensorProto:
    (folder / "sub").symlink_to(secret.parent)
    return external(location="sub/secret.bin")


def hard_link(folder: Path, secret: Path) -> TensorProto:
    os.link(secret, folder / "hard.bin")
    return external(location="hard.bin")


def given(**entries: Any) -> Callable[[Path, Path], TensorProto]:
    def make(folder: Path, secret: Path) -> TensorProto:
        (folder / "data.bin").write_bytes(VALUES.tobytes())
        return external(**entries)

    return make


BAD: dict[str, tuple[Callable[[Path, Path], TensorProto], str]] = {
    "parent folder": (given(location="../secret.bin"), "SNP-I006"),
    "parent folder inside": (given(location="a/../../secret.bin"), "SNP-I006"),
    "backslashes": (given(location="..\\secret.bin"), "SNP-I006"),
    "absolute": (given(location="/etc/hostname"), "SNP-I006"),
    "drive": (given(location="C:\\secret.bin"), "SNP-I006"),
    "empty": (given(location=""), "SNP-I006"),
    "zero byte": (given(location="a\0b"), "SNP-I006"),
    "folder": (given(location="."), "SNP-I006"),
    "link that leads out": (symlink_out, "SNP-I006"),
    "linked folder": (linked_folder, "SNP-I006"),
    "hard link": (hard_link, "SNP-I006"),
    "missing": (given(location="none.bin"), "SNP-I007"),
    "negative offset": (given(location="data.bin", offset=-4), "SNP-I007"),
    "offset is no number": (given(location="data.bin", offset="four"), "SNP-I007"),
    "past the end": (given(location="data.bin", offset=4, length=48), "SNP-I007"),
    "shorter than the shape": (given(location="data.bin", length=44), "SNP-I007"),
    "huge offset": (given(location="data.bin", offset=10**15), "SNP-I007"),
    "offset of 40 digits": (given(location="data.bin", offset=10**40), "SNP-I007"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_locations_are_refused_and_nothing_outside_is_opened(case: str, tmp_path: Path, opened: list[str]) -> None:
    make, code = BAD[case]
    secret = tmp_path / "outside" / "secret.bin"
    secret.parent.mkdir()
    secret.write_bytes(VALUES.tobytes())
    folder = tmp_path / "model"
    folder.mkdir()
    path = write(folder, make(folder, secret))
    opened.clear()
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert caught.value.code == code
    assert "'w'" in caught.value.message
    assert set(opened) == {str(path)}


def test_a_model_given_as_bytes_has_no_folder(tmp_path: Path) -> None:
    data = write(tmp_path, external(location="data.bin")).read_bytes()
    with pytest.raises(ModelError) as caught:
        load_model(data)
    assert caught.value.code == "SNP-I008"


def test_data_beside_the_model_is_read_when_weights_are_wanted(tmp_path: Path, opened: list[str]) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(64) + VALUES.tobytes())
    path = write(tmp_path, external(location="data.bin", offset=64, length=48))
    loaded = load_model(path)
    import_model(loaded)
    assert str(tmp_path / "data.bin") not in opened
    np.testing.assert_array_equal(read_weights(loaded, ["w"])["w"], VALUES)
    assert str(tmp_path / "data.bin") in opened


def test_offset_and_length_may_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(VALUES.tobytes())
    loaded = load_model(write(tmp_path, external(location="data.bin")))
    np.testing.assert_array_equal(read_weights(loaded, ["w"])["w"], VALUES)


def test_a_hub_cache_of_links_into_one_folder_is_accepted(tmp_path: Path) -> None:
    snap, blobs = tmp_path / "snap", tmp_path / "blobs"
    snap.mkdir()
    blobs.mkdir()
    write(blobs, external(location="m.onnx.data"), "a")
    (blobs / "b").write_bytes(VALUES.tobytes())
    (snap / "m.onnx").symlink_to("../blobs/a")
    (snap / "m.onnx.data").symlink_to("../blobs/b")
    loaded = load_model(snap / "m.onnx")
    np.testing.assert_array_equal(read_weights(loaded, ["w"])["w"], VALUES)


def test_a_hub_cache_whose_data_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    snap, blobs = tmp_path / "snap", tmp_path / "blobs"
    snap.mkdir()
    blobs.mkdir()
    write(blobs, external(location="m.onnx.data"), "a")
    (snap / "m.onnx").symlink_to("../blobs/a")
    (snap / "m.onnx.data").symlink_to("/etc/hostname")
    with pytest.raises(ModelError) as caught:
        load_model(snap / "m.onnx")
    assert caught.value.code == "SNP-I006"


def test_a_download_cut_short_names_tensor_end_and_size(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(VALUES.tobytes()[:-12])
    with pytest.raises(ModelError) as caught:
        load_model(write(tmp_path, external(location="data.bin", offset=0, length=48)))
    assert caught.value.code == "SNP-I007"
    for part in ("'w'", "48", "36"):
        assert part in caught.value.message


def test_ten_gigabytes_of_weights_are_not_read_for_a_plan(tmp_path: Path, opened: list[str]) -> None:
    rows = 10 * (1 << 30) // 4 // 4096
    with open(tmp_path / "big.bin", "wb") as file:
        file.truncate(rows * 4096 * 4)
    stored = external(dims=(rows, 4096), location="big.bin")
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [2, rows])], ["y"], [stored])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    opened.clear()
    forward = import_model(load_model(path))
    assert forward.graph.tensors["w"].bytes == 10 * (1 << 30)
    assert set(opened) == {str(path)}


def test_small_integers_that_a_shape_depends_on_are_read(tmp_path: Path) -> None:
    (tmp_path / "shape.bin").write_bytes(np.array([6, 2], np.int64).tobytes())
    stored = external("s", INT64, (2,), location="shape.bin")
    proto = model([node("Reshape", ["x", "s"], ["y"])], [info("x", [3, 4])], ["y"], [stored])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    assert import_model(load_model(path)).graph.tensors["y"].shape == (6, 2)


def test_a_data_file_that_shrinks_before_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(VALUES.tobytes())
    loaded = load_model(write(tmp_path, external(location="data.bin")))
    (tmp_path / "data.bin").write_bytes(b"")
    with pytest.raises(ModelError) as caught:
        read_weights(loaded, ["w"])
    assert caught.value.code == "SNP-I007"


def test_a_link_put_in_place_of_the_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(VALUES.tobytes())
    loaded = load_model(write(tmp_path, external(location="data.bin")))
    (tmp_path / "data.bin").unlink()
    (tmp_path / "data.bin").symlink_to("/etc/hostname")
    with pytest.raises(ModelError) as caught:
        read_weights(loaded, ["w"])
    assert caught.value.code == "SNP-I006"
