"""Learns to tell two spirals apart, in plain Python: it shows all that a program must provide.

    kintsugi train --workers 2 --steps 300 -- python3 examples/python/spirals.py
"""

import math
import random

import kintsugi

INPUTS, HIDDEN, EXAMPLES = 2, 24, 600


def draw(n, seed):
    """Returns points of two spirals, each with the number of its spiral."""
    r = random.Random(seed)
    points = []
    for i in range(n):
        t, label = 3 * r.random(), i % 2
        angle = 2.2 * t + math.pi * label
        points.append((t * math.cos(angle) + r.gauss(0, 0.05), t * math.sin(angle) + r.gauss(0, 0.05), label))
    return points


TRAIN, TEST = draw(EXAMPLES, 1), draw(200, 2)


def flat(values, name):
    """Returns the values of a tensor in row-major order, with numpy or without."""
    v = values[name]
    return v.reshape(-1) if hasattr(v, "reshape") else v


def initialise(params, seed):
    r = random.Random(seed)
    for name, scale in ("hidden/w", 1.0), ("hidden/b", 1.0), ("out/w", 0.3), ("out/b", 0.0):
        w = flat(params, name)
        for i in range(len(w)):
            w[i] = r.uniform(-scale, scale)


def forward(w, b, v, c, x, y):
    h = [math.tanh(w[2 * j] * x + w[2 * j + 1] * y + b[j]) for j in range(HIDDEN)]
    return h, sum(v[j] * h[j] for j in range(HIDDEN)) + c


def lists(params):
    return [[float(x) for x in flat(params, n)] for n in ("hidden/w", "hidden/b", "out/w")] + [float(flat(params, "out/b")[0])]


def gradient(params, grads, batch):
    w, b, v, c = lists(params)
    gw, gb, gv, gc, loss = [0.0] * (2 * HIDDEN), [0.0] * HIDDEN, [0.0] * HIDDEN, 0.0, 0.0
    for i in batch.indices:
        x, y, label = TRAIN[i]
        h, score = forward(w, b, v, c, x, y)
        margin = score if label else -score
        loss += math.log1p(math.exp(-abs(margin))) + max(-margin, 0.0)
        d = 1 / (1 + math.exp(-score)) - label if score > -700 else -label
        gc += d
        for j in range(HIDDEN):
            gv[j] += d * h[j]
            e = d * v[j] * (1 - h[j] * h[j])
            gb[j] += e
            gw[2 * j] += e * x
            gw[2 * j + 1] += e * y
    n = len(batch.indices)
    for name, g in ("hidden/w", gw), ("hidden/b", gb), ("out/w", gv), ("out/b", [gc]):
        to = flat(grads, name)
        for j, value in enumerate(g):
            to[j] = value / n
    return loss / n


def evaluate(params):
    w, b, v, c = lists(params)
    loss, right = 0.0, 0
    for x, y, label in TEST:
        _, score = forward(w, b, v, c, x, y)
        margin = score if label else -score
        loss += math.log1p(math.exp(-abs(margin))) + max(-margin, 0.0)
        right += margin > 0
    return loss / len(TEST), right / len(TEST), len(TEST)


kintsugi.run(
    "spirals",
    [("hidden/w", (HIDDEN, INPUTS)), ("hidden/b", (HIDDEN,)), ("out/w", (HIDDEN,)), ("out/b", (1,))],
    initialise,
    gradient,
    examples=EXAMPLES,
    evaluate=evaluate,
    batch=50,
    steps=600,
    optimizer="adam",
    learning_rate=0.02,
)
