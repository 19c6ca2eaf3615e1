"""Data of a run: NPZ files, and random inputs in ranges that the model can take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runtime_support import Draft, normal

from snplan.errors import RunError
from snplan.plan.index import PlanIndex, index_plan
from snplan.runtime.data import load_data, random_data


def _index(**inputs: tuple[str, tuple[int, ...]]) -> PlanIndex:
    """A plan that has inputs only."""
    d = Draft()
    for name, (dtype, shape) in inputs.items():
        d.source(name, *shape, role="input", dtype=dtype)
    return index_plan(d.plan())


def _saved(folder: Path, **arrays: Any) -> Path:
    path = folder / "data.npz"
    np.savez(path, **arrays)
    return path


def test_one_array_is_every_steps(tmp_path: Path) -> None:
    x = normal(2, 3)
    data = load_data(_index(x=("float32", (2, 3))), _saved(tmp_path, x=x))
    for step in (1, 2, 7):
        np.testing.assert_array_equal(data.step(step)["x"], x)


def test_a_leading_axis_is_one_entry_a_step(tmp_path: Path) -> None:
    x, target = normal(3, 2, 3), np.array([4, 5])
    data = load_data(_index(x=("float32", (2, 3)), target=("int64", (2,))), _saved(tmp_path, x=x, target=target))
    for step, entry in ((1, 0), (2, 1), (3, 2), (4, 0), (5, 1)):
        np.testing.assert_array_equal(data.step(step)["x"], x[entry])
        np.testing.assert_array_equal(data.step(step)["target"], target)


def test_scalars_may_be_stacked_too(tmp_path: Path) -> None:
    data = load_data(_index(t=("float32", ())), _saved(tmp_path, t=np.array([1, 2], np.float32)))
    assert [float(data.step(step)["t"]) for step in (1, 2, 3)] == [1.0, 2.0, 1.0]


def test_integers_are_converted_where_they_fit(tmp_path: Path) -> None:
    index = _index(ids=("int32", (2,)))
    assert load_data(index, _saved(tmp_path, ids=np.array([1, 2]))).step(1)["ids"].dtype == np.int32
    with pytest.raises(RunError, match="ids is int64 and may lose values as int32"):
        load_data(index, _saved(tmp_path, ids=np.array([1, 1 << 40])))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, r"there is no array for input x \(float32\[2, 3\]\)"),
        (
            {"x": normal(3, 2)},
            r"x must be float32\[2, 3\], or with a leading axis of one entry a step; it is float32\[3, 2\]",
        ),
        ({"x": normal(0, 2, 3)}, r"it is float32\[0, 2, 3\]"),
        ({"x": normal(2, 3).astype(np.float64)}, "x is float64 and may lose values as float32"),
        ({"x": normal(2, 3), "y": normal(1)}, "holds y, which is not an input of the model; its inputs are x"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(RunError, match=message) as caught:
        load_data(_index(x=("float32", (2, 3))), _saved(tmp_path, **arrays))
    assert caught.value.code == "SNP-R020"
    assert "data.npz" in caught.value.message


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 broken"])
def test_broken_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    with pytest.raises(RunError, match="cannot be read"):
        load_data(_index(x=("float32", (2, 3))), path)


def test_missing_files_single_arrays_and_objects(tmp_path: Path) -> None:
    index = _index(x=("float32", (2, 3)))
    with pytest.raises(RunError, match="cannot be read"):
        load_data(index, tmp_path / "none.npz")
    np.save(tmp_path / "one.npy", normal(2, 3))
    with pytest.raises(RunError, match="is one array; save arrays by input name"):
        load_data(index, tmp_path / "one.npy")
    np.savez(tmp_path / "objects.npz", x=np.array([{}, []], dtype=object))
    with pytest.raises(RunError, match="cannot be read"):
        load_data(index, tmp_path / "objects.npz")


def test_random_data_depends_on_the_seed_only() -> None:
    index = _index(a=("float32", (3, 4)), b=("float32", (3, 4)), c=("bool", (64,)), d=("bfloat16", (5,)))
    first, again, other = (random_data(index, seed=seed).step(1) for seed in (1, 1, 2))
    for name, array in first.items():
        np.testing.assert_array_equal(array, again[name])
        assert array.tobytes() != other[name].tobytes()
    assert not np.array_equal(first["a"], first["b"])
    assert 0 < first["c"].sum() < 64
    assert random_data(index, seed=1).step(9)["a"].tobytes() == first["a"].tobytes()


def _reader(kind: str, names: str, **attrs: Any) -> PlanIndex:
    """A plan whose int64 input `ids` [64] goes into one op of `kind`, directly and behind a cast."""
    d = Draft()
    d.source("ids", 64, role="input", dtype="int64")
    d.source("scores", 64, 10, role="parameter")
    d.tensor("cast", 64, dtype="int64")
    d.tensor("y", 64)
    d.op("cast", "cast", "ids", "cast", to="int64")
    d.op("op", kind, names, "y", **attrs)
    return index_plan(d.plan())


@pytest.mark.parametrize("name", ["ids", "cast"])
@pytest.mark.parametrize(
    ("kind", "inputs", "attrs", "bound"),
    [
        ("softmax_cross_entropy", "scores {}", {"axis": 1, "reduction": "mean"}, 10),
        ("nll_loss", "scores {}", {"axis": 1, "reduction": "mean"}, 10),
        ("gather", "scores {}", {"axis": 0}, 64),
        ("gather", "scores {}", {"axis": 1, "in_shapes": [[32, 20], None]}, 20),
        ("gather_elements", "scores {}", {"axis": 1}, 10),
        ("gather_nd", "scores {}", {"batch_dims": 0, "in_shapes": [[4, 16, 10], [32, 2]]}, 4),
        ("scatter_elements", "scores {} scores", {"axis": 1, "reduction": "none"}, 10),
        ("one_hot", "{} scores", {"axis": 1, "depth": 7}, 7),
        ("equal", "{}", {"scalar": 1}, 2),
    ],
)
def test_integers_are_drawn_below_what_their_readers_take(
    name: str, kind: str, inputs: str, attrs: dict[str, Any], bound: int
) -> None:
    ids = random_data(_reader(kind, inputs.format(name), **attrs), seed=3).step(1)["ids"]
    assert ids.dtype == np.int64
    assert ids.min() >= 0
    assert bound // 2 <= ids.max() < bound


def test_the_tightest_reader_counts() -> None:
    d = Draft()
    d.source("ids", 200, role="input", dtype="int64")
    for size in (50, 9):
        d.source(f"table{size}", size, 2, role="parameter")
        d.tensor(f"y{size}", 200, 2)
        d.op(f"gather{size}", "gather", f"table{size} ids", f"y{size}", axis=0)
    assert random_data(index_plan(d.plan()), seed=0).step(1)["ids"].max() == 8


def test_an_attribute_that_is_missing_is_named() -> None:
    with pytest.raises(RunError, match="attributes that gather cannot have") as caught:
        random_data(_reader("gather", "scores ids"), seed=0).step(1)
    assert caught.value.code == "SNP-R007"


def test_narrow_integers_stay_in_their_type() -> None:
    d = Draft()
    d.source("ids", 500, role="input", dtype="int8")
    d.source("table", 1000, role="parameter")
    d.tensor("y", 500)
    d.op("gather", "gather", "table ids", "y", axis=0)
    ids = random_data(index_plan(d.plan()), seed=0).step(1)["ids"]
    assert ids.min() >= 0
    assert ids.max() > 100
