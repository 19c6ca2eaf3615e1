"""Devices as the cost model sees them: capacity, speeds, copy links; from devices/*.toml or a measured profile."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from snplan.cost.pools import Pool, bounds, pools_from
from snplan.errors import UsageError

if TYPE_CHECKING:
    from snplan.cost.profile import Profile

Precision: TypeAlias = Literal["fp32", "tf32", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device. Rates are published peaks unless the data file's comments say measured; all numbers are integers.

    capacity_bytes, reserve_bytes   device memory, and what the driver, context and libraries take of it
    processors                      streaming multiprocessors: how many tiles run at once
    *_flops                         operations a second of large matrix products; fp32_flops is also the vector rate
    compute_percent                 part of the *_flops that a large product reaches
    memory_bytes_per_s              device memory traffic (reads plus writes); memory_percent of it is reached
    h2d_/d2h_bytes_per_s            pinned copies, one direction alone
    *_both_bytes_per_s              each direction while both run (half of a total that they share)
    copy_latency_us                 from a copy's start to its first byte
    launch_us, copy_launch_us       host time to issue a kernel or a copy (eager mode)
    graph_launch_us                 device time between kernels replayed from a graph
    profile                         measured times, where there are any
    pools                           external memory, where it is not host memory alone over the link above
    """

    name: str
    title: str
    capacity_bytes: int
    reserve_bytes: int
    processors: int
    fp64_flops: int
    fp32_flops: int
    tf32_flops: int
    bf16_flops: int
    fp16_flops: int
    compute_percent: int
    memory_bytes_per_s: int
    memory_percent: int
    h2d_bytes_per_s: int
    d2h_bytes_per_s: int
    h2d_both_bytes_per_s: int
    d2h_both_bytes_per_s: int
    copy_latency_us: int
    launch_us: int
    copy_launch_us: int
    graph_launch_us: int
    profile: Profile | None = None
    pools: tuple[Pool, ...] = ()

    def summary(self) -> dict[str, Any]:
        """The plan file's `device`: every field but the profile, as integers and strings; pools where there are any.

        Of a profile there are the `versions` of the driver and the libraries that it was measured with.
        """
        found = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _OPTIONAL}
        if self.pools:
            found["pools"] = [pool.summary() for pool in self.pools]
        return found if self.profile is None else {**found, "versions": dict(self.profile.versions)}

    def flops(self, precision: Precision) -> int:
        """Peak operations a second of matrix products whose operands are float32 tensors, computed in `precision`."""
        rates = {"fp32": self.fp32_flops, "tf32": self.tf32_flops, "bf16": self.bf16_flops, "fp16": self.fp16_flops}
        return rates[precision]


_OPTIONAL = ("profile", "pools")


def device_names() -> tuple[str, ...]:
    """Names of the devices that come with snplan, sorted."""
    return tuple(sorted(item.name.removesuffix(".toml") for item in _folder().iterdir() if item.name.endswith(".toml")))


def profile_names() -> tuple[str, ...]:
    """Names of the measured profiles that come with snplan, sorted."""
    found = (item.name for item in _folder("profiles").iterdir() if item.name.endswith(".json"))
    return tuple(sorted(name.removesuffix(".json") for name in found))


def load_device(name_or_path: str) -> Device:
    """The device called so, or read from a file: PROFILE.json as `snplan profile` writes it, or a TOML file.

    Names are those of devices and of the measured profiles that come with snplan.

    Raises UsageError: SNP-U045 for an unknown name (lists the known ones), SNP-U046 for a file that cannot be read or
    lacks a field.
    """
    if name_or_path.endswith(".json"):
        from snplan.cost.profile import load_profile, profiled_device

        return profiled_device(load_profile(Path(name_or_path)))
    if name_or_path.endswith(".toml"):
        return parse_device(_read(Path(name_or_path)), name_or_path)
    name = name_or_path.lower()
    if name in profile_names():
        return _measured(name)
    if name not in device_names():
        raise UsageError(
            "SNP-U045",
            f"device {name_or_path!r} is not known; known devices: {', '.join((*device_names(), *profile_names()))}; "
            "or give a file that `snplan profile` wrote (its name ends with .json)",
        )
    return _known(name)


@cache
def _known(name: str) -> Device:
    return parse_device(_folder().joinpath(f"{name}.toml").read_text(encoding="utf-8"), f"{name}.toml")


@cache
def _measured(name: str) -> Device:
    from snplan.cost.profile import load_profile, profiled_device

    return profiled_device(load_profile(Path(str(_folder("profiles").joinpath(f"{name}.json")))))


def parse_device(text: str, where: str) -> Device:
    """The device that a TOML text describes; every field must be there. Raises UsageError (SNP-U046) naming `where`."""
    try:
        return device_from(tomllib.loads(text), where)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        raise UsageError("SNP-U046", f"{where} is not TOML: {error}") from error


def device_from(values: Mapping[str, Any], where: str) -> Device:
    """The device with these fields: strings and positive integers. Raises UsageError (SNP-U046) naming `where`.

    `pools`, a list of tables, may be left out; `versions`, which plans have of a profile, say nothing of the device.
    """
    values = {key: value for key, value in values.items() if key != "versions"}
    pools = pools_from(values.pop("pools"), where) if "pools" in values else ()
    wanted = {field.name: field.type for field in fields(Device) if field.name not in _OPTIONAL}
    if missing := [name for name in wanted if name not in values]:
        raise UsageError(
            "SNP-U046", f"{where} lacks {', '.join(missing)}; see snplan/cost/devices/h200.toml for all fields"
        )
    if unknown := sorted(name for name in values if name not in wanted):
        raise UsageError("SNP-U046", f"{where} has unknown fields: {', '.join(unknown)}")
    for name, kind in wanted.items():
        _check(values[name], name, str(kind), where)
    for way in ("h2d", "d2h"):
        if values[f"{way}_both_bytes_per_s"] > values[f"{way}_bytes_per_s"]:
            raise UsageError("SNP-U046", f"{where}: {way}_both_bytes_per_s must not exceed {way}_bytes_per_s")
    return Device(**values, pools=pools)


def _check(value: object, name: str, kind: str, where: str) -> None:
    if kind == "str":
        if not isinstance(value, str):
            raise UsageError("SNP-U046", f"{where}: {name} must be a string, not {value!r}")
        return
    lowest, highest = bounds(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < lowest:
        raise UsageError("SNP-U046", f"{where}: {name} must be an integer of at least {lowest}, not {value!r}")
    if value > highest:
        raise UsageError("SNP-U046", f"{where}: {name} must be at most {highest}")


def _folder(name: str = "devices") -> Any:
    return files("snplan.cost").joinpath(name)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError("SNP-U046", f"device file {path} cannot be read: {error}") from error
