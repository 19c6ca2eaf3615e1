"""Builders of batch normalisation: one pass for the sums, one to apply; either physical order, any number of axes.

The fold's last block turns sums into one factor a channel, so that applying costs a few multiplications an element.
"""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.fold import Fold, fold
from snplan.codegen.launch import Launch
from snplan.codegen.operand import Operand, broadcast, only, with_ones
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.reduce import WORK, scratch, with_scratch
from snplan.codegen.scalars import SIZES, compute_type


def _axes(x: Operand) -> list[int]:
    return [0, *range(2, x.rank)]


def _by_channel(call: Call, index: int) -> Access:
    """A vector of channels, repeated to the shape of x."""
    return reads(call, index, _repeated(call.inputs[index], call.inputs[0]))


def _repeated(vector: Operand, x: Operand) -> Operand:
    return broadcast(with_ones(vector, _axes(x), x.rank), x.shape)


class _Vectors:
    """Vectors of channels in the workspace, one after another, and the bytes that they take."""

    def __init__(self, call: Call, count: int) -> None:
        self._x = call.inputs[0]
        self.compute = compute_type(x.dtype for x in call.inputs)
        channels = self._x.shape[1]
        size = channels * SIZES[self.compute]
        self.stored = [scratch(WORK[self.compute], (channels,), size * k) for k in range(count)]
        self.bytes = size * count

    @property
    def repeated(self) -> list[Access]:
        """The vectors, repeated to the shape of x."""
        return [Access(argument=v.argument, operand=_repeated(v.operand, self._x), type=v.type) for v in self.stored]


def _epsilon(call: Call) -> str:
    return f"A({float(call.attrs['epsilon'])!r})"


def _statistics(call: Call, results: tuple[str, ...], outputs: Sequence[Access], workspace: int) -> Sequence[Launch]:
    """The fold over x that makes `mean` and `variance`, and writes `results` of them.

    Sums are of differences from each channel's first element: that keeps them small, and joining partial sums is an
    addition, where joining means and variances would take divisions in a chain.
    """
    x, a = call.inputs[0], compute_type(x.dtype for x in call.inputs)
    first = only(x, [1])
    body = Fold(
        compute=a,
        monoid=f"Sum2<{a}>",
        size=2 * SIZES[a],
        values=("(a0 - a1)", "(a0 - a1) * (a0 - a1)"),
        finish=(
            "const A shift = t.v / A(count), mean = b0 + shift;",
            "const A variance = largest(t.w / A(count) - shift * shift, A(0));",
        ),
        results=results,
    )
    beside = [reads(call, 0, first), *(reads(call, k) for k in range(1, min(len(call.inputs), 2)))]
    summed = [reads(call, 0), reads(call, 0, _repeated(first, x))]
    return fold("batch_norm_statistics", summed, _axes(x), outputs, body, workspace, beside)


@builds("batch_norm_train")
def train(call: Call) -> Sequence[Launch]:
    """Statistics, then y = (x - mean) * factor + bias."""
    work = _Vectors(call, 2)
    results = ("mean", "variance", "mean", f"b1 * inverse_root(variance + {_epsilon(call)})")
    outputs = [writes(call, 1), writes(call, 2), *work.stored]
    apply = Body(compute=work.compute, results=("(a0 - a1) * a2 + a3",))
    inputs = [reads(call, 0), *work.repeated, _by_channel(call, 2)]
    return with_scratch(
        work.bytes,
        _statistics(call, results, outputs, work.bytes),
        pointwise("batch_norm_apply", inputs, [writes(call)], apply),
    )


@builds("batch_norm_statistics")
def statistics(call: Call) -> Sequence[Launch]:
    """Mean, variance and 1 / sqrt(variance + epsilon)."""
    results = ("mean", "variance", f"inverse_root(variance + {_epsilon(call)})")
    return _statistics(call, results, [writes(call, k) for k in range(3)], 0)


@builds("batch_norm_inverse")
def inverse(call: Call) -> Sequence[Launch]:
    """1 / sqrt(variance + epsilon)."""
    body = Body(compute=compute_type([call.inputs[0].dtype]), results=(f"inverse_root(a0 + {_epsilon(call)})",))
    return pointwise(call.kind, [reads(call, 0)], [writes(call)], body)


@builds("batch_norm_grad_sums")
def gradient_sums(call: Call) -> Sequence[Launch]:
    """dscale and dbias from x, mean, inv_std and dy."""
    compute, x = compute_type(x.dtype for x in call.inputs), call.inputs[0]
    body = Fold(
        compute=compute,
        monoid=f"Sum2<{compute}>",
        size=2 * SIZES[compute],
        values=("a2 * (a0 - a1)", "a2"),
        results=("t.v * b0", "t.w"),
    )
    mean, inverse = (broadcast(call.inputs[k], x.shape) for k in (1, 2))
    inputs = [reads(call, 0), reads(call, 1, mean), reads(call, 3)]
    outputs = [writes(call, 0), writes(call, 1)]
    return fold("batch_norm_grad_sums", inputs, _axes(x), outputs, body, 0, [reads(call, 2, only(inverse, [1]))])


@builds("batch_norm_grad")
def gradient(call: Call) -> Sequence[Launch]:
    """Sums of dy and of dy * (x - mean), then dx = factor * dy + along * (x - mean) + level."""
    work = _Vectors(call, 3)
    apply = Body(compute=work.compute, results=("a1 * a3 + ((a0 - a2) * a4 + a5)",))
    inputs = [reads(call, 0), reads(call, 4), _by_channel(call, 2), *work.repeated]
    results = (
        "b0 * inverse",
        "-b0 * inverse * inverse * inverse * (t.v / A(count))",
        "-b0 * inverse * (t.w / A(count))",
    )
    return with_scratch(
        work.bytes,
        _gradient_sums(call, work, results),
        pointwise("batch_norm_grad_apply", inputs, [writes(call)], apply),
    )


def _gradient_sums(call: Call, work: _Vectors, results: tuple[str, ...]) -> Sequence[Launch]:
    """The fold that gives dscale and dbias, and what `results` say into the workspace."""
    body = Fold(
        compute=work.compute,
        monoid=f"Sum2<{work.compute}>",
        size=2 * SIZES[work.compute],
        values=("a1 * (a0 - a2)", "a1"),
        finish=(f"const A inverse = inverse_root(b1 + {_epsilon(call)});",),
        results=("t.v * inverse", "t.w", *results),
    )
    inputs = [reads(call, 0), reads(call, 4), _by_channel(call, 2)]
    outputs = [writes(call, 1), writes(call, 2), *work.stored]
    beside = [reads(call, 1), reads(call, 3)]
    return fold("batch_norm_grad_sums", inputs, _axes(call.inputs[0]), outputs, body, work.bytes, beside)


@builds("batch_norm_eval")
def evaluate(call: Call) -> Sequence[Launch]:
    """A factor a channel, then y = (x - mean) * factor + bias."""
    work = _Vectors(call, 1)
    factor = Body(compute=work.compute, results=(f"a0 * inverse_root(a1 + {_epsilon(call)})",))
    apply = Body(compute=work.compute, results=("(a0 - a1) * a2 + a3",))
    inputs = [reads(call, 0), _by_channel(call, 3), *work.repeated, _by_channel(call, 2)]
    return with_scratch(
        work.bytes,
        pointwise("batch_norm_factor", [reads(call, 1), reads(call, 4)], work.stored, factor),
        pointwise("batch_norm_apply", inputs, [writes(call)], apply),
    )


@builds("batch_norm_eval_grad")
def evaluate_gradient(call: Call) -> Sequence[Launch]:
    """dscale and dbias, then dx = factor * dy: the statistics are constants."""
    work = _Vectors(call, 1)
    apply = Body(compute=work.compute, results=("a0 * a1",))
    return with_scratch(
        work.bytes,
        _gradient_sums(call, work, ("b0 * inverse",)),
        pointwise("batch_norm_eval_grad_apply", [reads(call, 4), *work.repeated], [writes(call)], apply),
    )


@builds("batch_norm_update")
def update(call: Call) -> Sequence[Launch]:
    """`running * momentum + batch * (1 - momentum)` of both statistics."""
    momentum = float(call.attrs["momentum"])
    old, new = f"A({momentum!r})", f"A({1.0 - momentum!r})"
    body = Body(
        compute=compute_type(x.dtype for x in call.inputs),
        results=(f"a0 * {old} + a2 * {new}", f"a1 * {old} + a3 * {new}"),
    )
    return pointwise(call.kind, [reads(call, k) for k in range(4)], [writes(call, 0), writes(call, 1)], body)
