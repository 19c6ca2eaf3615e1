"""The text form: golden text, exact round trips with any names, errors with line and column."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_sample import SAMPLE
from property.edits import plan_of, raw
from property.plans import plans

from snplan.errors import PlanError
from snplan.plan.model import (
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    Offload,
    Persistent,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.plan.text import action_text, from_text, name_text, to_text

LINES = SAMPLE.splitlines()


def test_sample_is_read_as_it_is_meant() -> None:
    plan = from_text(SAMPLE)
    assert plan.model.name == "sample.onnx"
    assert plan.device == {"name": "test", "capacity_bytes": 1 << 20}
    assert (plan.budget_bytes, plan.floor_bytes) == (8192, 3072)
    assert plan.tensors[0] == PlanTensor(name="x", dtype="float32", shape=[2, 128], bytes=1024, role="input")
    assert plan.tensors[5].shape == []
    assert plan.ops[1] == PlanOp(
        name="drop",
        kind="dropout",
        phase="forward",
        inputs=["y"],
        outputs=["z"],
        attrs={"ratio": 0.5},
        nodes=["Dropout_1", "Dropout 2"],
        rng=7,
    )
    assert plan.ops[3].attrs == {}
    assert plan.buffers[3] == Extent(id=3, offset=3072, bytes=512)
    assert plan.slots[1] == Extent(id=1, offset=1024, bytes=1024)
    assert plan.resident[2] == Place(tensor="m", slot=0)
    assert plan.persistent[0] == Persistent(tensor="w", becomes="w:next", buffer=1)
    assert plan.outputs == [Place(tensor="loss", buffer=5)]


def test_actions_of_the_sample() -> None:
    actions = from_text(SAMPLE).actions
    assert len(actions) == 25
    assert actions[0] == Alloc(buffer=2)
    assert actions[2] == Algorithm(op="mul", engine=1, workspace=3)
    assert actions[3] == Run(op="mul", reads=[("w", 1), ("x", 0)], writes=[("y", 2)], after=[])
    assert actions[4] == Free(buffer=3)
    assert actions[5] == Offload(tensor="y", buffer=2, slot=1, after=[3])
    assert actions[13] == Prefetch(tensor="y", slot=1, buffer=6, after=[5, 7])
    assert actions[15] == Recompute(op="drop", reads=[("y", 6)], writes=[("z", 7)], after=[13])


def test_text_of_the_sample() -> None:
    assert to_text(from_text(SAMPLE)) == SAMPLE


@pytest.mark.parametrize(
    ("action", "text"),
    [
        (Alloc(buffer=0), "alloc b0"),
        (Free(buffer=12), "free b12"),
        (Algorithm(op="f", engine=0, workspace=None), "algorithm f engine 0"),
        (Algorithm(op="f g", engine=3, workspace=0), 'algorithm "f g" engine 3 workspace b0'),
        (Run(op="f", reads=[], writes=[("y", 1)], after=[]), "run f () -> (y@b1)"),
        (Run(op="f", reads=[("a@b", 0)], writes=[], after=[0, 2]), 'run f ("a@b"@b0) -> () after 0, 2'),
        (Run(op="f", reads=[], writes=[], after=[1], stream="d2h"), "run f () -> () on d2h after 1"),
        (Recompute(op="/a/b:0", reads=[], writes=[], after=[]), "recompute /a/b:0 () -> ()"),
        (Offload(tensor="x", buffer=1, slot=2, after=[]), "offload x b1 -> s2"),
        (Offload(tensor="x", buffer=1, slot=2, after=[], stream=""), 'offload x b1 -> s2 on ""'),
        (Prefetch(tensor="x", slot=2, buffer=1, after=[7]), "prefetch x s2 -> b1 after 7"),
        (Prefetch(tensor="x", slot=-2, buffer=-1, after=[-7]), "prefetch x s-2 -> b-1 after -7"),
    ],
)
def test_actions_one_by_one(action: Action, text: str) -> None:
    assert action_text(action) == text
    head = SAMPLE[: SAMPLE.index("  0: alloc")]
    assert from_text(f"{head}  0: {text}\n").actions == [action]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("conv1", "conv1"),
        ("/layer1/Conv_0:grad.1", "/layer1/Conv_0:grad.1"),
        ("->", "->"),
        ("[1]", "[1]"),
        ("gewicht_ß", "gewicht_ß"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a,b", '"a,b"'),
        ("f(x)", '"f(x)"'),
        ("x@b3", '"x@b3"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("line\nbreak", '"line\\nbreak"'),
        ("tab\t", '"tab\\t"'),
        ("\u2028", '"\\u2028"'),
        ("\xa0", '"\\u00a0"'),
        ("\x00", '"\\u0000"'),
        ("\ud800", '"\\ud800"'),
    ],
)
def test_names(name: str, text: str) -> None:
    assert name_text(name) == text


NAMES = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["after", "on", "in", "->", "nodes", "rng", "attrs", "workspace", "b1", "s0", "7", "becomes", '"']),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
SMALL = st.integers(-2, 1 << 62)
EDGES = st.lists(SMALL, max_size=3)
PAIRS = st.lists(st.tuples(NAMES, SMALL), max_size=3)
ACTIONS = st.one_of(
    st.builds(Alloc, buffer=SMALL),
    st.builds(Free, buffer=SMALL),
    st.builds(Run, op=NAMES, reads=PAIRS, writes=PAIRS, after=EDGES, stream=st.just("compute") | NAMES),
    st.builds(Recompute, op=NAMES, reads=PAIRS, writes=PAIRS, after=EDGES),
    st.builds(Algorithm, op=NAMES, engine=SMALL, workspace=st.none() | SMALL),
    st.builds(Offload, tensor=NAMES, buffer=SMALL, slot=SMALL, after=EDGES, stream=st.just("d2h") | NAMES),
    st.builds(Prefetch, tensor=NAMES, slot=SMALL, buffer=SMALL, after=EDGES, stream=st.just("h2d") | NAMES),
)
PLACES = st.builds(Place, tensor=NAMES, buffer=st.none() | SMALL, slot=st.none() | SMALL)
OPS = st.builds(
    PlanOp,
    name=NAMES,
    kind=NAMES,
    phase=NAMES,
    inputs=st.lists(NAMES, max_size=3),
    outputs=st.lists(NAMES, max_size=3),
    attrs=st.dictionaries(st.text(max_size=5), JSON, max_size=3),
    nodes=st.lists(NAMES, max_size=2),
    rng=st.none() | SMALL,
)
TENSORS = st.builds(PlanTensor, name=NAMES, dtype=NAMES, shape=st.lists(SMALL, max_size=4), bytes=SMALL, role=NAMES)
PERSISTENT = st.builds(Persistent, tensor=NAMES, becomes=NAMES, buffer=st.none() | SMALL, slot=st.none() | SMALL)


@given(
    tensors=st.lists(TENSORS, max_size=3),
    ops=st.lists(OPS, max_size=3),
    resident=st.lists(PLACES, max_size=2),
    persistent=st.lists(PERSISTENT, max_size=2),
    actions=st.lists(ACTIONS, max_size=5),
    options=st.dictionaries(st.text(max_size=5), JSON, max_size=3),
)
def test_any_plan_round_trips(
    tensors: list[PlanTensor],
    ops: list[PlanOp],
    resident: list[Place],
    persistent: list[Persistent],
    actions: list[Action],
    options: dict[str, object],
) -> None:
    """Sound or not: whatever the records can hold."""
    sample = from_text(SAMPLE)
    fields = {name: getattr(sample, name) for name in StepPlan.__struct_fields__}
    fields |= {"tensors": tensors, "ops": ops, "resident": resident, "outputs": resident, "persistent": persistent}
    plan = StepPlan(**{**fields, "actions": actions, "options": options})
    text = to_text(plan)
    assert from_text(text) == plan
    assert to_text(from_text(text)) == text
    assert text.count("\n") == len(text.splitlines()) or "\\" in text


@given(plan=plans())
def test_sound_plans_round_trip(plan: StepPlan) -> None:
    assert from_text(to_text(plan)) == plan


def test_blank_lines_and_windows_line_ends_do_not_matter() -> None:
    assert from_text(SAMPLE.replace("\n", "\r\n")) == from_text(SAMPLE)
    assert from_text("\n\n" + SAMPLE.replace("ops\n", "\nops\n\n") + "\n  \n") == from_text(SAMPLE)
    assert from_text(SAMPLE.replace(" -> ", "   ->  ").replace(", y", " ,  y")) == from_text(SAMPLE)


def test_plans_without_actions() -> None:
    empty = {"tensors", "ops", "buffers", "slots", "resident", "persistent", "outputs", "actions"}
    plan = plan_of({**raw(from_text(SAMPLE)), **{name: [] for name in empty}})
    assert from_text(to_text(plan)) == plan


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("snplan plan, format 1", "snplan plan", "line 1, column 1: expected `snplan plan, format`"),
        ("snplan plan, format 1", "snplan plan, format one", "line 1, column 21: expected a whole number"),
        ('snplan_version "0.1.0"\n', "", "line 2, column 1: expected `snplan_version`"),
        ("budget_bytes 8192", "budget_bytes", "line 6, column 13: expected a JSON value at the end"),
        ("budget_bytes 8192", "budget_bytes 8192 B", "expected the end of the line at 'B'"),
        ("budget_bytes 8192", "budget_bytes NaN", "expected a JSON value at 'NaN'"),
        ("x float32 [2,128]", "x float32 [2,1.5]", "line 15, column 13: expected a shape at '[2,1.5] 1024 input'"),
        ('attrs {"ratio": 0.5}', "attrs [0.5]", "expected attributes at '[0.5] nodes"),
        ('nodes ["Mul_0"]', "nodes [1]", "expected names of nodes at '[1]'"),
        ('options {"gpu_mem"', "options {gpu_mem", "line 4, column 9: expected a JSON value"),
        ("  x float32 [2,128] 1024 input", "  x float32 [2,128] input", "line 15, column 21: expected a whole number"),
        ("  x float32 [2,128] 1024 input", "  x float32 2x128 1024 input", "line 15"),
        ("  x float32 [2,128] 1024 input", "  x float32 [2,128] 1024", "expected a name at the end of the line"),
        ("  z_grad neg backward (z) ->", "  z_grad neg backward z ->", "expected `(` at 'z -> (z:grad)'"),
        ("(z) -> (z:grad)", "(z) (z:grad)", "expected `->` at '(z:grad)'"),
        ("(z:grad, y) ->", "(z:grad y) ->", "expected `,` at 'y) -> (w:grad)'"),
        ("(z:grad, y) ->", "(z:grad, ) ->", "expected a name at ') -> (w:grad)'"),
        ("  b0 offset", "  s0 offset", "expected `b` and a number at 's0 offset 0 bytes 1024'"),
        ("  b0 offset 0 ", "  b0 offset zero ", "expected a whole number at 'zero bytes 1024'"),
        ("  b0 offset 0 ", "  b0 offset 1x ", "expected a whole number at '1x bytes 1024'"),
        ("  x in b0", "  x in c0", "expected `s` and a number at 'c0'"),
        ("w becomes w:next", "w is w:next", "expected `becomes` at 'is w:next in b1'"),
        ("  0: alloc b2", "  1: alloc b2", "expected the number 0 of the action at '1: alloc b2'"),
        ("  0: alloc b2", "  0 alloc b2", "expected `:` at 'alloc b2'"),
        ("  0: alloc b2", "  0: malloc b2", "column 6: expected one of alloc, free, run"),
        ("  0: alloc b2", "  0: alloc 2", "column 12: expected `b` and a number at '2'"),
        ("  0: alloc b2", "  0: alloc b2 b3", "expected the end of the line at 'b3'"),
        ("engine 1 workspace b3", "engine b3", "expected a whole number at 'b3'"),
        ("engine 1 workspace b3", "engine 1 workspace", "expected `b` and a number at the end"),
        ("after 5, 7", "after 5,", "expected a whole number at the end"),
        ("after 5, 7", "after 5; 7", "expected a whole number at '5; 7'"),
        ("(w@b1, x@b0)", "(w, x@b0)", "expected `@` at ', x@b0) -> (y@b2)'"),
        ("(w@b1, x@b0)", '("w@b1, x@b0)', "expected a JSON value"),
        ("slots\n", "", "expected `b` and a number at 's0 offset"),
        ("actions\n", "action\n", "expected `actions` at 'action'"),
        ("actions\n", "actions 25\n", "expected the end of the line at '25'"),
    ],
)
def test_errors_say_where(old: str, new: str, words: str) -> None:
    assert old in SAMPLE
    with pytest.raises(PlanError) as caught:
        from_text(SAMPLE.replace(old, new, 1))
    assert caught.value.code == "SNP-V006"
    assert words in caught.value.message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("budget_bytes 8192", 'budget_bytes "8192"'),
        ('model {"name": "sample.onnx"', 'model {"title": "sample.onnx"'),
    ],
)
def test_values_of_wrong_types(old: str, new: str) -> None:
    assert old in SAMPLE
    with pytest.raises(PlanError) as caught:
        from_text(SAMPLE.replace(old, new, 1))
    assert caught.value.code == "SNP-V006"


@pytest.mark.parametrize("kept", range(len(LINES)))
def test_text_that_is_cut_off(kept: int) -> None:
    text = "\n".join(LINES[:kept])
    titled = LINES.index("actions")
    if kept > titled:
        assert len(from_text(text).actions) == kept - titled - 1
        return
    with pytest.raises(PlanError, match="SNP-V006"):
        from_text(text)


def test_numbers_that_are_not_finite() -> None:
    for number in ("1e999", "-1e999"):
        with pytest.raises(PlanError) as caught:
            from_text(SAMPLE.replace('"ratio": 0.5', f'"ratio": {number}'))
        assert caught.value.code == "SNP-V004"
    plan = plan_of({**raw(from_text(SAMPLE)), "options": {"a": float("inf")}})
    with pytest.raises(PlanError) as caught:
        to_text(plan)
    assert caught.value.code == "SNP-V004"


def test_other_formats() -> None:
    with pytest.raises(PlanError, match="format 2") as caught:
        from_text(SAMPLE.replace("format 1", "format 2", 1))
    assert caught.value.code == "SNP-V002"


@given(text=st.text())
def test_any_text_is_a_plan_or_an_error(text: str) -> None:
    with pytest.raises(PlanError):
        from_text(text)


@given(rng=st.randoms(use_true_random=False), noise=st.text(max_size=3))
def test_any_edit_is_a_plan_or_an_error(rng: random.Random, noise: str) -> None:
    at = rng.randrange(len(SAMPLE))
    with suppress(PlanError):
        from_text(SAMPLE[:at] + noise + SAMPLE[at + 1 :])
