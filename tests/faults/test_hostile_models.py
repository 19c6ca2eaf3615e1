"""Files made to break an importer: each ends in one line and the exit code of its kind, within bounds of memory."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from frontend_support import INT64, info, ints, model, node, tensor
from onnx import ModelProto, TensorProto, helper

MEMORY = 3 << 30
"""Bytes of address space: what Python, NumPy and a small plan need, and no more than that."""

STEERING = "\x1b[2J\nsnplan: all is well"


def chain(*names: str, shape: tuple[int, ...] = (2, 3), weight: TensorProto | None = None) -> ModelProto:
    """x @ w through Relu nodes that write `names`, and their sum as the loss."""
    nodes = [node("MatMul", ["x", "w"], ["first"], "product")]
    for before, name in zip(["first", *names], names, strict=False):
        nodes.append(node("Relu", [before], [name], name))
    nodes.append(node("ReduceSum", [names[-1] if names else "first"], ["loss"], "sum", keepdims=0))
    held = tensor("w", np.ones((3, 3))) if weight is None else weight
    return model(nodes, [info("x", [*shape])], ["loss"], [held])


def stored(dims: tuple[int, ...], kind: int = TensorProto.FLOAT, raw: bytes = bytes(36)) -> TensorProto:
    """A weight as a file says it, whether or not it fits together."""
    found = TensorProto(name="w", data_type=kind, raw_data=raw)
    found.dims.extend(dims)
    return found


def elsewhere(**entries: str) -> TensorProto:
    """A weight whose data is in another file."""
    found = TensorProto(name="w", data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    found.dims.extend((3, 3))
    for key, value in entries.items():
        found.external_data.add(key=key, value=value)
    return found


def one(op: str, inputs: list[str], constants: list[TensorProto], **attributes: Any) -> ModelProto:
    """One node between a product and the loss."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"], "product"),
        node(op, inputs, ["b"], "odd", **attributes),
        node("ReduceSum", ["b"], ["loss"], "sum", keepdims=0),
    ]
    return model(nodes, [info("x", [2, 3])], ["loss"], [tensor("w", np.ones((3, 3))), *constants])


def with_opset(version: int) -> ModelProto:
    """A model of an opset."""
    found = chain("a")
    found.opset_import[0].version = version
    return found


def field(tag: int, content: bytes) -> bytes:
    """A length-delimited field of the protobuf wire format."""
    size, length = len(content), b""
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([tag]) + length + bytes([size]) + content


def nested(depth: int) -> bytes:
    """If nodes inside one another, written byte by byte: the library's own writer would not go so deep."""
    y = info("y", [2, 3]).SerializeToString()
    leaf = helper.make_graph([node("Identity", ["x"], ["y"])], "g", [], [info("y", [2, 3])]).SerializeToString()
    inner = leaf
    for _ in range(depth):
        branches = [(b"then_branch", inner), (b"else_branch", leaf)]
        attributes = b"".join(
            field(0x2A, field(0x0A, name) + field(0x32, graph) + b"\xa0\x01\x05") for name, graph in branches
        )
        inner = field(0x0A, field(0x0A, b"c") + field(0x12, b"y") + field(0x22, b"If") + attributes) + field(0x62, y)
    condition = TensorProto(name="c", data_type=TensorProto.BOOL, raw_data=b"\x01").SerializeToString()
    graph = inner + field(0x5A, info("x", [2, 3]).SerializeToString()) + field(0x2A, condition)
    return b"\x08\x08" + field(0x3A, graph) + field(0x42, helper.make_opsetid("", 17).SerializeToString())


def loop(trips: int) -> ModelProto:
    """A loop of so many trips."""
    body = helper.make_graph(
        [node("Identity", ["go"], ["go2"]), node("Relu", ["v"], ["v2"])],
        "body",
        [info("i", [], INT64), info("go", [], TensorProto.BOOL), info("v", [2, 3])],
        [info("go2", [], TensorProto.BOOL), info("v2", [2, 3])],
    )
    return one("Loop", ["trips", "", "a"], [tensor("trips", trips, np.int64)], body=body)


def bomb(levels: int) -> ModelProto:
    """Functions that each call the one before twice."""
    functions = []
    for level in range(levels):
        name, domain = (f"f{level - 1}", "f") if level else ("Relu", "")
        nodes = [helper.make_node(name, [a], [b], domain=domain) for a, b in (("x", "h"), ("h", "y"))]
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
        functions.append(helper.make_function("f", f"f{level}", ["x"], ["y"], nodes, opsets))
    found = one("Identity", ["a"], [])
    found.functions.extend(functions)
    found.opset_import.append(helper.make_opsetid("f", 1))
    found.graph.node[1].CopyFrom(helper.make_node(f"f{levels - 1}", ["a"], ["b"], domain="f"))
    return found


MODELS: dict[str, tuple[ModelProto | bytes, str]] = {
    "names that steer": (chain(STEERING, "../../etc/passwd", "/dev/null", "\u202ertl", "%s%n", "n" * 10_000), ""),
    "an operator that steers": (one(f"No{STEERING}", ["a"], []), "SNP-I014"),
    "a cycle of one": (model([node("Add", ["x", "y"], ["y"])], [info("x", [2])], ["y"]), "SNP-I009"),
    "one output twice": (one("Split", ["a"], []), ""),
    "opset 10^9": (with_opset(10**9), ""),
    "opset 0": (with_opset(0), "SNP-I005"),
    "opset -5": (with_opset(-5), "SNP-I005"),
    "no rows": (chain("a", shape=(0, 3)), ""),
    "more than 2^63 elements": (chain("a", shape=(2**40, 2**40, 3)), "SNP-I013"),
    "a negative dimension": (chain("a", shape=(-2, 3)), "SNP-I013"),
    "100,000 dimensions": (chain("a", shape=(*(1,) * 100_000, 3)), "SNP-I013"),
    "65 dimensions, made by a node": (one("Reshape", ["a", "s"], [ints("s", 2, 3, *[1] * 63)]), "SNP-I013"),
    "a weight of no known type": (chain("a", weight=stored((3, 3), kind=99)), "SNP-I014"),
    "a weight of negative size": (chain("a", weight=stored((-3, 3))), "SNP-I013"),
    "an expansion past all memory": (one("Expand", ["a", "s"], [ints("s", 2**31, 2**31, 2, 3)]), "SNP-I016"),
    "a tile past all memory": (one("Tile", ["a", "s"], [ints("s", 2**62, 2**62)]), "SNP-I013"),
    "pads past all memory": (one("Pad", ["a", "s"], [ints("s", *[2**62] * 4)]), "SNP-I013"),
    "a permutation of 10^6 axes": (one("Transpose", ["a"], [], perm=[0] * 10**6), "SNP-I016"),
    "a loop of 10^9 trips": (loop(10**9), "SNP-I014"),
    "functions that double 40 times": (bomb(40), "SNP-I004"),
    "one operand 20,000 times": (one("Sum", ["a"] * 20_000, []), ""),
    "30 subgraphs deep": (nested(30), ""),
    "10^4 subgraphs deep": (nested(10_000), "SNP-I001"),
    "a declared length of 2 GiB": (b"\x3a\xff\xff\xff\xff\x07" + bytes(100), "SNP-I001"),
    "a declared length past 2^64": (b"\x3a" + b"\xff" * 9 + b"\x7f" + bytes(100), "SNP-I001"),
    "data in a pipe": (chain("a", weight=elsewhere(location="pipe")), "SNP-I006"),
    "data in a device": (chain("a", weight=elsewhere(location="device")), "SNP-I006"),
    "data in a link that leads out": (chain("a", weight=elsewhere(location="link")), "SNP-I006"),
    "data in a folder": (chain("a", weight=elsewhere(location="folder")), "SNP-I006"),
    "data behind a name with NUL": (chain("a", weight=elsewhere(location="a\x00b")), "SNP-I006"),
    "data behind a name of 5,000": (chain("a", weight=elsewhere(location="d" * 5000)), "SNP-I007"),
    "data behind a name that steers": (chain("a", weight=elsewhere(location=STEERING)), "SNP-I007"),
    "data at -4": (chain("a", weight=elsewhere(location="data", offset="-4")), "SNP-I007"),
    "data at 10^23": (chain("a", weight=elsewhere(location="data", offset="9" * 23)), "SNP-I007"),
    "data of 2^63 bytes": (chain("a", weight=elsewhere(location="data", length=str(2**63))), "SNP-I007"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files that no data should be read from."""
    place = tmp_path_factory.mktemp("hostile")
    (place / "data").write_bytes(bytes(36))
    (place / "folder").mkdir()
    os.mkfifo(place / "pipe")
    (place / "device").symlink_to("/dev/zero")
    (place / "link").symlink_to("/etc/hostname")
    return place


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def compiled(folder: Path, path: Path) -> subprocess.CompletedProcess[str]:
    """`snplan compile` in a process of its own that may not grow."""
    words = ["compile", str(path), "--gpu-mem", "1G", "--reserve", "0", "-q", "-o", str(folder / "p.plan.json")]
    return subprocess.run(
        [sys.executable, "-m", "snplan", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
        preexec_fn=limited,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )


@pytest.mark.parametrize("name", MODELS)
def test_hostile_files(name: str, folder: Path) -> None:
    content, code = MODELS[name]
    path = folder / "m.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    done = compiled(folder, path)
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr
    assert done.stdout == ""
    if code:
        assert done.returncode == 3, done.stderr[:500]
        assert done.stderr.startswith(f"snplan: {code}: ")
        assert done.stderr.count("\n") == 1
        assert len(done.stderr) < 9000
    else:
        assert done.returncode == 0, done.stderr[:500]


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)])
def test_models_that_are_no_file(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "m.onnx")
    done = compiled(tmp_path, tmp_path / "m.onnx")
    assert done.returncode == 2
    assert done.stderr.startswith("snplan: SNP-U010: ")
    assert done.stderr.count("\n") == 1


def test_a_weight_with_too_few_bytes_is_found_when_it_is_read(tmp_path: Path) -> None:
    """Planning reads no weights; a run does."""
    path = tmp_path / "m.onnx"
    path.write_bytes(chain("a", weight=stored((3, 3), raw=bytes(10))).SerializeToString())
    assert compiled(tmp_path, path).returncode == 0
    words = [sys.executable, "-m", "snplan", "run", str(tmp_path / "p.plan.json"), "-q"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("snplan: SNP-I020: ")
    assert "stores 10 bytes, its shape [3, 3] needs 36" in done.stderr
