"""Model files from anywhere: broken, hostile and odd ones end in one clear error."""

from __future__ import annotations

import hashlib
import os
import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from frontend_support import FLOAT, evaluate, imported, info, load, model, node, tensor
from onnx import AttributeProto, ModelProto, TensorProto, helper

from snplan.errors import ModelError, SnplanError, UsageError
from snplan.frontend import import_model, load_model, read_weights
from snplan.frontend.load import MOST_NODES


def mlp(*, ir: int = 8, weights_in_inputs: bool = False) -> ModelProto:
    """x[N, 4] -> Gemm -> Relu -> Gemm -> y[N, 2]."""
    rng = np.random.default_rng(0)
    stored = [
        tensor("w1", rng.standard_normal((4, 3))),
        tensor("b1", rng.standard_normal(3)),
        tensor("w2", rng.standard_normal((3, 2))),
    ]
    inputs = [info("x", ["N", 4])]
    if weights_in_inputs:
        inputs += [info(t.name, list(t.dims)) for t in stored]
    nodes = [
        node("Gemm", ["x", "w1", "b1"], ["h"], "first"),
        node("Relu", ["h"], ["r"], "middle"),
        node("Gemm", ["r", "w2"], ["y"], "last"),
    ]
    return model(nodes, inputs, ["y"], stored, ir=ir)


def code_of(source: Path | bytes) -> str:
    """The code of the error that loading ends in."""
    with pytest.raises(SnplanError) as caught:
        load_model(source)
    return caught.value.code


def test_a_model_is_known_by_the_hash_of_its_bytes_and_its_file_name(tmp_path: Path) -> None:
    data = mlp().SerializeToString()
    path = tmp_path / "mlp.onnx"
    path.write_bytes(data)
    loaded = load_model(path)
    assert loaded.sha256 == hashlib.sha256(data).hexdigest() == load_model(data).sha256
    assert loaded.name == "mlp.onnx"
    assert loaded.path == path


@pytest.mark.parametrize("data", [b"", b"\x00", b"hello world", b"\xff" * 100, b"PK\x03\x04" + bytes(50)])
def test_bytes_that_are_no_model(data: bytes) -> None:
    assert code_of(data) == "SNP-I001"


def test_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    assert code_of(path) == "SNP-I001"


def test_every_truncation_is_an_error() -> None:
    data = mlp().SerializeToString()
    for size in range(len(data) - 1):
        with pytest.raises(SnplanError):
            import_model(load_model(data[:size]), batch=2)


def test_random_damage_never_ends_in_anything_but_a_clear_error() -> None:
    data = mlp().SerializeToString()
    rng = random.Random(7)
    for _ in range(1500):
        damaged = bytearray(data)
        for _ in range(rng.choice((1, 2, 8))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with suppress(ModelError, UsageError):
            import_model(load_model(bytes(damaged)), batch=2)


def test_a_missing_file_a_folder_and_a_pipe_are_usage_errors(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (tmp_path / "none.onnx", tmp_path, pipe, Path("/dev/null"), Path("a\0b")):
        with pytest.raises(UsageError) as caught:
            load_model(path)
        assert caught.value.code == "SNP-U060"


def test_a_model_without_graph_or_outputs() -> None:
    assert code_of(ModelProto(ir_version=8).SerializeToString()) == "SNP-I001"
    assert code_of(model([], [], []).SerializeToString()) == "SNP-I002"


def test_two_graphs_in_one_file_are_refused() -> None:
    data = mlp().SerializeToString()
    assert code_of(data + data) == "SNP-I001"


@pytest.mark.parametrize(("ir", "opset"), [(2, 17), (0, 17), (8, 5), (8, 1)])
def test_versions_that_are_too_old(ir: int, opset: int) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [1])], ["y"], ir=ir, opset=opset)
    assert code_of(proto.SerializeToString()) == "SNP-I005"


def test_no_opset_import() -> None:
    proto = mlp()
    del proto.opset_import[:]
    assert code_of(proto.SerializeToString()) == "SNP-I005"


def test_one_domain_listed_twice_counts_as_the_higher_version() -> None:
    proto = model([node("Squeeze", ["x", "a"], ["y"])], [info("x", [1, 3])], ["y"], [tensor("a", [0], np.int64)])
    proto.opset_import.add(domain="", version=9)
    assert imported(proto).graph.tensors["y"].shape == (3,)


def test_names_that_are_no_text() -> None:
    data = mlp().SerializeToString().replace(b"middle", b"\xff\xfeddle")
    assert code_of(data) == "SNP-I001"


def test_too_many_nodes_are_refused_before_anything_is_built() -> None:
    empty_node = b"\x0a\x00"
    graph = empty_node * (MOST_NODES + 1)
    size = len(graph)
    length = bytes([size & 0x7F | 0x80, size >> 7 & 0x7F | 0x80, size >> 14])
    assert code_of(b"\x3a" + length + graph) == "SNP-I004"


def field(number: int, payload: bytes) -> bytes:
    """A length-delimited protobuf field."""
    size, length = len(payload), bytearray()
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + payload


def nested(depth: int) -> bytes:
    """A model of If nodes inside one another, as bytes (onnx's own classes refuse to build one)."""
    graph = field(1, field(1, b"x") + field(2, b"y") + field(4, b"Identity")) + field(12, field(1, b"y"))
    for _ in range(depth):
        branch = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01" + bytes([AttributeProto.GRAPH])
        graph = field(1, field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, branch) + field(5, other()))
        graph += field(12, field(1, b"y"))
    graph += field(11, info("x", [3]).SerializeToString()) + field(5, tensor("c", True, bool).SerializeToString())
    return b"\x08\x08" + field(7, graph) + field(8, field(1, b"") + b"\x10\x11")


def other() -> bytes:
    """An else branch that gives x."""
    leaf = helper.make_graph([node("Identity", ["x"], ["z"])], "leaf", [], [info("z", None)])
    return bytes(helper.make_attribute("else_branch", leaf).SerializeToString())


def test_nesting_up_to_protobufs_own_limit_is_read_and_more_is_an_error() -> None:
    assert import_model(load_model(nested(20))).graph.tensors["y"].shape == (3,)
    assert code_of(nested(60)) == "SNP-I001"
    assert code_of(nested(3000)) == "SNP-I001"


def test_large_weights_stay_out_of_the_message_and_are_read_from_the_file(tmp_path: Path) -> None:
    values = np.arange(2_000_000, dtype=np.float32).reshape(1000, 2000)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [1, 1000])], ["y"], [tensor("w", values)])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (path, path.read_bytes()):
        loaded = load_model(source)
        assert loaded.proto.ByteSize() < 1000
        assert loaded.raw["w"][1] == values.nbytes
        assert import_model(loaded).graph.tensors["w"].bytes == 8_000_000
        np.testing.assert_array_equal(read_weights(loaded, ["w"])["w"], values)


def test_initializers_listed_as_inputs_make_no_difference() -> None:
    old, new = imported(mlp(ir=3, weights_in_inputs=True), batch=5), imported(mlp(ir=8), batch=5)
    assert old == new
    assert old.inputs == ("x",)
    assert old.initializers == ("w1", "b1", "w2")


def test_weights_are_neither_read_nor_counted_twice_when_listed_as_inputs() -> None:
    proto = mlp(ir=3, weights_in_inputs=True)
    forward = imported(proto, batch=2, mode="infer")
    given = {**read_weights(load(proto), ["w1", "b1", "w2"]), "x": np.ones((2, 4), np.float32)}
    wanted = np.maximum(given["x"] @ given["w1"] + given["b1"], 0) @ given["w2"]
    np.testing.assert_allclose(evaluate(forward, given)["y"], wanted, rtol=1e-6)


def test_an_ir_3_model_whose_weight_is_not_an_input_is_read_all_the_same() -> None:
    assert imported(mlp(ir=3), batch=2).initializers == ("w1", "b1", "w2")


def test_a_dimension_of_2_to_the_62_and_a_negative_one() -> None:
    for shape in ([1 << 62], [1 << 31, 1 << 31, 4], [-5, 2]):
        proto = model([node("Relu", ["x"], ["y"])], [info("x", shape)], ["y"])
        with pytest.raises(ModelError) as caught:
            imported(proto)
        assert caught.value.code == "SNP-I013"


def test_an_initializer_with_an_absurd_shape() -> None:
    huge = TensorProto(name="w", data_type=FLOAT, dims=[1 << 40, 1 << 40])
    proto = model([node("Relu", ["w"], ["y"])], [], ["y"], [huge])
    with pytest.raises(ModelError) as caught:
        imported(proto)
    assert caught.value.code == "SNP-I013"


def test_more_than_2_to_the_31_elements_are_counted_exactly() -> None:
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [262144, 8960])], ["y"])
    assert imported(proto).graph.tensors["y"].bytes == 9_395_240_960
