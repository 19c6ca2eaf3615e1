"""Paths are checked before the work starts."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from snplan.cli import files
from snplan.errors import UsageError


def test_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.touch()
    assert files.existing(str(path), what="model") == path


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the model .*absent\.onnx is not there"):
        files.existing(str(tmp_path / "absent.onnx"), what="model")
    with pytest.raises(UsageError, match="is a folder"):
        files.existing(str(tmp_path), what="model")
    with pytest.raises(UsageError, match="is no regular file"):
        files.existing(os.devnull, what="model")


def test_a_writable_path(tmp_path: Path) -> None:
    assert files.writable(tmp_path / "p.json", what="plan file") == tmp_path / "p.json"
    (tmp_path / "p.json").touch()
    assert files.writable(tmp_path / "p.json", what="plan file") == tmp_path / "p.json"


def test_unwritable_paths(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="make it first"):
        files.writable(tmp_path / "absent" / "p.json", what="plan file")
    with pytest.raises(UsageError, match="it is a folder"):
        files.writable(tmp_path, what="plan file")


def test_a_device_is_never_replaced() -> None:
    with pytest.raises(UsageError, match="it is no regular file"):
        files.writable(os.devnull, what="page")
    assert files.writable(os.devnull, what="plan file", device=True) == Path(os.devnull)


def test_a_folder_without_write_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # the superuser may write everywhere
    with pytest.raises(UsageError, match="does not allow it"):
        files.writable(tmp_path / "p.json", what="plan file")


def test_what_a_command_reads_is_not_replaced(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.touch()
    (tmp_path / "link.onnx").symlink_to(model)
    for name in ("m.onnx", "link.onnx"):
        with pytest.raises(UsageError, match="would replace a file that the command reads"):
            files.writable(tmp_path / name, what="plan file", keep=[model])


def test_a_folder(tmp_path: Path) -> None:
    assert files.folder(str(tmp_path), what="snapshot folder") == tmp_path
    assert files.folder(str(tmp_path / "new"), what="snapshot folder") == tmp_path / "new"
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="is a file; name a folder"):
        files.folder(str(tmp_path / "file"), what="snapshot folder")


def test_sha256(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"abc" * 1000)
    assert files.sha256(path) == hashlib.sha256(b"abc" * 1000).hexdigest()


def test_outputs_are_distinct(tmp_path: Path) -> None:
    page, drawing = tmp_path / "a.html", str(tmp_path / "a.svg")
    files.distinct({"--html": page, "--svg": drawing, "--trace": None})
    with pytest.raises(UsageError, match="--html and --svg both name") as caught:
        files.distinct({"--html": page, "--svg": f"{tmp_path}/x/../a.html"})
    assert caught.value.code == "SNP-U013"
