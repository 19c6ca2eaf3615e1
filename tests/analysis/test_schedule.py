"""Schedules: values, recomputes, what is needed at the end."""

from __future__ import annotations

from tests_support import training_chain

from snplan.analysis.schedule import Schedule, build_schedule, saved_tensors, start_times


def executions(schedule: Schedule) -> list[str]:
    names = [op.name for op in schedule.step.ops]
    return [names[op] + ("" if first else "'") for op, first in zip(schedule.runs, schedule.first, strict=True)]


def test_keep_all_runs_every_op_once() -> None:
    schedule = build_schedule(training_chain())
    assert executions(schedule) == ["fa", "fb", "fc", "top", "gc", "gb", "ga"]
    assert schedule.recompute_us() == 0


def test_saved_tensors_are_what_the_backward_pass_reads() -> None:
    step = training_chain()
    assert [step.names[t] for t in saved_tensors(step)] == ["c", "b", "a"]


def test_a_dropped_tensor_is_recomputed_before_its_first_backward_reader() -> None:
    step = training_chain()
    kept = {step.names.index("a"), step.names.index("c")}
    schedule = build_schedule(step, kept)
    assert executions(schedule) == ["fa", "fb", "fc", "top", "gc", "fb'", "gb", "ga"]
    assert schedule.recompute_us() == 10


def test_recompute_goes_back_to_what_is_kept_and_shares_values() -> None:
    step = training_chain()
    schedule = build_schedule(step, {step.names.index("c")})
    assert executions(schedule) == ["fa", "fb", "fc", "top", "gc", "fa'", "fb'", "gb", "ga"]
    b = [v for v in schedule.values if step.names[v.tensor] == "a"]
    assert [(value.birth, value.uses) for value in b] == [(0, [1]), (5, [6, 8])]


def test_transient_tensors_are_recomputed_for_each_reader() -> None:
    step = training_chain()
    a, c = step.names.index("a"), step.names.index("c")
    schedule = build_schedule(step, {c}, transient={a})
    assert executions(schedule) == ["fa", "fb", "fc", "top", "gc", "fa'", "fb'", "gb", "fa'", "ga"]


def test_times_add_up() -> None:
    assert list(start_times(build_schedule(training_chain()))) == [0, 10, 20, 30, 40, 50, 60, 70]
