"""Kernels of a plan as one compiled module: nvcc or NVRTC, once, then a file in the cache.

The cache holds cubins under the digest of text, architecture and flags. Files appear whole (written beside, then
renamed), so runs that compile the same plan at the same time do no harm to each other.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias

from snplan.errors import RunError

Compiler: TypeAlias = Literal["auto", "nvcc", "nvrtc"]

# Contraction into fused multiply-adds stays on: what must not be contracted says so in the text.
_FLAGS = ("-std=c++17", "-diag-suppress=177,186")
_ELF = b"\x7fELF"
_KERNEL = re.compile(r'^extern "C" __global__ void __launch_bounds__\(\d+\) (\w+)\(', re.MULTILINE)
_LINE = re.compile(r"[(:](\d+)[):].*error")


def cache_folder() -> Path:
    """Where compiled kernels are kept: `snplan/kernels` in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "snplan" / "kernels"


def find_nvcc() -> str | None:
    """Path of nvcc: on the search path, else in the toolkit that CUDA_HOME or CUDA_PATH names, else /usr/local/cuda."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    candidates = ["nvcc", *(str(Path(home) / "bin" / "nvcc") for home in homes if home)]
    return next((found for name in candidates if (found := shutil.which(name))), None)


def compile_module(
    text: str, arch: str, *, compiler: Compiler = "auto", cache: Path | None = None, nvcc: str | None = None
) -> bytes:
    """The cubin of `text` for an architecture such as "sm_90", from the folder `cache` where it is there already.

    "auto" takes NVRTC where cuda-core is installed (it needs no toolkit), else nvcc. Raises RunError: SNP-R041 where
    the compiler refuses the text, SNP-R042 where there is no compiler.
    """
    folder = cache_folder() if cache is None else cache
    path = folder / f"{_digest(text, arch)}.cubin"
    kept = _read(path)
    if kept is not None:
        return kept
    cubin = _compiler(compiler, nvcc)(text, arch)
    _write(path, cubin)
    return cubin


def _digest(text: str, arch: str) -> str:
    return hashlib.sha256("\0".join((text, arch, *_FLAGS)).encode()).hexdigest()


def _read(path: Path) -> bytes | None:
    try:
        data = path.read_bytes()
    except OSError:
        return None
    return data if data.startswith(_ELF) else None


def _write(path: Path, data: bytes) -> None:
    """Put `data` at `path` in one step. A cache that cannot be written to is no reason to fail a run."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except OSError:
        return


def _compiler(choice: Compiler, nvcc: str | None) -> Callable[[str, str], bytes]:
    if choice in ("auto", "nvrtc") and _has_nvrtc():
        return _with_nvrtc
    path = nvcc or find_nvcc()
    if choice == "nvrtc" or path is None:
        missing = "cuda-core (NVRTC)" if choice == "nvrtc" else "nvcc" if choice == "nvcc" else "NVRTC or nvcc"
        raise RunError(
            "SNP-R042",
            f"no CUDA compiler: {missing} was not found; install cuda-core, or put the CUDA toolkit's nvcc on the PATH",
        )
    return lambda text, arch: _with_nvcc(text, arch, path)


def _has_nvrtc() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("cuda.core") is not None
    except ModuleNotFoundError:
        return False


def _with_nvcc(text: str, arch: str, nvcc: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="snplan-") as folder:
        source, target = Path(folder) / "kernels.cu", Path(folder) / "kernels.cubin"
        source.write_text(text)
        command = [nvcc, "-cubin", f"-arch={arch}", *_FLAGS, "-o", str(target), str(source)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        except OSError as error:
            raise RunError("SNP-R042", f"the CUDA compiler {nvcc} cannot be run: {error}") from error
        if done.returncode == 0 and target.exists():
            return target.read_bytes()
        raise _refusal(text, arch, nvcc, done.stderr or done.stdout)


def _with_nvrtc(text: str, arch: str) -> bytes:
    import cuda.core as core

    # Releases before 1.0 kept these names elsewhere.
    names = core if hasattr(core, "Program") else __import__("cuda.core.experimental", fromlist=["Program"])
    options = names.ProgramOptions(arch=arch, std="c++17")
    try:
        code = names.Program(text, "c++", options).compile("cubin").code
    except Exception as error:
        raise _refusal(text, arch, "NVRTC", str(error)) from error
    return bytes(code)


def _refusal(text: str, arch: str, compiler: str, output: str) -> RunError:
    """What a compiler said, cut to its first error and the kernel that it is in."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    first = next((line for line in lines if "error" in line or "fatal" in line), lines[0] if lines else "no message")
    first = re.sub(r"\S*/kernels\.cu", "kernels.cu", first)
    kernel = _kernel_at(text, first)
    where = f"kernel {kernel}" if kernel else "the generated kernels"
    return RunError(
        "SNP-R041",
        f"{compiler} does not compile {where} for {arch}: {first}",
        {"kernel": kernel, "arch": arch, "compiler": compiler},
    )


def _kernel_at(text: str, error: str) -> str | None:
    """The kernel that holds the line which an error names, or that the error names itself."""
    names = [(match.start(), match.group(1)) for match in _KERNEL.finditer(text)]
    named = next((name for _, name in names if name in error), None)
    place = _LINE.search(error)
    if named or place is None:
        return named
    offset = sum(len(line) for line in text.splitlines(keepends=True)[: int(place.group(1))])
    return next((name for start, name in reversed(names) if start < offset), None)
