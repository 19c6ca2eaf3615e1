"""The unplanned execution on the GPU: each op once, with the kernels and engines of the plan that it checks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from snplan.errors import RunError
from snplan.runtime.cuda.backend import CudaBackend
from snplan.runtime.cuda.gpu import Array
from snplan.runtime.cuda.unplanned import unplanned_plan
from snplan.runtime.session import TrainingSession


class CudaReference:
    """Executes steps by a plan that moves and recomputes nothing, on a backend of its own beside the session's."""

    def __init__(self, session: TrainingSession, values: Mapping[str, Array]) -> None:
        """`values` of all that persists.

        Raises RunError: SNP-R052 where the device has no room beside the session, SNP-R060
        where the plan's engines are not deterministic.
        """
        backend = session.backend
        assert isinstance(backend, CudaBackend)
        if backend.unsteady:
            message = (
                f"op {backend.unsteady[0]} runs an engine that may give other bits in another run, so that equal bits "
                "prove nothing and other bits neither; compile with --deterministic to compare"
            )
            raise RunError("SNP-R060", message, {"ops": list(backend.unsteady)})
        self._session = TrainingSession(
            unplanned_plan(session.index), values, backend=backend.twin(), seed=session.seed
        )

    def step(self, number: int, inputs: Mapping[str, Array], taps: Collection[str]) -> dict[str, Array]:
        """Values of `taps`, of the plan's outputs, and of what persists (under the name it becomes), after a step."""
        session = self._session
        session.steps_done = number - 1
        session.step(inputs)
        becomes = {entry.tensor: entry.becomes for entry in session.index.plan.persistent}
        state = {becomes[name]: value for name, value in session.state().items()}
        tapped = {name: value for name, value in session.backend.tapped().items() if name in taps}
        return {**state, **session.outputs(), **tapped}

    def close(self) -> None:
        """Give the memory back."""
        self._session.close()
