"""`vdnn-conv`: as `vdnn-all`, for the inputs of CONV layers only (Rhu et al., MICRO 2016)."""

from __future__ import annotations

from typing import ClassVar

from snplan.analysis.index import IndexedStep
from snplan.strategies.layers import heavy_kinds, layer_inputs
from snplan.strategies.vdnn_all import VdnnAll


class VdnnConv(VdnnAll):
    """Inputs of CONV layers are offloaded while the layer runs; the next layer waits for the copy."""

    name: ClassVar[str] = "vdnn-conv"
    summary: ClassVar[str] = "offload the input of CONV layers, one layer at a time; prefetch one CONV ahead"

    def offloaded(self, step: IndexedStep) -> set[int]:
        """The tensors that are offloaded where the backward pass reads them."""
        return layer_inputs(step, heavy_kinds(step))
