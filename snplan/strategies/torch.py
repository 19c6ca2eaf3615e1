"""`torch`: the paper gives Torch the rule of Caffe (SuperNeurons, section 2.2)."""

from __future__ import annotations

from typing import ClassVar

from snplan.strategies.caffe import Caffe


class Torch(Caffe):
    """As `caffe`."""

    name: ClassVar[str] = "torch"
    summary: ClassVar[str] = "the rule of caffe"
