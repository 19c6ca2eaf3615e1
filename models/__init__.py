"""The model zoo: ONNX models in training form, written from a name and a few options.

Nothing here loads onnx before a model is built or saved, so that a command line can list the models at no cost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from snplan.models.option import Option
from snplan.models.registry import build, names, options, summary

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["Option", "build", "names", "options", "save", "summary"]


def save(model: ModelProto, path: str | os.PathLike[str]) -> None:
    """Writes the model to `path`, at once or not at all; large weights go to `path` + ".data" beside it."""
    from snplan.models import files

    files.save(model, path)
