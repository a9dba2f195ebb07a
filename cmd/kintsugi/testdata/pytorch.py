"""Trains on points of two classes. With a file of exported parameters, it evaluates these instead."""

import sys

import kintsugi
import torch
from torch import nn
from torch.nn import functional

generator = torch.Generator().manual_seed(7)
X = torch.randn(600, 8, generator=generator)
Y = (X[:, 0] * 2 + X[:, 1] > 0).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.frozen = nn.Linear(8, 16).requires_grad_(False)
        self.norm, self.drop = nn.BatchNorm1d(16), nn.Dropout(0.1)
        self.inner, self.again = nn.Linear(16, 16, dtype=torch.float64), nn.Linear(16, 16, bias=False)
        self.inner.weight = self.again.weight = nn.Parameter(self.inner.weight.detach())
        self.again.double()
        self.out, self.scale = nn.Linear(16, 2), nn.Parameter(torch.tensor(1.0))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        x = self.drop(self.norm(torch.tanh(self.frozen(x)))).double()
        return self.scale * self.out((x + torch.tanh(self.again(torch.tanh(self.inner(x))))).float())


def loss(module, batch):
    total = 0.0
    for part in torch.tensor(batch.indices).split(16):
        value = functional.cross_entropy(module(X[part]), Y[part]) * len(part) / len(batch.indices)
        value.backward()
        total += value.detach()
    return total


def evaluate(module):
    logits = module(X)
    return functional.cross_entropy(logits, Y), (logits.argmax(1) == Y).double().mean(), len(Y)


if len(sys.argv) > 1:
    module = kintsugi.load_torch(Net, sys.argv[1], loss=loss, examples=len(X), batch=32).eval()
    with torch.no_grad():
        print(*[value.item() for value in evaluate(module)[:2]])
else:
    kintsugi.run_torch("net", Net, loss, examples=len(X), evaluate=evaluate, batch=32, steps=60, optimizer="adam", learning_rate=0.01)
