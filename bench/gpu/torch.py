"""Prints what PyTorch reaches on the GPU of this machine, in the units of the benchmarks of package cuda.

    python3 bench/gpu/torch.py

Each line is the median of 21 runs, timed with events, on arrays of 1 GiB of random values (steps: of 256 MiB each). GB/s are of the bytes that
the operation must move: each array read once, each result written once.
"""

import statistics
import sys

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


def steps():
    n = N // 4
    for k in (1, 4, 8):
        grads = [torch.randn(n, device="cuda") for _ in range(k)]
        for name, make, state in (
            ("sgd", lambda p: torch.optim.SGD([p], lr=1e-4, fused=True), 0),
            ("momentum", lambda p: torch.optim.SGD([p], lr=1e-4, momentum=0.9, fused=True), 1),
            ("adam", lambda p: torch.optim.Adam([p], lr=1e-4, fused=True), 2),
        ):
            p = torch.nn.Parameter(torch.randn(n, device="cuda"))
            p.grad = torch.empty_like(p)
            optimizer = make(p)

            def step():
                torch.mul(grads[0], 1 / k, out=p.grad)
                for g in grads[1:]:
                    p.grad.add_(g, alpha=1 / k)
                optimizer.step()

            line(f"mean of {k} gradients, then fused {name}", (4 * k + 8 + 8 * state) * n, step)
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

    line("bf16 with feedback", 14 * N, bf16)
    line("int8 with feedback", 13 * N + N // 64, int8)
    for name, f in (("bf16", bf16), ("int8", int8)):
        try:
            line(f"{name} with feedback, compiled", (14 if name == "bf16" else 13) * N, torch.compile(f))
        except Exception as e:  # the compiler may lack what it needs
            print(f"{name}, compiled: {type(e).__name__}", flush=True)
    for share in (0.001, 0.01, 0.1):
        k = int(N * share)
        line(f"top {share} with feedback", 12 * N + 8 * k, top(k))


def products():
    for tf32 in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = tf32
        for m, n, k in ((4096, 4096, 4096), (1000, 1000, 1000), (64, 128, 784), (784, 128, 64)):
            a, b = torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")
            s = median(lambda: a @ b)
            print(f"{m}x{n}x{k} {'tf32' if tf32 else 'fp32':33} {s * 1e3:9.3f} ms {2 * m * n * k / s / 1e12:9.1f} TFLOP/s", flush=True)


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("torch.py: PyTorch finds no GPU")
    print(torch.cuda.get_device_name(), "PyTorch", torch.__version__)
    x, y = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    line("copy", 8 * N, lambda: y.copy_(x))
    line("distance of two arrays", 8 * N, lambda: torch.linalg.vector_norm(x - y))
    line("all finite", 4 * N, lambda: torch.isfinite(x).all())
    del x, y
    steps()
    codecs()
    products()
