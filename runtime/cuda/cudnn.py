"""Convolutions through cuDNN's graphs on raw addresses: the engines offered for a problem, and how to run one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snplan.codegen.operand import Operand
from snplan.errors import RunError
from snplan.ir import DType
from snplan.runtime.cuda.convolution import Convolution, engine_id, largest_operand, without_bias
from snplan.runtime.cuda.gpu import Issue, Stream
from snplan.runtime.cuda.packages import cudnn, dotted

# Elements of one operand that cuDNN can address (issue threads: a batch of 2^31 elements fails in the descriptor).
ELEMENT_LIMIT = 2**31 - 1
_TYPES = {
    DType.FLOAT64: "DOUBLE",
    DType.FLOAT32: "FLOAT",
    DType.FLOAT16: "HALF",
    DType.BFLOAT16: "BFLOAT16",
}
# The front end numbers engines of its own, which need packages that are no part of snplan[cuda], from here.
_FIRST_FOREIGN_ENGINE = 10_000
# Engines with these notes round operands to fewer bits than float32 has, or lose digits in Winograd's transforms.
INEXACT_NOTES = (
    "TENSOR_CORE",
    "DOWN_CONVERT_INPUTS",
    "REDUCED_PRECISION_REDUCTION",
    "WINOGRAD",
    "WINOGRAD_TILE_4x4",
    "WINOGRAD_TILE_6x6",
    "WINOGRAD_TILE_13x13",
)
# Engines that lose digits and have no note, by kind of problem: cuDNN 9.19's 17 is off by 1.3e-3 for filters of 5x5.
INEXACT_ENGINES = {"conv_filter": ("eng17",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """What engines may do: round float32 operands to TF32, give other bits in another run."""

    tf32: bool
    deterministic: bool


@dataclass(frozen=True, slots=True)
class EngineRef:
    """An engine as listed: its id in plans, the graph that it is of, and its place and name there."""

    id: int
    graph: ConvolutionGraph
    place: int
    name: str

    @property
    def deterministic(self) -> bool:
        """Whether it gives the same bits in every run."""
        return self.graph.is_deterministic(self.place)

    @property
    def separate_bias(self) -> bool:
        """Whether the bias has to be added afterwards."""
        return self.graph.separate_bias

    def build(self) -> int | None:
        """Bytes of workspace that it needs, once it is ready to run; None where it turns out not to support this."""
        return self.graph.build(self.place)


class Cudnn:
    """A handle on a stream, and the engines of every problem met so far."""

    def __init__(self, stream: Stream, mode: Mode) -> None:
        """Raises RunError (SNP-R050) where cuDNN is missing."""
        self.library = cudnn()
        self.mode = mode
        self.handle = self.library.create_handle()
        self.library.set_stream(handle=self.handle, stream=stream.handle)
        self._engines: dict[tuple[Convolution, Mode], tuple[EngineRef, ...]] = {}

    @property
    def version(self) -> str:
        """cuDNN's version."""
        return dotted(int(self.library.backend_version()))

    def engines(self, problem: Convolution, *, steady: bool = False) -> tuple[EngineRef, ...]:
        """Engines offered for a problem, the best by cuDNN's own judgement first.

        With `steady` those that may give other bits in another run cannot be built. Raises RunError (SNP-R055) where
        there is none, with shape, type, order, groups and dilations.
        """
        mode = replace(self.mode, deterministic=steady or self.mode.deterministic)
        key = problem, mode
        if key not in self._engines:
            _check_size(problem)
            self._engines[key] = tuple(self._listed(problem, mode))
        if not self._engines[key]:
            raise _unsupported(problem, f"cuDNN {self.version} has no engine for it")
        return self._engines[key]

    def _listed(self, problem: Convolution, mode: Mode) -> list[EngineRef]:
        exact = problem.dtype is DType.FLOAT32 and not mode.tf32
        graphs = [ConvolutionGraph(self, problem, mode, separate_bias=False)]
        if problem.bias:
            graphs.append(ConvolutionGraph(self, without_bias(problem), mode, separate_bias=True))
        return [
            EngineRef(engine_id(name, separate_bias=graph.separate_bias), graph, place, name)
            for graph in graphs
            for place, name in graph.names()
            if not (exact and is_inexact(problem.kind, name))
        ]

    def close(self) -> None:
        """Give the handle and all engines back."""
        self._engines = {}
        self.library.destroy_handle(self.handle)


class ConvolutionGraph:
    """One operation graph with its list of engines; the list's order is kept, so a place means one engine."""

    def __init__(self, owner: Cudnn, problem: Convolution, mode: Mode, *, separate_bias: bool) -> None:
        self._owner, self._problem, self._mode = owner, problem, mode
        self.separate_bias = separate_bias
        self._strict: ConvolutionGraph | None = None
        self._sizes: dict[int, int | None] = {}
        self._graph, self._tensors = _operation_graph(owner.library, owner.handle, problem)
        self._declined = _plan(owner.library, self._graph, mode, problem.dtype)

    def names(self) -> list[tuple[int, str]]:
        """Place and name of each engine of cuDNN itself, each name once."""
        if self._declined is not None:
            return []
        found: dict[str, int] = {}
        for place in range(self._graph.get_execution_plan_count()):
            if _is_backend(self._graph, place):
                found.setdefault(str(self._graph.get_plan_name_at_index(place)), place)
        return [(place, name) for name, place in found.items()]

    def build(self, place: int) -> int | None:
        """Workspace bytes of the engine, made ready; None where it is excluded by the mode or not supported."""
        if place not in self._sizes:
            try:
                self._graph.build_plan_at_index(place)
                self._sizes[place] = int(self._graph.get_workspace_size_plan_at_index(place))
            except Exception:
                # The front end has no common base of its errors; whatever it says, this engine is not to be had.
                self._sizes[place] = None
        return self._sizes[place]

    def is_deterministic(self, place: int) -> bool:
        """Whether the engine is also there where only deterministic ones are allowed."""
        if self._mode.deterministic:
            return True
        if self._strict is None:
            strict = replace(self._mode, deterministic=True)
            self._strict = ConvolutionGraph(self._owner, self._problem, strict, separate_bias=self.separate_bias)
        return self._strict.build(place) is not None

    def issue(self, place: int, addresses: Mapping[str, int], workspace: int) -> Issue:
        """A call that runs the engine; `addresses` are those of image, filter, result and bias."""
        graph, handle = self._graph, self._owner.handle
        pack = {tensor: addresses[role] for role, tensor in self._tensors.items()}

        def run() -> None:
            graph.execute_plan_at_index(pack, workspace, place, handle)

        return run


def is_inexact(kind: str, name: str) -> bool:
    """Whether the engine `name` of a problem of this kind gives fewer digits than float32 arithmetic does."""
    return name.partition("_")[0] in INEXACT_ENGINES.get(kind, ())


def _operation_graph(library: Any, handle: Any, problem: Convolution) -> tuple[Any, dict[str, Any]]:
    """The graph, and its tensors by role; the unknown is set as output."""
    kind = getattr(library.data_type, _TYPES[problem.dtype])
    compute = library.data_type.DOUBLE if problem.dtype is DType.FLOAT64 else library.data_type.FLOAT
    graph = library.pygraph(io_data_type=kind, intermediate_data_type=compute, compute_data_type=compute, handle=handle)
    roles = {"image": problem.image, "filter": problem.filter, "result": problem.result}
    unknown = {"conv": "result", "conv_transpose": "image", "conv_filter": "filter"}[problem.kind]
    tensors = {
        role: graph.tensor(name=role, dim=list(x.shape), stride=list(x.strides), data_type=kind)
        for role, x in roles.items()
        if role != unknown
    }
    output = _node(graph, problem, tensors)
    if problem.bias:
        channels = problem.result.shape[1]
        shape = (1, channels, *(1,) * (problem.result.rank - 2))
        strides = (channels, 1, *(channels,) * (problem.result.rank - 2))
        tensors["bias"] = graph.tensor(name="bias", dim=list(shape), stride=list(strides), data_type=kind)
        output = graph.bias(name="add", input=output, bias=tensors["bias"])
    written: Operand = roles[unknown]
    output.set_output(True).set_dim(list(written.shape)).set_stride(list(written.strides)).set_data_type(kind)
    return graph, {**tensors, unknown: output}


def _node(graph: Any, problem: Convolution, tensors: Mapping[str, Any]) -> Any:
    window = {
        "pre_padding": list(problem.before),
        "post_padding": list(problem.after),
        "stride": list(problem.strides),
        "dilation": list(problem.dilations),
    }
    if problem.kind == "conv":
        return graph.conv_fprop(image=tensors["image"], weight=tensors["filter"], **window)
    if problem.kind == "conv_transpose":
        return graph.conv_dgrad(loss=tensors["result"], filter=tensors["filter"], **window)
    return graph.conv_wgrad(image=tensors["image"], loss=tensors["result"], **window)


def _plan(library: Any, graph: Any, mode: Mode, dtype: DType) -> str | None:
    """List the engines that the mode allows; why there are none, or None."""
    notes = library.numerical_note
    barred = [] if mode.tf32 or dtype is not DType.FLOAT32 else [getattr(notes, name) for name in INEXACT_NOTES]
    if mode.deterministic:
        barred.append(notes.NONDETERMINISTIC)
    modes = library.heur_mode
    try:
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.B, modes.FALLBACK])
        if barred:
            graph.deselect_numeric_notes(barred)
        graph.check_support()
    except Exception as error:
        return str(error)
    return None


def _is_backend(graph: Any, place: int) -> bool:
    """Whether cuDNN itself runs the engine, rather than Python code that compiles on first use."""
    plans: Sequence[Any] = getattr(graph, "plans", ())
    return not plans or 0 <= plans[place].engine_id < _FIRST_FOREIGN_ENGINE


def _check_size(problem: Convolution) -> None:
    elements = largest_operand(problem)
    if elements > ELEMENT_LIMIT:
        raise _unsupported(
            problem, f"an operand has {elements:,} elements, cuDNN addresses {ELEMENT_LIMIT:,}: lower the batch size"
        )
    if problem.dtype not in _TYPES:
        raise _unsupported(problem, "cuDNN has no convolutions of this type")


def _unsupported(problem: Convolution, why: str) -> RunError:
    return RunError("SNP-R055", f"{problem.describe()} cannot run: {why}", {"problem": problem.describe()})


def describe_failure(problem: Convolution, limit: int) -> RunError:
    """The error for a problem all of whose engines failed or need more than `limit` bytes of workspace."""
    return _unsupported(problem, f"no engine of cuDNN runs it within the planned workspace of {limit:,} B")
