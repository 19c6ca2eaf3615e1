"""The GPT-2 language model (Radford et al. 2019) over a full context of token ids."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from snplan.models.option import Option, dropout_option

if TYPE_CHECKING:
    from snplan.models.layers import Network

OPTIONS: Mapping[str, Option] = {
    "layers": Option(default=12, help="transformer blocks"),
    "heads": Option(default=12, help="attention heads"),
    "embed": Option(default=768, help="features of the residual stream"),
    "context": Option(default=1024, help="tokens of a sample"),
    "vocab": Option(default=50257, help="tokens of the vocabulary"),
    "tied": Option(default=True, help="one weight for the token embedding and the logits"),
    "dropout": dropout_option(0.1),
}

INIT_STD = 0.02


def gpt2(
    net: Network, *, layers: int, heads: int, embed: int, context: int, vocab: int, tied: bool, dropout: float
) -> str:
    """The logits [batch, context, vocab] of the int64 token ids `input_ids` [batch, context]."""
    from snplan.models.transformer import Block, check_heads

    check_heads(embed, heads)
    residual_std = INIT_STD / math.sqrt(2 * layers)
    block = Block(
        heads=heads, hidden=4 * embed, dropout=dropout, eps=1e-5, gelu="tanh", std=INIT_STD, residual_std=residual_std
    )
    tokens = net.token_input("input_ids", (net.batch, context))
    table = net.weight("wte.weight", (vocab, embed), std=INIT_STD)
    x = net.node("Gather", [table, tokens], (net.batch, context, embed), name="wte", axis=0)
    x = net.add(x, net.weight("wpe.weight", (context, embed), std=INIT_STD), name="embedding")
    x = net.dropout(x, dropout, name="embedding_dropout")
    mask = _causal_mask(net, context)
    for index in range(layers):
        with net.scope(f"h.{index}"):
            x = block.write(net, x, mask)
    x = net.layer_norm(x, eps=1e-5, name="ln_f")
    if tied:
        return net.matmul(x, net.transpose(table, (1, 0)), name="logits")
    return net.matmul(x, net.weight("lm_head.weight", (embed, vocab), std=INIT_STD), name="logits")


def _causal_mask(net: Network, context: int) -> str:
    """True where a query may see a key: [context, context].

    Compared from two index vectors, since a square of flags would be stored whole.
    """
    queries = net.integers("query_positions", [[i] for i in range(context)])
    keys = net.integers("key_positions", [list(range(context))])
    return net.node("GreaterOrEqual", [queries, keys], (context, context), name="causal_mask")
