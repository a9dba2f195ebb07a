"""Learns to tell two spirals apart in JAX: a network of two layers, with dropout.

    kintsugi train --workers 2 --fault "kill server/0 at step 100" -- python3 examples/python/spirals_jax.py
"""

import jax
import numpy
from jax import numpy as jnp

import kintsugi


def draw(n, seed):
    """Returns points of two spirals, each with the number of its spiral."""
    r = numpy.random.default_rng(seed)
    t, label = 3 * r.random(n), numpy.arange(n) % 2
    angle = 2.2 * t + numpy.pi * label
    points = t[:, None] * numpy.stack([numpy.cos(angle), numpy.sin(angle)], axis=1)
    return (points + r.normal(0, 0.05, points.shape)).astype(numpy.float32), label.astype(numpy.float32)


(X, Y), (TEST_X, TEST_Y) = draw(600, 1), draw(200, 2)


def build(key):
    first, second = jax.random.split(key)
    return {
        "hidden": {"w": jax.random.normal(first, (2, 64)), "b": jnp.zeros(64)},
        "out": {"w": 0.1 * jax.random.normal(second, (64,)), "b": jnp.zeros(())},
    }


def scores(params, x, keep=1.0):
    h = jnp.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"]) * keep
    return h @ params["out"]["w"] + params["out"]["b"]


def mean_loss(score, label):
    return jnp.mean(jnp.logaddexp(0, score) - label * score)


def loss(params, data, key):
    x, label = data
    keep = jax.random.bernoulli(key, 0.9, (len(x), 64)) / 0.9
    return mean_loss(scores(params, x, keep), label)


def evaluate(params):
    score = scores(params, TEST_X)
    return mean_loss(score, TEST_Y), jnp.mean((score > 0) == (TEST_Y > 0)), len(TEST_Y)


def data(batch):
    return X[batch.indices], Y[batch.indices]


kintsugi.run_jax("spirals", build, loss, data, examples=len(X), evaluate=evaluate, batch=50, steps=600, optimizer="adam", learning_rate=0.02)
