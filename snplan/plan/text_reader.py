"""Plans from their text form (snplan.plan.text)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import msgspec

from snplan.errors import PlanError
from snplan.plan.file import check_finite
from snplan.plan.model import (
    FORMAT,
    Action,
    Algorithm,
    Alloc,
    Extent,
    Free,
    Offload,
    Persistent,
    Place,
    PlanOp,
    PlanTensor,
    Prefetch,
    Recompute,
    Run,
    StepPlan,
)
from snplan.plan.pieces import in_pieces
from snplan.plan.text_writer import BARE, HEADER

Row = TypeVar("Row")

_BLANKS = re.compile(r"[ \t\r]*")
_INTEGER = re.compile(r"-?[0-9]{1,40}(?![^\s:,)])")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)


class Line:
    """A cursor over one line; what it does not find is an error with the line's number and column."""

    def __init__(self, number: int, text: str) -> None:
        """At the start of line `number` (from 1)."""
        self.number = number
        self.text = text
        self.at = 0
        self._skip()

    def _skip(self) -> None:
        blanks = _BLANKS.match(self.text, self.at)
        self.at = blanks.end() if blanks else self.at

    def fail(self, wanted: str) -> NoReturn:
        """Raises PlanError (SNP-V006): `wanted` is not here."""
        rest = self.text[self.at : self.at + 30]
        found = f"at {rest!r}" if rest else "at the end of the line"
        message = f"line {self.number}, column {self.at + 1}: expected {wanted} {found}"
        raise PlanError("SNP-V006", message)

    def take(self, text: str) -> bool:
        """Whether `text` comes next; goes past it."""
        if not self.text.startswith(text, self.at):
            return False
        self.at += len(text)
        self._skip()
        return True

    def need(self, text: str) -> None:
        """Goes past `text`, which has to come next."""
        if not self.take(text):
            self.fail(f"`{text}`")

    def word(self, text: str) -> bool:
        """Whether the whole word `text` comes next; goes past it."""
        found = BARE.match(self.text, self.at)
        return found is not None and found[0] == text and self.take(text)

    def name(self) -> str:
        """A name, bare or quoted."""
        if self.text.startswith('"', self.at):
            value = self.json()
            return value if isinstance(value, str) else self.fail("a name")
        found = BARE.match(self.text, self.at)
        if found is None:
            self.fail("a name")
        self.at = found.end()
        self._skip()
        return found[0]

    def integer(self, letter: str = "") -> int:
        """A whole number, right after `letter`."""
        found = _INTEGER.match(self.text, self.at + len(letter))
        if found is None or not self.text.startswith(letter, self.at):
            self.fail(f"`{letter}` and a number" if letter else "a whole number")
        self.at = found.end()
        self._skip()
        return int(found[0])

    def json(self) -> Any:
        """Any JSON value."""
        try:
            value, self.at = _DECODER.raw_decode(self.text, self.at)
        except (ValueError, RecursionError):
            self.fail("a JSON value")
        self._skip()
        return value

    def json_of(self, kind: type[Row], what: str) -> Row:
        """A JSON value of type `kind`."""
        start, value = self.at, self.json()
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError:
            self.at = start
            self.fail(what)

    def items(self, item: Callable[[], Row]) -> list[Row]:
        """Items in parentheses, with commas between them."""
        self.need("(")
        found: list[Row] = []
        while not self.take(")"):
            if found:
                self.need(",")
            found.append(item())
        return found

    def end(self) -> None:
        """The line ends here."""
        if self.at < len(self.text):
            self.fail("the end of the line")


def from_text(text: str) -> StepPlan:
    """The plan that `text` is the text form of; blank lines do not matter.

    Raises PlanError (SNP-V006) with line and column where it is none, (SNP-V002) for another format.
    """
    lines = (Line(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip())
    first = _next(lines, "`snplan plan, format`")
    first.need("snplan plan, format")
    number = first.integer()
    first.end()
    if number != FORMAT:
        raise PlanError("SNP-V002", f"the text has format {number}; this version of snplan reads format {FORMAT}")
    fields: dict[str, Any] = {"format": number}
    for name in HEADER:
        line = _next(lines, f"`{name}`")
        line.need(name)
        fields[name] = line.json()
        line.end()
    fields |= _tables(lines)
    try:
        plan = msgspec.convert(fields, StepPlan)
    except msgspec.ValidationError as error:
        raise PlanError("SNP-V006", f"the text is not a plan: {error}") from error
    check_finite(plan, "the text")
    return plan


def _next(lines: Iterator[Line], wanted: str) -> Line:
    for line in lines:
        return line
    raise PlanError("SNP-V006", f"the text ends where {wanted} was expected")


def _tables(lines: Iterator[Line]) -> dict[str, list[Any]]:
    tables: dict[str, list[Any]] = {name: [] for name in _ROWS}
    titles = iter(_ROWS)
    current = next(titles)
    _title(_next(lines, f"`{current}`"), current)
    for line in lines:
        if not line.text[0].isspace():
            current = next(titles, "")
            _title(line, current)
            continue
        if current == "actions":
            _action_number(line, len(tables[current]))
        tables[current].append(_ROWS[current](line))
        line.end()
    missing = next(titles, None)
    if missing is not None:
        raise PlanError("SNP-V006", f"the text ends where `{missing}` was expected")
    return tables


def _title(line: Line, title: str) -> None:
    if not title or not line.word(title):
        line.fail(f"`{title}`" if title else "the end of the text")
    line.end()


def _action_number(line: Line, expected: int) -> None:
    start = line.at
    if line.integer() != expected:
        line.at = start
        line.fail(f"the number {expected} of the action")
    line.need(":")


def _tensor(line: Line) -> PlanTensor:
    name, dtype, shape = line.name(), line.name(), line.json_of(list[int], "a shape")
    return PlanTensor(name=name, dtype=dtype, shape=shape, bytes=line.integer(), role=line.name())


def _op(line: Line) -> PlanOp:
    name, kind, phase = line.name(), line.name(), line.name()
    inputs = line.items(line.name)
    line.need("->")
    return PlanOp(
        name=name,
        kind=kind,
        phase=phase,
        inputs=inputs,
        outputs=line.items(line.name),
        attrs=line.json_of(dict[str, Any], "attributes") if line.word("attrs") else {},
        nodes=line.json_of(list[str], "names of nodes") if line.word("nodes") else [],
        rng=line.integer() if line.word("rng") else None,
    )


def _extent(letter: str) -> Callable[[Line], Extent]:
    def read(line: Line) -> Extent:
        id = line.integer(letter)
        line.need("offset")
        offset = line.integer()
        line.need("bytes")
        size = line.integer()
        return Extent(id=id, offset=offset, bytes=size, pool=line.name() if line.word("pool") else None)

    return read


def _place(line: Line) -> Place:
    tensor = line.name()
    buffer, slot = _where(line)
    return Place(tensor=tensor, buffer=buffer, slot=slot)


def _persistent(line: Line) -> Persistent:
    tensor = line.name()
    line.need("becomes")
    becomes = line.name()
    buffer, slot = _where(line)
    return Persistent(tensor=tensor, becomes=becomes, buffer=buffer, slot=slot)


def _where(line: Line) -> tuple[int | None, int | None]:
    buffer = slot = None
    while line.word("in"):
        if line.text.startswith("b", line.at):
            buffer = line.integer("b")
        else:
            slot = line.integer("s")
    return buffer, slot


def _action(line: Line) -> Action:
    start = line.at
    read = _READERS.get(line.name())
    if read is None:
        line.at = start
        line.fail(f"one of {', '.join(_READERS)}")
    return read(line)


def _order(line: Line, stream: str) -> dict[str, Any]:
    on = line.name() if line.word("on") else stream
    after: list[int] = []
    if line.word("after"):
        after.append(line.integer())
        while line.take(","):
            after.append(line.integer())
    return {"stream": on, "after": after}


def _execution(record: type[Run] | type[Recompute]) -> Callable[[Line], Run | Recompute]:
    def read(line: Line) -> Run | Recompute:
        def pair() -> tuple[str, int]:
            name = line.name()
            line.need("@")
            return name, line.integer("b")

        op = line.name()
        reads = line.items(pair)
        line.need("->")
        writes = line.items(pair)
        return record(op=op, reads=reads, writes=writes, **_order(line, "compute"))

    return read


def _algorithm(line: Line) -> Algorithm:
    op = line.name()
    line.need("engine")
    engine = line.integer()
    if line.word("pieces"):
        engine = in_pieces(engine, line.integer())
    return Algorithm(op=op, engine=engine, workspace=line.integer("b") if line.word("workspace") else None)


def _offload(line: Line) -> Offload:
    tensor, buffer = line.name(), line.integer("b")
    line.need("->")
    return Offload(tensor=tensor, buffer=buffer, slot=line.integer("s"), **_order(line, "d2h"))


def _prefetch(line: Line) -> Prefetch:
    tensor, slot = line.name(), line.integer("s")
    line.need("->")
    return Prefetch(tensor=tensor, slot=slot, buffer=line.integer("b"), **_order(line, "h2d"))


_READERS: dict[str, Callable[[Line], Action]] = {
    "alloc": lambda line: Alloc(buffer=line.integer("b")),
    "free": lambda line: Free(buffer=line.integer("b")),
    "run": _execution(Run),
    "recompute": _execution(Recompute),
    "algorithm": _algorithm,
    "offload": _offload,
    "prefetch": _prefetch,
}

_ROWS: dict[str, Callable[[Line], Any]] = {
    "tensors": _tensor,
    "ops": _op,
    "buffers": _extent("b"),
    "slots": _extent("s"),
    "resident": _place,
    "persistent": _persistent,
    "outputs": _place,
    "actions": _action,
}
