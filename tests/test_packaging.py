"""What is installed: every package of the tree, no other top-level name, and every name that the code imports."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

FOLDERS = {"snplan": "snplan", "codegen": "snplan.codegen", "models": "snplan.models", "runtime": "snplan.runtime"}
DATA_SUFFIXES = {".typed", ".toml", ".j2", ".json"}


@pytest.fixture(scope="module")
def project(checkout: Path) -> dict[str, Any]:
    return tomllib.loads((checkout / "pyproject.toml").read_text())


def files_of(checkout: Path) -> Iterator[tuple[str, Path]]:
    """Every source and data file with the package path that it is installed under, links left out."""
    for folder, package in FOLDERS.items():
        for root, names, found in os.walk(checkout / folder):
            names[:] = sorted(n for n in names if n != "__pycache__" and not (Path(root) / n).is_symlink())
            inside = Path(root).relative_to(checkout / folder)
            for name in sorted(found):
                yield (Path(package.replace(".", "/")) / inside / name).as_posix(), Path(root) / name


def test_every_package_is_listed(checkout: Path, project: Mapping[str, Any]) -> None:
    found = {
        path.rpartition("/")[0].replace("/", ".") for path, _ in files_of(checkout) if path.endswith("/__init__.py")
    }
    assert project["tool"]["setuptools"]["packages"] == sorted(found)


def test_every_module_is_inside_a_package(checkout: Path) -> None:
    """A folder without `__init__.py` would be missing from the wheel and still work from the checkout."""
    lone = [
        path for path, file in files_of(checkout) if file.suffix == ".py" and not (file.parent / "__init__.py").exists()
    ]
    assert lone == []


def test_every_data_file_is_declared(checkout: Path, project: Mapping[str, Any]) -> None:
    declared = project["tool"]["setuptools"]["package-data"]
    patterns = {f"{package.replace('.', '/')}/{glob}" for package, globs in declared.items() for glob in globs}
    data = {path for path, file in files_of(checkout) if file.suffix != ".py"}
    assert {Path(path).suffix for path in data} <= DATA_SUFFIXES
    assert [path for path in sorted(data) if not any(Path(path).match(p) for p in patterns)] == []


def test_the_links_are_there(checkout: Path) -> None:
    for folder in ("codegen", "models", "runtime"):
        assert os.readlink(checkout / "snplan" / folder) == f"../{folder}"


def test_what_is_imported_is_required(checkout: Path, project: Mapping[str, Any]) -> None:
    extras = project["project"]["optional-dependencies"]
    wanted = {name_of(r) for r in (*project["project"]["dependencies"], *extras["cuda"])}
    known = wanted | {"snplan", "google", "cudnn", "nvmath", "cuda"} | set(sys.stdlib_module_names)
    unknown = {
        f"{path}: {name}"
        for path, file in files_of(checkout)
        if file.suffix == ".py"
        for name in imported(file.read_text())
        if name not in known
    }
    assert sorted(unknown) == []


def name_of(requirement: str) -> str:
    """The import name of a requirement such as "nvmath-python>=0.6", as far as it is the project's name."""
    return re.split(r"[<>=!~ \[;]", requirement)[0].replace("-", "_")


def imported(source: str) -> set[str]:
    """Top-level names that import statements of a module name."""
    return set(
        re.findall(r"^\s*(?:from|import)\s+([A-Za-z_]\w*)[\w.]*(?:\s+import\s|\s+as\s|\s*$|,)", source, re.MULTILINE)
    )


@pytest.mark.slow
def test_the_wheel(checkout: Path, project: Mapping[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    junk = shutil.ignore_patterns(".*", "build", "dist", "demo", "*.egg-info", "__pycache__")
    shutil.copytree(checkout, copy, symlinks=True, ignore=junk)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if "No matching distribution found for setuptools" in done.stderr:
        pytest.skip("no package index at hand to build a wheel with")
    assert done.returncode == 0, done.stderr
    version = project["project"]["version"]
    names = zipfile.ZipFile(tmp_path / f"snplan-{version}-py3-none-any.whl").namelist()
    assert {name.split("/")[0] for name in names} == {"snplan", f"snplan-{version}.dist-info"}
    assert {name for name in names if name.startswith("snplan/")} == {path for path, _ in files_of(checkout)}
