"""The networks that compare.py trains with each system, and the data, which are random: only times are compared."""

import os
import sys

import torch
from torch import nn
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import gpt2

EXAMPLES = 10_000
BATCHES = {"small": 64, "gpt2": 1}  # examples of one gradient
ADAM = {"learning_rate": 3e-4, "weight_decay": 0.1}

torch.set_num_threads(1)  # two programs share two processors


def small():
    """A convolutional network of 215,434 parameters, as in examples/python/fashion.py."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


def net(name):
    """Returns what builds the module, and its loss on the examples with batch.indices."""
    g = torch.Generator().manual_seed(1)
    if name == "gpt2":
        return gpt2.Transformer, gpt2.loss_on(torch.randint(0, 256, (EXAMPLES + gpt2.CONTEXT,), generator=g))
    images, labels = torch.rand(EXAMPLES, 1, 28, 28, generator=g), torch.randint(0, 10, (EXAMPLES,), generator=g)
    return small, lambda module, batch: functional.cross_entropy(module(images[batch.indices]), labels[batch.indices])


class Batch:
    """The batch of one rank in a step, for systems that do not choose it."""

    def __init__(self, name, step, rank):
        g = torch.Generator().manual_seed(2 * step + rank)
        self.indices = torch.randint(0, EXAMPLES, (BATCHES[name],), generator=g).tolist()


def optimizer(module):
    return torch.optim.AdamW(module.parameters(), lr=ADAM["learning_rate"], weight_decay=ADAM["weight_decay"], fused=True)
