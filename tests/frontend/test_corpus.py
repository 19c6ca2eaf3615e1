"""Real exports from many libraries: each is imported, or refused with one clear error."""

from __future__ import annotations

import csv
import tarfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from frontend_support import evaluate, weights_of

from snplan.errors import ExitCode, SnplanError
from snplan.frontend import import_model, load_model
from snplan.ir import Forward, problems

LEAST_IMPORTED = 200


@pytest.fixture(scope="module")
def corpus(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked corpus."""
    archive = shared / "corpus" / "open.tar.xz"
    if not archive.is_file():
        pytest.skip(f"no corpus at {archive}")
    folder = tmp_path_factory.mktemp("corpus")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return next(path.parent for path in sorted(folder.rglob("INDEX.csv")))


def bound(row: dict[str, str]) -> dict[str, int]:
    """A number for every dynamic dimension: 2 for a batch, 64 for an image side, else 16."""
    names = [name for name in row["dynamic_dims"].split(";") if name and name != "unranked"]
    batch, side = ("batch", "batch_size", "n", "b", "s77"), ("h", "w")
    return {n: 2 if n.lower() in batch else 64 if n in side or "*" in n or "Dynamic" in n else 16 for n in names}


def rows(folder: Path) -> list[dict[str, str]]:
    """The index of the models that are there."""
    with (folder / "INDEX.csv").open() as file:
        return [row for row in csv.DictReader(file) if (folder / row["file"]).is_file()]


def outcome(path: Path, dims: dict[str, int], mode: str) -> SnplanError | Forward:
    """What importing a model ends in."""
    try:
        return import_model(load_model(path), dims=dims, mode=mode)
    except SnplanError as error:
        return error


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["train", "infer"])
def test_every_model_is_imported_or_refused(corpus: Path, mode: str) -> None:
    outcomes: Counter[str] = Counter()
    for row in rows(corpus):
        found = outcome(corpus / row["file"], bound(row), mode)
        if isinstance(found, SnplanError):
            assert found.exit_code in (ExitCode.MODEL, ExitCode.USAGE), row["file"]
            assert len(found.message) < 6000, row["file"]
            outcomes[found.code] += 1
        else:
            assert problems(found.graph) == [], row["file"]
            outcomes["imported"] += 1
    assert outcomes["imported"] >= LEAST_IMPORTED, outcomes


@pytest.mark.slow
def test_numeric_cases_give_the_loss_that_pytorch_gives(corpus: Path) -> None:
    seen = 0
    for path in sorted(corpus.glob("num_*_lossin.onnx")):
        arrays = np.load(path.with_suffix(".npz"))
        loaded = load_model(path)
        forward = import_model(loaded)
        given = {name: arrays[f"in:{name}"] for name in forward.inputs if f"in:{name}" in arrays.files}
        given["target"] = arrays["target"]
        found = evaluate(forward, {**weights_of(loaded, forward), **given})
        np.testing.assert_allclose(found[forward.graph.outputs[0]], arrays["loss64"], rtol=1e-5)
        seen += 1
    assert seen


@pytest.mark.slow
def test_running_statistics_move_as_pytorchs_do_but_for_its_sample_variance(corpus: Path) -> None:
    """From mean 0 and variance 1 one step gives PyTorch's statistics, whose variance is n / (n - 1) times ONNX's.

    The statistics in these files are those after the step already: exporting a module in training mode runs it once.
    """
    seen = 0
    for path in sorted(corpus.glob("num_*.onnx")):
        loaded, arrays = load_model(path), np.load(path.with_suffix(".npz"))
        forward = import_model(loaded)
        stored = {**weights_of(loaded, forward), **{n: arrays[f"in:{n}"] for n in forward.inputs if n != "target"}}
        stored |= {"target": arrays["target"]} if "target" in forward.inputs else {}
        tensors = forward.graph.tensors
        count = {op.outputs[1]: tensors[op.inputs[0]] for op in forward.graph.ops if op.kind == "batch_norm_train"}
        updates = [op for op in forward.graph.ops if op.kind == "batch_norm_update"]
        fresh = {n: np.full_like(stored[n], k) for op in updates for k, n in enumerate(op.inputs[:2])}
        found = evaluate(forward, {**stored, **fresh})
        for op in updates:
            x = count[op.inputs[2]]
            n = x.spec.elements // x.shape[1]
            mean, var = (found[name].astype(np.float64) for name in op.outputs)
            wanted = [arrays[f"newstat64:{name}"] for name in op.inputs[:2]]
            assert np.linalg.norm(mean - wanted[0]) <= 1e-4 * np.linalg.norm(wanted[0]) + 1e-7
            np.testing.assert_allclose(0.9 + (var - 0.9) * n / (n - 1), wanted[1], rtol=1e-4)
            np.testing.assert_allclose(stored[op.inputs[1]], wanted[1], rtol=1e-5)
            seen += 1
    assert seen == 74
