"""The pre-norm transformer block that the GPT and the vision transformer share.

Tensors are [batch, length, features]. Heads are split by Reshape and Transpose; no operator knows attention as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from snplan.models.layers import Network

MASKED_SCORE = -1e9
"""The score of keys that a query may not see: far below any score, and finite in fp32 and bf16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """What a block looks like. `residual_std` is the deviation of the two weights that write to the residual stream."""

    heads: int
    hidden: int
    dropout: float
    eps: float
    gelu: str
    std: float
    residual_std: float

    def write(self, net: Network, x: str, mask: str | None = None) -> str:
        """The residual stream after attention and the feed-forward part. A mask is true where a key may be seen."""
        x = net.add(x, self._attention(net, net.layer_norm(x, eps=self.eps, name="ln_1"), mask))
        return net.add(x, self._feed_forward(net, net.layer_norm(x, eps=self.eps, name="ln_2")))

    def _attention(self, net: Network, x: str, mask: str | None) -> str:
        _, _, features = net.shape(x)
        width = features // self.heads
        query, key, value = self._split_heads(net, net.project(x, 3 * features, std=self.std, name="attn.qkv"))
        scores = net.matmul(query, net.transpose(key, (0, 1, 3, 2)), name="attn.scores")
        scale = net.constant(1 / math.sqrt(width), np.float32)
        scores = net.node("Mul", [scores, scale], net.shape(scores), name="attn.scale")
        if mask is not None:
            never = net.constant(MASKED_SCORE, np.float32)
            scores = net.node("Where", [mask, scores, never], net.shape(scores), name="attn.mask")
        weights = net.node("Softmax", [scores], net.shape(scores), name="attn.softmax", axis=-1)
        weights = net.dropout(weights, self.dropout, name="attn.dropout")
        mixed = net.transpose(net.matmul(weights, value, name="attn.mix"), (0, 2, 1, 3))
        mixed = net.reshape(mixed, (0, 0, features), name="attn.merge")
        out = net.project(mixed, features, std=self.residual_std, name="attn.out")
        return net.dropout(out, self.dropout, name="attn.out_dropout")

    def _split_heads(self, net: Network, packed: str) -> list[str]:
        """Query, key and value as [batch, heads, length, features / heads]."""
        batch, length, features = net.shape(packed)
        parts = [net.fresh(f"attn.{name}") for name in ("query", "key", "value")]
        net.emit("Split", [packed], dict.fromkeys(parts, (batch, length, features // 3)), axis=-1, num_outputs=3)
        split = (0, 0, self.heads, features // 3 // self.heads)
        return [net.transpose(net.reshape(part, split), (0, 2, 1, 3)) for part in parts]

    def _feed_forward(self, net: Network, x: str) -> str:
        _, _, features = net.shape(x)
        hidden = net.project(x, self.hidden, std=self.std, name="mlp.fc")
        hidden = net.node("Gelu", [hidden], net.shape(hidden), name="mlp.gelu", approximate=self.gelu)
        out = net.project(hidden, features, std=self.residual_std, name="mlp.out")
        return net.dropout(out, self.dropout, name="mlp.dropout")


def check_heads(embed: int, heads: int) -> None:
    """Returns nothing. Raises ValueError when the features do not divide among the heads."""
    if embed % heads:
        raise ValueError(f"embed is {embed}, which {heads} heads do not divide; use a multiple of {heads}")
