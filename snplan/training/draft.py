"""A step in the making: tensors and ops that are added to a forward graph, under provisional names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from snplan.ir import Attr, Graph, Op, Phase, Role, Spec, Tensor
from snplan.ops import KINDS, infer
from snplan.training.naming import Namer, unused_prefix


class Draft:
    """The tensors and ops of a step in the making.

    Results of emitted ops have provisional names: what a gradient is called is known only when all of it is there.
    """

    def __init__(self, graph: Graph) -> None:
        self.tensors = dict(graph.tensors)
        self.ops: list[Op] = []
        self.op_names = Namer(op.name for op in graph.ops)
        self.made: dict[str, str] = {}
        """Provisional names, and the ops that made them."""
        self.bases: dict[str, str] = {}
        """The tensor that holds the bytes of a view."""
        self._prefix = unused_prefix(graph.tensors)

    def emit(
        self,
        kind: str,
        inputs: Sequence[str],
        attrs: Mapping[str, Attr],
        name: str,
        *,
        nodes: tuple[str, ...] = (),
        rng: int | None = None,
    ) -> tuple[str, ...]:
        """Provisional names of the results of a new backward op called `name` (or like it)."""
        specs = infer(kind, [self.tensors[source].spec for source in inputs], attrs)
        outputs = tuple(f"{self._prefix}{len(self.made) + i}" for i in range(len(specs)))
        op = Op(
            name=self.op_names.fresh(name),
            kind=kind,
            inputs=tuple(inputs),
            outputs=outputs,
            phase=Phase.BACKWARD,
            attrs=attrs,
            nodes=nodes,
            rng=rng if KINDS[kind].random else None,
        )
        self.ops.append(op)
        for output, spec in zip(outputs, specs, strict=True):
            self.made[output] = op.name
            self.add(output, spec, Role.GRADIENT)
        if KINDS[kind].view:
            self.bases[outputs[0]] = self.base(inputs[0])
        return outputs

    def add(self, name: str, spec: Spec, role: Role) -> None:
        """Add a tensor."""
        self.tensors[name] = Tensor(name=name, spec=spec, role=role)

    def base(self, name: str) -> str:
        """The tensor that holds the bytes of `name`: another one where an emitted op made a view."""
        return self.bases.get(name, name)
