"""External pools of memory: where tensors go that leave the device. Host memory alone, or any list of pools.

The paper's unified tensor pool (section 3.3) also takes the memory of another GPU (10 GB/s over one PCIe switch) and of
another node (6 GB/s over GPU-Direct RDMA) beside host memory (8 GB/s). Here a pool is data; the planner fills the
fastest one first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Protocol

from snplan.errors import UsageError
from snplan.units import parse_bytes

if TYPE_CHECKING:
    from snplan.cost.device import Device

HOST = "host"
MOST_US = 10**9
"""Microseconds of one thing that a device does: times of whole steps then fit into 64 bits with room to spare."""
MOST = 2**62
"""Bytes, rates and counts of a device."""
_TEXT = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_-]*):(?P<size>[^@+,]+)"
    r"(?:@(?P<out>[^@+,/]+)/s(?:,(?P<back>[^@+,/]+)/s)?)?(?:\+(?P<latency>[0-9]{1,18})us)?"
)
_EXAMPLES = (
    "write NAME:SIZE[@RATE/s[,RATE/s]][+Nus], for example host:64G, peer:8G@10GB/s or remote:1T@6GB/s,5GB/s+20us"
)


class Link(Protocol):
    """What copies run over: the rates and the latency of a device's own link or of a pool."""

    @property
    def h2d_bytes_per_s(self) -> int:
        """To the device, one direction alone."""

    @property
    def d2h_bytes_per_s(self) -> int:
        """From the device, one direction alone."""

    @property
    def h2d_both_bytes_per_s(self) -> int:
        """To the device while the other direction runs over the same link."""

    @property
    def d2h_both_bytes_per_s(self) -> int:
        """From the device while the other direction runs over the same link."""

    @property
    def copy_latency_us(self) -> int:
        """From a copy's start to its first byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Memory beside the device: its room in bytes, and its link, with the fields that a device's own link has."""

    name: str
    bytes: int
    h2d_bytes_per_s: int
    d2h_bytes_per_s: int
    h2d_both_bytes_per_s: int
    d2h_both_bytes_per_s: int
    copy_latency_us: int

    def summary(self) -> dict[str, int | str]:
        """The pool as the plan file has it."""
        return asdict(self)


def parse_pool(text: str, link: Link) -> Pool:
    """The pool that `NAME:SIZE[@RATE/s[,RATE/s]][+Nus]` says: rates from and to the device, one stands for both.

    The pool called "host" has the device's own `link` where no rate is given; the latency too is the device's unless
    it is given. Raises UsageError (SNP-U007).
    """
    match = _TEXT.fullmatch(text.strip())
    if match is None:
        raise UsageError("SNP-U007", f"--pool {text!r} is no pool; {_EXAMPLES}")
    name, size = match["name"], parse_bytes(match["size"], what="--pool size")
    latency = link.copy_latency_us if match["latency"] is None else int(match["latency"])
    if latency > MOST_US:
        raise UsageError("SNP-U007", f"--pool {text!r}: the latency is above {MOST_US:,} us; {_EXAMPLES}")
    if match["out"] is None:
        if name != HOST:
            raise UsageError("SNP-U007", f"--pool {text!r} has no rate, which only host may go without; {_EXAMPLES}")
        rates = {field: getattr(link, field) for field in _RATES}
        return Pool(name=name, bytes=size, copy_latency_us=latency, **rates)
    out = parse_bytes(match["out"], what="--pool rate")
    back = out if match["back"] is None else parse_bytes(match["back"], what="--pool rate")
    return Pool(
        name=name,
        bytes=size,
        h2d_bytes_per_s=back,
        d2h_bytes_per_s=out,
        h2d_both_bytes_per_s=back,
        d2h_both_bytes_per_s=out,
        copy_latency_us=latency,
    )


_RATES = ("h2d_bytes_per_s", "d2h_bytes_per_s", "h2d_both_bytes_per_s", "d2h_both_bytes_per_s")


def pools_from(rows: object, where: str) -> tuple[Pool, ...]:
    """The pools of a device file or a plan: a list of tables. The rates of both directions at once may be left out.

    Raises UsageError (SNP-U046) naming `where`.
    """
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise UsageError("SNP-U046", f"{where}: pools must be a list of tables")
    found = tuple(_pool(row, where) for row in rows)
    return unique(found)


def _pool(row: Mapping[str, Any], where: str) -> Pool:
    both = {f"{way}_both_bytes_per_s": row.get(f"{way}_bytes_per_s") for way in ("h2d", "d2h")}
    values = {**both, **row}
    wanted = [field.name for field in fields(Pool)]
    if set(values) != set(wanted):
        raise UsageError("SNP-U046", f"{where}: a pool has the fields {', '.join(wanted)}, not {', '.join(values)}")
    if not isinstance(values["name"], str) or not values["name"]:
        raise UsageError("SNP-U046", f"{where}: a pool's name must be a string, not {values['name']!r}")
    for name in wanted[1:]:
        (lowest, highest), value = bounds(name), values[name]
        if not isinstance(value, int) or isinstance(value, bool) or not lowest <= value <= highest:
            raise UsageError(
                "SNP-U046", f"{where}: {name} of pool {values['name']} must be an integer from {lowest} to {highest}"
            )
    return Pool(**values)


def bounds(name: str) -> tuple[int, int]:
    """The least and the greatest value of the integer field called so of a device or a pool."""
    if name.endswith("_us"):
        return 0, MOST_US
    return (0 if name == "reserve_bytes" else 1), (100 if name.endswith("_percent") else MOST)


def unique(pools: Sequence[Pool]) -> tuple[Pool, ...]:
    """The pools, whose names all differ. Raises UsageError (SNP-U007)."""
    names = [pool.name for pool in pools]
    twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise UsageError("SNP-U007", f"pool {twice[0]} is given twice; give each pool once")
    return tuple(pools)


def by_speed(pools: Sequence[Pool]) -> list[Pool]:
    """The pools, the fastest first: by the time that a mebibyte takes out and back; ties in the order given."""

    def round_trip_us(pool: Pool) -> float:
        return 2 * pool.copy_latency_us + (1 << 20) * 1e6 * (1 / pool.d2h_bytes_per_s + 1 / pool.h2d_bytes_per_s)

    return sorted(pools, key=round_trip_us)


def fastest_link(device: Device) -> Device:
    """The device with, for each rate, the best that it or one of its pools has: no copy is faster.

    What bounds and estimates take for a copy before it is known where a tensor goes.
    """
    if not device.pools:
        return device
    rates = {name: max(getattr(pool, name) for pool in device.pools) for name in _RATES}
    if len(device.pools) > 1:  # copies over two links do not slow each other down
        rates.update({f"{way}_both_bytes_per_s": rates[f"{way}_bytes_per_s"] for way in ("h2d", "d2h")})
    return replace(device, **rates, copy_latency_us=min(pool.copy_latency_us for pool in device.pools))
