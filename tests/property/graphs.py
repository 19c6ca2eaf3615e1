"""Random forward graphs: fans, joins, shared weights, ops with several outputs, dropout, batch normalisation."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from snplan.ir import Attr, DType, Forward, Graph, Op, Phase, Role, Spec, Tensor
from snplan.ops import infer

BATCH = 16
WIDTHS = (16, 32, 64, 128)
UNARY = ("relu", "tanh", "sigmoid", "neg", "softplus")


@dataclass
class GraphWriter:
    """Collects ops; shapes come from the op table."""

    tensors: dict[str, Tensor] = field(default_factory=dict)
    ops: list[Op] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    states: dict[str, str] = field(default_factory=dict)
    streams: int = 0

    def source(self, name: str, shape: tuple[int, ...], role: Role) -> str:
        """A source tensor."""
        self.tensors[name] = Tensor(name=name, spec=Spec(DType.FLOAT32, shape), role=role)
        self.sources.append(name)
        if role is Role.INPUT:
            self.inputs.append(name)
        return name

    def op(self, kind: str, inputs: tuple[str, ...], phase: Phase = Phase.FORWARD, **attrs: Attr) -> tuple[str, ...]:
        """The outputs of a new op."""
        name = f"{kind}_{len(self.ops)}"
        specs = infer(kind, [self.tensors[i].spec for i in inputs], attrs)
        outputs = tuple(f"{name}:{k}" for k in range(len(specs)))
        for output, spec in zip(outputs, specs, strict=True):
            self.tensors[output] = Tensor(name=output, spec=spec)
        rng = None
        if kind == "dropout":
            rng, self.streams = self.streams, self.streams + 1
        self.ops.append(
            Op(name=name, kind=kind, inputs=inputs, outputs=outputs, attrs=attrs, phase=phase, rng=rng, nodes=(name,))
        )
        return outputs

    def width(self, name: str) -> int:
        """Columns of a tensor."""
        return self.tensors[name].shape[1]

    def forward(self, output: str) -> Forward:
        """The finished graph with `output` as its only result."""
        graph = Graph(tensors=self.tensors, ops=tuple(self.ops), sources=tuple(self.sources), outputs=(output,))
        initializers = tuple(name for name in self.sources if name not in self.inputs)
        return Forward(
            graph=graph, inputs=tuple(self.inputs), initializers=initializers, state_updates=dict(self.states)
        )


def _batch_norm(writer: GraphWriter, x: str) -> str:
    number, width = len(writer.ops), writer.width(x)
    names = [writer.source(f"bn{number}.{part}", (width,), Role.CONSTANT) for part in ("scale", "bias", "mean", "var")]
    y, mean, var = writer.op("batch_norm_train", (x, names[0], names[1]), epsilon=1e-5)
    updated = writer.op("batch_norm_update", (names[2], names[3], mean, var), Phase.UPDATE, momentum=0.9)
    writer.states.update(zip(names[2:], updated, strict=True))
    return y


def _weight(writer: GraphWriter, draw: st.DrawFn, rows: int, columns: int) -> str:
    """A weight of this shape: an old one (shared) or a new one."""
    old = [n for n in writer.sources if n.startswith("w") and writer.tensors[n].shape == (rows, columns)]
    if old and draw(st.sampled_from((False, True))):
        return draw(st.sampled_from(old))
    return writer.source(f"w{len(writer.sources)}", (rows, columns), Role.CONSTANT)


def _grow(writer: GraphWriter, draw: st.DrawFn, live: list[str]) -> list[str]:
    """Outputs of one random op on tensors of `live`."""
    x = draw(st.sampled_from(live[-6:]))
    same = [t for t in live if writer.width(t) == writer.width(x)]
    choice = draw(st.sampled_from(("unary", "join", "matmul", "split", "concat", "norm", "dropout", "bias")))
    if choice == "unary":
        return [*writer.op(draw(st.sampled_from(UNARY)), (x,))]
    if choice == "join":
        return [*writer.op(draw(st.sampled_from(("add", "mul"))), (x, draw(st.sampled_from(same))))]
    if choice == "matmul":
        weight = _weight(writer, draw, writer.width(x), draw(st.sampled_from(WIDTHS)))
        return [*writer.op("matmul", (x, weight), trans_a=False, trans_b=False, alpha=1.0)]
    if choice == "split" and writer.width(x) >= 32:
        half = writer.width(x) // 2
        return [*writer.op("split", (x,), axis=1, sizes=[half, half])]
    if choice == "concat" and writer.width(x) <= 64:
        return [*writer.op("concat", (x, draw(st.sampled_from(same))), axis=1)]
    if choice == "norm":
        return [_batch_norm(writer, x)]
    if choice == "dropout":
        return [*writer.op("dropout", (x,), ratio=0.25)]
    bias = writer.source(f"b{len(writer.sources)}", (writer.width(x),), Role.CONSTANT)
    return [*writer.op("add", (x, bias))]


def _scalar(writer: GraphWriter, live: list[str]) -> str:
    """The sum of the means of all tensors that nothing reads."""
    read = {name for op in writer.ops for name in op.inputs}
    ends = [name for name in live if name not in read] or live[-1:]
    means = [writer.op("reduce_mean", (end,), axes=[0, 1], keepdims=False)[0] for end in ends]
    total = means[0]
    for mean in means[1:]:
        (total,) = writer.op("add", (total, mean))
    return total


@st.composite
def forwards(draw: st.DrawFn, max_ops: int = 14) -> Forward:
    """Random forward graphs of up to `max_ops` ops (and what a scalar loss takes), with at least one weight."""
    writer = GraphWriter()
    live = [writer.source("x", (BATCH, draw(st.sampled_from(WIDTHS))), Role.INPUT)]
    first = _weight(writer, draw, writer.width("x"), draw(st.sampled_from(WIDTHS)))
    live += writer.op("matmul", ("x", first), trans_a=False, trans_b=False, alpha=1.0)
    for _ in range(draw(st.integers(1, max_ops))):
        live += _grow(writer, draw, live)
    return writer.forward(_scalar(writer, live))
