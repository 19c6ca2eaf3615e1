"""Compiling: the cache, what is said when a compiler refuses, and every template for two architectures."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from kernel_cases import FAMILIES
from kernel_harness import sources_of

from snplan.codegen import compile as compiling
from snplan.codegen.compile import cache_folder, compile_module, find_nvcc
from snplan.codegen.launch import Source, source
from snplan.codegen.render import render
from snplan.errors import RunError

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not there")

TEXT = render([]) + '\nextern "C" __global__ void __launch_bounds__(1) nothing_1(int x) {\n}\n'


def script(folder: Path, body: str) -> str:
    """A program to be run as nvcc."""
    path = folder / "nvcc"
    path.write_text(f"#!{sys.executable}\nimport sys\n{body}\n")
    path.chmod(0o755)
    return str(path)


def counting(folder: Path) -> str:
    """A compiler that notes each run in `runs` and writes a small ELF file."""
    return script(
        folder,
        f"open({str(folder / 'runs')!r}, 'a').write('x')\n"
        "target = sys.argv[sys.argv.index('-o') + 1]\n"
        "open(target, 'wb').write(b'\\x7fELF' + open(sys.argv[-1], 'rb').read()[-20:])",
    )


def test_a_module_is_compiled_once(tmp_path: Path) -> None:
    nvcc, cache = counting(tmp_path), tmp_path / "cache"
    first = compile_module(TEXT, "sm_90", compiler="nvcc", cache=cache, nvcc=nvcc)
    assert first.startswith(b"\x7fELF")
    assert compile_module(TEXT, "sm_90", compiler="nvcc", cache=cache, nvcc=nvcc) == first
    assert (tmp_path / "runs").read_text() == "x"
    compile_module(TEXT, "sm_80", compiler="nvcc", cache=cache, nvcc=nvcc)
    compile_module(TEXT + "\n", "sm_90", compiler="nvcc", cache=cache, nvcc=nvcc)
    assert (tmp_path / "runs").read_text() == "xxx"
    assert len(list(cache.iterdir())) == 3


def test_a_damaged_file_in_the_cache_is_made_again(tmp_path: Path) -> None:
    nvcc, cache = counting(tmp_path), tmp_path / "cache"
    first = compile_module(TEXT, "sm_90", compiler="nvcc", cache=cache, nvcc=nvcc)
    (path,) = cache.iterdir()
    path.write_bytes(b"")
    assert compile_module(TEXT, "sm_90", compiler="nvcc", cache=cache, nvcc=nvcc) == first
    assert path.read_bytes() == first


def test_many_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    nvcc, cache = counting(tmp_path), tmp_path / "cache"
    with ThreadPoolExecutor(8) as pool:
        futures = [
            pool.submit(compile_module, TEXT, "sm_90", compiler="nvcc", cache=cache, nvcc=nvcc) for _ in range(8)
        ]
    assert len({future.result() for future in futures}) == 1
    assert [path.suffix for path in cache.iterdir()] == [".cubin"]


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, not a folder")
    nvcc = counting(tmp_path)
    assert compile_module(TEXT, "sm_90", compiler="nvcc", cache=tmp_path / "cache", nvcc=nvcc).startswith(b"\x7fELF")


def test_the_cache_is_in_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "snplan" / "kernels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "snplan" / "kernels"


@pytest.mark.parametrize(
    "line",
    [
        "/tmp/x/kernels.cu({line}): error: identifier y is undefined",
        "kernels.cu:{line}:3: error: use of undeclared y",
        "ptxas error   : Entry function 'broken_2' uses too much shared data",
    ],
)
def test_a_refusal_names_kernel_architecture_compiler_and_first_error(tmp_path: Path, line: str) -> None:
    text = TEXT + 'extern "C" __global__ void __launch_bounds__(8) broken_2(int x) {\n  y = 2;\n}\n'
    said = line.format(line=text.splitlines().index("  y = 2;") + 1)
    nvcc = script(tmp_path, f"sys.stderr.write('a warning first\\n' + {said!r} + '\\n'); sys.exit(1)")
    with pytest.raises(RunError) as caught:
        compile_module(text, "sm_90", compiler="nvcc", cache=tmp_path, nvcc=nvcc)
    error = caught.value
    assert error.code == "SNP-R041"
    assert error.details == {"kernel": "broken_2", "arch": "sm_90", "compiler": nvcc}
    assert said.rpartition("/")[2] in error.message
    assert not list(tmp_path.glob("*.cubin"))


def test_a_refusal_that_belongs_to_no_kernel(tmp_path: Path) -> None:
    nvcc = script(tmp_path, "sys.stderr.write('nvcc fatal   : Unsupported gpu architecture sm_20'); sys.exit(1)")
    with pytest.raises(RunError, match="does not compile the generated kernels for sm_20: nvcc fatal"):
        compile_module(TEXT, "sm_20", compiler="nvcc", cache=tmp_path, nvcc=nvcc)


def test_without_a_compiler_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiling, "find_nvcc", lambda: None)
    monkeypatch.setattr(compiling, "_has_nvrtc", lambda: False)
    for choice, missing in (("auto", "NVRTC or nvcc"), ("nvcc", "nvcc"), ("nvrtc", "cuda-core")):
        with pytest.raises(RunError, match=missing) as caught:
            compile_module(TEXT, "sm_90", compiler=choice, cache=tmp_path)  # type: ignore[arg-type]
        assert caught.value.code == "SNP-R042"


def test_a_compiler_that_cannot_be_run(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be run") as caught:
        compile_module(TEXT, "sm_90", compiler="nvcc", cache=tmp_path, nvcc=str(tmp_path / "absent"))
    assert caught.value.code == "SNP-R042"


def test_nvrtc_is_called_through_cuda_core(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[object] = []

    class Program:
        def __init__(self, text: str, language: str, options: object) -> None:
            seen.extend((language, options))
            self.text = text

        def compile(self, form: str) -> SimpleNamespace:
            if "broken" in self.text:
                raise RuntimeError("default_program(1): error: expected a declaration")
            return SimpleNamespace(code=b"\x7fELF" + form.encode())

    core = SimpleNamespace(Program=Program, ProgramOptions=lambda **options: options)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(core=core))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setattr(compiling, "_has_nvrtc", lambda: True)
    assert compile_module(TEXT, "sm_90", cache=tmp_path) == b"\x7fELFcubin"
    assert seen == ["c++", {"arch": "sm_90", "std": "c++17"}]
    with pytest.raises(RunError, match="NVRTC does not compile the generated kernels for sm_90: default_program"):
        compile_module("broken", "sm_90", cache=tmp_path)


def test_nvcc_is_found_in_the_toolkit_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin", "pass")
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_nvcc() == str(tmp_path / "bin" / "nvcc")


def representatives() -> list[Source]:
    """Kernels of every template, kind and arithmetic type."""
    groups: dict[object, dict[str, Source]] = defaultdict(dict)
    for found in sources_of([case for family in FAMILIES.values() for case in family()]):
        groups[found.template, found.stem, dict(found.params).get("compute")].setdefault(found.name, found)
    return [group[name] for group in groups.values() for name in sorted(group)[:2]]


@pytest.mark.slow
@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_every_template_compiles(arch: str, tmp_path: Path) -> None:
    cubin = compile_module(render(representatives()), arch, compiler="nvcc", cache=tmp_path)
    assert cubin.startswith(b"\x7fELF")


@needs_nvcc
def test_the_real_compilers_errors_are_read(tmp_path: Path) -> None:
    broken = source("spin", "spin")
    text = render([broken]).replace("__global__ void __launch_bounds__", "__global__ int __launch_bounds__")
    with pytest.raises(RunError, match=r"for sm_90: kernels\.cu\(\d+\): error"):
        compile_module(text, "sm_90", compiler="nvcc", cache=tmp_path)
