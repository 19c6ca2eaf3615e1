"""The whole training step from a forward graph with its loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from snplan.errors import ModelError
from snplan.ir import Forward, Graph, Op, Phase, Role, Step
from snplan.ops import infer
from snplan.training.draft import Draft
from snplan.training.naming import Namer, renamed
from snplan.training.optimizer import Optimizer
from snplan.training.parameters import Parameters, find_parameters
from snplan.training.paths import Paths, check_rules, paths_to, without_dead_ops
from snplan.training.reverse import ReversePass
from snplan.training.simplify import drop_expands, fold_transposes, hoist_updates
from snplan.training.views import resolve_views, view_bases, with_own_outputs


def build_step(forward: Forward, *, freeze: Sequence[str] = (), optimizer: Optimizer) -> Step:
    """The training step of `forward`, whose loss is known: forward, backward and update ops, views resolved.

    Forward ops keep their order; running statistics are updated right after their BatchNorm, the backward runs in
    reverse, each parameter's update follows the op that completes its gradient.
    Raises ModelError (SNP-D001: ops without a gradient; SNP-D002: no loss; SNP-D003: a name is taken) and UsageError
    (SNP-U043: a glob matches nothing).
    """
    if forward.loss is None:
        raise ModelError("SNP-D002", "the model has no loss; choose one with --loss")
    prepared = _prepared(forward, (forward.loss,))
    paths = paths_to(prepared.graph, forward.loss)
    parameters = find_parameters(prepared, freeze, paths)
    needed = paths.reached(parameters.trained)
    check_rules(paths, needed)
    return _StepBuilder(prepared, paths, parameters, needed, optimizer).build()


def build_inference_step(forward: Forward) -> Step:
    """The step of `forward` alone: its outputs are the graph's, running statistics are updated once if it says so."""
    prepared = _prepared(forward, forward.graph.outputs)
    statistics = find_parameters(prepared).roles

    def role(name: str) -> Role:
        weight = statistics[name] is Role.CONSTANT and prepared.graph.tensors[name].dtype.is_float
        return Role.PARAMETER if weight else statistics[name]

    graph = _with_roles(prepared, {name: role(name) for name in prepared.initializers})
    return Step(
        graph=resolve_views(graph),
        loss=None,
        inputs=prepared.inputs,
        gradients={},
        becomes={name: prepared.state_updates.get(name, name) for name in prepared.initializers},
        warnings=prepared.warnings,
    )


def _prepared(forward: Forward, outputs: Sequence[str]) -> Forward:
    """`forward` with `outputs` alone, simplified, without what they do not need."""
    graph = with_own_outputs(replace(forward.graph, outputs=tuple(outputs)))
    graph = hoist_updates(drop_expands(fold_transposes(graph)))
    return without_dead_ops(replace(forward, graph=graph))


def _with_roles(forward: Forward, roles: Mapping[str, Role]) -> Graph:
    """The forward graph with the roles of initializers; a running statistic's next value has its role too."""
    tensors = dict(forward.graph.tensors)
    updated = dict.fromkeys(forward.state_updates.values(), Role.STATE)
    for name, role in {**roles, **updated}.items():
        tensors[name] = replace(tensors[name], role=role)
    return replace(forward.graph, tensors=tensors)


class _StepBuilder:
    """Builds the step of `forward`: the trained parameters and the tensors that need gradients are known."""

    def __init__(
        self, forward: Forward, paths: Paths, parameters: Parameters, needed: set[str], optimizer: Optimizer
    ) -> None:
        self.forward = forward
        self.graph = paths.graph
        self.loss = paths.loss
        self.trained = parameters.trained
        self.warnings = (*forward.warnings, *parameters.warnings)
        self.optimizer = optimizer
        self.draft = Draft(_with_roles(forward, parameters.roles))
        self.reverse = ReversePass(self.draft, paths, needed)
        self.claimed: set[str] = set()
        self.gradients: dict[str, str] = {}
        self.states: list[str] = []
        self.becomes = {name: forward.state_updates.get(name, name) for name in forward.initializers}

    def build(self) -> Step:
        """The step."""
        self._check_names()
        warnings = self.warnings
        if self.trained:
            finished = self._first_reads()
            self.reverse.run(lambda index: self._finish(finished.get(index, ())))
        else:
            warnings = (*warnings, "no parameter is trained: the step only computes the loss")
        graph = self._resolved()
        return Step(
            graph=graph,
            loss=self.loss,
            inputs=self.forward.inputs,
            gradients=self.gradients,
            becomes=self.becomes,
            warnings=warnings,
        )

    def _check_names(self) -> None:
        """Raise ModelError (SNP-D003) where the model has a tensor of a name that the step must give."""
        suffixes = ["grad"]
        if self.optimizer.name != "none":
            suffixes += ["next", *self.optimizer.states, *(f"{state}:next" for state in self.optimizer.states)]
        for name in self.trained:
            taken = [f"{name}:{suffix}" for suffix in suffixes if f"{name}:{suffix}" in self.graph.tensors]
            if taken:
                raise ModelError(
                    "SNP-D003",
                    f"the model has a tensor {taken[0]}, which training wants for parameter {name}; rename one of them",
                )

    def _first_reads(self) -> dict[int, list[str]]:
        """The parameters whose gradients are complete once the backward of the op of that index is there."""
        waiting, needed = {*self.trained}, self.reverse.needed
        first: dict[int, list[str]] = {}
        for index, op in enumerate(self.graph.ops):
            for name in op.inputs if any(name in needed for name in op.outputs) else ():
                if name in waiting:
                    waiting.discard(name)
                    first.setdefault(index, []).append(name)
        return first

    def _finish(self, names: Iterable[str]) -> None:
        """Give parameters their gradients and emit their updates."""
        for name in names:
            gradient = self._own(name, self.reverse.gradients[name])
            self.gradients[name] = gradient
            if self.optimizer.name != "none":
                self._update(name, gradient)

    def _own(self, name: str, gradient: str) -> str:
        """`gradient`, or a copy of it where its bytes are another parameter's gradient already."""
        if self.draft.base(gradient) in self.claimed:
            (gradient,) = self.draft.emit("copy", [gradient], {}, f"{name}:grad_copy")
        self.claimed.add(self.draft.base(gradient))
        return gradient

    def _update(self, name: str, gradient: str) -> None:
        spec, states = self.draft.tensors[name].spec, [f"{name}:{state}" for state in self.optimizer.states]
        inputs = (name, gradient, *states)
        for state in states:
            self.draft.add(state, spec, Role.OPTIMIZER)
            self.states.append(state)
        infer(self.optimizer.kind, [self.draft.tensors[source].spec for source in inputs], self.optimizer.attrs)
        outputs = (f"{name}:next", *(f"{state}:next" for state in states))
        for source, output in zip((name, *states), outputs, strict=True):
            self.draft.add(output, spec, self.draft.tensors[source].role)
            self.becomes[source] = output
        self.draft.ops.append(
            Op(
                name=self.draft.op_names.fresh(f"{name}:update"),
                kind=self.optimizer.kind,
                inputs=inputs,
                outputs=outputs,
                phase=Phase.UPDATE,
                attrs=self.optimizer.attrs,
            )
        )

    def _resolved(self) -> Graph:
        """The step's graph: views resolved, gradients under their names and in the parameters' order."""
        self.gradients = {name: self.gradients[name] for name in self.trained}
        outputs = [self.loss, *(self.gradients.values() if self.optimizer.name == "none" else ())]
        graph = Graph(
            tensors=self.draft.tensors,
            ops=(*self.graph.ops, *self.draft.ops),
            sources=(*self.graph.sources, *self.states),
            outputs=tuple(outputs),
        )
        graph = drop_expands(graph, self.gradients.values())
        bases = view_bases(graph)
        names = self._names(bases)
        self.gradients = {name: names[bases.get(gradient, gradient)] for name, gradient in self.gradients.items()}
        return renamed(resolve_views(graph), names)

    def _names(self, bases: Mapping[str, str]) -> dict[str, str]:
        """Final names of what the backward made: gradients by what they are gradients of, the rest by their ops."""
        made = self.draft.made
        names = {bases.get(gradient, gradient): f"{name}:grad" for name, gradient in self.gradients.items()}
        namer = Namer([*(name for name in self.draft.tensors if name not in made), *names.values()])
        for name, gradient in self.reverse.gradients.items():
            base = bases.get(gradient, gradient)
            if base not in names:
                names[base] = namer.fresh(f"{name}:grad")
        for provisional, op_name in made.items():
            if provisional not in names and provisional not in bases:
                names[provisional] = namer.fresh(op_name)
        return names
