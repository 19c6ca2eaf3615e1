"""Convolutions as problems, and the choice of an engine; the library is a stand-in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from snplan.codegen.operand import Operand, Order, operand
from snplan.errors import RunError
from snplan.ir import DType, Spec
from snplan.runtime.cuda.convolution import (
    FIRST_ENGINE_ID,
    Convolution,
    convolution,
    engine_id,
    largest_operand,
    without_bias,
)
from snplan.runtime.cuda.cudnn import is_inexact
from snplan.runtime.cuda.engines import choose_engine

WINDOW: dict[str, Any] = {"strides": [1, 1], "pads": [1, 0, 1, 2], "dilations": [1, 1], "group": 1}


def seen(*shape: int, order: Order = "channels_last") -> Operand:
    """An operand."""
    return operand(Spec(DType.FLOAT32, shape), order)


def problem(**changes: Any) -> Convolution:
    """A forward convolution."""
    found = convolution("conv", [seen(2, 8, 9, 9), seen(16, 8, 3, 3)], [seen(2, 16, 9, 9)], WINDOW)
    return replace(found, **changes)


def test_roles_by_kind() -> None:
    """Image, filter and result are those of the forward convolution, whichever is asked for."""
    x, w, y = seen(2, 8, 9, 9), seen(16, 8, 3, 3), seen(2, 16, 9, 9)
    for kind, inputs, output in (
        ("conv", [x, w], y),
        ("conv_transpose", [y, w], x),
        ("conv_filter", [x, y], w),
    ):
        found = convolution(kind, inputs, [output], WINDOW)
        assert (found.image, found.filter, found.result) == (x, w, y)
        assert found.unknown == output
        assert (found.before, found.after) == ((1, 0), (1, 2))


def test_strides_by_which_the_order_is_known() -> None:
    """A 1x1 filter is the same bytes in both orders; beside channels-last operands it is described as one of them."""
    found = convolution("conv", [seen(2, 8, 9, 9), seen(16, 8, 1, 1, order="plain")], [seen(2, 16, 9, 9)], WINDOW)
    assert found.filter.strides == (8, 1, 8, 8)
    assert found.is_channels_last
    plain = convolution(
        "conv",
        [seen(2, 8, 9, 9, order="plain"), seen(16, 8, 1, 1)],
        [seen(2, 16, 9, 9, order="plain")],
        WINDOW,
    )
    assert plain.filter.strides == (8, 1, 1, 1)
    assert not plain.is_channels_last


def test_one_axis_becomes_two() -> None:
    """Libraries know no convolution of one axis: an axis of one element is put before it."""
    window: dict[str, Any] = {"strides": [2], "pads": [3, 4], "dilations": [1], "group": 1}
    found = convolution("conv", [seen(2, 8, 30), seen(16, 8, 8)], [seen(2, 16, 15)], window)
    assert found.image.shape == (2, 8, 1, 30)
    assert found.image.strides == (240, 1, 240, 8)
    assert (found.before, found.after, found.strides, found.dilations) == ((0, 3), (0, 4), (1, 2), (1, 1))


def test_bias_is_part_of_the_problem() -> None:
    """With a bias it is another problem, and can be had without."""
    x, w, y = seen(2, 8, 9, 9), seen(16, 8, 3, 3), seen(2, 16, 9, 9)
    found = convolution("conv", [x, w, seen(16)], [y], WINDOW)
    assert found.bias
    assert found.describe().endswith("with bias")
    assert without_bias(found) == problem()


def test_equal_problems_share_their_engines() -> None:
    """Problems are values."""
    assert len({problem(), problem(), problem(group=2)}) == 2


def test_engine_ids() -> None:
    """Ids come from names, and are not those of the cost model."""
    assert engine_id("eng1_k2=3") == engine_id("eng1_k2=3") >= FIRST_ENGINE_ID
    assert engine_id("eng1_k2=3") != engine_id("eng1_k2=4")
    assert engine_id("eng1") != engine_id("eng1", separate_bias=True)


def test_largest_operand() -> None:
    """Elements, not bytes."""
    assert largest_operand(problem()) == 2 * 16 * 81


@dataclass
class FakeEngine:
    """An engine of a library: bytes of workspace (None: it cannot be built) and microseconds (None: it fails)."""

    name: str
    workspace: int | None
    us: float | None
    built: int = 0
    deterministic: bool = True

    @property
    def id(self) -> int:
        """As real engines have it."""
        return engine_id(self.name)

    def build(self) -> int | None:
        """Counted."""
        self.built += 1
        return self.workspace


@dataclass
class FakeLibrary:
    """What choosing asks of cuDNN."""

    offered: list[FakeEngine]
    version: str = "9.19.0"

    def engines(self, wanted: Convolution, *, steady: bool = False) -> tuple[FakeEngine, ...]:
        """All of them; where they must be steady, others cannot be built."""
        barred = [replace(engine, workspace=None) for engine in self.offered if not engine.deterministic]
        kept = [engine for engine in self.offered if engine.deterministic]
        return tuple([*barred, *kept] if steady else self.offered)


def time_of(engine: Any) -> float:
    """Raises where the engine fails."""
    if engine.us is None:
        raise ValueError("CUDNN_STATUS_EXECUTION_FAILED")
    return float(engine.us)


def chosen(engines: list[FakeEngine], planned: int | None, limit: int, *, timed: bool = True) -> str:
    """Name of the engine that is chosen."""
    library: Any = FakeLibrary(engines)
    return choose_engine(library, problem(), planned, limit, time_of if timed else None).name


FAST = FakeEngine("fast", 36 << 30, 10.0)
SMALL = FakeEngine("small", 1 << 20, 20.0)
NONE = FakeEngine("none", 0, 30.0)
BROKEN = FakeEngine("broken", 0, None)
MISSING = FakeEngine("missing", None, 1.0)


def test_fastest_that_fits() -> None:
    """Workspaces above 2^32 bytes are numbers like others."""
    engines = [MISSING, NONE, FAST, BROKEN, SMALL]
    assert chosen(engines, 0, 40 << 30) == "fast"
    assert chosen(engines, 0, 36 << 30) == "fast"
    assert chosen(engines, 1, (36 << 30) - 1) == "small"
    assert chosen(engines, None, 0) == "none"


def test_only_engines_with_the_same_bits_in_every_run() -> None:
    """Where the plan leaves the choice, speed does not buy bits that vary; a plan may name such an engine."""
    shaky = replace(FAST, deterministic=False)
    assert chosen([shaky, SMALL], 0, 40 << 30) == "small"
    assert chosen([shaky, SMALL], shaky.id, 40 << 30) == "fast"


def test_without_timer_the_first_that_fits() -> None:
    """The library's order does not change from run to run, times do."""
    assert chosen([FAST, NONE, SMALL], 0, 2 << 20, timed=False) == "none"


def test_planned_engine() -> None:
    """A real id is taken at its word, however slow."""
    assert chosen([FAST, NONE, SMALL], NONE.id, 0) == "none"


def test_planned_engine_is_not_offered() -> None:
    """Another version of the library, or another mode: refused, with what to do."""
    for engines in ([FAST, SMALL], [FAST, replace(NONE, workspace=None)]):
        with pytest.raises(RunError, match=r"not offered by cuDNN 9\.19\.0.*snplan profile") as caught:
            chosen(engines, NONE.id, 0)
        assert caught.value.code == "SNP-R054"


def test_planned_engine_needs_more_now() -> None:
    """Two queries may differ: what is asked now is compared with the plan, and both numbers are told."""
    engines = [replace(NONE, workspace=128_000)]
    with pytest.raises(RunError, match=r"125\.00 KiB.*56\.25 KiB") as caught:
        chosen(engines, NONE.id, 57_600)
    assert caught.value.details == {"engine": NONE.id, "bytes": 128_000, "planned_bytes": 57_600}


@pytest.mark.parametrize("engines", [[FAST], [BROKEN], [MISSING]], ids=["too large", "fails", "missing"])
def test_none_runs(engines: list[FakeEngine]) -> None:
    """The message has shapes, type, order, groups and dilations."""
    with pytest.raises(RunError) as caught:
        chosen(engines, 0, 1 << 20)
    assert caught.value.code == "SNP-R055"
    for text in (
        "float32[2, 8, 9, 9]",
        "[16, 8, 3, 3]",
        "channels-last",
        "1 groups",
        "dilations [1, 1]",
        "1,048,576 B",
    ):
        assert text in caught.value.message


def test_engines_known_to_lose_digits() -> None:
    """They are known by the problem and the number in their names, whatever their settings."""
    assert is_inexact("conv_filter", "eng17_k25=0")
    assert is_inexact("conv_filter", "eng17")
    assert not is_inexact("conv_filter", "eng170_k2=1")
    assert not is_inexact("conv", "eng17_k25=0")
