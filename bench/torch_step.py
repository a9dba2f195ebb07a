#!/usr/bin/env python3
"""Times one gradient of the models of `kintsugi bench engine` with PyTorch, and prints rows in its JSON format.

PyTorch is not a dependency of this project. If it is not installed, the script says so and ends with status 2.

    python3 bench/torch_step.py --models mlp,lenet,cnn,charlm --threads 1,2 --batch 64
"""

import argparse
import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError:
    print("torch_step.py: PyTorch is not installed; install it (pip install torch) to compare with it", file=sys.stderr)
    sys.exit(2)

TOKENS, LENGTH, WIDTH, HEADS = 65, 64, 128, 4  # of charlm


class Block(nn.Module):
    """A block of charlm: attention and then two dense layers, each after a norm and with a residual connection."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc1, self.fc2 = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, dim=-1))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.fc2(functional.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class CharLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(TOKENS, WIDTH), nn.Parameter(0.2 * torch.rand(LENGTH, WIDTH))
        self.rest = nn.Sequential(Block(), Block(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, TOKENS))

    def forward(self, x):
        return self.rest(self.tokens(x) + self.places).flatten(0, 1)


MODELS = {
    "mlp": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    ),
    "lenet": lambda: nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    ),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 512), nn.ReLU(), nn.Dropout(0.25), nn.Linear(512, 10),
    ),
    "charlm": CharLM,
}

# Operations of the products in one example's gradient, as model.GradientFLOPs counts them.
FLOPS = {
    "mlp": 2 * (2 * 200704 + 3 * (32768 + 1280)),
    "lenet": 2 * (2 * 784 * 6 * 25 + 3 * (100 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10)),
    "cnn": 2 * (2 * 784 * 16 * 9 + 3 * (196 * 32 * 144 + 1568 * 512 + 512 * 10)),
    "charlm": 2 * 3 * LENGTH * (2 * (12 * WIDTH * WIDTH + WIDTH * (LENGTH + 1)) + WIDTH * TOKENS),
}

EDGE = 1024  # side of the square product that shows what the machine can do


def measure(run, at_least):
    """Returns the seconds of one call, averaged over as many calls as take at_least seconds."""
    times, start = 0, time.perf_counter()
    while time.perf_counter() - start < at_least:
        run()
        times += 1
    return (time.perf_counter() - start) / times


def row(name, threads, batch, rounds, at_least):
    torch.set_num_threads(threads)
    torch.manual_seed(1)
    net, loss = MODELS[name](), nn.CrossEntropyLoss()
    if name == "charlm":
        x, y = torch.randint(0, TOKENS, (batch, LENGTH)), torch.randint(0, TOKENS, (batch * LENGTH,))
    else:
        x, y = torch.rand(batch, 1, 28, 28), torch.randint(0, 10, (batch,))
    a, b = torch.rand(EDGE, EDGE), torch.rand(EDGE, EDGE)

    def step():
        net.zero_grad(set_to_none=False)
        loss(net(x), y).backward()

    def product():
        torch.mm(a, b)

    step(), product()
    steps, rates = [], []
    for _ in range(rounds):
        steps.append(measure(step, at_least))
        rates.append(2 * EDGE**3 / measure(product, at_least))
    flops = FLOPS[name] * batch
    low, middle, high = statistics.quantiles(steps, n=4, method="inclusive")
    return {
        "name": f"engine/{name}/torch/threads={threads}", "model": name, "variant": f"torch {torch.__version__}",
        "device": "cpu", "dtype": "fp32", "threads": threads, "batch": batch,
        "ms_per_step": middle * 1e3, "ms_low": low * 1e3, "ms_high": high * 1e3,
        "gflop_per_s": flops / middle / 1e9, "sgemm_gflop_per_s": statistics.median(rates) / 1e9,
        "fraction_of_sgemm": statistics.median(flops / s / r for s, r in zip(steps, rates)), "times_gorgonia": 0,
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--models", default="mlp,lenet,cnn,charlm")
    p.add_argument("--threads", default="1,2")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--rounds", type=int, default=11)
    p.add_argument("--at-least", type=float, default=0.1, help="seconds of one measurement")
    a = p.parse_args()
    unknown = [m for m in a.models.split(",") if m not in MODELS]
    if unknown or a.rounds < 2:
        p.error(f"models are {', '.join(MODELS)}; rounds are at least 2")
    rows = [row(m, int(t), a.batch, a.rounds, a.at_least) for m in a.models.split(",") for t in a.threads.split(",")]
    json.dump(rows, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
