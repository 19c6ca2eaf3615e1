"""The packages of `snplan[cuda]`: imported late, and missed with a message."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace
from typing import Any

import pytest

import snplan.runtime.cuda.packages as module
from snplan.errors import RunError

MODULES = ("pycuda", "cudnn", "nvmath", "cuda.bindings", "cuda.core", "torch")


def test_nothing_is_imported_early() -> None:
    """Importing snplan, all of the backend's modules and the command line loads no GPU package."""
    program = (
        "import sys, importlib, pkgutil, snplan.cli.app, snplan.runtime.cuda as package\n"
        "for item in pkgutil.iter_modules(package.__path__):\n"
        "    importlib.import_module(f'snplan.runtime.cuda.{item.name}')\n"
        f"print([name for name in {MODULES!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("error", [ImportError("libcuda.so.1: cannot open shared object file"), OSError("no driver")])
def test_missing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """What is missing, why, and what to do."""

    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(module, "import_module", refuse)
    for load, package in (
        (module.pycuda_driver, "pycuda"),
        (module.cudnn, "nvidia-cudnn-frontend"),
        (module.cublaslt, "nvmath-python"),
        (module.cuda_driver, "cuda-bindings"),
    ):
        with pytest.raises(RunError) as caught:
            load()
        assert caught.value.code == "SNP-R050"
        assert caught.value.details == {"package": package}
        assert package in caught.value.message
        assert str(error) in caught.value.message
        assert "snplan[cuda]" in caught.value.message


def test_versions_leave_out_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the four packages, those that are installed."""

    def version(name: str) -> str:
        if name != "pycuda":
            raise metadata.PackageNotFoundError(name)
        return "2026.1"

    monkeypatch.setattr(metadata, "version", version)
    assert module.versions() == {"pycuda": "2026.1"}


def test_versions_of_libraries_are_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cuDNN and cuBLASLt say, in three parts; one that is missing is left out."""
    monkeypatch.setattr(module, "cudnn", lambda: SimpleNamespace(backend_version=lambda: 91900))
    monkeypatch.setattr(module, "cublaslt", lambda: SimpleNamespace(get_version=lambda: 130102))
    assert module.library_versions() == {"cudnn": "9.19.0", "cublaslt": "13.1.2"}

    def missing() -> Any:
        raise RunError("SNP-R050", "not there")

    monkeypatch.setattr(module, "cudnn", missing)
    assert module.library_versions() == {"cublaslt": "13.1.2"}
