"""Prints what PyTorch reaches on the GPU of this machine, in the units of the benchmarks of package cuda.

    python3 bench/gpu/pytorch.py

Each line is the median of 21 runs, timed with events, on arrays of 1 GiB of random values (steps: of 256 MiB each). GB/s are of the bytes that
the operation must move: each array read once, each result written once.
"""

import statistics
import sys
import time

import torch

N = 1 << 28


def median(f, runs=21, warm=3):
    seconds = []
    for i in range(warm + runs):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        f()
        end.record()
        end.synchronize()
        if i >= warm:
            seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


def line(name, bytes_, f):
    s = median(f)
    print(f"{name:44} {s * 1e3:9.3f} ms {bytes_ / s / 1e9:9.1f} GB/s", flush=True)


def encoded(n, kind):
    """Returns the bytes of each value of a gradient of n values, how a sum begins with it, and how it is added to one."""
    if kind == "fp32":
        g = torch.randn(n, device="cuda")
        return 4, lambda to, w: torch.mul(g, w, out=to), lambda to, w: to.add_(g, alpha=w)
    if kind == "bf16":
        g = torch.randn(n, device="cuda").to(torch.bfloat16)
        return 2, lambda to, w: torch.mul(g, w, out=to), lambda to, w: to.add_(g, alpha=w)
    g = torch.randint(-127, 128, (n // 256, 256), device="cuda", dtype=torch.int8)
    scale = torch.rand(n // 256, 1, device="cuda")
    return 1 + 1 / 64, lambda to, w: torch.mul(g, scale * w, out=to.view(-1, 256)), lambda to, w: to.view(-1, 256).addcmul_(g.to(torch.float32), scale, value=w)


def steps():
    n = N // 4
    rules = (
        ("sgd", lambda p: torch.optim.SGD([p], lr=1e-4, fused=True), 0),
        ("momentum", lambda p: torch.optim.SGD([p], lr=1e-4, momentum=0.9, fused=True), 1),
        ("adam", lambda p: torch.optim.Adam([p], lr=1e-4, fused=True), 2),
    )
    for kind in ("fp32", "bf16", "int8"):
        for k in (1, 4, 8):
            grads = [encoded(n, kind) for _ in range(k)]
            for name, make, state in rules:
                if name != "adam" and k != 4:
                    continue
                p = torch.nn.Parameter(torch.randn(n, device="cuda"))
                p.grad = torch.empty_like(p)
                optimizer = make(p)

                def step():
                    for i, (_, begin, add) in enumerate(grads):
                        (add if i else begin)(p.grad, 1 / k)
                    optimizer.step()

                line(f"Step/{name}/{kind}/k={k}", (k * grads[0][0] + 8 + 8 * state) * n, step)
                del p, optimizer


def codecs():
    x, carry = torch.randn(N, device="cuda"), torch.randn(N, device="cuda") * 0.01

    def bf16():
        y = x + carry
        h = y.to(torch.bfloat16)
        torch.sub(y, h.to(torch.float32), out=carry)

    def int8():
        y = (x + carry).view(-1, 256)
        scale = y.abs().amax(1, keepdim=True) / 127
        q = torch.round(y / scale).to(torch.int8)
        torch.sub(y, q.to(torch.float32) * scale, out=carry.view(-1, 256))

    def top(k):
        def f():
            y = x + carry
            _, i = torch.topk(y.abs(), k, sorted=False)
            torch.gather(y, 0, i)
            y[i] = 0
            carry.copy_(y)

        return f

    def factors(rank):
        m, residual = (a[: N // 4].view(-1, 64, 1024) for a in (x, carry))

        def f():  # in float32
            y = m + residual
            q = 2 * torch.rand(len(y), 1024, rank, device="cuda") - 1
            for _ in range(2):
                p = y @ q
                for i in range(rank):
                    p[..., i] /= p[..., i].norm(dim=1, keepdim=True)
                    u, rest = p[..., i : i + 1], p[..., i + 1 :]
                    rest -= (u * rest).sum(1, keepdim=True) * u
                q = y.mT @ p
            torch.sub(y, p @ q.mT, out=residual)

        return f

    line("Encode/encode_bf16", 14 * N, bf16)
    line("Encode/encode_int8", 13 * N + N // 64, int8)
    for name, f in (("bf16", bf16), ("int8", int8)):
        try:
            line(f"Encode/encode_{name} compiled", (14 if name == "bf16" else 13) * N, torch.compile(f))
        except Exception as e:  # the compiler may lack what it needs
            print(f"{name}, compiled: {type(e).__name__}", flush=True)
    for rank in (1, 2, 4):
        line(f"EncodeLowRank/{rank}", 3 * N + 4 * rank * (64 + 1024) * (N >> 18), factors(rank))
    for share in (0.001, 0.01, 0.1):
        k = int(N * share)
        line(f"Select/feedback/{share}", 12 * N + 8 * k, top(k))
        line(f"Select/alone/{share}", 4 * N + 8 * k, lambda: torch.gather(x, 0, torch.topk(x.abs(), k, sorted=False)[1]))


def products():
    """Products of float32 matrices, rounded on their way as kintsugi's; of bf16 also of matrices that have been rounded before."""
    for m, n, k in ((4096, 4096, 4096), (1000, 1000, 1000), (64, 128, 784), (784, 128, 64)):
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        for precision in ("fp32", "tf32", "bf16"):
            with products_in(precision):
                product(f"Product/gemm_{precision}/{m}x{n}x{k}", m * n * k, lambda: a @ b)
        x, y = a.to(torch.bfloat16), b.to(torch.bfloat16)
        product(f"Product/gemm_bf16/{m}x{n}x{k} rounded before", m * n * k, lambda: x @ y)


def product(name, products, f):
    s = median(f)
    print(f"{name:44} {s * 1e3:9.3f} ms {2 * products / s / 1e12:9.1f} TFLOP/s", flush=True)


def products_in(precision):
    """Returns the context in which products are in fp32, tf32 or bf16. Autocast keeps no rounded matrices, or it would round them once for all runs."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    return torch.autocast("cuda", dtype=torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


class CharLM(torch.nn.Module):
    """The transformer that kintsugi calls charlm: two blocks of width 128, four heads."""

    def __init__(self, length=64, tokens=65, width=128):
        super().__init__()
        nn = torch.nn
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.ModuleList(
            nn.ModuleList([nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width), nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)])
            for _ in range(2)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens)

    def forward(self, x):
        f = torch.nn.functional
        h = self.tokens(x) + self.positions
        for norm1, qkv, out, norm2, fc1, fc2 in self.blocks:
            q, k, v = (t.view(*t.shape[:2], 4, -1).transpose(1, 2) for t in qkv(norm1(h)).chunk(3, -1))
            h = h + out(f.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(h.shape))
            h = h + fc2(f.gelu(fc1(norm2(h)), approximate="tanh"))
        return self.head(self.norm(h)).flatten(0, 1)


def cnn():
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(1568, 512), nn.ReLU(), nn.Dropout(0.25), nn.Linear(512, 10),
    )


def gradients():
    """A gradient from parameters in pinned memory of the host to the gradient there, as kintsugi's: eager, and as a CUDA graph."""
    for name, make, batch in (("cnn", cnn, 64), ("cnn", cnn, 256), ("charlm", CharLM, 32)):
        for precision in ("fp32", "tf32", "bf16"):
            gradient(f"Gradient/{name}/batch={batch}/{precision}", make().cuda(), name, batch, precision)


def gradient(name, model, kind, batch, precision):
    count = sum(p.numel() for p in model.parameters())
    flat, grads = torch.empty(count, device="cuda"), torch.zeros(count, device="cuda")
    at = 0
    for p in model.parameters():  # views of two flat arrays, so that each crosses in one copy
        flat[at : at + p.numel()].copy_(p.data.flatten())
        p.data, p.grad = flat[at : at + p.numel()].view_as(p), grads[at : at + p.numel()].view_as(p)
        at += p.numel()
    params, out = flat.cpu().pin_memory(), torch.empty(count).pin_memory()
    if kind == "cnn":
        x, y = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))
    else:
        x, y = torch.randint(65, (batch, 64)), torch.randint(65, (batch * 64,))
    x, y = x.pin_memory(), y.pin_memory()
    x_, y_ = x.cuda(), y.cuda()

    def step():
        flat.copy_(params, non_blocking=True)
        x_.copy_(x, non_blocking=True)
        y_.copy_(y, non_blocking=True)
        grads.zero_()
        with products_in(precision):
            loss = torch.nn.functional.cross_entropy(model(x_), y_)
        loss.backward()
        out.copy_(grads, non_blocking=True)

    def timed(f):
        seconds = []
        for i in range(24):
            begin = time.perf_counter()
            f()
            torch.cuda.synchronize()
            if i >= 3:
                seconds.append(time.perf_counter() - begin)
        return statistics.median(seconds)

    print(f"{name + ' eager':44} {timed(step) * 1e3:9.3f} ms", flush=True)
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    print(f"{name + ' graph':44} {timed(graph.replay) * 1e3:9.3f} ms", flush=True)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("pytorch.py: PyTorch finds no GPU")
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    line("copy", 8 * N, lambda: y.copy_(x))
    line("Norms", 8 * N, lambda: torch.linalg.vector_norm(x - y))
    line("Finite", 4 * N, lambda: torch.isfinite(x).all())
    del x, y
    steps()
    for part in (codecs, products, gradients):
        try:
            part()
        except Exception as e:  # one that this machine cannot do must not take the others with it
            print(f"{part.__name__}: {type(e).__name__}: {e}", flush=True)
