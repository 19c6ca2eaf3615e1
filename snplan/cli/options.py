"""The options and arguments of the commands, as typer reads them. Values stay text here: `arguments` reads them."""

from __future__ import annotations

from typing import Annotated

import typer

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
OPTIMIZERS = ("sgd", "momentum", "adam", "none")
MODES = ("train", "infer")
SOLVERS = ("off", "cp-sat")
STRATEGIES = (
    *("auto", "baseline", "liveness", "caffe", "torch", "mxnet", "tensorflow", "chen", "vdnn-all", "vdnn-conv"),
    "superneurons",
)

Model = Annotated[str, typer.Argument(metavar="MODEL.onnx", help="The forward graph.", show_default=False)]
Plan = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file (.plan.json, also .gz and .zst).")]
Json = Annotated[bool, typer.Option("--json", help="Write one JSON object on standard output.")]
Svg = Annotated[str | None, typer.Option("--svg", metavar="F.svg", help="Draw a chart.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no tables.")]

GpuMem = Annotated[
    str,
    typer.Option(
        "--gpu-mem", metavar="SIZE", help="The budget: 12G = 12GiB = 12 x 2^30 bytes, 12GB = 12 x 10^9 bytes."
    ),
]
Reserve = Annotated[
    str | None,
    typer.Option("--reserve", metavar="SIZE", help="Part of the budget left to the CUDA context and library handles."),
]
HostMem = Annotated[str | None, typer.Option("--host-mem", metavar="SIZE", help="Pinned host memory that may be used.")]
PinnedLimit = Annotated[
    str | None,
    typer.Option("--pinned-limit", metavar="SIZE", help="The same as a limit of the system; the smaller one counts."),
]
Pools = Annotated[
    list[str] | None,
    typer.Option(
        "--pool",
        metavar="NAME:SIZE[@RATE/s]",
        help="Memory beside the device, as host:64G or peer:8G@10GB/s; repeatable.",
    ),
]
PlanOutput = Annotated[
    str | None, typer.Option("-o", "--output", metavar="P.plan.json", help="The plan file to write.")
]
ModelOutput = Annotated[str | None, typer.Option("-o", "--output", metavar="M.onnx", help="The model file to write.")]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="The batch size.")]
Dim = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="The size of a symbolic dimension; repeatable.")
]
Mode = Annotated[
    str, typer.Option("--mode", metavar="|".join(MODES), help="What to plan: a training step or inference.")
]
Loss = Annotated[
    str | None,
    typer.Option("--loss", metavar="auto|cross-entropy|mse|sum|output:NAME", help="The loss of the training step."),
]
Optimizer = Annotated[
    str | None, typer.Option("--optimizer", metavar="|".join(OPTIMIZERS), help="What updates the parameters.")
]
Precision = Annotated[str, typer.Option("--precision", metavar="|".join(PRECISIONS), help="The math mode.")]
Strategy = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAME[:-PART...]",
        help=f"The rule of the plan: one of {', '.join(STRATEGIES)}; superneurons:-cache-recompute leaves parts out.",
    ),
]
Device = Annotated[str, typer.Option("--device", metavar="NAME|PROFILE.json", help="The device that the plan is for.")]
Solver = Annotated[str, typer.Option("--solver", metavar="|".join(SOLVERS), help="Exact refinement of the plan.")]
TimeLimit = Annotated[
    float | None, typer.Option("--time-limit", metavar="SECONDS", help="Seconds that the solver may take.")
]
Deterministic = Annotated[
    bool, typer.Option("--deterministic", help="Only algorithms that give the same bits in every run.")
]
Freeze = Annotated[
    list[str] | None, typer.Option("--freeze", metavar="GLOB", help="Parameters that are not trained; repeatable.")
]
Fuse = Annotated[
    bool, typer.Option("--fuse/--no-fuse", help="Elementwise chains, and what sums read, run as one op each.")
]
ConvPieces = Annotated[
    int,
    typer.Option(
        "--conv-pieces", metavar="N", help="Convolutions may run in 2, 4 or 8 pieces of the batch, and at most N."
    ),
]
TrainBatchnorm = Annotated[
    bool, typer.Option("--train-batchnorm", help="BatchNorm of a graph in eval mode uses the batch's statistics.")
]
