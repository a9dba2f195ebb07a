"""Learns in PyTorch which advertisements are clicked on, with a large table of embeddings of which a batch touches some rows.

    kintsugi train --workers 2 --codec sparse --pull delta -- python3 examples/python/clicks.py train.txt

The file has the format of Criteo's Display Advertising Challenge: a label, 13 numbers and 26
categories in each line, separated by tabs, or by commas below a line with their names. A second
argument says how many lines to read, else a million. The last tenth of them is to test on.
"""

import sys
import zlib
from array import array

import torch
from torch import nn
from torch.nn import functional

import kintsugi

NUMBERS, CATEGORIES, ROWS, WIDTH = 13, 26, 1 << 20, 16


def row(i, category):
    """The row of the table for value `category` of column i. Python's own hash would be another one in each process."""
    return zlib.crc32(b"%d %s" % (i, category)) % ROWS


def read(path, lines):
    """Returns the labels, numbers and rows of the table in a file."""
    y, x, rows = array("f"), array("f"), array("i")  # lists of numbers would take ten times the memory
    with open(path, "rb") as f:
        first = f.readline()
        tab = b"\t" if b"\t" in first else b","
        if b"I1" not in first:
            f.seek(0)
        for _, line in zip(range(lines), f):
            fields = line.rstrip(b"\r\n").split(tab)[-1 - NUMBERS - CATEGORIES :]  # without the number that some files begin with
            if len(fields) != 1 + NUMBERS + CATEGORIES:
                sys.exit("%s: a line has %d fields, not %d: %r" % (path, len(fields), 1 + NUMBERS + CATEGORIES, line))
            y.append(float(fields[0]))
            x.extend(float(v or 0) for v in fields[1 : 1 + NUMBERS])
            rows.extend(row(i, v) for i, v in enumerate(fields[1 + NUMBERS :]))
    if len(y) < 10:
        sys.exit("%s has %d examples; the last tenth is to test on, so there must be ten" % (path, len(y)))
    x, rows = torch.frombuffer(x, dtype=torch.float32), torch.frombuffer(rows, dtype=torch.int32)
    return torch.frombuffer(y, dtype=torch.float32), x.view(-1, NUMBERS).clamp_(min=0).log1p_(), rows.view(-1, CATEGORIES)


if len(sys.argv) not in (2, 3):
    sys.exit("which file? " + __doc__)
Y, X, R = read(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 1_000_000)
TRAIN = len(Y) * 9 // 10


class Net(nn.Module):
    """A factorisation machine (Rendle, 2010) over the rows, beside a network over the numbers and the sum of the rows."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(ROWS, WIDTH, sparse=True)  # sparse: only rows of the batch have a gradient
        self.top = nn.Sequential(nn.Linear(NUMBERS + 2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
        nn.init.normal_(self.table.weight, std=0.05)

    def forward(self, x, rows):
        v = self.table(rows)
        total = v.sum(1)
        pairs = (total.square() - v.square().sum(1)) / 2  # the sum of the products of all pairs of rows
        return self.top(torch.cat([x, total, pairs], 1)).squeeze(1)


def scores(module, at):
    device = module.table.weight.device
    return module(X[at].to(device), R[at].to(device))


def loss(module, batch):
    s = scores(module, batch.indices)
    return functional.binary_cross_entropy_with_logits(s, Y[batch.indices].to(s.device))


def evaluate(module):
    s = torch.cat([scores(module, at).cpu() for at in torch.arange(TRAIN, len(Y)).split(4096)])
    y = Y[TRAIN:]
    print("area under the curve: %.4f" % area(s, y))
    return functional.binary_cross_entropy_with_logits(s, y), ((s > 0) == (y > 0)).float().mean(), len(y)


def area(s, y):
    """The probability that a click has a higher score than no click; ties count half."""
    order = s.sort().values
    below, upto = torch.searchsorted(order, s), torch.searchsorted(order, s, right=True)
    rank = (below + upto + 1).double() / 2  # the mean of those with this score
    clicks = y.sum().item()
    return ((rank[y > 0].sum() - clicks * (clicks + 1) / 2) / max(1, clicks * (len(y) - clicks))).item()


kintsugi.run_torch(
    "clicks", Net, loss, examples=TRAIN, evaluate=evaluate, batch=128, steps=300, optimizer="lazyadam", learning_rate=0.003, warmup=20,
)  # fmt: skip
