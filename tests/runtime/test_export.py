"""Trained weights back in the model: by the session, by the command, from every place where weights may be."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from snplan import models
from snplan.cli import main
from snplan.compiler import CompileOptions, compile_model
from snplan.errors import RunError
from snplan.frontend import export_model, load_model, read_weights
from snplan.plan.file import write_plan
from snplan.plan.index import index_plan
from snplan.plan.model import StepPlan
from snplan.runtime.data import random_data
from snplan.runtime.session import TrainingSession
from snplan.runtime.values import sources


def plan_of(path: Path, **options: Any) -> StepPlan:
    """A roomy plan."""
    return compile_model(path, CompileOptions(budget_bytes=1 << 30, reserve_bytes=0, **options)).plan


def weights_of(path: Path, plan: StepPlan) -> dict[str, Any]:
    """What a session starts from."""
    held = sources(index_plan(plan), inputs=False)
    return read_weights(load_model(path), [row.name for row in held if row.role != "optimizer"])


def stored(path: Path) -> dict[str, Any]:
    """The initializers in a file, external data too."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}


def session_of(path: Path, **options: Any) -> TrainingSession:
    """A session on the NumPy backend."""
    plan = plan_of(path, **options)
    return TrainingSession(plan, weights_of(path, plan))


@pytest.fixture
def net(tmp_path: Path) -> Path:
    """A small net with batch normalisation: running statistics are trained too."""
    path = tmp_path / "net.onnx"
    given: dict[str, Any] = {"blocks": (1, 1, 1, 1), "image": 32, "width": 0.1, "classes": 7}
    models.save(models.build("resnet", batch=4, **given), path)
    return path


def test_exported_weights_are_the_sessions(net: Path, tmp_path: Path) -> None:
    """Every parameter and running statistic, and nothing else, is another; graph and names stay."""
    target = tmp_path / "trained.onnx"
    with session_of(net, optimizer="momentum") as session:
        feed = random_data(session.index, seed=1)
        for number in range(1, 3):
            session.step(feed.step(number))
        session.export_onnx(net, target)
        state, trained = session.state(), session.trained()
    before, after = stored(net), stored(target)
    assert list(before) == list(after)
    assert set(trained) == {name for name in state if not name.endswith(":momentum")}
    assert any(name.endswith("running_var") for name in trained)
    for name, value in after.items():
        np.testing.assert_array_equal(value, state[name] if name in trained else before[name])
    assert all((after[name] != before[name]).any() for name in trained)
    old, new = onnx.load(net), onnx.load(target)
    for model in (old, new):
        del model.graph.initializer[:]
    assert old == new
    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_training_goes_on_from_the_exported_model(net: Path, tmp_path: Path) -> None:
    """A third step from the file gives the loss that it gives in the session (SGD keeps nothing else)."""
    target = tmp_path / "trained.onnx"
    with session_of(net, optimizer="sgd") as session:
        feed = random_data(session.index, seed=1)
        for number in range(1, 3):
            session.step(feed.step(number))
        session.export_onnx(net, target)
        third = session.step(feed.step(3))
    with session_of(target, optimizer="sgd") as again:
        assert again.step(feed.step(3)) == third


def test_other_programs_read_it(tmp_path: Path) -> None:
    """What ONNX Runtime computes from the file is what the new weights say."""
    path, target = tmp_path / "mlp.onnx", tmp_path / "trained.onnx"
    models.save(models.build("mlp", batch=3), path)
    with session_of(path, optimizer="sgd") as session:
        feed = random_data(session.index, seed=1).step(1)
        session.step(feed)
        session.export_onnx(path, target)
    inputs = {name: value for name, value in feed.items() if name != "target"}
    (old,), (new,) = (
        onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, inputs)
        for file in (path, target)
    )
    assert old.shape == new.shape
    assert np.abs(old - new).max() > 0


def test_another_model_is_refused(net: Path, tmp_path: Path) -> None:
    """The names would fit, the values would not."""
    other = tmp_path / "other.onnx"
    model = onnx.load(net)
    model.doc_string = "another"
    onnx.save(model, other)
    with session_of(net) as session, pytest.raises(RunError, match="give that one") as caught:
        session.export_onnx(other, tmp_path / "out.onnx")
    assert caught.value.code == "SNP-R022"
    assert not (tmp_path / "out.onnx").exists()


def test_a_folder_that_is_not_there(net: Path, tmp_path: Path) -> None:
    with session_of(net) as session, pytest.raises(RunError, match="cannot be written") as caught:
        session.export_onnx(net, tmp_path / "missing" / "out.onnx")
    assert caught.value.code == "SNP-R030"


def matrix_model(tensors: list[TensorProto], nodes: list[Any]) -> onnx.ModelProto:
    """y = x @ w + c."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])
    body = [*nodes, helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "c"], ["y"])]
    graph = helper.make_graph(body, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_stand_ins_for_weights(tmp_path: Path) -> None:
    """A ConstantOfShape that stood for a stripped weight is an initializer afterwards; its shape may stay."""
    shape = numpy_helper.from_array(np.array([3, 4]), "shape")
    c = numpy_helper.from_array(np.ones(4, np.float32), "c")
    fill = numpy_helper.from_array(np.full(1, 0.5, np.float32), "value")
    node = helper.make_node("ConstantOfShape", ["shape"], ["w"], value=fill)
    path, target = tmp_path / "m.onnx", tmp_path / "t.onnx"
    onnx.save(matrix_model([shape, c], [node]), path)
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    export_model(load_model(path), {"w": w}, target)
    np.testing.assert_array_equal(stored(target)["w"], w)
    np.testing.assert_array_equal(stored(target)["c"], np.ones(4, np.float32))
    assert [node.op_type for node in onnx.load(target).graph.node] == ["MatMul", "Add"]
    onnx.checker.check_model(onnx.load(target))


def test_external_data(tmp_path: Path) -> None:
    """What stays is brought in; the old data file is not touched."""
    tensors = [
        numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(3, 4), "w"),
        numpy_helper.from_array(np.arange(4, dtype=np.float32), "c"),
    ]
    path, target = tmp_path / "m.onnx", tmp_path / "t.onnx"
    onnx.save(matrix_model(tensors, []), path, save_as_external_data=True, location="m.data", size_threshold=0)
    before = hashlib.sha256((tmp_path / "m.data").read_bytes()).digest()
    export_model(load_model(path), {"w": np.ones((3, 4), np.float32)}, target)
    (tmp_path / "m.data").rename(tmp_path / "moved")
    np.testing.assert_array_equal(stored(target)["w"], np.ones((3, 4)))
    np.testing.assert_array_equal(stored(target)["c"], np.arange(4))
    assert hashlib.sha256((tmp_path / "moved").read_bytes()).digest() == before


def test_large_weights_and_other_fields(tmp_path: Path) -> None:
    """Raw data that loading leaves in the file; values in typed fields, replaced and kept; a Constant node's tensor."""
    big = np.random.default_rng(0).standard_normal((1 << 21,)).astype(np.float32)
    kept = numpy_helper.from_array(big, "unused")
    w = helper.make_tensor("w", TensorProto.FLOAT, [3, 4], [1.0] * 12)
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.full(4, 2.0, np.float32), "c"))
    path, target = tmp_path / "m.onnx", tmp_path / "t.onnx"
    onnx.save(matrix_model([kept, w], [constant]), path)
    loaded = load_model(path)
    assert "unused" in loaded.raw
    export_model(loaded, {"w": np.full((3, 4), 3.0, np.float32), "c": np.full(4, 5.0, np.float32)}, target)
    np.testing.assert_array_equal(stored(target)["unused"], big)
    np.testing.assert_array_equal(stored(target)["w"], np.full((3, 4), 3.0))
    (node,) = [node for node in onnx.load(target).graph.node if node.op_type == "Constant"]
    np.testing.assert_array_equal(numpy_helper.to_array(node.attribute[0].t), np.full(4, 5.0))


def test_command(net: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`snplan run --export` writes what `--save-state` writes too; the model that is read is never replaced."""
    plan, target, state = tmp_path / "p.plan.json", tmp_path / "t.onnx", tmp_path / "s.npz"
    write_plan(plan_of(net, optimizer="sgd"), plan)
    assert main(["run", str(plan), "--steps", "2", "--export", str(target), "--save-state", str(state), "-q"]) == 0
    after = stored(target)
    with np.load(state) as saved:
        for name in saved.files:
            np.testing.assert_array_equal(after[name], saved[name])
    assert main(["run", str(plan), "--export", str(net), "-q"]) == 2
    assert "replace" in capsys.readouterr().err
