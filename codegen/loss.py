"""Builders of losses over classes. Each label's loss and weight go to the workspace; a fold joins them.

A label that is neither a class nor the ignored one is reported in the control words and counts as ignored.
"""

from __future__ import annotations

from collections.abc import Sequence

from snplan.codegen.call import Access, Call, builds, reads, writes
from snplan.codegen.fold import Fold, fold
from snplan.codegen.launch import Argument, Control, Input, Launch, OpNumber
from snplan.codegen.operand import Operand, broadcast, with_ones, without
from snplan.codegen.pointwise import Body, pointwise
from snplan.codegen.reduce import WORK, scratch, with_scratch
from snplan.codegen.rows import RowBody, Tensors, rows
from snplan.codegen.scalars import SIZES, c_type, compute_type
from snplan.codegen.softmax import exponent_stage, exponent_stages

_REPORT: tuple[tuple[str, Argument], ...] = (("Control* control", Control()), ("int op", OpNumber()))


class _Labels:
    """What kernels need to read labels: the lines that turn label `{name}` into a class and a weight."""

    def __init__(self, call: Call, classes: int, weights: int | None) -> None:
        self._ignored = call.attrs.get("ignore_index")
        self._weights = weights
        self._classes = classes
        dtype = None if weights is None else call.inputs[weights].dtype
        self.extra = (
            *_REPORT,
            *(((f"const {c_type(dtype)}* weights", Input(weights)),) if dtype and weights is not None else ()),
        )

    @property
    def counted(self) -> bool:
        """Whether the sum of weights must be counted: without weights and ignored labels it is their number."""
        return self._weights is not None or self._ignored is not None

    def lines(self, name: str, where: str = "") -> tuple[str, ...]:
        """Statements that declare `label`, `valid`, `target` (the class, 0 where invalid) and `weight`."""
        ignored = "false" if self._ignored is None else f"label == {int(self._ignored)}LL"
        weight = "A(wide(weights[target]))" if self._weights is not None else "A(1)"
        return (
            f"const i64 label = (i64){name};",
            f"const bool inside = label >= 0 && label < {self._classes}, ignored = {ignored};",
            f"if ({where}!inside && !ignored) report(control, op);",
            "const bool valid = inside && !ignored;",
            "const i64 target = valid ? label : 0;",
            f"const A weight = valid ? {weight} : A(0);",
        )


def _labels(call: Call, classes: int, first: int, last: int) -> _Labels:
    """Labels are input `first`; a further input before number `last` holds weights."""
    return _Labels(call, classes, first + 1 if last - first > 1 else None)


def _loss(call: Call) -> str:
    """The loss of one label, from minus its log-probability `nll`: 0 where the weight is, also beside infinities."""
    return "weight == A(0) ? A(0) : nll * weight"


def _joined(call: Call, each: Sequence[Access], held: int, compute: str) -> Sequence[Launch]:
    """The fold of losses and weights into the loss."""
    mean = call.attrs["reduction"] == "mean"
    body = Fold(
        compute=compute,
        monoid=f"Sum2<{compute}>",
        size=2 * SIZES[compute],
        values=("a0", "a1"),
        results=("t.v / t.w" if mean else "t.v",),
    )
    return fold("loss_total", each, list(range(each[0].operand.rank)), [writes(call)], body, held)


@builds("softmax_cross_entropy")
def softmax_cross_entropy(call: Call) -> Sequence[Launch]:
    """A row kernel over the logits, then the fold."""
    x, axis = call.inputs[0], call.attrs["axis"]
    compute = compute_type([x.dtype])
    labels = _labels(call, x.shape[axis], 1, len(call.inputs))
    none = call.attrs["reduction"] == "none"
    each, held = _each(call.inputs[1], compute)
    row = RowBody(
        compute=compute,
        stages=exponent_stages(compute),
        long_stages=exponent_stage(compute),
        before=(
            *labels.lines("b0", "first && "),
            f"const A logit = (A)wide(p_a0[a0_kept + target * {x.strides[axis]}]);",
        ),
        row_results=(f"({_loss(call).replace('nll', '(log_sum - (logit - top))')})", *(() if none else ("weight",))),
        extra=labels.extra,
    )
    tensors = Tensors(
        inputs=(reads(call, 0),), row_inputs=(reads(call, 1),), row_outputs=(writes(call),) if none else tuple(each)
    )
    launches = rows(call.kind, tensors, [axis], row)
    return launches if none else with_scratch(held, launches, _joined(call, each, held, compute))


def _each(labels: Operand, compute: str) -> tuple[list[Access], int]:
    """Losses and weights of all labels in the workspace, and the bytes that they take."""
    size = labels.elements * SIZES[compute]
    return [scratch(WORK[compute], labels.shape, size * k) for k in range(2)], 2 * size


@builds("nll_loss")
def nll_loss(call: Call) -> Sequence[Launch]:
    """One score read for each label, then the fold."""
    x, axis = call.inputs[0], call.attrs["axis"]
    compute = compute_type([x.dtype])
    labels = _labels(call, x.shape[axis], 1, len(call.inputs))
    none = call.attrs["reduction"] == "none"
    each, held = _each(call.inputs[1], compute)
    body = Body(
        compute=compute,
        lines=(*labels.lines("a1"), f"const A nll = -(A)wide(p_a0[a0_at + target * {x.strides[axis]}]);"),
        results=(_loss(call), *(() if none else ("weight",))),
        extra=labels.extra,
        limit=1,
    )
    inputs = [reads(call, 0, without(x, [axis])), reads(call, 1)]
    launches = pointwise(call.kind, inputs, [writes(call)] if none else each, body)
    return launches if none else with_scratch(held, launches, _joined(call, each, held, compute))


class _Shares:
    """d loss / d (-log probability) of each label: dy * weight, over the sum of weights where the loss is a mean."""

    def __init__(self, call: Call, labels: _Labels, first: int, compute: str) -> None:
        self._call, self._labels, self._first, self._compute = call, labels, first, compute
        mean = call.attrs["reduction"] == "mean"
        self.counted = mean and labels.counted
        count = call.inputs[first].elements
        divisor = "(A)*weight_sum" if self.counted else f"A({count})" if mean else ""
        self.total = scratch(WORK[compute], ())
        kept: tuple[tuple[str, Argument], ...] = ((f"const {compute}* weight_sum", self.total.argument),)
        self.extra = (*labels.extra, *(kept if self.counted else ()))
        self._divisor = f" / {divisor}" if divisor else ""

    def share(self, dy: str) -> str:
        """The share of one label whose gradient is `dy`."""
        return f"valid ? {dy} * weight{self._divisor} : A(0)"

    def launches(self) -> Sequence[Launch]:
        """The fold that counts the weights, where it is needed."""
        if not self.counted:
            return ()
        body = Fold(
            compute="double",
            monoid="Sum<double>",
            size=8,
            values=("weight",),
            lines=self._labels.lines("a0"),
            results=("t.v",),
            extra=self._labels.extra,
        )
        labels = reads(self._call, self._first)
        return fold("loss_weights", [labels], list(range(labels.operand.rank)), [self.total], body, 8)


def _broadcast_dy(call: Call, shape: tuple[int, ...]) -> Access:
    return reads(call, len(call.inputs) - 1, broadcast(call.inputs[-1], shape))


@builds("softmax_cross_entropy_grad")
def softmax_cross_entropy_grad(call: Call) -> Sequence[Launch]:
    """(softmax - one-hot) times each label's share, from the logits in one read."""
    x, axis = call.inputs[0], call.attrs["axis"]
    compute = compute_type([x.dtype])
    labels = _labels(call, x.shape[axis], 1, len(call.inputs) - 1)
    shares = _Shares(call, labels, 1, compute)
    body = RowBody(
        compute=compute,
        stages=exponent_stages(compute),
        long_stages=exponent_stage(compute),
        before=(*labels.lines("b0", "first && "), f"const A share = {shares.share('(A)b1')};"),
        results=("(exp(a0 - top) / total - (column == target ? A(1) : A(0))) * share",),
        extra=shares.extra,
    )
    row_inputs = (reads(call, 1), _broadcast_dy(call, call.inputs[1].shape))
    tensors = Tensors(inputs=(reads(call, 0),), outputs=(writes(call),), row_inputs=row_inputs)
    return with_scratch(8 * shares.counted, shares.launches(), rows(call.kind, tensors, [axis], body))


@builds("nll_loss_grad")
def nll_loss_grad(call: Call) -> Sequence[Launch]:
    """Minus each label's share at its class, zero elsewhere."""
    dx, axis = call.outputs[0], call.attrs["axis"]
    compute = compute_type([dx.dtype])
    labels = _labels(call, dx.shape[axis], 0, len(call.inputs) - 1)
    shares = _Shares(call, labels, 0, compute)
    classes = tuple(int(i == axis) for i in range(dx.rank))
    body = Body(
        compute=compute,
        lines=labels.lines("a0", "e0 == 0 && "),
        results=(f"e0 == target ? -({shares.share('a1')}) : A(0)",),
        numbers=(classes,),
        extra=shares.extra,
    )
    dy = call.inputs[-1]
    spread = with_ones(dy, [axis], dx.rank) if dy.rank else dy
    inputs = [
        reads(call, 0, broadcast(with_ones(call.inputs[0], [axis], dx.rank), dx.shape)),
        reads(call, len(call.inputs) - 1, broadcast(spread, dx.shape)),
    ]
    return with_scratch(8 * shares.counted, shares.launches(), pointwise(call.kind, inputs, [writes(call)], body))
