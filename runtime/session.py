"""Training by a step plan: the Python API over the replay loop."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from snplan.errors import RunError
from snplan.ir import Role, elements
from snplan.plan.index import PlanIndex, index_plan
from snplan.plan.model import Persistent, Place, StepPlan
from snplan.runtime.device_array import DeviceArray
from snplan.runtime.protocol import Backend
from snplan.runtime.replay import Measured, Replay
from snplan.runtime.values import checked, input_values, sources, start_values, weight_error

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class TrainingSession:
    """A plan on a backend, with the model's state between steps.

    `weights` are arrays by tensor name for every parameter, running statistic and constant (optimiser state starts as
    zeros unless it is among them). `backend` is "numpy", "cuda" or a Backend that is not bound yet. `first_step` is the
    number of the next step: random numbers and Adam's bias correction depend on it. Without `keep_gradients` none is
    copied out and `gradients` is empty. Raises RunError for what does not fit.
    """

    def __init__(
        self,
        plan: StepPlan,
        weights: Mapping[str, Array],
        *,
        backend: str | Backend = "numpy",
        seed: int = 0,
        first_step: int = 1,
        debug: bool = False,
        keep_gradients: bool = True,
    ) -> None:
        self.index = index_plan(plan)
        self.seed = seed
        self.steps_done = first_step - 1
        self.backend = make_backend(backend, debug=debug) if isinstance(backend, str) else backend
        self._gradients = gradient_names(self.index) if keep_gradients else {}
        self._resident = {place.tensor: place for place in plan.resident}
        values = start_values(self.index, weights)
        self.backend.bind(self.index, taps=frozenset(self._gradients.values()))
        self._replay = Replay(self.index, self.backend)
        self._loss_place = _loss_place(self.index)
        self._moves = [(entry, self._resident[entry.tensor]) for entry in plan.persistent if self._moved(entry)]
        self.measured: Measured | None = None
        self._staged: Mapping[str, Any] | None = None
        self._staged_places: list[Place] = []
        self._waiting: Mapping[str, DeviceArray] = {}
        for name, value in values.items():
            self.backend.write(self._resident[name], value)

    def step(self, inputs: Mapping[str, Any], following: Mapping[str, Any] | None = None) -> float:
        """The loss of one training step over `inputs` (arrays by input name); NaN where the plan has no loss.

        Arrays may be in the device's memory (`__cuda_array_interface__` or DLPack) where the backend is there too; they
        must not change before the step that takes them has ended. `following` are the inputs of the next call, made
        ready while this step runs; give the same object then.
        Raises RunError naming an input that is missing or does not fit, or the action that failed.
        """
        if inputs is self._staged:
            for place in self._staged_places:
                self.backend.send(place)
            self._adopt(self._waiting)
        else:
            host, device = _by_memory(input_values(self.index, inputs))
            for name, value in host.items():
                self.backend.write(self._resident[name], value)
            self._adopt(device)
        self._staged = None
        meanwhile = None if following is None else partial(self._stage, following)
        self.measured = self._replay.step(self.steps_done + 1, self.seed, meanwhile)
        self.steps_done += 1
        loss = self._loss()
        self._move_persistent()
        return loss

    def input_blocks(self) -> tuple[dict[str, Array], dict[str, Array]]:
        """Two sets of arrays to fill with inputs, from which steps copy nothing on the host.

        They take turns: the next step's inputs belong into `blocks[steps_done % 2]`, those of the step after it, which
        `step` takes as `following`, into the other.
        """
        rows = sources(self.index, inputs=True)
        pairs = {row.name: self.backend.blocks(self._resident[row.name]) for row in rows}
        return {name: pair[0] for name, pair in pairs.items()}, {name: pair[1] for name, pair in pairs.items()}

    def _stage(self, inputs: Mapping[str, Any]) -> None:
        host, self._waiting = _by_memory(input_values(self.index, inputs))
        self._staged_places = [self._resident[name] for name in host]
        for name, value in host.items():
            self.backend.stage(self._resident[name], value)
        self._staged = inputs

    def _adopt(self, values: Mapping[str, DeviceArray]) -> None:
        for name, value in values.items():
            self.backend.adopt(self._resident[name], value)

    def gradients(self) -> dict[str, Array]:
        """Gradients of the last step by parameter name, each of its parameter's shape."""
        tapped = self.backend.tapped()
        shapes = {name: tuple(self.index.tensors[name].shape) for name in self._gradients}
        return {name: tapped[grad].reshape(shapes[name]) for name, grad in self._gradients.items() if grad in tapped}

    def state(self) -> dict[str, Array]:
        """Values that the next step starts from, by tensor name: parameters, running statistics, optimiser state."""
        return {name: self.backend.read(self._resident[name]) for name in self.state_names()}

    def state_names(self) -> list[str]:
        """Names of the tensors of `state`, in the plan's order."""
        kept = (Role.PARAMETER, Role.STATE, Role.OPTIMIZER)
        names = [entry.tensor for entry in self.index.plan.persistent]
        return [name for name in names if self.index.tensors[name].role in kept]

    def trained(self) -> dict[str, Array]:
        """Parameters and running statistics as the last step left them, by the names of the model's initializers."""
        kept = (Role.PARAMETER, Role.STATE)
        names = [name for name in self.state_names() if self.index.tensors[name].role in kept]
        return {name: self.backend.read(self._resident[name]) for name in names}

    def export_onnx(self, model: Path | str, target: Path | str) -> None:
        """Write the plan's `model`, an ONNX file, to `target` with the weights as trained.

        Raises RunError: SNP-R022 where it is not the model that the plan was made from, SNP-R030 where `target` cannot
        be written.
        """
        from snplan.frontend import export_model, load_model

        loaded = load_model(model)
        wanted = self.index.plan.model.sha256
        if loaded.sha256 != wanted:
            message = f"{model} has sha256 {loaded.sha256}, the plan was made from a model with {wanted}; give that one"
            raise RunError("SNP-R022", message, {"found_sha256": loaded.sha256, "wanted_sha256": wanted})
        export_model(loaded, self.trained(), Path(target))

    def restore(self, values: Mapping[str, Array], *, steps_done: int, seed: int) -> None:
        """Go on from `values` (of all of `state_names`) as if `steps_done` steps with `seed` had been done.

        Raises RunError (SNP-R001) for a value that does not fit.
        """
        for name in self.state_names():
            value = checked(self.index.tensors[name], values.get(name), weight_error)
            self.backend.write(self._resident[name], value)
        self.steps_done = steps_done
        self.seed = seed

    def outputs(self) -> dict[str, Array]:
        """The plan's results when the last step ended: the loss, or a model's outputs in inference."""
        return {place.tensor: self.backend.read(place) for place in self.index.plan.outputs}

    @property
    def has_loss(self) -> bool:
        """Whether the plan computes a loss; one for inference does not."""
        return self._loss_place is not None

    @property
    def predicted_step_us(self) -> int:
        """Microseconds that a step is expected to take on the plan's device.

        To the plan's own prediction, which starts with the inputs in place, comes what of their copy cannot be hidden
        behind the step before.
        """
        return self.index.plan.step_time_us + self.backend.arriving_us

    def close(self) -> None:
        """Give the backend's memory back; the session cannot be used afterwards."""
        self.backend.close()

    def __enter__(self) -> TrainingSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _loss(self) -> float:
        if self._loss_place is None:
            return float("nan")
        return float(self.backend.read(self._loss_place).reshape(-1)[0])

    def _moved(self, entry: Persistent) -> bool:
        """Whether the value of the next step ends elsewhere than the next step looks for it."""
        start = self._resident[entry.tensor]
        extents = {"buffer": self.index.buffers, "slot": self.index.slots}
        for kind, rows in extents.items():
            here, there = getattr(entry, kind), getattr(start, kind)
            if here is not None and there is not None:
                return rows[here].offset != rows[there].offset
        return True

    def _move_persistent(self) -> None:
        """Bring back what ended elsewhere. All are read before one is written: places may overlap."""
        values = [
            (start, self.backend.read(Place(tensor=entry.becomes, buffer=entry.buffer, slot=entry.slot)))
            for entry, start in self._moves
        ]
        for start, value in values:
            self.backend.write(start, value)


def make_backend(name: str, *, debug: bool = False) -> Backend:
    """A backend by the word of `--backend`. Raises RunError (SNP-R010) where it is not there."""
    if name == "numpy":
        from snplan.runtime.numpy.backend import NumpyBackend

        return NumpyBackend(debug=debug)
    if name == "cuda":
        from snplan.runtime.cuda.backend import CudaBackend

        return CudaBackend(debug=debug)
    raise RunError("SNP-R010", f"there is no backend {name!r}; use numpy or cuda")


def _by_memory(values: Mapping[str, Array | DeviceArray]) -> tuple[dict[str, Array], dict[str, DeviceArray]]:
    """Values in host memory, and those on a device."""
    device = {name: value for name, value in values.items() if isinstance(value, DeviceArray)}
    return {name: value for name, value in values.items() if not isinstance(value, DeviceArray)}, device


def _loss_place(index: PlanIndex) -> Place | None:
    """Where the loss is when a step ends: the output of that role, which holds one number."""
    places = [place for place in index.plan.outputs if index.tensors[place.tensor].role == Role.LOSS]
    return places[0] if len(places) == 1 and elements(index.tensors[places[0].tensor].shape) == 1 else None


def gradient_names(index: PlanIndex) -> dict[str, str]:
    """Gradient tensors that a plan computes, by the parameter they are of."""
    parameters = [tensor.name for tensor in index.plan.tensors if tensor.role == Role.PARAMETER]
    written = {name for op in index.plan.ops for name in op.outputs}
    return {name: f"{name}:grad" for name in parameters if f"{name}:grad" in written}
