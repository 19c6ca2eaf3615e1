"""External pools: how they are written, which is faster, what copies over their links take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snplan.cost.device import Device, device_from, load_device, parse_device
from snplan.cost.pools import Pool, by_speed, fastest_link, parse_pool, pools_from, unique
from snplan.cost.simulate import simulate
from snplan.errors import UsageError
from snplan.plan.model import Action, Offload, Prefetch

H200 = load_device("h200")
LINK = replace(
    H200,
    h2d_bytes_per_s=2_000_000,
    d2h_bytes_per_s=1_000_000,
    h2d_both_bytes_per_s=500_000,
    d2h_both_bytes_per_s=500_000,
    copy_latency_us=0,
)


def pool(name: str, rate: int, size: int = 1 << 30, latency: int = 0) -> Pool:
    """A pool with one rate for both directions."""
    rates = dict.fromkeys(("h2d_bytes_per_s", "d2h_bytes_per_s", "h2d_both_bytes_per_s", "d2h_both_bytes_per_s"), rate)
    return Pool(name=name, bytes=size, copy_latency_us=latency, **rates)


def test_the_host_has_the_devices_link() -> None:
    found = parse_pool("host:64G", H200)
    assert (found.name, found.bytes) == ("host", 64 << 30)
    assert (found.h2d_bytes_per_s, found.d2h_both_bytes_per_s) == (55_500_000_000, 48_500_000_000)
    assert found.copy_latency_us == H200.copy_latency_us


def test_the_papers_pools() -> None:
    peer, remote = parse_pool("peer:8G@10GB/s", H200), parse_pool("remote:1T@6GB/s,5GB/s+20us", H200)
    assert (peer.bytes, peer.d2h_bytes_per_s, peer.h2d_both_bytes_per_s) == (8 << 30, 10**10, 10**10)
    assert (remote.d2h_bytes_per_s, remote.h2d_bytes_per_s, remote.copy_latency_us) == (6 * 10**9, 5 * 10**9, 20)
    assert [p.name for p in by_speed([remote, parse_pool("host:1G@8GB/s", H200), peer])] == ["peer", "host", "remote"]


@pytest.mark.parametrize(
    "text",
    [
        *("", "host", "host:", "peer:8G", "8G@10GB/s", "peer:8G@10GB", "peer:8G@/s", "a b:1G@1G/s", "p:1G@1G/s+5ms"),
        *(f"p:1G@1G/s+{latency}us" for latency in (10**9 + 1, 10**4000)),
    ],
)
def test_what_is_no_pool(text: str) -> None:
    with pytest.raises(UsageError, match="SNP-U00"):
        parse_pool(text, H200)


def test_names_differ() -> None:
    with pytest.raises(UsageError, match="SNP-U007"):
        unique([pool("a", 1), pool("a", 2)])


def test_a_device_file_may_have_pools() -> None:
    tables = '\n[[pools]]\nname = "peer"\nbytes = 8\nh2d_bytes_per_s = 7\nd2h_bytes_per_s = 6\ncopy_latency_us = 5\n'
    text = "\n".join(f'{k} = "{v}"' if isinstance(v, str) else f"{k} = {v}" for k, v in H200.summary().items())
    device = parse_device(text + tables, "x.toml")
    (found,) = device.pools
    assert (found.name, found.bytes, found.h2d_both_bytes_per_s, found.d2h_both_bytes_per_s) == ("peer", 8, 7, 6)
    assert device_from(device.summary(), "x") == device
    assert "pools" not in H200.summary()


@pytest.mark.parametrize(
    "rows",
    [
        {},
        [3],
        [{"name": "a"}],
        [{**pool("a", 1).summary(), "colour": 1}],
        [{**pool("a", 1).summary(), "bytes": 0}],
        [{**pool("a", 1).summary(), "bytes": True}],
        [{**pool("a", 1).summary(), "name": ""}],
        [{**pool("a", 1).summary(), "copy_latency_us": 10**10}],
        [{**pool("a", 1).summary(), "h2d_bytes_per_s": 10**30}],
    ],
)
def test_broken_pools_of_a_device_file(rows: object) -> None:
    with pytest.raises(UsageError, match="SNP-U046"):
        pools_from(rows, "x.toml")


def offload(slot: int) -> Offload:
    return Offload(tensor="t", buffer=0, slot=slot, after=[])


def prefetch(slot: int, *after: int) -> Prefetch:
    return Prefetch(tensor="t", slot=slot, buffer=0, after=list(after))


def ends(device: Device, actions: list[Action], pools: dict[int, str] | None = None) -> tuple[int, ...]:
    """When actions end that copy a tensor of one million bytes."""
    return simulate(actions, {}, {"t": 10**6}, device, slot_pools=pools).end


def test_copies_run_over_their_pools_link() -> None:
    device = replace(LINK, pools=(pool("fast", 10_000_000), pool("slow", 100_000, latency=7)))
    assert ends(device, [offload(0)], {0: "fast"}) == (100_000,)
    assert ends(device, [offload(0), prefetch(1, 0)], {0: "fast", 1: "slow"}) == (100_000, 100_000 + 7 + 10_000_000)


def test_only_copies_over_one_link_slow_each_other_down() -> None:
    """The link moves 1 MB/s out, 2 MB/s in, 0.5 MB/s each way while both run."""
    assert ends(LINK, [offload(0), prefetch(1)]) == (2_000_000, 2_000_000)
    shared = replace(LINK, pools=(parse_pool("host:1G", LINK), pool("peer", 4_000_000)))
    assert ends(shared, [offload(0), prefetch(1)], {0: "host", 1: "host"}) == (2_000_000, 2_000_000)
    assert ends(shared, [offload(0), prefetch(1)], {0: "host", 1: "peer"}) == (1_000_000, 250_000)


def test_no_copy_is_faster_than_the_fastest_link() -> None:
    assert fastest_link(LINK) == LINK
    pools = (pool("a", 3_000_000, latency=9), parse_pool("host:1G", LINK))
    best = fastest_link(replace(LINK, pools=pools))
    assert (best.h2d_bytes_per_s, best.d2h_bytes_per_s, best.copy_latency_us) == (3_000_000, 3_000_000, 0)
    assert (best.h2d_both_bytes_per_s, best.d2h_both_bytes_per_s) == (3_000_000, 3_000_000)
    alone = fastest_link(replace(LINK, pools=(parse_pool("host:1G", LINK),)))
    assert (alone.h2d_both_bytes_per_s, alone.h2d_bytes_per_s) == (500_000, 2_000_000)
