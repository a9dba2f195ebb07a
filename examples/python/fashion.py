"""Trains a small convolutional network in PyTorch, on Fashion-MNIST or MNIST, on GPUs if torch finds any.

    kintsugi train --workers 4 --fault "kill server/0 at step 100" -- python3 examples/python/fashion.py ~/data/fashion

The folder holds the four files as they are published, such as train-images-idx3-ubyte.gz ("kintsugi
data fetch fashion" gets them).
"""

import gzip
import os
import sys

import numpy
import torch
from torch import nn
from torch.nn import functional

import kintsugi


def read(name):
    """Returns the array in an IDX file, packed or not."""
    path = os.path.join(FOLDER, name)
    with gzip.open(path + ".gz") if os.path.exists(path + ".gz") else open(path, "rb") as f:
        b = f.read()
    shape = [int.from_bytes(b[4 + 4 * i : 8 + 4 * i], "big") for i in range(b[3])]
    return torch.from_numpy(numpy.frombuffer(b, numpy.uint8, offset=4 + 4 * len(shape)).reshape(shape).copy())


def images(part):
    return read(part + "-images-idx3-ubyte").float().div_(255).unsqueeze_(1), read(part + "-labels-idx1-ubyte").long()


if len(sys.argv) != 2:
    sys.exit("which folder? " + __doc__)
FOLDER = sys.argv[1]
(X, Y), (TEST_X, TEST_Y) = images("train"), images("t10k")


def build():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Dropout(0.25), nn.Linear(128, 10),
    )  # fmt: skip


def device(module):
    return next(module.parameters()).device


def loss(module, batch):
    at = device(module)
    return functional.cross_entropy(module(X[batch.indices].to(at)), Y[batch.indices].to(at))


def evaluate(module):
    total, right = 0.0, 0
    for x, y in zip(TEST_X.split(500), TEST_Y.split(500)):
        logits = module(x.to(device(module)))
        y = y.to(logits.device)
        total += functional.cross_entropy(logits, y, reduction="sum").item()
        right += (logits.argmax(1) == y).sum().item()
    return total / len(TEST_Y), right / len(TEST_Y), len(TEST_Y)


kintsugi.run_torch("fashion", build, loss, examples=len(X), evaluate=evaluate, batch=64, steps=400, optimizer="adam", learning_rate=0.002)
