"""What this machine offers to snplan: packages, host memory, GPU. Looks only; starts no GPU context."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

_TIMEOUT_S = 15


def examine() -> dict[str, Any]:
    """Facts by group: `snplan`, `python`, `platform`, `packages`, `host`, `gpu`, `backends`; None = not found.

    Sizes are in bytes; a limit of None is no limit. A missing or broken GPU, driver or toolkit is a fact, not an error.
    """
    gpu = _gpu()
    return {
        "snplan": _version("snplan"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _required("")},
        "host": host(),
        "gpu": gpu,
        "backends": ["numpy", *(["cuda"] if _has_cuda(gpu) else [])],
    }


def host() -> dict[str, Any]:
    """The host's processors, memory and limits, in bytes."""
    return {
        "processors": len(os.sched_getaffinity(0)),
        "memory_bytes": _meminfo("MemTotal"),
        "available_bytes": _meminfo("MemAvailable"),
        "container_limit_bytes": _container_limit(),
        "pinned_limit_bytes": _pinned_limit(),
    }


def _required(extra: str) -> list[str]:
    """The packages that snplan itself requires, or one of its extras."""
    lines = metadata.requires("snplan") or []
    mark = f'extra == "{extra}"' if extra else ""
    chosen = (line for line in lines if (mark in line if extra else "extra ==" not in line))
    return [re.split(r"[<>=!~ \[;]", line)[0] for line in chosen]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _meminfo(key: str, path: Path = Path("/proc/meminfo")) -> int | None:
    for line in _text(path).splitlines():
        name, _, rest = line.partition(":")
        if name == key:
            return int(rest.split()[0]) * 1024
    return None


def _container_limit() -> int | None:
    """The memory limit of the control group, where there is one (version 2, then version 1)."""
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        text = _text(Path(path)).strip()
        if text.isdecimal() and int(text) < 1 << 60:  # version 1 says "no limit" with a number near 2^63
            return int(text)
    return None


def _pinned_limit() -> int | None:
    """Bytes that this user may lock in memory; the CUDA driver has limits of its own on some systems."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft == resource.RLIM_INFINITY else soft


def _gpu() -> dict[str, Any]:
    rows = _output(
        ["nvidia-smi", "--query-gpu=name,memory.total,memory.free,driver_version", "--format=csv,noheader,nounits"]
    )
    release = [line for line in _output(["nvcc", "--version"]) if "release" in line]
    return {
        "devices": [_device(row) for row in rows],
        "driver": rows[0].rsplit(",", 1)[-1].strip() if rows else None,
        "nvcc": release[0].rsplit("release", 1)[-1].strip() if release else None,
        **{name: _version(name) for name in _required("cuda")},
    }


def _has_cuda(gpu: dict[str, Any]) -> bool:
    """Whether there is a device, and every package that the CUDA backend needs."""
    return bool(gpu["devices"]) and all(gpu[name] is not None for name in _required("cuda"))


def _device(row: str) -> str:
    name, total, free, *_ = (part.strip() for part in row.split(","))
    return f"{name}: {total} MiB, {free} MiB free"


def _output(command: Sequence[str]) -> list[str]:
    """Lines that a command prints; none where it is missing, fails or hangs."""
    if shutil.which(command[0]) is None:
        return []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line for line in done.stdout.splitlines() if line.strip()] if done.returncode == 0 else []


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
