"""The paper's GPU memory pool (section 3.2): a big chunk in blocks of 1 KB, lists of empty and used nodes.

An allocation takes the first empty node with enough blocks, or with `best` the smallest one. A free finds its node by
id and puts it back; neighbours grow together, since otherwise the empty nodes would only ever get smaller.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

BLOCK = 1024


@dataclass(slots=True, kw_only=True)
class Pool:
    """The pool: `bytes` large, `top` is the highest byte ever used."""

    bytes: int
    best: bool = False
    top: int = 0
    _starts: list[int] = field(default_factory=list)
    _blocks: list[int] = field(default_factory=list)
    _used: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._starts, self._blocks = [0], [self.bytes // BLOCK]

    def allocate(self, node: int, size: int) -> int:
        """The address of `size` bytes for a node id. Raises MemoryError when no empty node has that many blocks."""
        blocks = -(-size // BLOCK)
        index = self._find(blocks)
        start = self._starts[index]
        if self._blocks[index] == blocks:
            del self._starts[index], self._blocks[index]
        else:
            self._starts[index] += blocks
            self._blocks[index] -= blocks
        self._used[node] = (start, blocks)
        self.top = max(self.top, (start + blocks) * BLOCK)
        return start * BLOCK

    def free(self, node: int) -> None:
        """Give a node back."""
        start, blocks = self._used.pop(node)
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and start + blocks == self._starts[index]:
            blocks += self._blocks[index]
            del self._starts[index], self._blocks[index]
        if index and self._starts[index - 1] + self._blocks[index - 1] == start:
            self._blocks[index - 1] += blocks
            return
        self._starts.insert(index, start)
        self._blocks.insert(index, blocks)

    def _find(self, blocks: int) -> int:
        fitting = (i for i, count in enumerate(self._blocks) if count >= blocks)
        found = min(fitting, key=self._blocks.__getitem__, default=None) if self.best else next(fitting, None)
        if found is None:
            raise MemoryError(f"no {blocks} empty blocks of {BLOCK} bytes in a row")
        return found
