"""Each rule of the verifier, broken once in a plan that is sound otherwise."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from plan_sample import SAMPLE
from property.edits import Raw, plan_of, raw

from snplan.errors import PlanError
from snplan.plan.text import from_text
from snplan.plan.verify import verify
from snplan.verify import ensure_verified

DATA = raw(from_text(SAMPLE))


def row(data: Raw, table: str, key: str) -> Raw:
    """The row of a table that is called `key`."""
    found: Raw = next(item for item in data[table] if str(item.get("name", item.get("id", item.get("tensor")))) == key)
    return found


def totals(**changes: int) -> Callable[[Raw], None]:
    """Other numbers in the header."""
    return lambda data: data.update(changes)


def change(table: str, key: str, **fields: Any) -> Callable[[Raw], None]:
    """Other fields in one row of a table."""
    return lambda data: row(data, table, key).update(fields)


def act(number: int, **fields: Any) -> Callable[[Raw], None]:
    """Other fields in one action."""
    return lambda data: data["actions"][number].update(fields)


def splice(at: int, *actions: Raw, drop: int = 0) -> Callable[[Raw], None]:
    """New actions in place of `drop` old ones; `after` edges keep their meaning (edges to dropped actions go)."""

    def edit(data: Raw) -> None:
        gone = range(at, at + drop)
        data["actions"][at : at + drop] = copy.deepcopy(list(actions))
        for action in data["actions"]:
            if "after" in action:
                edges = [edge for edge in action["after"] if edge not in gone]
                action["after"] = [edge + len(actions) - drop if edge >= at else edge for edge in edges]

    return edit


def add(table: str, **fields: Any) -> Callable[[Raw], None]:
    """One more row of a table."""
    return lambda data: data[table].append(fields)


def remove(table: str, key: str) -> Callable[[Raw], None]:
    """One row less."""
    return lambda data: data[table].remove(row(data, table, key))


def both(first: Callable[[Raw], None], second: Callable[[Raw], None]) -> Callable[[Raw], None]:
    """Two edits."""

    def edit(data: Raw) -> None:
        first(data)
        second(data)

    return edit


ALLOC = {"kind": "alloc", "buffer": 3}
FREE = {"kind": "free", "buffer": 3}

CASES: dict[str, tuple[Callable[[Raw], None], str, str]] = {
    # F: fields
    "another format": (totals(format=2), "F at plan", "format is 2"),
    "negative total": (totals(reserve_bytes=-1), "F at plan", "reserve_bytes is -1"),
    "two tensors of a name": (change("tensors", "z", name="y"), "F at tensor y", "called y"),
    "tensor without name": (change("tensors", "z", name=""), "F at tensor ''", "not empty"),
    "two ops of a name": (change("ops", "drop", name="mul"), "F at op mul", "called mul"),
    "two buffers of an id": (change("buffers", "4", id=3), "F at buffer 3", "called 3"),
    "negative buffer": (change("buffers", "4", id=-4), "F at buffer -4", "not negative"),
    "two slots of an id": (change("slots", "1", id=0), "F at slot 0", "called 0"),
    "two writers": (change("ops", "z_grad", outputs=["z"]), "F at op z_grad", "which drop writes too"),
    "unknown phase": (change("ops", "drop", phase="eval"), "F at op drop", "phase 'eval'"),
    "op without kind": (change("ops", "drop", kind=""), "F at op drop", "no kind"),
    "negative random stream": (change("ops", "drop", rng=-1), "F at op drop", "random stream -1"),
    "op of unknown tensors": (change("ops", "sum", inputs=["q"]), "F at op sum", "['q']"),
    "resident of unknown tensor": (change("resident", "x", tensor="q"), "F at resident q", "not a tensor"),
    "resident in two places": (change("resident", "x", slot=1), "F at resident x", "one place"),
    "resident in no place": (change("resident", "m", slot=None), "F at resident m", "one place"),
    "resident in unknown buffer": (change("resident", "x", buffer=99), "F at resident x", "buffer 99"),
    "persistent in unknown slot": (change("persistent", "m", slot=99), "F at persistent m", "slot 99"),
    "persistent becomes unknown": (change("persistent", "w", becomes="q"), "F at persistent w", "becomes q"),
    "output of unknown buffer": (change("outputs", "loss", buffer=99), "F at output loss", "buffer 99"),
    "wait for the future": (act(5, after=[3, 7]), "F at action 5", "waits for action 7"),
    "wait for oneself": (act(5, after=[3, 5]), "F at action 5", "waits for action 5"),
    "wait for a negative action": (act(5, after=[3, -1]), "F at action 5", "waits for action -1"),
    "wait for an action of no stream": (act(5, after=[3, 4]), "F at action 5", "waits for action 4"),
    "run on a copy stream": (act(7, stream="d2h"), "F at action 7", "stream 'd2h'"),
    "offload on the other stream": (act(5, stream="h2d"), "F at action 5", "stream 'h2d'"),
    "alloc of unknown buffer": (splice(0, {**ALLOC, "buffer": 99}), "F at action 0", "buffer 99"),
    "run of unknown op": (act(7, op="q"), "F at action 7", "op q"),
    "recompute of unknown op": (act(15, op="q"), "F at action 15", "op q"),
    "algorithm of unknown op": (act(2, op="q"), "F at action 2", "op q"),
    "negative engine": (act(2, engine=-1), "F at action 2", "engine -1"),
    "unknown workspace": (act(2, workspace=99), "F at action 2", "buffer 99"),
    "offload of unknown tensor": (act(5, tensor="q"), "F at action 5", "copies q"),
    "offload to unknown slot": (act(5, slot=99), "F at action 5", "slot 99"),
    "prefetch to unknown buffer": (act(13, buffer=99), "F at action 13", "buffer 99"),
    "read of unknown buffer": (act(10, reads=[["z", 99]]), "F at action 10", "buffer 99"),
    # S: sizes
    "bytes of another shape": (change("tensors", "z", shape=[255]), "S at tensor z", "takes 1020 bytes"),
    "rounded bytes": (change("tensors", "loss", bytes=512), "S at tensor loss", "takes 4 bytes"),
    "unknown element type": (change("tensors", "z", dtype="float"), "S at tensor z", "'float'"),
    "negative dimension": (change("tensors", "z", shape=[-16, -16]), "S at tensor z", "negative"),
    "too many dimensions": (change("tensors", "z", shape=[1] * 65), "S at tensor z", "more than 64"),
    "unknown role": (change("tensors", "z", role="weight"), "S at tensor z", "'weight'"),
    "view of other elements": (change("ops", "mul", attrs={"in_shapes": [[255], None]}), "S at op mul", "[255]"),
    "too few views": (change("ops", "mul", attrs={"in_shapes": [[256]]}), "S at op mul", "each of 2 inputs"),
    "view that is no shape": (change("ops", "mul", attrs={"in_shapes": [[True, 256], 3]}), "S at op mul", "True"),
    # A: extents, arenas, budget
    "unaligned offset": (change("buffers", "5", offset=4000), "A at buffer 5", "multiples of 512"),
    "unaligned bytes": (change("buffers", "5", bytes=100), "A at buffer 5", "multiples of 512"),
    "negative offset": (change("buffers", "5", offset=-512), "A at buffer 5", "multiples of 512"),
    "buffer without bytes": (change("buffers", "5", bytes=0), "A at buffer 5", "multiples of 512"),
    "unaligned slot": (change("slots", "1", offset=1030), "A at slot 1", "multiples of 512"),
    "arena too small": (totals(arena_bytes=4096), "A at buffer 5", "arena of 4096"),
    "host arena too small": (totals(host_arena_bytes=1536), "A at slot 1", "arena of 1536"),
    "over the budget": (totals(budget_bytes=4608), "A at plan", "exceed the budget 4608"),
    "under the floor": (totals(floor_bytes=5633), "A at plan", "floor_bytes 5633"),
    "buffer too small": (change("buffers", "8", bytes=512), "A at action 20", "m takes 1024 bytes, buffer 8 has 512"),
    "slot too small": (change("slots", "1", bytes=512), "A at action 5", "y takes 1024 bytes, slot 1 has 512"),
    "resident too small": (change("buffers", "0", bytes=512), "A at resident x", "takes 1024 bytes, buffer 0"),
    # L: live intervals
    "double alloc": (splice(1, {**ALLOC, "buffer": 2}), "L at action 1", "buffer 2 is live already"),
    "double free": (splice(9, {**FREE, "buffer": 2}), "L at action 9", "buffer 2, which is not live"),
    "overlap": (change("buffers", "5", offset=3584), "L at action 9", "overlaps live buffer 4, which holds z"),
    "overlap of residents": (change("buffers", "1", offset=512), "L at resident w", "overlaps live buffer 0"),
    "two residents in a buffer": (change("resident", "w", buffer=0), "L at resident w", "live already"),
    "two residents in a slot": (
        change("resident", "w", buffer=None, slot=0),
        "L at resident m",
        "shares slot 0 with w",
    ),
    "residents in slots that share bytes": (
        both(change("resident", "w", buffer=None, slot=1), change("slots", "1", offset=512)),
        "L at resident m",
        "slot 0 overlaps another resident slot",
    ),
    "use before alloc": (splice(0, drop=1), "L at action 2", "buffer 2, which is not live"),
    "use after free": (splice(5, {**FREE, "buffer": 2}), "L at action 6", "buffer 2, which is not live"),
    "workspace freed early": (splice(3, FREE), "L at action 4", "buffer 3, which is not live"),
    "never freed": (splice(24, drop=1), "L at buffer 8", "never freed"),
    "output freed": (splice(25, {**FREE, "buffer": 5}), "E at output loss", "holds nothing"),
    # V: values
    "read of another tensor": (act(10, reads=[["z", 2]]), "L at action 10", "buffer 2"),
    "read of what is not there": (act(10, reads=[["z", 0]]), "V at action 10", "buffer 0, which holds x"),
    "read before the write": (act(7, reads=[["y", 5]]), "L at action 7", "buffer 5"),
    "read of the wrong tensor": (act(10, reads=[["y", 4]]), "V at action 10", "reads ['y'], its op says ['z']"),
    "read twice": (act(10, reads=[["z", 4], ["z", 4]]), "V at action 10", "reads ['z', 'z']"),
    "write of the wrong tensor": (act(10, writes=[["y", 5]]), "V at action 10", "writes ['y'], its op says ['loss']"),
    "nothing written": (act(10, writes=[]), "V at action 10", "writes []"),
    "two outputs in a buffer": (
        act(21, writes=[["w:next", 1], ["m:next", 1]]),
        "V at action 21",
        "writes m:next to buffer 1, and w:next too",
    ),
    "overwritten in place": (act(7, writes=[["z", 2]]), "V at action 10", "buffer 4, which holds nothing"),
    "workspace over an input": (act(2, workspace=1), "V at action 3", "reads w from buffer 1, which is its workspace"),
    "workspace over an output": (act(2, workspace=2), "V at action 3", "writes y to buffer 2, and its workspace too"),
    "read of a workspace": (act(5, buffer=3), "L at action 5", "buffer 3"),
    "offload of what is not there": (act(5, buffer=0), "V at action 5", "buffer 0, which holds x"),
    "prefetch from another slot": (act(13, slot=0), "V at action 13", "slot 0, which holds m"),
    "slots that share bytes": (change("slots", "1", offset=512), "V at action 20", "slot 0, which holds nothing"),
    "in place of fewer bytes": (
        both(act(10, writes=[["loss", 4]]), change("outputs", "loss", buffer=4)),
        "V at action 10",
        "in place of z: 4 bytes are not 1024",
    ),
    "transpose in place": (change("ops", "w_grad", kind="transpose"), "V at action 17", "after it wrote others"),
    # O: executions
    "ran twice": (act(15, kind="run"), "O at action 15", "second time"),
    "recompute before run": (act(7, kind="recompute"), "O at action 7", "before it ran"),
    "backward op recomputed": (act(16, kind="recompute"), "O at action 16", "phase backward"),
    "never ran": (splice(10, drop=1), "O at op sum", "never runs"),
    "algorithm changes": (
        splice(
            15,
            {"kind": "algorithm", "op": "drop", "engine": 2, "workspace": None},
        ),
        "O at action 15",
        "from None to 2",
    ),
    "algorithm that nothing uses": (
        splice(25, {"kind": "algorithm", "op": "mul", "engine": 1, "workspace": None}),
        "O at action 25",
        "not executed after it",
    ),
    # R: races
    "offload does not wait for the op": (act(5, after=[]), "R at action 5", "action 3 (compute)"),
    "op does not wait for the prefetch": (act(15, after=[]), "R at action 15", "action 13 (h2d)"),
    "bytes used again before the offload is done": (act(13, after=[7]), "R at action 13", "action 5 (d2h)"),
    "bytes used again before the op is done": (act(20, after=[]), "R at action 20", "action 17 (compute)"),
    "slot rewritten before it is read": (act(22, after=[]), "R at action 22", "action 20 (h2d)"),
    # P: peak and times
    "peak too low": (totals(peak_live_bytes=4096), "P at plan", "give peak_live_bytes 4608, the plan says 4096"),
    "peak too high": (totals(peak_live_bytes=5120), "P at plan", "give peak_live_bytes 4608, the plan says 5120"),
    "faster than possible": (totals(step_time_us=19), "P at plan", "below lower_bound_us 20"),
    # E: ends
    "source not resident": (remove("resident", "x"), "E at tensor x", "resident 0 times"),
    "source resident twice": (add("resident", tensor="x", slot=1), "E at tensor x", "resident 2 times"),
    "result resident": (add("resident", tensor="z", slot=1), "E at tensor z", "written by drop"),
    "parameter does not persist": (remove("persistent", "w"), "E at tensor w", "one entry in persistent, not 0"),
    "parameter persists twice": (
        add("persistent", tensor="w", becomes="w:next", buffer=1),
        "E at tensor w",
        "one entry in persistent, not 2",
    ),
    "input persists": (add("persistent", tensor="x", becomes="x", buffer=0), "E at tensor x", "no parameter"),
    "update not kept": (change("persistent", "w", becomes="w"), "E at persistent w", "ends as w:next instead of w"),
    "state not brought home": (splice(22, drop=1), "E at persistent m", "ends as m instead of m:next"),
    "ends elsewhere": (act(22, slot=1), "E at persistent m", "ends as m instead"),
    "the next step looks elsewhere": (
        both(act(22, slot=1), change("persistent", "m", slot=1)),
        "E at persistent m",
        "ends in slot 1, the next step looks for it in slot 0",
    ),
    "becomes another shape": (change("tensors", "w:next", shape=[2, 128]), "E at persistent w", "float32[2, 128]"),
    "becomes what no update writes": (change("ops", "update", phase="backward"), "E at persistent w", "phase update"),
    "output elsewhere": (change("outputs", "loss", buffer=0), "E at output loss", "holds x"),
    "output listed twice": (add("outputs", tensor="loss", buffer=5), "E at output loss", "listed 2 times"),
    "loss not an output": (remove("outputs", "loss"), "E at tensor loss", "no output"),
}


@pytest.mark.parametrize("case", CASES)
def test_broken_rule_is_found(case: str) -> None:
    edit, where, words = CASES[case]
    data = copy.deepcopy(DATA)
    edit(data)
    findings = [str(finding) for finding in verify(plan_of(data))]
    assert any(text.startswith(f"{where}: ") and words in text for text in findings), findings


def test_sound_plan_has_no_findings() -> None:
    assert verify(from_text(SAMPLE)) == []
    ensure_verified(from_text(SAMPLE))


def test_every_letter_is_tried() -> None:
    assert {where[0] for _, where, _ in CASES.values()} == set("FSALVORPE")


@pytest.mark.parametrize(("budget", "rules"), [(5632, []), (5631, ["A"]), (1 << 40, [])])
def test_budget_replaces_the_plans_own(budget: int, rules: list[str]) -> None:
    # arena 4608 + reserve 1024 = 5632
    assert [finding.rule for finding in verify(from_text(SAMPLE), budget=budget)] == rules


def test_findings_are_limited() -> None:
    data = copy.deepcopy(DATA)
    for action in data["actions"]:
        action.update({"after": [99] * 50} if "after" in action else {})
    assert len(verify(plan_of(data))) > 300
    assert len(verify(plan_of(data), limit=7)) == 7


def test_ensure_verified_names_findings() -> None:
    data = {**DATA, "peak_live_bytes": 4096}
    with pytest.raises(PlanError, match="P at plan: the actions give peak_live_bytes 4608") as caught:
        ensure_verified(plan_of(data))
    assert caught.value.code == "SNP-V010"
    assert caught.value.exit_code == 6
    assert caught.value.details["findings"][0]["rule"] == "P"
    assert msgspec.json.encode(caught.value.details)


def test_ensure_verified_takes_a_budget() -> None:
    with pytest.raises(PlanError, match="exceed the budget 100"):
        ensure_verified(from_text(SAMPLE), budget=100)
