"""Figures 5 and 6: the in and out sets of a small network with a fan, and the route through two nested fans.

The drawings themselves are not in the paper's text; both networks follow from what it says about them.

Figure 5 (the network of Figure 3c): DATA forks, the branches have different lengths and join at FC; the steps are 0 to
11; FC7 has in = t0, t1, t3, t2, t5, makes t6 and no longer needs t2 and t5; CONV9 requires three tensors; the first in
set and the last out set are empty. Only DATA0 -> CONV1 -> CONV2 -> FC4, DATA0 -> POOL3 -> FC4 -> SOFTMAX5 gives that:
t2 is not read again (the output of a CONV) and t1 is (the input of CONV2).

Figure 6: layers a to j; two nested fans, (b, c, d) and (f, g, h); e, g and h are what i waits for.
"""

from __future__ import annotations

from snplan.report.chart import document, text
from superneurons.layers import Kind, Layer, Network, make_network, route
from superneurons.memory import in_out_sets
from superneurons.result import Cell, Check, Result
from superneurons.trace import Trace, trace

SHAPE = (1, 4, 4, 4)

FIG5: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "DATA": (Kind.DATA, ()),
    "CONV-a": (Kind.CONV, ("DATA",)),
    "CONV-b": (Kind.CONV, ("CONV-a",)),
    "POOL": (Kind.POOL, ("DATA",)),
    "FC": (Kind.FC, ("CONV-b", "POOL")),
    "SOFTMAX": (Kind.SOFTMAX, ("FC",)),
}

FIG6: dict[str, tuple[str, ...]] = {
    "a": (),
    "b": ("a",),
    "c": ("b",),
    "d": ("b",),
    "e": ("c",),
    "f": ("d",),
    "g": ("f",),
    "h": ("f",),
    "i": ("e", "g", "h"),
    "j": ("i",),
}


def fig5_network() -> Network:
    """The network of Figure 5; all of its tensors have the same size."""
    layers = [Layer(name=name, kind=kind, inputs=inputs, shape=SHAPE) for name, (kind, inputs) in FIG5.items()]
    return make_network("Figure 5", layers)


def step_names(step: Trace) -> list[str]:
    """The paper's name of each step: the kind of its layer with the number of the step."""
    return [f"{step.network[each.layer].kind}{each.number}" for each in step.steps]


def tensor_names(step: Trace) -> list[str]:
    """The paper's name of each tensor: t and how many were made before it."""
    made = sorted(range(len(step.tensors)), key=step.first.__getitem__)
    return [f"t{made.index(tensor)}" for tensor in range(len(step.tensors))]


def fig5() -> Result:
    """Figure 5: the in and out set of every step."""
    step = trace(fig5_network())
    names = tensor_names(step)
    sets = [tuple({names[t] for t in each} for each in pair) for pair in in_out_sets(step)]
    rows: list[list[Cell]] = []
    for title, each, (before, after) in zip(step_names(step), step.steps, sets, strict=True):
        made = {names[t] for t in each.writes} - before
        rows.append([title, _listed(before), _listed(made), _listed(after)])
    fc, conv = sets[7], step.steps[9]
    required = {*conv.reads, *conv.writes}
    checks = [
        Check(what="FC7: in = t0, t1, t2, t3, t5", passed=fc[0] == {"t0", "t1", "t2", "t3", "t5"}),
        Check(what="FC7 makes t6 and frees t2 and t5", passed=fc[1] == {"t0", "t1", "t3", "t6"}),
        Check(what="CONV9 requires three tensors", passed=len(required) == 3),
        Check(
            what="steps 0 to 11; empty at first and at last", passed=len(sets) == 12 and not (sets[0][0] or sets[11][1])
        ),
    ]
    return Result(
        name="fig5",
        title="in and out sets on the network of Figure 3c",
        columns=("step", "in", "makes", "out"),
        rows=rows,
        checks=checks,
        notes=(
            "Layer model, no device. The edges are deduced from what the text says of the figure: "
            "DATA0 -> CONV1 -> CONV2 -> FC4 and DATA0 -> POOL3 -> FC4 -> SOFTMAX5.",
        ),
        charts={"fig5": _table_chart("Figure 5: in and out sets", [list(map(str, row)) for row in rows])},
    )


def fig6() -> Result:
    """Figure 6: forward and backward step of every layer on Algorithm 1's route."""
    order = route(FIG6)
    count = len(order)
    rows: list[list[Cell]] = [[name, i + 1, 2 * count - i, _comma(FIG6[name])] for i, name in enumerate(order)]
    place = {name: i for i, name in enumerate(order)}
    waits = all(place[name] < place["i"] for name in "egh")
    return Result(
        name="fig6",
        title="Algorithm 1's route through two nested fans",
        columns=("layer", "forward step", "backward step", "reads"),
        rows=rows,
        checks=[
            Check(what="e, g and h come before i", passed=waits),
            Check(what="from a to j: a b c e d f g h i j", passed="".join(order) == "abcedfghij"),
        ],
        notes=("Layer model, no device. The edges are deduced from what the text says of the figure.",),
        charts={"fig6": _table_chart("Figure 6: route", [list(map(str, row)) for row in rows])},
    )


def _listed(names: set[str]) -> str:
    return _comma(sorted(names, key=lambda name: int(name[1:])))


def _comma(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names) or "-"


def _table_chart(title: str, rows: list[list[str]]) -> str:
    """The rows as text in an SVG."""
    body = [
        text(72 + 170 * column, 56 + 22 * line, cell)
        for line, row in enumerate(rows)
        for column, cell in enumerate(row)
    ]
    return document(title, body, height=80 + 22 * len(rows))
