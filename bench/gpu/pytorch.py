"""Measures PyTorch on the GPU of this machine, in the units of the benchmarks of package cuda.

    python3 bench/gpu/pytorch.py [VALUES]

Each line is the median of 21 runs, timed with events, after a warm-up of 50 ms or at least three runs.
Arrays have 1 GiB of random values, or VALUES values (for steps, a quarter of that each). GB/s count
the bytes that an operation must move: each array is read once, and each result written once. A line
that fails says so and does not stop the others; the exit status is then 1.
"""

import mmap
import os
import statistics
import sys
import time

import torch

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))  # in the repository; elsewhere it is beside this file

import kintsugi

N = int(sys.argv[1]) if len(sys.argv) > 1 else 1 << 28
WARM, RUNS = 3, 21
WARM_SECONDS = 0.05  # a GPU that was idle has lower clocks for a while
AHEAD = 200_000  # cycles, about 0.1 ms: the GPU waits for that long while Python queues what is timed
failed = 0


def warm(f):
    begin, runs = time.perf_counter(), 0
    while runs < WARM or time.perf_counter() - begin < WARM_SECONDS:
        f()
        torch.cuda.synchronize()
        runs += 1


def median(f):
    """Returns the median time of f on the GPU, in seconds. f only queues work.

    The GPU waits meanwhile; otherwise the host's first launch would be part of the time.
    """
    seconds = []
    warm(f)
    for _ in range(RUNS):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(AHEAD)
        begin.record()
        f()
        end.record()
        end.synchronize()
        seconds.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(seconds)


def median_of_calls(f):
    """Returns the median time of f and of all that it queues, in seconds by the host's clock."""
    seconds = []
    warm(f)
    for _ in range(RUNS):
        begin = time.perf_counter()
        f()
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def line(name, amount, unit, f, clock=median):
    """Prints the time of f, and its rate: f moves or computes amount, and unit names 1e9 or 1e12 of it per second ("": no rate)."""
    global failed
    try:
        s = clock(f)
    except Exception as e:  # this machine cannot do it
        failed += 1
        print(f"{name}: {type(e).__name__}: {' '.join(str(e).split())[:200]}", flush=True)
        return
    rate = f"{amount / s / {'GB/s': 1e9, 'TFLOP/s': 1e12}[unit]:9.1f} {unit}" if unit else ""
    print(f"{name:44} {s * 1e3:9.3f} ms {rate}", flush=True)


def scans():
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    line("copy", 8 * N, "GB/s", lambda: y.copy_(x))
    line("Norms", 8 * N, "GB/s", lambda: torch.linalg.vector_norm(x - y))
    line("Finite", 4 * N, "GB/s", lambda: torch.isfinite(x).all())


def encoded(n, kind):
    """Returns, for a gradient of n values, its bytes per value, a function that begins a sum with it, and one that adds it to a sum."""
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

                line(f"Step/{name}/{kind}/k={k}", (k * grads[0][0] + 8 + 8 * state) * n, "GB/s", step)
                del p, optimizer


def selections():
    """Times the selection of the k largest magnitudes: topk alone, on magnitudes that exist, and with all that error feedback needs."""
    x, carry = torch.randn(N, device="cuda"), torch.randn(N, device="cuda") * 0.01
    magnitudes = x.abs()

    def feedback(k):
        y = x + carry
        _, i = torch.topk(y.abs(), k, sorted=False)
        torch.gather(y, 0, i)
        y[i] = 0
        carry.copy_(y)

    for share in (0.001, 0.01, 0.1):
        k = int(N * share)
        line(f"Select/alone/{share}", 4 * N + 8 * k, "GB/s", lambda: torch.topk(magnitudes, k, sorted=False))
        line(f"Select/feedback/{share}", 12 * N + 8 * k, "GB/s", lambda: feedback(k))


def codecs():
    """Times encoding with error feedback: by separate calls, and as torch.compile fuses them. The latter comes last, since it may take long."""
    x, carry = torch.randn(N, device="cuda"), torch.randn(N, device="cuda") * 0.01

    def bf16(x, carry):
        y = x + carry
        h = y.to(torch.bfloat16)
        torch.sub(y, h.to(torch.float32), out=carry)
        return h

    def int8(x, carry):
        y = (x + carry).view(-1, 256)
        scale = y.abs().amax(1, keepdim=True) / 127
        q = torch.round(y / scale).to(torch.int8)
        torch.sub(y, q.to(torch.float32) * scale, out=carry.view(-1, 256))
        return scale, q

    def factors(rank):
        m, residual = (a[: N // 4].view(-1, 64, 1024) for a in (x, carry))
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

    both = (("bf16", 14 * N, bf16), ("int8", 13 * N + N // 64, int8))
    for name, bytes_, f in both:
        line(f"Encode/encode_{name}", bytes_, "GB/s", lambda: f(x, carry))
    with products_in("fp32"):
        for rank in (1, 2, 4):
            line(f"EncodeLowRank/{rank}", 3 * N + 4 * rank * (64 + 1024) * (N >> 18), "GB/s", lambda: factors(rank))
    for name, bytes_, f in both:
        compiled = torch.compile(f)
        line(f"Encode/encode_{name} compiled", bytes_, "GB/s", lambda: compiled(x, carry))


def link():
    """Times parameters on their way to a module on the GPU, and its gradient back, in 64 tensors each: from memory that kintsugi.py shares with a worker,
    before it has pinned it and then, and from PyTorch's pinned memory."""
    global failed
    each, count = N >> 8, 64
    memory = memoryview(mmap.mmap(os.memfd_create("params"), 8 * each * count))
    memory[:] = bytes(len(memory))
    flat = torch.frombuffer(memory, dtype=torch.float32)
    there = [torch.randn(each, device="cuda") for _ in range(count)]

    def moved(flat):
        for i, t in enumerate(there):
            t.copy_(flat[i * each : (i + 1) * each])
        for i, t in enumerate(there, count):
            flat[i * each : (i + 1) * each].copy_(t)

    line("Program/link pageable", len(memory), "GB/s", lambda: moved(flat), median_of_calls)
    if kintsugi._pin(torch, memory, there[0].device):
        line("Program/link", len(memory), "GB/s", lambda: moved(flat), median_of_calls)
    else:
        failed += 1
        print("Program/link: CUDA does not pin memory that is shared", flush=True)
    own = flat.clone().pin_memory()
    line("Program/link pinned", len(memory), "GB/s", lambda: moved(own), median_of_calls)


def products():
    """Times products of float32 matrices that are rounded on their way, as in kintsugi; with bf16 also of matrices that were rounded before."""
    for m, n, k in ((4096, 4096, 4096), (1000, 1000, 1000), (64, 128, 784), (784, 128, 64)):
        a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
        for precision in ("fp32", "tf32", "bf16"):
            with products_in(precision):
                line(f"Product/gemm_{precision}/{m}x{n}x{k}", 2 * m * n * k, "TFLOP/s", lambda: a @ b)
        x, y = a.to(torch.bfloat16), b.to(torch.bfloat16)
        line(f"Product/gemm_bf16/{m}x{n}x{k} rounded before", 2 * m * n * k, "TFLOP/s", lambda: x @ y)


def products_in(precision):
    """Returns the context in which products are in fp32, tf32 or bf16. Autocast must not cache rounded matrices: it would round them once for all runs."""
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
    """Times a gradient from parameters and examples in the host's memory to the gradient and the loss there, through pinned memory, as in kintsugi.
    Beside it, the same with parameters and examples that are in pinned memory already: eager, and as a CUDA graph. And a step of Adam with
    parameters that stay on the GPU, from examples in the host's memory to the loss there."""
    for name, make, batch in (("cnn", cnn, 64), ("cnn", cnn, 256), ("charlm", CharLM, 32)):
        for precision in ("fp32", "tf32", "bf16"):
            whole, queued, stepped = gradient(make().cuda(), name, batch, precision)
            full = f"Gradient/{name}/batch={batch}/{precision}"
            line(f"{full} eager", 0, "", whole, median_of_calls)
            line(f"{full} pinned", 0, "", queued, median_of_calls)
            replay = []

            def graph():  # captured in the first run, which does not count
                if not replay:
                    replay.append(captured(queued))
                replay[0]()

            line(f"{full} graph", 0, "", graph, median_of_calls)
            line(f"LocalStep/{name}/batch={batch}/{precision} eager", 0, "", stepped, median_of_calls)


def gradient(model, kind, batch, precision):
    """Returns a function that computes a gradient, one that queues it from pinned memory to pinned memory, and one that takes a step on the GPU."""
    count = sum(p.numel() for p in model.parameters())
    flat, grads = torch.empty(count, device="cuda"), torch.zeros(count, device="cuda")
    at = 0
    for p in model.parameters():  # views of two flat arrays, so that each is copied at once
        flat[at : at + p.numel()].copy_(p.data.flatten())
        p.data, p.grad = flat[at : at + p.numel()].view_as(p), grads[at : at + p.numel()].view_as(p)
        at += p.numel()
    if kind == "cnn":
        x, y = torch.randn(batch, 1, 28, 28), torch.randint(10, (batch,))
    else:
        x, y = torch.randint(65, (batch, 64)), torch.randint(65, (batch * 64,))
    given = (flat.cpu(), x, y)
    pinned = [t.pin_memory() for t in given]
    there = [flat, x.cuda(), y.cuda()]
    out, result = torch.empty(count).pin_memory(), torch.empty(count)
    adam = torch.optim.Adam(model.parameters(), fused=True)

    def computed():
        grads.zero_()
        with products_in(precision):
            loss = torch.nn.functional.cross_entropy(model(there[1]), there[2])
        loss.backward()
        return loss.detach()

    def queued():
        for to, from_ in zip(there, pinned):
            to.copy_(from_, non_blocking=True)
        loss = computed()
        out.copy_(grads, non_blocking=True)
        return loss

    def stepped():
        for to, between, from_ in zip(there[1:], pinned[1:], given[1:]):
            between.copy_(from_)
            to.copy_(between, non_blocking=True)
        loss = computed()
        adam.step()
        return loss.item()  # waits for the loss

    def whole():
        for to, from_ in zip(pinned, given):
            to.copy_(from_)
        loss = queued().item()  # waits
        torch.cuda.synchronize()
        result.copy_(out)
        return loss

    return whole, queued, stepped


def captured(step):
    """Returns the replay of a graph of what step queues."""
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("pytorch.py: PyTorch finds no GPU")
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__, flush=True)
    torch.backends.cudnn.benchmark = True  # take the fastest convolutions
    for part in (scans, steps, selections, gradients, link, products, codecs):  # operations with a goal come first
        part()
    sys.exit(failed > 0)
