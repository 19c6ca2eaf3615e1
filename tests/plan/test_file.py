"""Plan files: canonical bytes, compression, what is refused, and files that are written whole or not at all."""

from __future__ import annotations

import errno
import gzip
import json
import os
import random
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from plan_sample import SAMPLE
from property.edits import Raw, plan_of, raw
from property.plans import plans, random_plan

from snplan.errors import PlanError, RunError, UsageError
from snplan.plan.file import decode_plan, encode_plan, read_plan, write_plan
from snplan.plan.model import StepPlan
from snplan.plan.text import from_text

PLAN = from_text(SAMPLE)
HEADER = [
    *("format", "snplan_version", "model", "options", "device"),
    *("budget_bytes", "reserve_bytes", "arena_bytes", "peak_live_bytes", "host_arena_bytes"),
    *("step_time_us", "lower_bound_us", "floor_bytes"),
]
TABLES = ["tensors", "ops", "buffers", "slots", "resident", "persistent", "outputs", "actions"]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".plan.json": bytes,
    ".plan.json.gz": gzip.compress,
    ".plan.json.zst": zstandard.compress,
}


SUFFIXES = tuple(COMPRESS)


def changed(**fields: Any) -> StepPlan:
    """The sample with other fields."""
    return plan_of({**raw(PLAN), **fields})


def refusal(data: bytes) -> PlanError:
    """Why `data` is no plan."""
    with pytest.raises(PlanError) as caught:
        decode_plan(data, source="p.json")
    assert "p.json" in caught.value.message
    assert caught.value.exit_code == 6
    return caught.value


def test_keys_are_in_the_documented_order() -> None:
    data = json.loads(encode_plan(PLAN))
    assert list(data) == HEADER + TABLES
    assert list(data["tensors"][0]) == ["name", "dtype", "shape", "bytes", "role"]
    assert list(data["ops"][0]) == ["name", "kind", "phase", "inputs", "outputs", "attrs", "nodes", "rng"]
    assert data["resident"][0] == {"tensor": "x", "buffer": 0}
    assert data["resident"][2] == {"tensor": "m", "slot": 0}
    assert data["persistent"][1] == {"tensor": "m", "becomes": "m:next", "slot": 0}


def test_actions_as_they_are_documented() -> None:
    actions = json.loads(encode_plan(PLAN))["actions"]
    assert actions[0] == {"kind": "alloc", "buffer": 2}
    assert actions[2] == {"kind": "algorithm", "op": "mul", "engine": 1, "workspace": 3}
    assert actions[3] == {
        "kind": "run",
        "op": "mul",
        "reads": [["w", 1], ["x", 0]],
        "writes": [["y", 2]],
        "after": [],
        "stream": "compute",
    }
    assert actions[5] == {"kind": "offload", "tensor": "y", "buffer": 2, "slot": 1, "after": [3], "stream": "d2h"}
    assert actions[13] == {"kind": "prefetch", "tensor": "y", "slot": 1, "buffer": 6, "after": [5, 7], "stream": "h2d"}
    assert actions[15]["kind"] == "recompute"


def test_one_line_for_each_key_and_row() -> None:
    lines = encode_plan(PLAN).decode().splitlines()
    assert lines[:3] == ["{", '"format":1,', '"snplan_version":"0.1.0",']
    assert '{"kind":"free","buffer":2},' in lines
    assert lines[-2:] == ["]", "}"]
    rows = sum(len(getattr(PLAN, name)) for name in TABLES)
    assert len(lines) == len("{}") + len(HEADER) + len("[]") * len(TABLES) + rows


def test_free_form_keys_are_sorted() -> None:
    one, other = changed(options={"b": 1, "a": {"d": 2, "c": 3}}), changed(options={"a": {"c": 3, "d": 2}, "b": 1})
    assert encode_plan(one) == encode_plan(other)
    assert b'"options":{"a":{"c":3,"d":2},"b":1}' in encode_plan(one)


@given(plan=plans())
def test_round_trip(plan: StepPlan) -> None:
    data = encode_plan(plan)
    assert decode_plan(data) == plan
    assert encode_plan(decode_plan(data)) == data
    assert json.loads(data) == raw(plan)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_round_trip_and_are_the_same_bytes(tmp_path: Path, suffix: str) -> None:
    plan = random_plan(random.Random(3))
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    write_plan(plan, one)
    write_plan(plan, str(other))
    assert one.read_bytes() == other.read_bytes()
    assert read_plan(one) == read_plan(str(other)) == plan
    assert sorted(tmp_path.iterdir()) == [one, other]


def test_plain_and_compressed_files_hold_the_canonical_json(tmp_path: Path) -> None:
    paths = [tmp_path / f"p{suffix}" for suffix in SUFFIXES]
    for path in paths:
        write_plan(PLAN, path)
    plain, zipped, standard = (path.read_bytes() for path in paths)
    assert plain == gzip.decompress(zipped) == zstandard.ZstdDecompressor().decompress(standard) == encode_plan(PLAN)
    assert zipped[:2] == b"\x1f\x8b"
    assert zipped[3:8] == bytes(5)  # no name, no time


def test_layout_does_not_matter_to_readers() -> None:
    assert decode_plan(json.dumps(raw(PLAN), indent=3, sort_keys=True).encode()) == PLAN


def _unknown(data: Raw) -> None:
    data["extra"] = 1


def _unknown_in_row(data: Raw) -> None:
    data["buffers"][0]["name"] = "b"


def _unknown_in_action(data: Raw) -> None:
    data["actions"][0]["stream"] = "compute"


def _unknown_kind(data: Raw) -> None:
    data["actions"][0]["kind"] = "malloc"


def _no_kind(data: Raw) -> None:
    del data["actions"][0]["kind"]


def _missing(data: Raw) -> None:
    del data["actions"][3]["reads"]


def _text_for_number(data: Raw) -> None:
    data["arena_bytes"] = "4608"


def _fraction(data: Raw) -> None:
    data["arena_bytes"] = 4608.5


def _true(data: Raw) -> None:
    data["buffers"][0]["id"] = True


def _null(data: Raw) -> None:
    data["tensors"] = None


def _three_in_a_pair(data: Raw) -> None:
    data["actions"][3]["reads"][0] = ["w", 1, 2]


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (_unknown, "extra"),
        (_unknown_in_row, "$.buffers"),
        (_unknown_in_action, "$.actions"),
        (_unknown_kind, "malloc"),
        (_no_kind, "kind"),
        (_missing, "reads"),
        (_text_for_number, "$.arena_bytes"),
        (_fraction, "$.arena_bytes"),
        (_true, "$.buffers"),
        (_null, "$.tensors"),
        (_three_in_a_pair, "$.actions"),
    ],
)
def test_keys_and_types_that_a_plan_does_not_have(edit: Callable[[Raw], None], words: str) -> None:
    data = json.loads(encode_plan(PLAN))
    edit(data)
    error = refusal(json.dumps(data).encode())
    assert error.code == "SNP-V003"
    assert words in error.message


@pytest.mark.parametrize("number", [0, 2, 10**9])
def test_other_formats(number: int) -> None:
    error = refusal(json.dumps({**raw(PLAN), "format": number}).encode())
    assert error.code == "SNP-V002"
    assert f"format {number}" in error.message


def test_other_formats_are_named_before_their_keys() -> None:
    error = refusal(b'{"format": 2, "schedule": []}')
    assert (error.code, "format 2" in error.message) == ("SNP-V002", True)


def test_json_that_is_no_plan() -> None:
    assert refusal(b'{"format": 1}').code == "SNP-V003"
    assert refusal(b"{}").code == "SNP-V002"
    assert refusal(b"[1, 2]").code == "SNP-V003"
    assert refusal(b'"plan"').code == "SNP-V003"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b" ",
        bytes(range(256)),
        b"\x1f\x8b\x08",
        b"\x08\x07pytorch",
        b'{"format": 1, "actions": [',
        b'{"format": NaN}',
        b'{"format":1,"options":' + b'{"a":' * 200_000,
        encode_plan(PLAN) + b"x",
        encode_plan(PLAN)[:-2],
    ],
)
def test_no_json(data: bytes) -> None:
    assert refusal(data).code == "SNP-V001"


def test_text_that_is_not_unicode() -> None:
    assert refusal(encode_plan(PLAN).replace(b"sample", b"sampl\xff")).exit_code == 6
    with pytest.raises(PlanError) as caught:
        encode_plan(changed(options={"name": "\ud800"}))
    assert caught.value.code == "SNP-V004"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_are_not_finite_are_not_written(number: float) -> None:
    ops = [{**row, "attrs": {"alpha": [0.5, {"deep": number}]}} for row in raw(PLAN)["ops"]]
    for plan in (changed(ops=ops), changed(device={"speed": number}), changed(options={"a": number})):
        with pytest.raises(PlanError) as caught:
            encode_plan(plan)
        assert caught.value.code == "SNP-V004"


def test_numbers_that_are_not_finite_are_not_read() -> None:
    data = encode_plan(changed(options={"a": 12345}))
    for number in (b"NaN", b"Infinity", b"1e999", b"-1e999"):
        assert refusal(data.replace(b"12345", number)).exit_code == 6


def test_large_whole_numbers_are_kept() -> None:
    assert decode_plan(encode_plan(changed(arena_bytes=1 << 62))).arena_bytes == 1 << 62


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_files_that_are_cut_off(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    write_plan(PLAN, path)
    data = path.read_bytes()
    # Ends are left alone: without its check sum a Zstandard file still has all of its text.
    for size in (*range(0, len(data) - 12, 97), len(data) - 12):
        path.write_bytes(data[:size])
        with pytest.raises(PlanError) as caught:
            read_plan(path)
        assert caught.value.code == "SNP-V001"
        assert str(path) in caught.value.message


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("data", [b"", b"no plan at all", bytes(range(256)) * 40])
def test_files_of_something_else(tmp_path: Path, suffix: str, data: bytes) -> None:
    path = tmp_path / f"p{suffix}"
    path.write_bytes(data)
    with pytest.raises(PlanError) as caught:
        read_plan(path)
    assert caught.value.code == "SNP-V001"


@pytest.mark.parametrize("suffix", SUFFIXES[1:])
def test_files_with_flipped_bits(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    write_plan(PLAN, path)
    data = path.read_bytes()
    rng = random.Random(1)
    for _ in range(40):
        at = rng.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :])
        with suppress(PlanError):
            assert read_plan(path) == PLAN  # a bit of the header that says nothing


def test_a_suffix_that_lies(tmp_path: Path) -> None:
    write_plan(PLAN, tmp_path / "p.json.gz")
    (tmp_path / "p.json").write_bytes((tmp_path / "p.json.gz").read_bytes())
    with pytest.raises(PlanError, match=r"suffix \.gz or \.zst"):
        read_plan(tmp_path / "p.json")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_more_json_than_a_plan_may_have(tmp_path: Path, suffix: str) -> None:
    data = b" " * 30_000_000  # shrinks a thousandfold
    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(COMPRESS[suffix](data))
    with pytest.raises(PlanError) as caught:
        read_plan(path, limit=1_000_000)
    assert caught.value.code == "SNP-V005"
    assert "1,000,000 bytes" in caught.value.message


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_limit_counts_json(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"p{suffix}"
    write_plan(PLAN, path)
    size = len(encode_plan(PLAN))
    assert read_plan(path, limit=size) == PLAN
    with pytest.raises(PlanError):
        read_plan(path, limit=size - 1)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.json", tmp_path, tmp_path / "no" / "folder.json"):
        with pytest.raises(UsageError) as caught:
            read_plan(path)
        assert caught.value.code == "SNP-U030"
        assert str(path) in caught.value.message


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path, tmp_path / "no" / "p.json", tmp_path / "file" / "p.json", tmp_path / ("n" * 300)):
        with pytest.raises(UsageError) as caught:
            write_plan(PLAN, path)
        assert caught.value.code == "SNP-U031"
        assert str(path) in caught.value.message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def failing(error: BaseException) -> Callable[[int], None]:
    """A stand-in for os.fsync."""

    def fail(handle: int) -> None:
        raise error

    return fail


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", failing(OSError(number, os.strerror(number))))
    with pytest.raises(RunError) as caught:
        write_plan(PLAN, path)
    assert caught.value.code == "SNP-R030"
    assert str(path) in caught.value.message
    assert os.strerror(number).lower() in caught.value.message
    assert [entry.read_bytes() for entry in tmp_path.iterdir()] == [b"old"]


def test_an_interrupt_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        write_plan(PLAN, tmp_path / "p.json")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_that_cannot_be_encoded_touches_no_file(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(b"old")
    with pytest.raises(PlanError):
        write_plan(changed(options={"a": float("nan")}), path)
    assert path.read_bytes() == b"old"


def test_the_file_is_whole_when_its_name_appears(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bool, bytes]] = []
    path = tmp_path / "p.json"
    replace = os.replace

    def watch(source: Path, target: Path) -> None:
        seen.append((path.exists(), Path(source).read_bytes()))
        replace(source, target)

    monkeypatch.setattr(os, "replace", watch)
    write_plan(PLAN, path)
    assert seen == [(False, encode_plan(PLAN))]


def test_links_are_followed_and_stay(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "real" / "p.json")
    write_plan(PLAN, link)
    assert link.is_symlink()
    assert read_plan(tmp_path / "real" / "p.json") == PLAN


def test_devices_are_written_to_and_stay() -> None:
    write_plan(PLAN, os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_new_files_have_ordinary_permissions(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(b"")
    write_plan(PLAN, tmp_path / "p.json")
    assert (tmp_path / "p.json").stat().st_mode == (tmp_path / "other").stat().st_mode
