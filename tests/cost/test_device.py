"""Device data, and what is refused."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from snplan.cost.device import PRECISIONS, Device, device_from, device_names, load_device, parse_device
from snplan.errors import UsageError

NAMES = ("a100", "h100", "h200", "k40c", "p100", "rtx3090", "rtx4090", "titan-xp", "v100")
DATA = Path(__file__).parents[2] / "snplan" / "cost" / "devices"


def fields_of(name: str) -> dict[str, int | str]:
    return load_device(name).summary()


def test_all_devices_are_listed_in_order() -> None:
    assert device_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_device_data_is_sane(name: str) -> None:
    device = load_device(name)
    assert device.name == name
    assert device.profile is None
    assert 0 < device.reserve_bytes < device.capacity_bytes // 8
    assert device.reserve_bytes % (1 << 20) == 0
    assert 10**12 < device.fp32_flops <= device.tf32_flops <= device.fp16_flops
    assert device.fp64_flops <= device.fp32_flops <= device.bf16_flops <= device.fp16_flops
    assert 10**11 < device.memory_bytes_per_s < 10**13
    assert device.memory_bytes_per_s > 10 * device.h2d_bytes_per_s
    for alone, both in (
        (device.h2d_bytes_per_s, device.h2d_both_bytes_per_s),
        (device.d2h_bytes_per_s, device.d2h_both_bytes_per_s),
    ):
        assert alone // 2 <= both <= alone
    assert 50 <= device.compute_percent <= 100
    assert 50 <= device.memory_percent <= 100
    assert device.graph_launch_us <= device.launch_us


@pytest.mark.parametrize("name", NAMES)
def test_data_files_say_where_their_numbers_come_from(name: str) -> None:
    text = (DATA / f"{name}.toml").read_text(encoding="utf-8")
    assert text.startswith("# NVIDIA ")
    assert "Copies:" in text or "pinned copies" in text


def test_known_values() -> None:
    k40c, h200 = load_device("k40c"), load_device("h200")
    assert k40c.capacity_bytes == 12 << 30
    assert k40c.h2d_bytes_per_s == k40c.d2h_bytes_per_s == 8 * 10**9
    assert load_device("titan-xp").h2d_bytes_per_s == 12 * 10**9
    assert (h200.h2d_bytes_per_s, h200.d2h_bytes_per_s) == (55_500_000_000, 55_300_000_000)
    assert (h200.h2d_both_bytes_per_s, h200.d2h_both_bytes_per_s) == (48_500_000_000, 48_500_000_000)
    assert h200.reserve_bytes == 700 << 20


def test_names_ignore_case() -> None:
    assert load_device("H200") == load_device("h200")


def test_summary_holds_integers_and_strings_only() -> None:
    summary = load_device("h200").summary()
    assert summary["name"] == "h200"
    assert summary["capacity_bytes"] == 139 << 30
    assert "profile" not in summary
    assert {type(value) for value in summary.values()} == {int, str}


def test_flops_by_precision() -> None:
    a100 = load_device("a100")
    assert [a100.flops(precision) for precision in PRECISIONS] == [
        19_500_000_000_000,
        156_000_000_000_000,
        312_000_000_000_000,
        312_000_000_000_000,
    ]


def test_unknown_device_lists_the_known_ones() -> None:
    with pytest.raises(UsageError, match="SNP-U045: device 'rtx5000' is not known") as caught:
        load_device("rtx5000")
    assert all(name in caught.value.message for name in NAMES)
    assert ".json" in caught.value.message


def test_device_from_a_toml_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((DATA / "v100.toml").read_text(encoding="utf-8").replace('"v100"', '"mine"'), encoding="utf-8")
    assert load_device(str(path)).name == "mine"
    path.write_text(path.read_text(encoding="utf-8").replace('"mine"', '"other"'), encoding="utf-8")
    assert load_device(str(path)).name == "other"


def test_missing_file() -> None:
    with pytest.raises(UsageError, match=r"SNP-U046: device file nowhere\.toml cannot be read"):
        load_device("nowhere.toml")


def test_broken_toml() -> None:
    with pytest.raises(UsageError, match=r"SNP-U046: x\.toml is not TOML"):
        parse_device("name = ", "x.toml")


@pytest.mark.parametrize("text", ["processors = 1" + "0" * 5000, "name = " + "[" * 100_000])
def test_toml_beyond_what_python_reads(text: str) -> None:
    with pytest.raises(UsageError, match=r"SNP-U046: x\.toml is not TOML"):
        parse_device(text, "x.toml")


def test_missing_fields_are_named() -> None:
    values = fields_of("h200")
    del values["launch_us"], values["title"]
    with pytest.raises(UsageError, match="x lacks title, launch_us"):
        device_from(values, "x")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("speed", 3, "unknown fields: speed"),
        ("title", 3, "title must be a string"),
        ("processors", "many", "processors must be an integer of at least 1"),
        ("processors", 0, "processors must be an integer of at least 1"),
        ("processors", True, "processors must be an integer"),
        ("launch_us", -1, "launch_us must be an integer of at least 0"),
        ("fp32_flops", 1.5e12, "fp32_flops must be an integer"),
        ("compute_percent", 101, "compute_percent must be at most 100"),
        ("graph_launch_us", 10**9 + 1, "graph_launch_us must be at most 1000000000"),
        ("copy_latency_us", 10**30, "copy_latency_us must be at most 1000000000"),
        ("processors", 2**62 + 1, "processors must be at most 4611686018427387904"),
        ("h2d_bytes_per_s", 10**400, "h2d_bytes_per_s must be at most"),
        ("h2d_both_bytes_per_s", 60_000_000_000, "h2d_both_bytes_per_s must not exceed h2d_bytes_per_s"),
    ],
)
def test_wrong_values_are_refused(name: str, value: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        device_from({**fields_of("h200"), name: value}, "x")


def test_summary_makes_the_same_device() -> None:
    for name in NAMES:
        assert device_from(load_device(name).summary(), name) == load_device(name)


def test_data_files_hold_exactly_the_fields() -> None:
    for name in NAMES:
        values = tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
        assert list(values) == [field for field in Device.__dataclass_fields__ if field not in ("profile", "pools")]
