"""Drawings of the small plan, whose live bytes are worked out by hand in tests/cli/plans.py."""

from __future__ import annotations

import errno
import json
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import pytest
from cli.plans import SIZE, small_plan
from msgspec.structs import replace

from snplan.cost.simulate import Timeline
from snplan.cost.timed import plan_timeline
from snplan.errors import SnplanError, UsageError
from snplan.plan.model import Alloc, Extent, Free, Run, StepPlan
from snplan.plan.timeline import BREAKDOWN, breakdown, live_bytes, live_set
from snplan.report.addresses import MOST, address_chart, blocks
from snplan.report.areas import memory_chart
from snplan.report.files import write_report
from snplan.report.lanes import lanes_chart
from snplan.report.memory import Moment, memory_moments, thinned
from snplan.report.page import page
from snplan.report.trace import trace

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan() -> StepPlan:
    return small_plan()


@pytest.fixture
def timeline(plan: StepPlan) -> Timeline:
    return plan_timeline(plan)


def titles(svg: str) -> list[str]:
    """What the shapes say when pointed at."""
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}title")]


def test_moments_agree_with_the_live_set(plan: StepPlan) -> None:
    live = live_bytes(plan)
    moments = memory_moments(plan)
    assert [moment.action for moment in moments] == [1, 3, 7, 10, 14, 18, 20]
    for moment in moments:
        assert moment.live == live[moment.action]
        assert dict(zip(BREAKDOWN, moment.groups, strict=True)) == breakdown(live_set(plan, moment.action))


def of_live(sizes: Sequence[int]) -> list[Moment]:
    return [Moment(action=i, op=str(i), groups=(size,)) for i, size in enumerate(sizes)]


def test_thinning_keeps_peaks() -> None:
    sizes = [1, 9, 1, 1, 1, 1, 1, 7]
    assert [moment.live for moment in thinned(of_live(sizes), 2)] == [9, 7]
    assert thinned(of_live(sizes), 8) == of_live(sizes)


def test_the_memory_chart(plan: StepPlan, timeline: Timeline) -> None:
    svg = memory_chart(plan, timeline.start)
    drawn = [element.text for element in ET.fromstring(svg).iter(f"{SVG}text")]
    assert "live memory, GiB" in drawn
    assert "peak at relu_grad g" in drawn
    assert any(text and text.startswith("budget less reserve") for text in drawn)
    assert set(titles(svg)) == {"parameters", "gradients", "activations", "inputs", "other"}


def test_blocks_are_live_intervals(plan: StepPlan) -> None:
    found = blocks(plan)
    assert [(b.start, b.end, b.tensor) for b in found] == [
        *((-1, 22, "x"), (-1, 22, "w"), (0, 4, "a"), (2, 8, "y"), (6, 22, "loss")),
        *((9, 15, "a"), (11, 16, "y"), (13, 19, "g"), (17, 21, "w:grad")),
    ]
    assert sum(b.bytes for b in found if b.start <= 13 < b.end) == 5 * SIZE + 512
    assert any("a: 4,096 B at 8,192, actions 0 to 4" in title for title in titles(address_chart(plan)))


def many_buffers(count: int) -> StepPlan:
    """A plan with a tail of small buffers; only their lives matter here."""
    size = 512
    plan = small_plan()
    tail = [Extent(id=100 + i, offset=plan.arena_bytes + i * size, bytes=size) for i in range(count)]
    allocs: list[Alloc | Free] = [Alloc(buffer=row.id) for row in tail]
    frees: list[Alloc | Free] = [Free(buffer=row.id) for row in tail]
    return small_plan(
        buffers=[*plan.buffers, *tail],
        arena_bytes=plan.arena_bytes + count * size,
        actions=[*plan.actions, *allocs, *frees],
    )


def test_small_buffers_are_grouped() -> None:
    few, many = address_chart(many_buffers(MOST)), address_chart(many_buffers(10 * MOST))
    assert any("small buffers: other" in title for title in titles(many))
    assert len(many) < 2 * len(few)


def test_lanes_follow_the_timeline(plan: StepPlan, timeline: Timeline) -> None:
    told = titles(lanes_chart(plan, timeline))
    assert any(title.startswith("5: y") for title in told)  # the offload, on a lane of its own
    assert any(title.startswith("12: y") for title in told)
    assert any(title.startswith("10: mul a") for title in told)


def test_the_trace(plan: StepPlan, timeline: Timeline) -> None:
    found = json.loads(trace(plan, timeline))
    spans = {event["args"]["action"]: event for event in found["traceEvents"] if event["ph"] == "X"}
    assert sorted(spans) == [1, 3, 5, 7, 10, 12, 14, 18, 20]
    for number, event in spans.items():
        assert (event["ts"], event["ts"] + event["dur"]) == (timeline.start[number], timeline.end[number])
    assert [spans[n]["cat"] for n in (1, 5, 10, 12, 14, 20)] == [
        *("forward", "offload", "recompute", "prefetch", "backward", "update")
    ]
    assert spans[5]["args"]["bytes"] == SIZE
    counters = [event["args"] for event in found["traceEvents"] if event["ph"] == "C"]
    assert max(sum(counter.values()) for counter in counters) == plan.peak_live_bytes


def test_the_page_needs_nothing_else(plan: StepPlan, timeline: Timeline) -> None:
    html = page(plan, timeline)
    assert html.count("<svg ") == 3
    assert re.findall(r"(?:src|href)=", html) == []
    assert set(re.findall(r"https?://[^\"'< ]+", html)) == {"http://www.w3.org/2000/svg"}
    assert "20.50 KiB (20,992 B)" in html
    assert page(plan, timeline) == html


def test_names_are_not_markup() -> None:
    evil = "<script>x</script>"
    plan = small_plan()
    ops = [*plan.ops[:-1], replace(plan.ops[-1], name=evil)]
    last = plan.actions[20]
    assert isinstance(last, Run)
    renamed = replace(last, op=evil)
    changed = small_plan(ops=ops, actions=[*plan.actions[:20], renamed, *plan.actions[21:]])
    html = page(changed, plan_timeline(changed))
    assert evil not in html
    assert "&lt;script&gt;x" in html


def test_big_plans_make_small_pages() -> None:
    plan = many_buffers(50_000)
    html = page(plan, plan_timeline(plan))
    assert len(plan.actions) > 100_000
    assert len(html) < 20 * 10**6


def test_a_plan_of_an_unknown_device(plan: StepPlan) -> None:
    with pytest.raises(UsageError, match="SNP-U045"):
        plan_timeline(small_plan(device={"name": "abacus"}))


def test_a_report_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    folder.mkdir()
    with pytest.raises(UsageError, match="SNP-U011"):
        write_report(folder, "text", what="page")
    assert list(tmp_path.iterdir()) == [folder]


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "SNP-R030"), (errno.EDQUOT, "SNP-R030"), (errno.EACCES, "SNP-U011")]
)
def test_a_report_that_the_disk_refuses_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, code: str
) -> None:
    path = tmp_path / "o.html"
    path.write_text("old")

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(SnplanError) as caught:
        write_report(path, "new", what="page")
    assert caught.value.code == code
    assert caught.value.exit_code == (7 if code == "SNP-R030" else 2)
    assert str(path) in caught.value.message
    assert os.strerror(number).lower() in caught.value.message
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["old"]
