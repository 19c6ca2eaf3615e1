"""A first look at a model file's bytes: counts its nodes and finds its weights, without building any message.

Protobuf's wire format is tags and lengths, so the outline of a file of gigabytes takes milliseconds, and a file that is
too large to parse is refused before memory is spent on it. `slim` cuts the bytes of large weights out, so that planning
never copies them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from snplan.errors import ModelError
from snplan.frontend import codes

Buffer: TypeAlias = memoryview
Field: TypeAlias = tuple[int, int, int, int]
"""Number, where the tag starts, where the payload starts, where it ends."""

GRAPH, NODE, INITIALIZER = 7, 1, 5
TENSOR_NAME, TENSOR_RAW_DATA = 8, 9
INLINE_BYTES = 1 << 16
"""Raw data of up to this size stays in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """Where the graph is in the file, how many nodes it has, and the fields of its initializers."""

    graph: Field
    nodes: int
    initializers: tuple[Field, ...]


def _broken(reason: str) -> ModelError:
    return ModelError(codes.PARSE, f"this is not an ONNX model: {reason}")


def varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    """The number at `at` and the position after it; raises ModelError (SNP-I001) where it runs past `end`."""
    number = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise _broken(f"a number at byte {at:,} is cut off or too long")


def fields(data: Buffer, start: int, end: int) -> Iterator[Field]:
    """The fields of the message in data[start:end]."""
    at = start
    while at < end:
        tag_at = at
        tag, at = varint(data, at, end)
        wire = tag & 7
        if wire == 2:
            size, at = varint(data, at, end)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        elif wire == 0:
            after = varint(data, at, end)[1]
            size = after - at
        else:
            raise _broken(f"byte {tag_at:,} starts a field of unknown kind {wire}")
        if at + size > end:
            raise _broken(
                f"a field at byte {tag_at:,} ends {at + size - end:,} bytes past the end of the data; is it cut off?"
            )
        yield tag >> 3, tag_at, at, at + size
        at += size


def outline(data: Buffer, most_nodes: int) -> Outline:
    """The outline of a serialized model; raises ModelError for bytes that are none, or too many nodes (SNP-I004)."""
    graphs = [field for field in fields(data, 0, len(data)) if field[0] == GRAPH]
    if len(graphs) != 1:
        raise _broken(f"it has {len(graphs)} graphs" if graphs else "it has no graph")
    nodes = 0
    initializers: list[Field] = []
    for field in fields(data, graphs[0][2], graphs[0][3]):
        if field[0] == NODE:
            nodes += 1
            if nodes > most_nodes:
                raise ModelError(
                    codes.TOO_MANY, f"the model has more than {most_nodes:,} nodes; it is too large to plan"
                )
        elif field[0] == INITIALIZER:
            initializers.append(field)
    return Outline(graph=graphs[0], nodes=nodes, initializers=tuple(initializers))


def slim(data: Buffer, found: Outline) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """The model without the raw data of large initializers, and where that data is: (offset, length) by name."""
    where: dict[str, tuple[int, int]] = {}
    parts: list[bytes | Buffer] = []
    kept_to = found.graph[2]
    for field in found.initializers:
        lean = _lean_tensor(data, field, where)
        if lean is not None:
            parts += [data[kept_to : field[1]], _tagged(INITIALIZER, lean)]
            kept_to = field[3]
    parts.append(data[kept_to : found.graph[3]])
    graph = b"".join(parts)
    return b"".join([data[: found.graph[1]], _tagged(GRAPH, graph), data[found.graph[3] :]]), where


def _lean_tensor(data: Buffer, field: Field, where: dict[str, tuple[int, int]]) -> bytes | None:
    """A tensor message without its raw data; None where that is small."""
    if field[3] - field[2] <= INLINE_BYTES:
        return None
    name, raw = "", None
    parts: list[Buffer] = []
    for number, tag_at, start, end in fields(data, field[2], field[3]):
        if number == TENSOR_RAW_DATA:
            raw = (start, end - start)
            continue
        if number == TENSOR_NAME:
            name = bytes(data[start:end]).decode("utf-8", "replace")
        parts.append(data[tag_at:end])
    if raw is None or raw[1] <= INLINE_BYTES:
        return None
    where[name] = raw
    return b"".join(parts)


def _tagged(number: int, payload: bytes) -> bytes:
    tag, size = bytearray([number << 3 | 2]), len(payload)
    while size >= 0x80:
        tag.append(size & 0x7F | 0x80)
        size >>= 7
    tag.append(size)
    return bytes(tag) + payload
