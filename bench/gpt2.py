"""A transformer of GPT-2's shape: 12 layers of width 768, 50,257 tokens, 124 million parameters.

    kintsugi train --workers 2 --servers 2 --steps 40 -- python3 bench/gpt2.py TEXT

It shows what a large model takes, and what the death of a server costs it: 0.5 GB of parameters, as
many of gradients, 1 GB of Adam's state. It learns the bytes of a text, 64 at a time, so most of its
tokens are never used.
"""

import os
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kintsugi

CONTEXT, WIDTH, HEADS, LAYERS, TOKENS = 64, 768, 12, 12, 50257


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        block = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
        for e in self.tokens, self.places:
            nn.init.normal_(e.weight, std=0.02)

    def forward(self, codes):
        x = self.tokens(codes) + self.places(torch.arange(codes.shape[1], device=codes.device))
        later = nn.Transformer.generate_square_subsequent_mask(codes.shape[1], device=codes.device)
        return functional.linear(self.blocks(x, later, is_causal=True), self.tokens.weight)  # the embedding reads and writes


def loss_on(text):
    """Returns the loss of a batch whose indices are places in the text, a tensor of tokens."""

    def loss(module, batch):
        x = torch.stack([text[i : i + CONTEXT + 1] for i in batch.indices]).to(next(module.parameters()).device)
        return functional.cross_entropy(module(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())

    return loss


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("which text? " + __doc__)
    with open(sys.argv[1], "rb") as f:
        TEXT = torch.tensor(list(f.read()))
    kintsugi.run_torch(
        "gpt2", Transformer, loss_on(TEXT), examples=len(TEXT) - CONTEXT, batch=1, steps=40,
        optimizer="adamw", learning_rate=3e-4, warmup=10, clip_norm=1.0, weight_decay=0.1, weight_decay_for="matrices",
    )  # fmt: skip
