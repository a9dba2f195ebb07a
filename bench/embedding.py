"""A table of a million rows of 16 values, or of as many as are given, of which a batch touches a few thousand.

    kintsugi train --workers 2 --servers 2 --codec sparse --pull delta -- python3 bench/embedding.py
    python3 bench/embedding.py

It shows what travels if steps touch few rows. The data are made up: an example has 26 rows, small
numbers more often than large ones, and the answer is whether their remainders by 7 are more than 3
on average. Without Kintsugi it trains by itself, in a loop of PyTorch with both batches of a step.
"""

import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import kintsugi

ROWS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
WIDTH, EXAMPLES, PER_EXAMPLE, BATCH, RATE = 16, 100_000, 26, 256, 0.05

generator = torch.Generator().manual_seed(1)
X = (torch.rand(EXAMPLES, PER_EXAMPLE, generator=generator) ** 3 * ROWS).long()
Y = ((X % 7).float().mean(1) > 3).float()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True)
        self.top = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
        nn.init.normal_(self.rows.weight, std=0.01)

    def forward(self, x):
        return self.top(self.rows(x)).squeeze(1)


def loss(module, batch):
    return of(module, batch.indices)


def of(module, indices):
    at = module.rows.weight.device
    return functional.binary_cross_entropy_with_logits(module(X[indices].to(at)), Y[indices].to(at))


def alone(steps):
    """Trains without Kintsugi."""
    module = Net()
    optimizer = torch.optim.Adagrad(module.parameters(), lr=RATE)
    order = torch.randint(EXAMPLES, (steps, 2 * BATCH), generator=generator)
    start = time.perf_counter()
    for indices in order:
        optimizer.zero_grad()
        of(module, indices).backward()
        optimizer.step()
    took = time.perf_counter() - start
    print("alone: %d steps in %.1f s, %.0f examples/s" % (steps, took, steps * 2 * BATCH / took))


if "KINTSUGI_ASKS" in os.environ:
    kintsugi.run_torch("embedding", Net, loss, examples=EXAMPLES, batch=BATCH, steps=400, optimizer="adagrad", learning_rate=RATE, decay="constant")
else:
    alone(400)
