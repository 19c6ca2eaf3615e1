"""From a forward graph to a training step: loss, parameters, backward ops, optimiser updates."""

from snplan.training.differentiate import build_inference_step, build_step
from snplan.training.fuse import fuse_step
from snplan.training.loss import attach_loss
from snplan.training.optimizer import Optimizer, make_optimizer
from snplan.training.parameters import Parameters, find_parameters
from snplan.training.views import resolve_views

__all__ = [
    "Optimizer",
    "Parameters",
    "attach_loss",
    "build_inference_step",
    "build_step",
    "find_parameters",
    "fuse_step",
    "make_optimizer",
    "resolve_views",
]
