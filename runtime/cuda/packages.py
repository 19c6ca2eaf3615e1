"""The packages of `snplan[cuda]`, imported when they are first needed and never before."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module, metadata
from typing import Any

from snplan.errors import RunError

# What `pip install` calls the packages, by the modules that come in them.
_DISTRIBUTIONS = {
    "pycuda.driver": "pycuda",
    "cudnn": "nvidia-cudnn-frontend",
    "nvmath.bindings.cublasLt": "nvmath-python",
    "cuda.bindings.driver": "cuda-bindings",
}


def pycuda_driver() -> Any:
    """`pycuda.driver`. Raises RunError (SNP-R050) where it, or the driver it needs, is missing."""
    return _imported("pycuda.driver")


def cudnn() -> Any:
    """The cuDNN front end. Raises RunError (SNP-R050)."""
    return _imported("cudnn")


def cublaslt() -> Any:
    """cuBLASLt's bindings. Raises RunError (SNP-R050)."""
    return _imported("nvmath.bindings.cublasLt")


def cuda_driver() -> Any:
    """The driver's bindings, for graphs. Raises RunError (SNP-R050)."""
    return _imported("cuda.bindings.driver")


def versions() -> dict[str, str]:
    """Versions of the installed packages of `snplan[cuda]`; those that are missing are left out."""
    found = {}
    for name in _DISTRIBUTIONS.values():
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def library_versions() -> dict[str, str]:
    """Versions of cuDNN and cuBLASLt as the libraries say them; those that are missing are left out."""
    asked: dict[str, tuple[Callable[[], Any], str]] = {
        "cudnn": (cudnn, "backend_version"),
        "cublaslt": (cublaslt, "get_version"),
    }
    found = {}
    for name, (library, question) in asked.items():
        try:
            found[name] = dotted(int(getattr(library(), question)()))
        except RunError:
            continue
    return found


def dotted(number: int) -> str:
    """A library's version in three parts: 91900 is 9.19.0."""
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except (ImportError, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        message = (
            f"the cuda backend needs {_DISTRIBUTIONS[module]}, which cannot be imported ({reason}); "
            "install snplan[cuda] on a machine with an NVIDIA driver, or use --backend numpy"
        )
        raise RunError("SNP-R050", message, {"package": _DISTRIBUTIONS[module]}) from error
