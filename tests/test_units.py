"""Sizes as users write them: exact values worked out by hand, and everything that has to be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snplan.errors import UsageError
from snplan.units import GRANULE, decimal_note, format_bytes, format_us, parse_bytes, round_up

TWELVE_GIB = 12_884_901_888


@pytest.mark.parametrize("text", ["12G", "12g", "12Gi", "12GiB", "12gi", " 12 GiB ", "12884901888", "12884901888B"])
def test_binary_sizes(text: str) -> None:
    assert parse_bytes(text) == TWELVE_GIB


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("12GB", 12_000_000_000),
        ("1.5G", 1_610_612_736),
        ("1.5GB", 1_500_000_000),
        ("512M", 536_870_912),
        ("1K", 1024),
        ("1KB", 1000),
        ("2T", 2_199_023_255_552),
        ("1", 1),
        ("0.5K", 512),
    ],
)
def test_other_sizes(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("12Gb", "12Gib", "0", "-1", "", " ", "12X", "1e99G", "nan", "inf", "G", "1.G", "1,5G", "12 G iB"),
        "9999999999T",
        "\u0663G",
    ],
)
def test_refused_sizes(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_bytes(text, what="--gpu-mem")
    assert caught.value.code == "SNP-U001"
    assert "--gpu-mem" in caught.value.message
    assert "12GiB" in caught.value.message


def test_zero_only_where_it_is_allowed() -> None:
    assert parse_bytes("0", allow_zero=True) == 0
    assert parse_bytes("0M", allow_zero=True) == 0
    with pytest.raises(UsageError):
        parse_bytes("0.0000001K", allow_zero=True)


def test_the_largest_size() -> None:
    assert parse_bytes(str(2**62 - 1)) == 2**62 - 1
    with pytest.raises(UsageError):
        parse_bytes(str(2**62))


def test_a_decimal_unit_has_a_note() -> None:
    note = decimal_note("12GB")
    assert note is not None
    assert "12,000,000,000" in note
    assert "12GiB" in note


@pytest.mark.parametrize("text", ["12G", "12Gi", "12GiB", "12884901888", "12B", "junk"])
def test_other_units_have_no_note(text: str) -> None:
    assert decimal_note(text) is None


@pytest.mark.parametrize(("size", "expected"), [(0, 0), (1, 512), (511, 512), (512, 512), (513, 1024), (1280, 1536)])
def test_round_up(size: int, expected: int) -> None:
    assert round_up(size) == expected


@given(st.integers(min_value=0, max_value=2**62))
def test_round_up_is_the_next_multiple(size: int) -> None:
    rounded = round_up(size)
    assert rounded % GRANULE == 0
    assert 0 <= rounded - size < GRANULE


@given(st.integers(min_value=1, max_value=2**62 - 1))
def test_plain_bytes_are_read_back(size: int) -> None:
    assert parse_bytes(str(size)) == size


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (512, "512 B"),
        (1024, "1.00 KiB (1,024 B)"),
        (1_610_612_736, "1.50 GiB (1,610,612,736 B)"),
        (9_395_240_960, "8.75 GiB (9,395,240,960 B)"),
    ],
)
def test_format_bytes(size: int, expected: str) -> None:
    assert format_bytes(size) == expected


@pytest.mark.parametrize(("time", "expected"), [(7, "7 us"), (12_345, "12.345 ms"), (2_500_000, "2.500 s")])
def test_format_us(time: int, expected: str) -> None:
    assert format_us(time) == expected
