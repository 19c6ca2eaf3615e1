"""The training step: structure, names, sums of gradients, what is asked for and what is not."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from op_cases import positive, values
from property.graphs import forwards
from step_support import NONE, Model, differences, evaluate, gradients_of

from snplan.errors import ModelError, UsageError
from snplan.ir import Forward, Op, Phase, Role, Step, problems
from snplan.training import attach_loss, build_inference_step, build_step, make_optimizer

SGD = make_optimizer("sgd", lr=0.1)


def mlp(layers: int = 3, width: int = 3) -> tuple[Model, str]:
    """x @ w0 + b0, relu, ... and a sum."""
    model = Model()
    y = model.source("x", values(4, width), fed=True)
    for i in range(layers):
        w = model.source(f"w{i}", values(width, width, seed=i))
        b = model.source(f"b{i}", values(width, seed=i + 9))
        y = model.then("relu", model.then("add", model.matmul(y, w), b))
    return model, model.sum(y)


def phases(step: Step) -> list[Phase]:
    return [op.phase for op in step.graph.ops]


def names_of(step: Step, phase: Phase) -> list[str]:
    return [op.name for op in step.graph.ops if op.phase is phase]


def agree(model: Model, loss: str, step: Step | None = None) -> None:
    found = gradients_of(step or model.step(loss), model.values)
    for name, gradient in found.items():
        expected = differences(model.forward(loss).graph, loss, model.values, name)
        np.testing.assert_allclose(gradient, expected, rtol=2e-6, atol=2e-7)


def test_mlp() -> None:
    model, loss = mlp()
    step = model.step(loss)
    assert list(step.gradients) == ["w0", "b0", "w1", "b1", "w2", "b2"]
    assert all(gradient == f"{name}:grad" for name, gradient in step.gradients.items())
    assert step.graph.outputs == (loss, *step.gradients.values())
    assert all(step.graph.tensors[name].role is Role.GRADIENT for name in step.gradients.values())
    assert step.becomes == {name: name for name in model.initializers}
    agree(model, loss, step)


def test_order_of_ops() -> None:
    """Forward as given, backward in reverse, each update right after its gradient."""
    model, loss = mlp(2)
    step = model.step(loss, optimizer=SGD)
    assert [op.name for op in step.graph.ops[: len(model.ops)]] == [op.name for op in model.ops]
    rest = step.graph.ops[len(model.ops) :]
    updates = [op.inputs[0] for op in rest if op.phase is Phase.UPDATE]
    assert updates == ["b1", "w1", "b0", "w0"]
    for index, op in enumerate(rest):
        if op.phase is Phase.UPDATE:
            writers = [i for i, other in enumerate(rest) if op.inputs[1] in other.outputs]
            assert all(other.phase is Phase.UPDATE or other.inputs[0] != op.inputs[0] for other in rest[index:])
            between = {other.nodes for other in rest[writers[0] : index] if other.phase is Phase.BACKWARD}
            assert len(between) == 1, "the update comes after the backward of the same forward op"


def test_names_of_activations_gradients() -> None:
    model, loss = mlp(2)
    step = model.step(loss)
    written = {name for op in step.graph.ops if op.phase is Phase.BACKWARD for name in op.outputs}
    relu = next(op for op in model.ops if op.kind == "relu").outputs[0]
    assert f"{relu}:grad" in written
    assert f"{loss}:grad" in written
    assert not any(name.startswith("~") for name in step.graph.tensors)


def test_taken_names() -> None:
    """Activations' gradients and ops get the next free name; a parameter's has to be free."""
    model, loss = mlp(1)
    add = model.ops[1].outputs[0]
    model.op("neg", ["x"], [f"{add}:grad"], name=f"{model.ops[1].name}:db_sum")
    total = model.then("add", loss, model.sum(f"{add}:grad"))
    step = model.step(total)
    assert f"{add}:grad.1" in step.graph.tensors
    assert f"{model.ops[1].name}:db_sum.1" in [op.name for op in step.graph.ops]
    agree(model, total, step)


@pytest.mark.parametrize(
    ("name", "optimizer"), [("w0:grad", "none"), ("w0:next", "sgd"), ("w0:m:next", "adam"), ("w0:momentum", "momentum")]
)
def test_taken_names_of_parameters(name: str, optimizer: str) -> None:
    model, loss = mlp(1)
    model.op("neg", ["x"], [name])
    total = model.then("add", loss, model.sum(name))
    with pytest.raises(ModelError, match=f"SNP-D003: the model has a tensor {name}"):
        model.step(total, optimizer=make_optimizer(optimizer))


def test_provisional_names_are_free_whatever_the_model_calls_its_tensors() -> None:
    model = Model()
    x = model.source("~~0", values(3), fed=True)
    loss = model.sum(model.then("mul", x, model.source("~0", values(3))))
    agree(model, loss)


def test_a_shared_weight_gets_the_sum() -> None:
    """f = W (W x), W = 3, x = 2: df/dW = 12 (6 means that one gradient overwrote the other)."""
    model = Model()
    x, w = model.source("x", np.array(2.0), fed=True), model.source("w", np.array(3.0))
    loss = model.then("mul", w, model.then("mul", w, x))
    assert model.gradients(loss)["w"] == 12.0


def test_a_bias_used_twice() -> None:
    model = Model()
    x, b = model.source("x", values(4, 3), fed=True), model.source("b", values(3))
    y = model.then("add", model.then("tanh", model.then("add", x, b)), b)
    loss = model.sum(y)
    agree(model, loss)


def test_one_tensor_twice_in_one_op() -> None:
    model = Model()
    w = model.source("w", values(3, 3))
    loss = model.sum(model.then("add", model.then("mul", w, w), model.matmul(w, w)))
    agree(model, loss)


def test_tied_embedding() -> None:
    """One gradient for a table that is gathered from and, transposed, multiplied by."""
    model = Model()
    table = model.source("table", values(5, 3))
    index = model.source("index", np.array([0, 4, 4]), fed=True)
    h = model.then("tanh", model.then("gather", table, index, axis=0))
    loss = model.sum(model.then("exp", model.matmul(h, model.then("transpose", table, perm=[1, 0]))))
    step = model.step(loss)
    assert list(step.gradients) == ["table"]
    sums = [op for op in step.graph.ops if op.kind == "add" and op.outputs == ("table:grad",)]
    assert len(sums) == 1
    # The transpose is folded into the product, forward and backward.
    assert not [op for op in step.graph.ops if op.kind == "transpose"]
    agree(model, loss, step)


def test_many_readers_are_summed_in_a_fixed_order() -> None:
    model = Model()
    x = model.source("x", values(3), fed=True)
    w = model.source("w", values(3))
    parts = [model.then("mul", model.then("mul", w, x), model.then("tanh", w)) for _ in range(3)]
    total = parts[0]
    for part in parts[1:]:
        total = model.then("add", total, part)
    loss = model.sum(total)
    step = model.step(loss)
    sums = [op for op in step.graph.ops if op.name.startswith("w:grad_sum")]
    assert len(sums) == 5
    # A chain: each sum takes the one before it first.
    assert all(after.inputs[0] == before.outputs[0] for before, after in pairwise(sums))
    agree(model, loss, step)


def test_every_parameter_has_a_gradient_of_its_own() -> None:
    """a + b passes one gradient to both: the second is a copy, so that each can be freed and saved alone."""
    model = Model()
    names = [model.source(name, values(3, seed=i)) for i, name in enumerate("abc")]
    y = model.then("add", model.then("add", names[0], names[1]), names[2])
    weights = model.source("weights", values(3, seed=5), fed=True)
    step = model.step(model.sum(model.then("mul", y, weights)))
    assert dict(step.gradients) == {name: f"{name}:grad" for name in names}
    written = [name for op in step.graph.ops for name in op.outputs]
    assert all(written.count(f"{name}:grad") == 1 for name in names)
    assert [op.kind for op in step.graph.ops].count("copy") == 2
    agree(model, step.graph.outputs[0], step)


def test_gradient_under_another_shape() -> None:
    """The tensor W:grad may hold the bytes under another shape; its size is W's."""
    model = Model()
    x = model.source("x", values(2, 3, 4), fed=True)
    w = model.source("w", values(3, 1))
    viewed = model.source("v", values(12))
    y = model.then("add", model.then("mul", x, w), model.then("view", viewed, shape=[3, 4]))
    loss = model.sum(model.then("tanh", y))
    step = model.step(loss, optimizer=SGD)
    for name in ("w", "v"):
        gradient = step.graph.tensors[step.gradients[name]]
        assert gradient.name == f"{name}:grad"
        assert gradient.bytes == step.graph.tensors[name].bytes
        assert step.graph.tensors[f"{name}:next"].spec == step.graph.tensors[name].spec
    found = evaluate(step.graph, model.values)
    for name in ("w", "v"):
        expected = differences(model.forward(loss).graph, loss, model.values, name)
        np.testing.assert_allclose(found[f"{name}:next"], model.values[name] - 0.1 * expected, rtol=1e-6)


def test_frozen_parameters_have_no_backward() -> None:
    """Layer 0 frozen: no op, no gradient for it; the others' gradients are as before."""
    model, loss = mlp()
    whole = model.gradients(loss)
    step = model.step(loss, freeze=("w0", "b0"))
    assert list(step.gradients) == ["w1", "b1", "w2", "b2"]
    first_layer = {node for op in model.ops[:3] for node in op.nodes}
    assert not [op for op in step.graph.ops if op.phase is Phase.BACKWARD and first_layer & {*op.nodes}]
    assert step.graph.tensors["w0"].role is Role.PARAMETER
    assert step.becomes["w0"] == "w0"
    for name, gradient in gradients_of(step, model.values).items():
        np.testing.assert_array_equal(gradient, whole[name])


def test_side_inputs_without_gradient() -> None:
    """A frozen first layer and an integer side input do not cut the gradients of what lies between."""
    model, _ = mlp(2)
    index = model.source("index", np.array([1, 1, 0]), fed=True)
    rows = model.then("gather", model.ops[-2].outputs[0], index, axis=0)
    loss = model.sum(model.then("tanh", rows))
    step = model.step(loss, freeze=("w0", "b0"))
    assert list(step.gradients) == ["w1", "b1"]
    agree(model, loss, step)


def test_freezing_everything() -> None:
    model, loss = mlp(1)
    step = model.step(loss, freeze=("*",), optimizer=SGD)
    assert names_of(step, Phase.BACKWARD) == names_of(step, Phase.UPDATE) == []
    assert "no parameter is trained" in step.warnings[0]
    with pytest.raises(UsageError, match="SNP-U043"):
        model.step(loss, freeze=("nothing*",))


def test_no_loss() -> None:
    model, loss = mlp(1)
    with pytest.raises(ModelError, match="SNP-D002"):
        build_step(model.forward(loss), optimizer=NONE)


def test_what_the_loss_does_not_need_is_left_out() -> None:
    model, loss = mlp(1)
    unused = model.source("unused", values(3))
    other = model.then("exp", model.then("mul", "x", unused))
    step = build_step(model.forward(other, loss, loss=loss), optimizer=NONE)
    assert "unused" not in step.graph.tensors
    assert not [op for op in step.graph.ops if op.kind == "exp"]
    assert step.becomes.keys() == {"w0", "b0"}


def unsupported() -> tuple[Model, str]:
    """Two scatters by product on the path, one off it."""
    model = Model()
    x = model.source("x", values(4, 3), fed=True)
    index = model.source("index", np.array([[0], [2]]), fed=True)
    part = model.source("part", values(2, 3), fed=True)
    y = model.then("mul", x, model.source("w", values(3)))
    for i in range(2):
        (y,) = model.op("scatter_nd", [y, index, part], name=f"product{i}", reduction="mul")
    off = model.op("scatter_nd", [x, index, part], name="harmless", reduction="mul")[0]
    return model, model.sum(model.then("add", y, off))


def test_ops_without_gradient_are_listed_together() -> None:
    """Two on the way to the loss and one off it: one error that lists exactly the two."""
    model, loss = unsupported()
    with pytest.raises(ModelError) as caught:
        model.step(loss)
    assert caught.value.code == "SNP-D001"
    assert [entry["op"] for entry in caught.value.details["ops"]] == ["product0", "product1"]
    lines = caught.value.message.splitlines()
    assert lines[0] == "2 ops between a parameter and the loss cannot be differentiated:"
    reason = 'scatter_nd product0, node /product0: reduction "mul" has no gradient'
    assert lines[1] == f"  {reason}; path to the loss: product0 -> product1 -> add_4 -> reduce_sum_5 -> {loss}"
    assert "harmless" not in caught.value.message
    assert "--freeze" in lines[-1]


def test_ops_without_gradient_before_a_frozen_parameter_are_fine() -> None:
    model, loss = unsupported()
    step = model.step(loss, freeze=("w",))
    assert step.gradients == {}


def test_many_ops_without_gradient() -> None:
    """The message stays short: twenty lines, a path of four ops, the rest counted."""
    model = Model()
    x = model.source("x", values(4), fed=True)
    index = model.source("index", np.array([[0], [2]]), fed=True)
    y = model.then("mul", x, model.source("w", values(4)))
    for i in range(30):
        (y,) = model.op("scatter_nd", [y, index, model.source(f"u{i}", values(2))], name=f"p{i}", reduction="mul")
    loss = model.sum(y)
    with pytest.raises(ModelError) as caught:
        model.step(loss)
    assert len(caught.value.details["ops"]) == 30
    assert "  and 10 more" in caught.value.message
    assert "p0 -> p1 -> p2 -> p3 -> (27 more) -> " in caught.value.message


def test_statistics_on_the_path_are_refused() -> None:
    model = Model()
    x = model.source("x", values(2, 3), fed=True)
    y, mean, _ = model.op("layer_norm", [model.then("mul", x, model.source("w", values(3)))], axis=1, epsilon=1e-5)
    loss = model.then("add", model.sum(y), model.sum(mean))
    with pytest.raises(ModelError, match="depends on its statistics"):
        model.step(loss)


def batch_norm(momentum: float = 0.9) -> tuple[Model, str]:
    """x = [1, 5], one channel; running mean 0, variance 1."""
    model = Model()
    x = model.source("x", np.array([[1.0], [5.0]]), fed=True)
    for name, value in (("scale", 1.0), ("bias", 0.0), ("mean", 0.0), ("var", 1.0)):
        model.source(name, np.array([value]))
    y, mean, var = model.op("batch_norm_train", [x, "scale", "bias"], epsilon=1e-5)
    after = model.then("tanh", y)
    model.op("batch_norm_update", ["mean", "var", mean, var], ["mean'", "var'"], phase=Phase.UPDATE, momentum=momentum)
    model.states = {"mean": "mean'", "var": "var'"}
    return model, model.sum(after)


def test_running_statistics_after_one_and_three_steps() -> None:
    """0.300 and 1.300 after one step (population variance), 0.813 and 1.813 after three: updated once each."""
    model, loss = batch_norm()
    step = model.step(loss)
    assert [op.kind for op in step.graph.ops].count("batch_norm_update") == 1
    assert {name: step.becomes[name] for name in ("mean", "var")} == {"mean": "mean'", "var": "var'"}
    assert {step.graph.tensors[name].role for name in ("mean", "var", "mean'", "var'")} == {Role.STATE}
    current = dict(model.values)
    for expected in ((0.3, 1.3), (0.57, 1.57), (0.813, 1.813)):
        found = evaluate(step.graph, current)
        current = {**current, **{name: found[after] for name, after in step.becomes.items()}}
        np.testing.assert_allclose((current["mean"][0], current["var"][0]), expected, rtol=1e-6)


def test_statistics_are_updated_right_after_their_batch_norm() -> None:
    model, loss = batch_norm()
    kinds = [op.kind for op in model.step(loss).graph.ops]
    assert kinds[:3] == ["batch_norm_train", "batch_norm_update", "tanh"]


def test_forward_alone_updates_statistics_once() -> None:
    model, _ = batch_norm()
    step = build_inference_step(model.forward("tanh_1.0"))
    assert problems(step.graph) == []
    assert [op.kind for op in step.graph.ops].count("batch_norm_update") == 1
    assert step.graph.outputs == ("tanh_1.0",)
    assert (step.loss, dict(step.gradients)) == (None, {})
    assert step.becomes == {"scale": "scale", "bias": "bias", "mean": "mean'", "var": "var'"}
    assert step.graph.tensors["scale"].role is Role.PARAMETER
    assert step.graph.tensors["var'"].role is Role.STATE


def test_one_batch_norm_called_twice() -> None:
    """Shared running statistics: the second update follows the first."""
    model, _ = batch_norm()
    y, mean, var = model.op("batch_norm_train", ["tanh_1.0", "scale", "bias"], epsilon=1e-5)
    model.op("batch_norm_update", ["mean'", "var'", mean, var], ["mean''", "var''"], phase=Phase.UPDATE, momentum=0.9)
    model.states = {"mean": "mean''", "var": "var''"}
    step = model.step(model.sum(y))
    assert step.becomes["mean"] == "mean''"
    updates = [op.outputs[0] for op in step.graph.ops if op.phase is Phase.UPDATE]
    assert updates == ["mean'", "mean''"]


def test_dropout_draws_the_same_mask_backward() -> None:
    """The pattern of dL/dw is the forward mask in all 1024 elements, because the stream is the same."""
    model = Model()
    ones = model.source("x", np.ones(1024), fed=True)
    kept = model.op("dropout", [ones], ratio=0.5, rng=7)[0]
    w = model.source("w", np.full(1024, 3.0))
    dropped = model.op("dropout", [model.then("mul", kept, w)], ratio=0.25, rng=8)[0]
    step = model.step(model.sum(dropped))
    found = evaluate(step.graph, model.values)
    np.testing.assert_array_equal(found["w:grad"] != 0, found[dropped] != 0)
    streams = {op.kind: op.rng for op in step.graph.ops if op.rng is not None}
    assert streams == {"dropout": 8, "dropout_grad": 8}


def test_large_inputs_of_small_results_are_not_saved() -> None:
    """The backward of a mean needs the shape of its input, not its bytes."""
    model = Model()
    x = model.source("x", values(1000), fed=True)
    large = model.then("mul", x, model.source("w", values(1)))
    loss = model.then("reduce_mean", large, axes=[0], keepdims=False)
    step = model.step(loss)
    readers = [op for op in step.graph.ops if large in op.inputs]
    assert [op.phase for op in readers] == [Phase.FORWARD]


def test_zero_size_parameter() -> None:
    """Concat of [0, 4] and [3, 4]: the first gradient has shape [0, 4]."""
    model = Model()
    a, b = model.source("a", np.zeros((0, 4))), model.source("b", values(3, 4))
    loss = model.sum(model.then("tanh", model.then("concat", a, b, axis=0)))
    found = model.gradients(loss)
    assert found["a"].shape == (0, 4)
    agree(model, loss)


def test_loss_that_is_a_view() -> None:
    model, loss = mlp(1)
    model.op("view", [loss], ["L"], shape=[1])
    step = build_step(attach_loss(model.forward("L")), optimizer=NONE)
    assert step.loss == "L"
    assert step.graph.tensors["L"].role is Role.LOSS
    assert problems(step.graph) == []
    agree(model, "L", step)


def test_loss_that_is_a_parameter_times_nothing_else() -> None:
    model = Model()
    model.source("x", values(2), fed=True)
    loss = model.then("add", model.source("a", np.array(2.0)), model.source("b", np.array(3.0)))
    assert {name: float(g) for name, g in model.gradients(loss).items()} == {"a": 1.0, "b": 1.0}


def test_warnings_of_the_import_are_kept() -> None:
    model, loss = mlp(1)
    forward = replace(model.forward(loss, loss=loss), warnings=("eval mode",))
    assert build_step(forward, optimizer=NONE).warnings == ("eval mode",)


def test_parameters_without_readers_after_the_fold_are_untouched() -> None:
    """A transposed weight that a product reads is the weight itself, its gradient of its own shape."""
    model = Model()
    x = model.source("x", values(2, 4, 3), fed=True)
    w = model.source("w", values(2, 5, 3))
    loss = model.sum(model.then("tanh", model.matmul(x, model.then("transpose", w, perm=[0, 2, 1]))))
    step = model.step(loss)
    assert [op.kind for op in step.graph.ops].count("transpose") == 0
    agree(model, loss, step)


def test_deep_network() -> None:
    """Thousands of layers: no recursion, and all gradients under their names."""
    model = Model()
    y = model.source("x", values(2, 2), fed=True)
    for i in range(3000):
        y = model.then("relu", model.then("add", model.then("mul", y, model.source(f"w{i}", positive(2))), "x"))
    step = model.step(model.sum(y))
    assert len(step.gradients) == 3000
    assert step.gradients["w1234"] == "w1234:grad"


def restated(op: Op) -> tuple[object, ...]:
    return (op.name, op.kind, op.inputs, op.outputs, op.phase, tuple(op.attrs.items()))


@settings(max_examples=40, deadline=None)
@given(forwards())
def test_random_graphs(forward: Forward) -> None:
    """Steps are well formed, the same each time, without dead backward ops; persistent tensors end as themselves."""
    forward = attach_loss(forward)
    optimizer = make_optimizer("momentum")
    step, again = build_step(forward, optimizer=optimizer), build_step(forward, optimizer=optimizer)
    assert problems(step.graph) == []
    assert [*map(restated, step.graph.ops)] == [*map(restated, again.graph.ops)]
    read = {name for op in step.graph.ops for name in op.inputs} | {*step.graph.outputs, *step.becomes.values()}
    assert not [op for op in step.graph.ops if op.phase is Phase.BACKWARD and not any(o in read for o in op.outputs)]
    assert {*step.becomes} == {*step.graph.sources} - {*step.inputs}
    for name, after in step.becomes.items():
        assert step.graph.tensors[name].spec == step.graph.tensors[after].spec
        assert step.graph.tensors[name].role is step.graph.tensors[after].role
    assert all(gradient == f"{name}:grad" for name, gradient in step.gradients.items())
