"""The size of a model with functions in place of their calls, beside sizes worked out by hand."""

from __future__ import annotations

import pytest
from frontend_support import imported, info, model, node, tensor
from onnx import AttributeProto, FunctionProto, NodeProto, helper

from snplan.errors import ModelError
from snplan.frontend.expansion import COUNTED, Key, function_sizes, walked
from snplan.frontend.walk import MOST_WALKED


def call(name: str, inputs: list[str], output: str) -> NodeProto:
    """A call of a function."""
    return helper.make_node(name, inputs, [output], f"call_{output}", domain="f")


def function(name: str, nodes: list[NodeProto]) -> FunctionProto:
    """A function of x that gives y."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function("f", name, ["x"], ["y"], nodes, opsets)


def doubling(levels: int) -> list[FunctionProto]:
    """f0 of two nodes, and functions that each call the one before twice."""
    found = [function("f0", [node("Relu", ["x"], ["h"]), node("Relu", ["h"], ["y"])])]
    for level in range(1, levels):
        before = f"f{level - 1}"
        found.append(function(f"f{level}", [call(before, ["x"], "h"), call(before, ["h"], "y")]))
    return found


def by_key(functions: list[FunctionProto]) -> dict[Key, FunctionProto]:
    """Functions by their keys."""
    return {("f", function.name, ""): function for function in functions}


def refusal(functions: list[FunctionProto], nodes: list[NodeProto]) -> ModelError:
    """Why a model is refused."""
    proto = model(nodes, [info("x", [2])], ["y"], functions=functions, domains={"f": 1})
    with pytest.raises(ModelError) as caught:
        imported(proto)
    return caught.value


def test_functions_that_double() -> None:
    """Two nodes, then two calls and twice the level before: 2, 6, 14, ... = 2^(k+2) - 2."""
    sizes = function_sizes(by_key(doubling(40)))
    assert [sizes["f", f"f{level}", ""] for level in range(40)] == [2 ** (level + 2) - 2 for level in range(40)]


@pytest.mark.parametrize("backwards", [False, True])
def test_the_order_in_the_file_does_not_matter(backwards: bool) -> None:
    functions = doubling(8)
    found = function_sizes(by_key(functions[::-1] if backwards else functions))
    assert found["f", "f7", ""] == 2**9 - 2


def test_deep_chains_of_calls_stop_at_the_most_that_is_counted() -> None:
    """3,000 levels, far deeper than Python's stack; the last sizes have nearly a thousand digits."""
    functions = doubling(3000)
    sizes = function_sizes(by_key(functions[::-1]))
    assert sizes["f", "f57", ""] == 2**59 - 2 < COUNTED
    assert sizes["f", "f58", ""] == sizes["f", "f2999", ""] == COUNTED


def test_functions_that_call_each_other() -> None:
    """A call back counts as one node: f = 1 + g's two, with the call of f in it."""
    f = function("f", [call("g", ["x"], "y")])
    g = function("g", [call("f", ["x"], "h"), node("Relu", ["h"], ["y"])])
    h = function("h", [call("h", ["x"], "h"), call("f", ["h"], "y")])
    sizes = function_sizes(by_key([f, g, h]))
    assert sizes == {("f", "f", ""): 3, ("f", "g", ""): 2, ("f", "h", ""): 5}


def test_subgraphs_count_what_is_walked_at_least() -> None:
    """Of an If the smaller branch, of a Scan one trip, of a Loop none."""
    sizes = function_sizes(by_key(doubling(3)))
    large = helper.make_graph([call("f2", ["x"], "z")], "large", [], [info("z", [2])])
    small = helper.make_graph([node("Relu", ["x"], ["z"])], "small", [], [info("z", [2])])
    branches = node("If", ["c"], ["y"], then_branch=large, else_branch=small)
    assert walked([branches], sizes) == 2
    assert walked([node("If", ["c"], ["y"], then_branch=large, else_branch=large)], sizes) == 1 + 15
    assert walked([node("Scan", ["x"], ["y"], body=large, num_scan_inputs=1)], sizes) == 1 + 15
    assert walked([node("Loop", ["n", "", "x"], ["y"], body=large)], sizes) == 1


def test_a_function_bomb_is_refused_with_its_size() -> None:
    """One call and the 2^41 - 2 nodes of 40 levels; and levels past all counting."""
    error = refusal(doubling(40), [call("f39", ["x"], "y")])
    assert error.code == "SNP-I004"
    assert f"{2**41 - 1:,} nodes" in error.message
    assert f"{MOST_WALKED:,}" in error.message
    assert f"more than {COUNTED:,} nodes" in refusal(doubling(500), [call("f499", ["x"], "y")]).message


def test_a_bomb_in_a_branch_is_refused_where_the_branch_is_taken() -> None:
    bomb = helper.make_graph([call("f39", ["x"], "z")], "bomb", [], [info("z", [2])])
    plain = helper.make_graph([node("Relu", ["x"], ["z"])], "plain", [], [info("z", [2])])
    for taken in (True, False):
        branches = node("If", ["c"], ["y"], "if", then_branch=bomb, else_branch=plain)
        condition = tensor("c", taken, bool)
        proto = model([branches], [info("x", [2])], ["y"], [condition], functions=doubling(40), domains={"f": 1})
        if taken:
            with pytest.raises(ModelError, match="2,199,023,255,552 nodes"):
                imported(proto)
        else:
            assert [op.kind for op in imported(proto).graph.ops] == ["relu"]


def test_functions_that_are_not_called_do_no_harm() -> None:
    proto = model([call("f1", ["x"], "y")], [info("x", [2])], ["y"], functions=doubling(40), domains={"f": 1})
    assert [op.kind for op in imported(proto).graph.ops] == ["relu"] * 4


def test_standard_names_count_as_functions_where_the_model_redefines_them() -> None:
    relu = helper.make_function("", "Relu", ["x"], ["y"], [node("Abs", ["x"], ["h"]), node("Neg", ["h"], ["y"])], [])
    sizes = function_sizes({("", "Relu", ""): relu})
    assert walked([node("Relu", ["x"], ["y"]), helper.make_node("Relu", ["y"], ["z"], domain="ai.onnx")], sizes) == 6


def test_a_node_of_very_many_names_counts_as_several() -> None:
    """1,600 inputs and one output are a hundred times 16 names."""
    wide = node("Sum", ["x"] * 1600, ["y"])
    assert walked([wide, node("Relu", ["y"], ["z"])], {}) == 101
    assert function_sizes(by_key([function("f", [wide])]))["f", "f", ""] == 100


def test_a_node_of_very_long_names_counts_as_several() -> None:
    """A name is read again each time its node is walked: 40,000 characters are as much as 40 nodes."""
    assert walked([node("Relu", ["x"], ["y" * 39_999]), node("Relu", ["x"], ["y" * 999])], {}) == 41


def with_wide_header(wide: int, nodes: list[NodeProto]) -> FunctionProto:
    """A function of `wide` inputs, outputs, attributes and imported domains, of which `nodes` use next to nothing."""
    return helper.make_function(
        "f",
        "f",
        ["x", *(f"x{i}" for i in range(wide))],
        ["y", *["y"] * wide],
        nodes,
        [helper.make_opsetid("", 17), *(helper.make_opsetid(f"d{i}", 1) for i in range(wide))],
        attribute_protos=[helper.make_attribute(f"a{i}", i) for i in range(wide)],
    )


def test_many_calls_of_a_function_with_a_wide_header() -> None:
    """10,000 calls that each went through four lists of 50,000 entries would be 2 * 10^9 steps."""
    f = with_wide_header(50_000, [node("Relu", ["x"], ["y"])])
    calls = [call("f", ["x"], f"y{i}") for i in range(10_000)]
    nodes = [*calls, node("Sum", [f"y{i}" for i in range(10_000)], ["y"])]
    graph = imported(model(nodes, [info("x", [2])], ["y"], functions=[f], domains={"f": 1})).graph
    assert [op.kind for op in graph.ops] == ["relu"] * 10_000 + ["add"] * 9_999


def test_many_calls_of_a_function_that_is_wrong() -> None:
    """It is looked at once, and the error is that of the function."""
    cycle = [node("Add", ["x", "y"], ["z"], "plus"), node("Relu", ["z"], ["y"], "cut")]
    f = with_wide_header(50_000, cycle)
    calls = [call("f", ["x"], f"y{i}") for i in range(10_000)]
    error = refusal([f], [*calls, node("Sum", [f"y{i}" for i in range(10_000)], ["y"])])
    assert error.code == "SNP-I009"
    assert "cut -> plus -> cut" in error.message


def test_defaults_of_attributes_give_way_to_the_call() -> None:
    soft = helper.make_node("LeakyRelu", ["x"], ["y"])
    soft.attribute.append(AttributeProto(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope"))
    f = function("f", [soft])
    f.attribute_proto.append(helper.make_attribute("slope", 0.25))
    own = helper.make_node("f", ["h"], ["y"], "own", domain="f", slope=0.5)
    proto = model([call("f", ["x"], "h"), own], [info("x", [2])], ["y"], functions=[f], domains={"f": 1})
    assert [op.attrs["alpha"] for op in imported(proto).graph.ops] == [0.25, 0.5]
