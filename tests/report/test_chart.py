"""Charts: round ticks, points at the right pixels, well-formed SVG whatever the names are."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snplan.report.chart import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Bar,
    Scale,
    Series,
    bar_chart,
    line_chart,
    ticks,
)

SVG = "{http://www.w3.org/2000/svg}"


def parsed(svg: str) -> ET.Element:
    """The root element."""
    return ET.fromstring(svg)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 1, [0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        (0, 30, [0, 5, 10, 15, 20, 25, 30]),
        (3, 17, [2, 4, 6, 8, 10, 12, 14, 16, 18]),
        (5, 5, [5, 6]),
    ],
)
def test_ticks(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == expected


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6))
def test_ticks_span_the_data(low: float, width: float) -> None:
    found = ticks(low, low + width)
    slack = 1e-6 * (abs(low) + width)
    assert found[0] <= low + slack
    assert found[-1] >= low + width - slack
    assert 2 <= len(found) <= 11
    assert found == sorted(found)


def test_a_scale_may_point_down() -> None:
    scale = Scale(low=0, high=10, start=300, stop=100)
    assert [scale(0), scale(5), scale(10)] == [300, 200, 100]


def test_a_line_goes_through_its_points() -> None:
    line = Series(name="a", points=[(0, 0), (10, 100)], marks=True)
    circles = parsed(line_chart("t", "x", "y", [line])).findall(f"{SVG}circle")
    places = [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in circles]
    assert places == [(LEFT, HEIGHT - BOTTOM), (WIDTH - RIGHT, TOP)]


def test_stairs_hold_a_value_until_the_next() -> None:
    stairs = Series(name="a", points=[(0, 0), (5, 10), (10, 0)], stairs=True)
    path = parsed(line_chart("t", "x", "y", [stairs])).findall(f"{SVG}path")[-1].attrib["d"]
    assert path == f"M{LEFT}.0 364.0H406.0V44.0H{WIDTH - RIGHT}.0V364.0"


def test_odd_names_stay_well_formed() -> None:
    name = 'a<b & "c" \x00\x1b[31m'
    root = parsed(line_chart(name, name, name, [Series(name=name, points=[(0, 1)], marks=True)]))
    assert any("a<b" in (element.text or "") for element in root.iter())
    assert parsed(bar_chart(name, name, [Bar(name=name, value=None, note=name)])) is not None


def test_nothing_to_draw_is_a_chart_too() -> None:
    assert parsed(line_chart("t", "x", "y", [Series(name="a", points=[])])).tag == f"{SVG}svg"
    assert parsed(bar_chart("t", "y", [])).tag == f"{SVG}svg"


def test_bars_and_a_level() -> None:
    bars = [Bar(name="a", value=5), Bar(name="b", value=None, note="needs 3 GiB"), Bar(name="c", value=10)]
    root = parsed(bar_chart("t", "y", bars, ("level", 10)))
    heights = [float(r.attrib["height"]) for r in root.findall(f"{SVG}rect")[1:]]
    assert heights == [(HEIGHT - BOTTOM - TOP) / 2, HEIGHT - BOTTOM - TOP]
    assert "needs 3 GiB" in [element.text for element in root.iter(f"{SVG}text")]
