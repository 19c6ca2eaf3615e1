"""Random waits on the streams before actions: what a plan's `after` edges must hold against."""

from __future__ import annotations

import random

from snplan.codegen.launch import Addresses, Launch, Scalar, source, values
from snplan.runtime.cuda.gpu import Gpu, Stream
from snplan.runtime.cuda.modules import load_kernels
from snplan.runtime.numpy.streams import Delays


class Spin:
    """Keeps a stream busy for a random time before each action; the same times for the same seed."""

    def __init__(self, gpu: Gpu, delays: Delays) -> None:
        self._gpu, self._delays = gpu, delays
        self._source = source("spin", "spin")
        self._module = load_kernels(gpu, [self._source])

    def __call__(self, action: int, stream: Stream) -> None:
        """Spin on the stream."""
        seconds = random.Random(f"{self._delays.seed} {action}").random() * self._delays.seconds
        launch = Launch(
            source=self._source, grid=(1, 1, 1), block=(1, 1, 1), arguments=(Scalar("int64", int(seconds * 1e9)),)
        )
        self._gpu.launcher(self._module, launch, values(launch, Addresses(inputs=(), outputs=())), stream)()
