"""Charts as SVG text, without a plotting library: lines over two axes, and groups of bars.

The same data gives the same bytes. Colours are from Okabe and Ito's palette, which colour-blind readers can tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 72, 20, 44, 56
STYLE = "<style>text{font:12px sans-serif}.title{font-size:15px;font-weight:bold}.grid{stroke:#ddd}</style>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named line through points (x, y); `stairs` holds each y until the next x, `marks` draws the points."""

    name: str
    points: Sequence[tuple[float, float]]
    dashed: bool = False
    marks: bool = False
    stairs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar; without a value its place holds `note`, the reason."""

    name: str
    value: float | None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """A linear axis: data from `low` to `high` on pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def ticks(low: float, high: float, most: int = 8) -> list[float]:
    """At most `most` + 1 round numbers that span [low, high]: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low, low + 1]
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * part for part in (1, 2, 5, 10) if power * part >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def line_chart(title: str, x_label: str, y_label: str, series: Sequence[Series]) -> str:
    """An SVG of the series over both axes, with a legend; the y axis begins at zero unless that hides the shape."""
    points = [point for line in series for point in line.points]
    x_ticks = ticks(min((x for x, _ in points), default=0), max((x for x, _ in points), default=1))
    lowest, highest = min((y for _, y in points), default=0), max((y for _, y in points), default=1)
    y_ticks = ticks(0 if lowest < highest / 2 or lowest == highest else lowest, highest)
    x = Scale(low=x_ticks[0], high=x_ticks[-1], start=LEFT, stop=WIDTH - RIGHT)
    y = Scale(low=y_ticks[0], high=y_ticks[-1], start=HEIGHT - BOTTOM, stop=TOP)
    body = [*y_axis(y, y_ticks, y_label), *x_axis(x, x_ticks, x_label)]
    for number, line in enumerate(series):
        body += _line(line, COLORS[number % len(COLORS)], x, y)
    return document(title, [*body, *legend([line.name for line in series])])


def bar_chart(title: str, y_label: str, groups: Sequence[Bar], line: tuple[str, float] | None = None) -> str:
    """An SVG with one bar for each value; `line` is a level to compare with (its name, its value)."""
    values = [bar.value for bar in groups if bar.value is not None] + ([line[1]] if line else [])
    y_ticks = ticks(0, max(values, default=1))
    y = Scale(low=y_ticks[0], high=y_ticks[-1], start=HEIGHT - BOTTOM, stop=TOP)
    room = (WIDTH - LEFT - RIGHT) / max(1, len(groups))
    body = list(y_axis(y, y_ticks, y_label))
    slanted = max((len(bar.name) for bar in groups), default=0) * 7 > room
    for number, bar in enumerate(groups):
        body += _bar(bar, LEFT + number * room, room, y, slanted)
    if line is not None:
        level = f"{y(line[1]):.1f}"
        body.append(f'<path d="M{LEFT} {level}H{WIDTH - RIGHT}" stroke="{COLORS[1]}" stroke-dasharray="6 4"/>')
        body.append(text(WIDTH - RIGHT, y(line[1]) - 4, line[0], anchor="end"))
    return document(title, body)


def document(title: str, body: Sequence[str], height: int = HEIGHT) -> str:
    """A whole SVG with a title over its body."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(clean(title), {chr(34): "&quot;"})}">'
    )
    backdrop = f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
    caption = text(LEFT, 22, title, kind="title")
    return "\n".join([head, STYLE, backdrop, caption, *body, "</svg>", ""])


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "", angle: int = 0) -> str:
    """A text element; characters that XML cannot hold become question marks."""
    turn = f' transform="rotate({angle} {x:.1f} {y:.1f})"' if angle else ""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}{turn}>{escape(clean(words))}</text>'


def clean(words: str) -> str:
    """The words with question marks for characters that XML cannot hold."""
    return "".join(c if c.isprintable() else "?" for c in words)


def number(value: float) -> str:
    """A tick's label."""
    return f"{value:,.10g}" if value == round(value) else f"{value:.6g}"


def y_axis(scale: Scale, marks: Sequence[float], label: str) -> Iterator[str]:
    """A vertical axis: lines across the chart, numbers, a label."""
    for mark in marks:
        yield f'<path class="grid" d="M{LEFT} {scale(mark):.1f}H{WIDTH - RIGHT}"/>'
        yield text(LEFT - 6, scale(mark) + 4, number(mark), anchor="end")
    yield text(16, (scale.start + scale.stop) / 2, label, anchor="middle", angle=-90)


def x_axis(scale: Scale, marks: Sequence[float], label: str) -> Iterator[str]:
    """A horizontal axis: lines up the chart, numbers, a label."""
    for mark in marks:
        yield f'<path class="grid" d="M{scale(mark):.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        yield text(scale(mark), HEIGHT - BOTTOM + 16, number(mark), anchor="middle")
    yield text((scale.start + scale.stop) / 2, HEIGHT - BOTTOM + 36, label, anchor="middle")


def _line(line: Series, color: str, x: Scale, y: Scale) -> Iterator[str]:
    if not line.points:
        return
    places = [(x(a), y(b)) for a, b in line.points]
    path = f"M{places[0][0]:.1f} {places[0][1]:.1f}"
    path += "".join(f"H{a:.1f}V{b:.1f}" if line.stairs else f"L{a:.1f} {b:.1f}" for a, b in places[1:])
    dash = ' stroke-dasharray="6 4"' if line.dashed else ""
    yield f'<path d="{path}" fill="none" stroke="{color}" stroke-width="1.5"{dash}/>'
    if line.marks:
        for (a, b), (px, py) in zip(line.points, places, strict=True):
            told = escape(clean(f"{line.name}: {number(a)}, {number(b)}"))
            yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{color}"><title>{told}</title></circle>'


def _bar(bar: Bar, left: float, room: float, y: Scale, slanted: bool) -> Iterator[str]:
    middle = left + room / 2
    if slanted:
        yield text(middle + 4, HEIGHT - BOTTOM + 14, bar.name, anchor="end", angle=-25)
    else:
        yield text(middle, HEIGHT - BOTTOM + 16, bar.name, anchor="middle")
    if bar.value is None:
        yield text(middle + 4, y.start - 6, bar.note, angle=-90)
        return
    top = y(bar.value)
    yield (
        f'<rect x="{left + room * 0.2:.1f}" y="{top:.1f}" width="{room * 0.6:.1f}" height="{y.start - top:.1f}" '
        f'fill="{COLORS[0]}"><title>{escape(clean(f"{bar.name}: {number(bar.value)}"))}</title></rect>'
    )
    yield text(middle, top - 4, f"{bar.value:.4g}", anchor="middle")


def legend(names: Sequence[str]) -> Iterator[str]:
    """Names beside the colours of series in their order, along the bottom."""
    x = float(LEFT)
    for position, name in enumerate(names):
        color = COLORS[position % len(COLORS)]
        yield f'<rect x="{x:.1f}" y="{HEIGHT - 14}" width="14" height="4" fill="{color}"/>'
        yield text(x + 18, HEIGHT - 9, name)
        x += 34 + 6.5 * len(name)
