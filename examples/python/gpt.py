"""Trains a small transformer in PyTorch that continues a text, character by character.

    kintsugi train --workers 4 --fault "kill server/0 at step 200" -- python3 examples/python/gpt.py shakespeare.txt

Any text of some 100,000 characters or more will do ("kintsugi data fetch shakespeare" gets one).
Each evaluation shows how the model continues a text by then. The training has what a transformer
needs: a warm-up, gradient clipping, and weight decay for matrices only. It needs PyTorch 2.
"""

import sys

import torch
from torch import nn
from torch.nn import functional

import kintsugi

CONTEXT, WIDTH, HEADS, LAYERS = 64, 96, 4, 3

if len(sys.argv) != 2:
    sys.exit("which text? " + __doc__)
with open(sys.argv[1], encoding="utf-8") as f:
    TEXT = f.read()
LETTERS = sorted(set(TEXT))
CODE = {letter: i for i, letter in enumerate(LETTERS)}
CODES = torch.tensor([CODE[letter] for letter in TEXT])
TRAIN, TEST = CODES[: len(CODES) * 9 // 10], CODES[len(CODES) * 9 // 10 :]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1))

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = self.mix(self.before(x)).view(n, t, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.think(self.between(x))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks, self.norm = nn.Sequential(*(Block() for _ in range(LAYERS))), nn.LayerNorm(WIDTH)
        for e in self.letters, self.places:
            nn.init.normal_(e.weight, std=0.02)

    def forward(self, codes):
        at = torch.arange(codes.shape[1], device=codes.device)
        x = self.norm(self.blocks(self.letters(codes) + self.places(at)))
        return functional.linear(x, self.letters.weight)  # the embedding reads and writes


def device(module):
    return next(module.parameters()).device


def windows(codes, begins):
    """Returns the texts of CONTEXT letters that begin there, and for each letter the one after it."""
    x = torch.stack([codes[i : i + CONTEXT + 1] for i in begins])
    return x[:, :-1], x[:, 1:]


def loss(module, batch):
    x, y = windows(TRAIN, batch.indices)
    return functional.cross_entropy(module(x.to(device(module))).flatten(0, 1), y.to(device(module)).flatten())


def evaluate(module):
    total, right, n = 0.0, 0, 0
    for begins in torch.arange(0, min(len(TEST) - CONTEXT, 500 * CONTEXT), CONTEXT).split(50):
        x, y = (part.to(device(module)) for part in windows(TEST, begins.tolist()))
        logits = module(x).flatten(0, 1)
        total += functional.cross_entropy(logits, y.flatten(), reduction="sum").item()
        right += (logits.argmax(1) == y.flatten()).sum().item()
        n += y.numel()
    print("it writes:", "".join(write(module, TEST[:CONTEXT].tolist(), 120)[CONTEXT:]).replace("\n", " / "))
    return total / n, right / n, n


def write(module, codes, n):
    """Appends n letters to codes, drawn one by one from the module, and returns the whole text."""
    for _ in range(n):
        logits = module(torch.tensor([codes[-CONTEXT:]], device=device(module)))[0, -1]
        codes.append(torch.multinomial(logits.float().softmax(0), 1).item())
    return [LETTERS[c] for c in codes]


def build():
    return Transformer()


if __name__ == "__main__":
    kintsugi.run_torch(
        "gpt", build, loss, examples=len(TRAIN) - CONTEXT, evaluate=evaluate, batch=16, steps=1000,
        optimizer="adamw", learning_rate=0.003, warmup=100, clip_norm=1.0, weight_decay=0.1, weight_decay_for="matrices",
    )  # fmt: skip
