"""Prints what the benchmarks on a GPU came to beside what they were to come to.

    python3 bench/gpu/table.py FOLDER

FOLDER is what bench/gpu/run has written. A rate is of a copy's, measured in the same run; times are those of another program, its
milliseconds over ours. What a machine has not measured is left out.
"""

import re
import sys
from pathlib import Path


def benchmarks(path):
    """Returns the numbers of each benchmark by name and unit."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if m := re.match(r"Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)", line):
            words = m[2].split()
            found[m[1]] = {unit: float(value) for value, unit in zip(words[::2], words[1::2])}
    return found


def times(path):
    """Returns the milliseconds of each line of another program."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        if m := re.match(r"(\S.*?)\s+([\d.]+) ms", line):
            found[m[1]] = float(m[2])
    return found


def main(folder):
    ours = benchmarks(folder / "cuda-bench.txt") | benchmarks(folder / "engine-bench.txt")
    torch, cub = times(folder / "torch.txt"), times(folder / "cub.txt")
    missed = 0

    def row(name, what, value, goal=None):
        nonlocal missed
        verdict = "" if goal is None else "ok" if value >= goal else "MISSED"
        missed += verdict == "MISSED"
        print(f"{name:44} {what:12} {value:8.3f} {'' if goal is None else f'{goal:6.2f}':>6} {verdict}")

    def rate(name, goal):
        if "of-copy" in ours.get(name, {}):
            row(name, "of copy", ours[name]["of-copy"], goal)

    def beside(name, what, other, goal=None):
        if "ms" in ours.get(name, {}) and other:
            row(name, what, other / ours[name]["ms"], goal)

    for encoding, goal in (("fp32", 0.92), ("bf16", 0.85), ("int8", 0.85)):
        for k in (1, 4, 8):
            name = f"Step/adam/{encoding}/k={k}"
            rate(name, goal)
            beside(name, "x torch", torch.get(name), 1.25)
    for encoding in ("bf16", "int8"):
        name = f"Encode/encode_{encoding}"
        rate(name, 0.90)
        beside(name, "x torch", torch.get(name))
        beside(name, "x compiled", torch.get(name + " compiled"))
    rate("Norms", 0.90)
    for share in ("0.001", "0.01", "0.1"):
        name = f"Select/alone/{share}"
        beside(name, "x torch.topk", torch.get(name), 5)
        beside(name, "x cub", cub.get(name), 1)
        beside(f"Select/feedback/{share}", "x torch", torch.get(f"Select/feedback/{share}"))
        rate(f"EncodeLargest/{share}", 0.30)
    for rank, goal in ((1, None), (2, 0.20), (4, 0.15)):
        rate(f"EncodeLowRank/{rank}", goal)
        beside(f"EncodeLowRank/{rank}", "x torch", torch.get(f"EncodeLowRank/{rank}"))
    for share, goal in (("0.01", 0.35), ("0.1", None)):
        rate(f"EncodeNamed/{share}", goal)
    rate("Link", 0.95)
    for name in ("cnn/batch=64", "cnn/batch=256", "charlm/batch=32"):
        for precision in ("fp32", "tf32", "bf16"):
            full = f"Gradient/{name}/{precision}"
            library = full + "/cublas"
            beside(full, "x eager", torch.get(full + " eager"), None if library in ours else 1)
            beside(full, "x graph", torch.get(full + " graph"))
            beside(library, "x eager", torch.get(full + " eager"), 1)  # it is the default where there is one
            beside(library, "x graph", torch.get(full + " graph"))
    for precision in ("fp32", "tf32", "bf16"):
        for size in ("4096x4096x4096", "1000x1000x1000", "64x128x784", "784x128x64"):
            library = ours.get(f"Product/cublas_{precision}/{size}", {}).get("TFLOP/s")
            for kernel in (f"gemm_{precision}", f"gemm_{precision}_large"):
                name = f"Product/{kernel}/{size}"
                own = ours.get(name, {})
                if own and library:
                    row(name, "of cublas", own["TFLOP/s"] / library)
                beside(name, "x torch", torch.get(f"Product/gemm_{precision}/{size}"))
    print(f"{missed} goals missed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
