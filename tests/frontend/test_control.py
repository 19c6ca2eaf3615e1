"""If, Loop, Scan, sequences and functions: expanded while a graph is lowered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from frontend_support import (
    BOOL,
    FLOAT,
    INT64,
    assert_same_as_ort,
    imported,
    info,
    ints,
    kinds,
    model,
    node,
    run,
    shapes,
    tensor,
)
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from snplan.errors import ModelError
from snplan.frontend.values import Scope
from snplan.frontend.walk import Walker


def body(
    nodes: Sequence[NodeProto],
    inputs: Sequence[ValueInfoProto],
    outputs: Sequence[str],
    stored: Sequence[TensorProto] = (),
) -> GraphProto:
    """A subgraph; outputs whose names start with "go" are conditions."""
    declared = [info(name, None, BOOL if name.startswith("go") else FLOAT) for name in outputs]
    return helper.make_graph(list(nodes), "b", list(inputs), declared, list(stored))


def branches(condition: TensorProto | None, *, empty_else: bool = False) -> ModelProto:
    """y = exp(x) if c else -x (or x)."""
    then = body([node("Exp", ["x"], ["t"])], [], ["t"])
    other = body([], [], ["x"]) if empty_else else body([node("Neg", ["x"], ["e"])], [], ["e"])
    nodes = [node("If", ["c"], ["r"], "if", then_branch=then, else_branch=other), node("Relu", ["r"], ["y"])]
    inputs = [info("x", [3])] + ([] if condition is not None else [info("c", [], BOOL)])
    return model(nodes, inputs, ["y"], [condition] if condition is not None else [])


def test_a_known_condition_takes_its_branch() -> None:
    assert kinds(imported(branches(tensor("c", True, np.bool_)))) == ["exp", "relu"]
    assert kinds(imported(branches(tensor("c", False, np.bool_)))) == ["neg", "relu"]


def test_a_branch_that_gives_an_outer_value_is_an_alias() -> None:
    forward = imported(branches(tensor("c", False, np.bool_), empty_else=True))
    assert kinds(forward) == ["relu"]
    assert forward.graph.ops[0].inputs == ("x",)


def test_an_unknown_condition_runs_both_branches_and_says_so() -> None:
    proto = branches(None)
    forward = imported(proto)
    assert kinds(forward) == ["exp", "neg", "where", "relu"]
    assert "both branches" in forward.warnings[0]
    for condition in (True, False):
        assert_same_as_ort(proto, {"x": np.array([-1, 0.5, 2], np.float32), "c": np.array(condition)})


def test_branches_of_different_shapes_need_a_known_condition() -> None:
    then = body([node("ReduceSum", ["x"], ["t"])], [], ["t"])
    other = body([node("Neg", ["x"], ["e"])], [], ["e"])
    proto = model(
        [node("If", ["c"], ["y"], then_branch=then, else_branch=other)], [info("x", [3]), info("c", [], BOOL)], ["y"]
    )
    with pytest.raises(ModelError, match="different shapes"):
        imported(proto)


def counting(trips: TensorProto | None, nodes: Sequence[NodeProto], **more: Any) -> ModelProto:
    """z = Loop(x) + b, where the body's carried input is called b as an outer value is."""
    inside = body(nodes, [info("i", [], INT64), info("go", [], BOOL), info("b", [1])], ["go2", "b2"])
    start = [node("Loop", ["m", "", "x"], ["out"], "loop", body=inside), node("Add", ["out", "b"], ["z"])]
    inputs = [info("x", [1]), info("b", [1])] + ([] if trips is not None else [info("m", [], INT64)])
    stored = [tensor("one", [1.0])] + ([trips] if trips is not None else [])
    return model(start, inputs, ["z"], stored, **more)


STEP = [node("Identity", ["go"], ["go2"]), node("Add", ["b", "one"], ["b2"])]


def test_a_loop_whose_carried_name_shadows_an_outer_one() -> None:
    proto = counting(tensor("m", 3, np.int64), STEP)
    ten = np.array([10], np.float32)
    assert kinds(imported(proto)) == ["add"] * 4
    np.testing.assert_array_equal(run(proto, {"x": ten, "b": ten})["z"], [23])
    assert_same_as_ort(proto, {"x": ten, "b": ten})


def test_a_loop_reads_outer_values_and_gives_each_iteration_a_tensor_of_its_own() -> None:
    forward = imported(counting(tensor("m", 3, np.int64), STEP))
    assert len({op.outputs for op in forward.graph.ops}) == 4
    assert [op.inputs[1] for op in forward.graph.ops[:3]] == ["one"] * 3


def test_a_trip_count_that_is_an_input_is_refused() -> None:
    with pytest.raises(ModelError, match="trip count is computed from data"):
        imported(counting(None, STEP))


def test_a_condition_that_depends_on_data_is_refused() -> None:
    stops = [node("Less", ["b", "one"], ["small"]), node("Squeeze", ["small"], ["go2"]), STEP[1]]
    with pytest.raises(ModelError, match="condition depends on data"):
        imported(counting(tensor("m", 3, np.int64), stops))


def test_a_condition_on_the_trip_number_ends_the_loop() -> None:
    stops = [node("Less", ["i", "one_i"], ["go2"]), STEP[1]]
    proto = counting(tensor("m", 9, np.int64), stops)
    proto.graph.initializer.append(tensor("one_i", 1, np.int64))
    assert kinds(imported(proto)) == ["add"] * 3
    ten = np.array([10], np.float32)
    assert_same_as_ort(proto, {"x": ten, "b": ten})


def test_a_loop_that_never_ends_is_refused_in_time() -> None:
    proto = counting(tensor("m", 1 << 40, np.int64), STEP)
    with pytest.raises(ModelError, match="more than 1024 times"):
        imported(proto)


def test_scan_outputs_of_a_loop_are_stacked() -> None:
    inside = body(
        [node("Identity", ["go"], ["go2"]), node("Mul", ["a", "two"], ["a2"]), node("Neg", ["a2"], ["s"])],
        [info("i", [], INT64), info("go", [], BOOL), info("a", [2])],
        ["go2", "a2", "s"],
    )
    proto = model(
        [node("Loop", ["m", "", "x"], ["last", "all"], body=inside)],
        [info("x", [2])],
        ["last", "all"],
        [tensor("m", 3, np.int64), tensor("two", 2.0)],
    )
    assert imported(proto, mode="infer").graph.tensors["all"].shape == (3, 2)
    assert_same_as_ort(proto, {"x": np.array([1, -2], np.float32)})


def test_nested_loops() -> None:
    inner = body(STEP, [info("j", [], INT64), info("go", [], BOOL), info("b", [1])], ["go2", "b2"])
    outer = body(
        [node("Identity", ["go"], ["go3"]), node("Loop", ["m", "", "b"], ["b3"], body=inner)],
        [info("i", [], INT64), info("go", [], BOOL), info("b", [1])],
        ["go3", "b3"],
    )
    stored = [tensor("m", 3, np.int64), tensor("one", [1.0])]
    proto = model([node("Loop", ["m", "", "x"], ["y"], body=outer)], [info("x", [1])], ["y"], stored)
    np.testing.assert_array_equal(run(proto, {"x": np.zeros(1, np.float32)})["y"], [9])


def test_scan_goes_over_the_first_axis() -> None:
    inside = body(
        [node("Add", ["s", "e"], ["s2"]), node("Mul", ["s2", "e"], ["o"])],
        [info("s", [2]), info("e", [2])],
        ["s2", "o"],
    )
    nodes = [node("Scan", ["start", "x"], ["end", "all"], body=inside, num_scan_inputs=1)]
    proto = model(nodes, [info("start", [2]), info("x", [4, 2])], ["end", "all"])
    rng = np.random.default_rng(0)
    feeds = {"start": rng.random(2, np.float32), "x": rng.random((4, 2), np.float32)}
    assert_same_as_ort(proto, feeds)


def test_a_list_of_chunks_with_known_positions_is_a_split() -> None:
    nodes = [
        node("SplitToSequence", ["x", "sizes"], ["s"], axis=0),
        node("SequenceAt", ["s", "one"], ["y"]),
    ]
    proto = model(nodes, [info("x", [4, 2])], ["y"], [ints("sizes", 1, 3), tensor("one", 1, np.int64)])
    forward = imported(proto)
    assert kinds(forward) == ["split"]
    assert forward.graph.tensors["y"].shape == (3, 2)
    assert_same_as_ort(proto, {"x": np.arange(8, dtype=np.float32).reshape(4, 2)})


@pytest.mark.parametrize("keepdims", [0, 1])
def test_unbind(keepdims: int) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["s"], axis=1, keepdims=keepdims),
        node("SequenceAt", ["s", "last"], ["y"]),
    ]
    proto = model(nodes, [info("x", [2, 3])], ["y"], [tensor("last", -1, np.int64)])
    assert imported(proto).graph.tensors["y"].shape == ((2, 1) if keepdims else (2,))


def test_a_sequence_of_a_million_million_parts_is_refused() -> None:
    nodes = [node("SplitToSequence", ["x"], ["s"]), node("SequenceAt", ["s", "zero"], ["y"])]
    with pytest.raises(ModelError, match="more than 4,096 parts"):
        imported(model(nodes, [info("x", [10**12])], ["y"], [tensor("zero", 0, np.int64)]))


def test_sequences_made_by_hand() -> None:
    nodes = [
        node("SequenceConstruct", ["a", "b"], ["s1"]),
        node("SequenceInsert", ["s1", "a", "zero"], ["s2"]),
        node("SequenceErase", ["s2"], ["s3"]),
        node("SequenceLength", ["s2"], ["n"]),
        node("ConcatFromSequence", ["s2"], ["flat"], axis=0),
        node("ConcatFromSequence", ["s3"], ["deep"], axis=0, new_axis=1),
        node("Identity", ["s2"], ["s4"]),
        node("SequenceAt", ["s4", "two"], ["third"]),
    ]
    stored = [tensor("zero", 0, np.int64), tensor("two", 2, np.int64)]
    outputs: list[ValueInfoProto | str] = ["flat", "deep", "third", info("n", [], INT64)]
    proto = model(nodes, [info("a", [2]), info("b", [2])], outputs, stored)
    assert shapes(imported(proto, mode="infer"), ["flat", "deep", "third"]) == [(6,), (2, 2), (2,)]
    assert_same_as_ort(proto, {"a": np.array([1, 2], np.float32), "b": np.array([3, 4], np.float32)})


def test_a_position_computed_from_data_is_refused_with_the_node_named() -> None:
    nodes = [node("SplitToSequence", ["x"], ["s"], "split"), node("SequenceAt", ["s", "i"], ["y"], "at")]
    with pytest.raises(ModelError, match=r"SequenceAt 'at' \(the position is computed from data\)"):
        imported(model(nodes, [info("x", [2, 3]), info("i", [], INT64)], ["y"]))


def function(
    name: str, inputs: Sequence[str], outputs: Sequence[str], nodes: Sequence[NodeProto], **more: Any
) -> FunctionProto:
    """A model-local function of domain "f"."""
    imports = more.pop("imports", [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)])
    return helper.make_function("f", name, inputs, outputs, nodes, imports, **more)


def call(name: str, inputs: Sequence[str], outputs: Sequence[str], label: str, **attributes: Any) -> NodeProto:
    """A call of a function."""
    return helper.make_node(name, inputs, outputs, label, domain="f", **attributes)


def nested_functions() -> ModelProto:
    """g calls f twice; f is x -> relu(x @ w), with two shapes of w."""
    f = function("f", ["x", "w"], ["y"], [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["y"])])
    g = function("g", ["x", "a", "b"], ["y"], [call("f", ["x", "a"], ["h"], "c1"), call("f", ["h", "b"], ["y"], "c2")])
    stored = [tensor("a", np.ones((4, 8))), tensor("b", np.ones((8, 3)))]
    return model(
        [call("g", ["x", "a", "b"], ["y"], "call")],
        [info("x", [2, 4])],
        ["y"],
        stored,
        functions=[f, g],
        domains={"f": 1},
    )


def test_a_function_called_twice_has_tensors_of_its_own_each_time() -> None:
    forward = imported(nested_functions())
    nodes = [
        node("MatMul", ["x", "a"], ["h1"]),
        node("Relu", ["h1"], ["h2"]),
        node("MatMul", ["h2", "b"], ["h3"]),
        node("Relu", ["h3"], ["y"]),
    ]
    stored = [tensor("a", np.ones((4, 8))), tensor("b", np.ones((8, 3)))]
    by_hand = imported(model(nodes, [info("x", [2, 4])], ["y"], stored))
    assert [(op.kind, op.attrs) for op in forward.graph.ops] == [(op.kind, op.attrs) for op in by_hand.graph.ops]
    sizes = [[t.spec for n, t in f.graph.tensors.items() if n not in f.graph.sources] for f in (forward, by_hand)]
    assert sizes[0] == sizes[1]
    assert len({op.name for op in forward.graph.ops}) == 4


def test_a_function_without_an_opset_import_for_a_domain_it_uses() -> None:
    f = function("f", ["x"], ["y"], [helper.make_node("Other", ["x"], ["y"], domain="elsewhere")])
    with pytest.raises(ModelError) as caught:
        imported(model([call("f", ["x"], ["y"], "c")], [info("x", [2])], ["y"], functions=[f], domains={"f": 1}))
    assert caught.value.code == "SNP-I017"
    assert "f::f" in caught.value.message
    assert "elsewhere" in caught.value.message


def test_a_call_into_a_domain_that_the_model_does_not_import() -> None:
    with pytest.raises(ModelError) as caught:
        imported(model([call("f", ["x"], ["y"], "c")], [info("x", [2])], ["y"]))
    assert caught.value.code == "SNP-I017"
    assert "'f'" in caught.value.message


def test_a_function_that_calls_itself() -> None:
    f = function("f", ["x"], ["y"], [call("g", ["x"], ["y"], "c")])
    g = function("g", ["x"], ["y"], [call("f", ["x"], ["y"], "c")])
    with pytest.raises(ModelError) as caught:
        imported(model([call("f", ["x"], ["y"], "c")], [info("x", [2])], ["y"], functions=[f, g], domains={"f": 1}))
    assert caught.value.code == "SNP-I017"


def test_functions_that_double_at_every_level_are_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snplan.frontend.context.MOST_OPS", 1000)
    leaf = function("f0", ["x"], ["y"], [node("Relu", ["x"], ["y"])])
    more = [
        function(f"f{i}", ["x"], ["y"], [call(f"f{i - 1}", ["x"], ["h"], "a"), call(f"f{i - 1}", ["h"], ["y"], "b")])
        for i in range(1, 12)
    ]
    proto = model([call("f11", ["x"], ["y"], "c")], [info("x", [1])], ["y"], functions=[leaf, *more], domains={"f": 1})
    with pytest.raises(ModelError) as caught:
        imported(proto)
    assert caught.value.code == "SNP-I004"


def test_loops_whose_bodies_only_fold_are_stopped_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snplan.frontend.walk.MOST_WALKED", 5000)
    inside = body(STEP, [info("i", [], INT64), info("go", [], BOOL), info("b", [1])], ["go2", "b2"])
    around = body(
        [node("Identity", ["go"], ["go3"]), node("Loop", ["m", "", "b"], ["b3"], body=inside)],
        [info("i", [], INT64), info("go", [], BOOL), info("b", [1])],
        ["go3", "b3"],
    )
    nodes = [
        node("Constant", [], ["one"], value=tensor("", [1.0])),
        node("Constant", [], ["x"], value=tensor("", [1.0])),
        node("Loop", ["m", "", "x"], ["y"], body=around),
    ]
    with pytest.raises(ModelError) as caught:
        imported(model(nodes, [], ["y"], [tensor("m", 1000, np.int64)]))
    assert caught.value.code == "SNP-I004"


def nested_loops(depth: int, trips: int, first: Sequence[NodeProto] = ()) -> ModelProto:
    """Loops inside one another, each of so many trips; the innermost one adds 1."""
    carried = [info("i", [], INT64), info("go", [], BOOL), info("b", [1])]
    inside = body(STEP, carried, ["go2", "b2"])
    for _ in range(depth - 1):
        around = [node("Identity", ["go"], ["go2"]), node("Loop", ["m", "", "b"], ["b2"], "in", body=inside)]
        inside = body(around, carried, ["go2", "b2"])
    nodes = [*first, node("Loop", ["m", "", "x"], ["y"], "out", body=inside)]
    return model(nodes, [info("x", [1])], ["y"], [tensor("m", trips, np.int64), tensor("one", [1.0])])


@pytest.mark.parametrize(("depth", "trips"), [(2, 1000), (3, 100), (24, 2)])
def test_nested_loops_are_refused_before_they_are_unrolled(
    depth: int, trips: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    walk = Walker.node

    def counted(self: Walker, proto: NodeProto, scope: Scope, index: int) -> None:
        seen.append(proto.op_type)
        walk(self, proto, scope, index)

    monkeypatch.setattr(Walker, "node", counted)
    with pytest.raises(ModelError, match=r"node 'out.*': with .* trips of this loop, loops are unrolled to") as caught:
        imported(nested_loops(depth, trips))
    assert caught.value.code == "SNP-I004"
    assert len(seen) < 70_000


def test_loops_one_after_another_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snplan.frontend.walk.MOST_UNROLLED", 100)
    once = nested_loops(1, 20)
    assert len(imported(once).graph.ops) == 20
    again = once.graph.node.add()
    again.CopyFrom(once.graph.node[0])
    again.input[2], again.output[0], again.name = "y", "z", "again"
    imported(once, targets=["z"])
    third = once.graph.node.add()
    third.CopyFrom(again)
    third.input[2], third.output[0], third.name = "z", "w", "third"
    with pytest.raises(ModelError, match="node 'third': with 20 trips of this loop, loops are unrolled to 120 nodes"):
        imported(once, targets=["w"])


def test_a_loop_that_its_condition_ends_early_is_not_judged_by_its_trip_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snplan.frontend.walk.MOST_UNROLLED", 100)
    inside = body(
        [node("Less", ["i", "two"], ["go2"]), node("Add", ["b", "one"], ["b2"])],
        [info("i", [], INT64), info("go", [], BOOL), info("b", [1])],
        ["go2", "b2"],
    )
    stored = [tensor("m", 1000, np.int64), tensor("one", [1.0]), tensor("two", 2, np.int64)]
    proto = model([node("Loop", ["m", "", "x"], ["y"], body=inside)], [info("x", [1])], ["y"], stored)
    assert run(proto, {"x": np.zeros(1, np.float32)})["y"] == 3


def test_labels_inside_functions_stay_short() -> None:
    """Each call makes labels of its own: long ones are made again in each."""
    long = "n" * 100_000
    f = function("f", ["x"], ["y"], [node("Relu", ["x"], [long], long), node("Neg", [long], ["y"], long + "2")])
    calls = [call("f", [a], [b], f"call{i}") for i, (a, b) in enumerate([("x", "h"), ("h", "y")])]
    forward = imported(model(calls, [info("x", [2])], ["y"], functions=[f], domains={"f": 1}))
    assert [op.kind for op in forward.graph.ops] == ["relu", "neg"] * 2
    assert len({op.name for op in forward.graph.ops}) == 4
    assert max(len(text) for op in forward.graph.ops for text in (op.name, *op.nodes, *op.outputs)) < 1100


def test_attributes_and_left_out_inputs_of_a_function() -> None:
    inner = node("Clip", ["x", "", "most"], ["h"])
    soft = helper.make_node("LeakyRelu", ["h"], ["y"])
    soft.attribute.append(AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope"))
    f = function("f", ["x", "most"], ["y"], [inner, soft], attributes=["slope"])
    calls = [call("f", ["x"], ["h"], "open", slope=0.5), call("f", ["h", "m"], ["y"], "shut")]
    forward = imported(model(calls, [info("x", [2])], ["y"], [tensor("m", 4.0)], functions=[f], domains={"f": 1}))
    assert [(op.kind, dict(op.attrs)) for op in forward.graph.ops] == [
        ("leaky_relu", {"alpha": 0.5}),
        ("clip", {"min": None, "max": 4.0}),
        ("leaky_relu", {"alpha": 0.01}),
    ]


def test_two_graphs_that_store_tensors_under_one_name_are_told_apart_or_refused() -> None:
    big = tensor("w", np.ones(5000))
    then = body([node("Mul", ["x", "w"], ["t"])], [], ["t"], [big])
    other = body([node("Add", ["x", "w"], ["e"])], [], ["e"], [big])
    nodes = [node("If", ["c"], ["y"], then_branch=then, else_branch=other)]
    proto = model(nodes, [info("x", [5000])], ["y"], [tensor("c", True, np.bool_)])
    with pytest.raises(ModelError, match="two stored tensors are called 'w'"):
        imported(proto)


def test_sequences_that_grow_node_by_node_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The k-th holds k + 1: 138 hold 2 + ... + 139 = 9,729 and 139 are joined, 140 hold 10,010."""
    monkeypatch.setattr("snplan.frontend.lowering.sequence.MOST_HELD", 10_000)

    def growing(count: int) -> ModelProto:
        nodes = [node("SequenceConstruct", ["x"], ["s0"])]
        nodes += [node("SequenceInsert", [f"s{i}", "x"], [f"s{i + 1}"]) for i in range(count)]
        nodes.append(node("ConcatFromSequence", [f"s{count}"], ["y"], axis=0))
        return model(nodes, [info("x", [1])], ["y"])

    assert imported(growing(138)).graph.tensors["y"].shape == (139,)
    with pytest.raises(ModelError, match="more than 10,000 elements") as caught:
        imported(growing(140))
    assert caught.value.code == "SNP-I004"
