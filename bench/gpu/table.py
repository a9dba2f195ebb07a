"""Prints a table in Markdown: the results of the benchmarks on a GPU beside the goals of docs/gpu.md.

    python3 bench/gpu/table.py FOLDER...

The folders are results of bench/gpu/run. Rates are compared with that of a copy, measured in the same
run, and times with those of another program. The table has each row of docs/gpu.md; figures that no
folder has are marked as missing.
"""

import re
import sys
from pathlib import Path

PRECISIONS = ("fp32", "tf32", "bf16")
SHARES = ("0.001", "0.01", "0.1")
SIZES = ("4096x4096x4096", "1000x1000x1000", "64x128x784", "784x128x64")
PEAK = {"fp32": 67, "tf32": 495, "bf16": 989}  # TFLOP/s of an H200, by its datasheet


def benchmarks(text):
    """Returns the numbers of each benchmark of Go by name and unit."""
    found = {}
    for m in re.finditer(r"^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(\d.*)", text, re.M):
        words = m[2].split()
        try:
            found[m[1]] = {unit: float(value) for value, unit in zip(words[::2], words[1::2])}
        except ValueError:  # the line was cut off, or something else was printed into it
            continue
    return found


def times(text):
    """Returns the milliseconds in each line of another program's output, by name."""
    return {m[1]: float(m[2]) for m in re.finditer(r"^(\S.*?) +([\d.]+) ms", text, re.M)}


class Table:
    """Prints the rows of docs/gpu.md, each with its figures, and counts which goals are reached."""

    def __init__(self, folders):
        def text(part):
            return "\n".join((f / f"{part}.txt").read_text(encoding="utf-8", errors="replace") for f in folders if (f / f"{part}.txt").exists())

        self.ours, self.torch, self.cub = benchmarks(text("bench")), times(text("torch")), times(text("cub"))
        self.tested, self.trained, self.sanitized = text("tests"), text("train") + "\n" + text("torch"), text("sanitize")
        self.counts, self.row = {"yes": 0, "no": 0, "missing": 0}, ""

    def line(self, row, figure, measured, bound="", goal="", reached=None):
        """Prints a figure of a row. reached says whether it reaches its goal (None: there is no goal), and measured is "" if it is missing."""
        verdict = "missing" if not measured else "" if reached is None else "yes" if reached else "no"
        if verdict:
            self.counts[verdict] += 1
        print(f"| {row if row != self.row else ''} | {figure} | {measured or '-'} | {bound} | {goal} | {verdict} |")
        self.row = row

    def rate(self, row, name, goal=None):
        """Prints the rate of an operation relative to a copy."""
        b = self.ours.get(name, {})
        if "of-copy" not in b:
            return self.line(row, name, "", goal=goal or "")
        self.line(row, name, f"{b['of-copy']:.3f} of a copy: {b['GB/s']:.0f} GB/s", f"{b['copy-GB/s']:.0f} GB/s", goal or "", goal and b["of-copy"] >= goal)

    def beside(self, row, name, program, theirs, goal=None):
        """Prints how many times as fast an operation is as another program's."""
        ours = self.ours.get(name, {}).get("ms")
        if not ours or not theirs:
            return self.line(row, name, "", program, f"{goal}×" if goal else "")
        self.line(row, name, f"{theirs / ours:.2f}×: {ours:.3f} ms", f"{program}: {theirs:.3f} ms", f"{goal}×" if goal else "", goal and theirs / ours >= goal)

    def flops(self, row, name, precision, goal=None):
        """Prints the rate of products relative to the peak of the chip."""
        got = self.ours.get(name, {}).get("TFLOP/s")
        if got is None:
            return self.line(row, name, "", goal=goal or "")
        self.line(row, name, f"{got / PEAK[precision]:.3f} of the chip: {got:.1f} TFLOP/s", f"{PEAK[precision]} TFLOP/s", goal or "", goal and got >= goal * PEAK[precision])

    def memory(self):
        for row, encodings, goal in (("Step/adam, k = 1, 4, 8: fp32", ("fp32",), 0.92), ("Step/adam, k = 1, 4, 8: bf16, int8", ("bf16", "int8"), 0.85)):
            for name in (f"Step/adam/{e}/k={k}" for e in encodings for k in (1, 4, 8)):
                self.rate(row, name, goal)
                self.beside(row, name, "PyTorch", self.torch.get(name), 1.25)
        for name in [f"{rule}/{e}/k=4" for rule in ("sgd", "momentum") for e in ("fp32", "bf16", "int8")] + ["adam/sign/k=8"]:
            self.rate("Step/sgd, momentum, k = 4; sign", f"Step/{name}", 0.90)
        row = "Encode bf16, int8, with feedback"
        for name in ("Encode/encode_bf16", "Encode/encode_int8"):
            self.rate(row, name, 0.90)
            self.beside(row, name, "PyTorch", self.torch.get(name))
            self.beside(row, name, "PyTorch, compiled", self.torch.get(f"{name} compiled"))
        for encoding, goal in (("fp16", 0.95), ("sign", 0.90), ("int8_random", 0.85)):
            self.rate("Encode fp16, sign, int8 at random, with feedback", f"Encode/encode_{encoding}", goal)
        self.rate("Norms (distance to a saved copy)", "Norms", 0.90)
        self.rate("Finite", "Finite", 0.90)

    def chosen(self):
        for share in SHARES:
            row, name = "Select alone, 0.1, 1, 10 %", f"Select/alone/{share}"
            b = self.ours.get(name, {})
            rate = b.get("of-copy", 0)
            self.line(row, name, rate and f"{rate:.3f} of one pass: {b['ms']:.3f} ms", f"{b['copy-GB/s']:.0f} GB/s" if rate else "")
            self.beside(row, name, "torch.topk", self.torch.get(name), 5)
            self.beside(row, name, "CUB", self.cub.get(name), 1)
        for share in SHARES:
            row, name = "Select with feedback, 0.1, 1, 10 %", f"Select/feedback/{share}"
            self.rate(row, name, 0.50 if float(share) >= 0.1 else 0.70)
            self.beside(row, name, "PyTorch", self.torch.get(name))
        for share in SHARES:
            self.rate("Encode top-k in chunks, 0.1, 1, 10 %, with feedback", f"EncodeLargest/{share}", 0.30)
        for rank, goal in ((2, 0.20), (4, 0.15)):
            row, name = "Encode powersgd, rank 2, 4, chunks of 64 × 1024, with feedback", f"EncodeLowRank/{rank}"
            self.rate(row, name, goal)
            self.beside(row, name, "PyTorch", self.torch.get(name))
        self.rate("Encode sparse, a hundredth touched", "EncodeNamed/0.01", 0.35)
        for chunks in (1, 16, 64):
            self.rate("Link: payloads of a layer of 1, 16, 64 chunks to the host", f"Link/chunks={chunks}", 0.95 if chunks == 64 else None)

        row, name = "A program's parameters to the GPU and its gradient back, in 64 tensors of 4 MB each", "Program/link"
        ours, pinned = self.torch.get(name), self.torch.get(f"{name} pinned")
        if ours and pinned:
            self.line(row, name, f"{pinned / ours:.3f} of pinned copies: {ours:.3f} ms", f"{pinned:.3f} ms", 0.9, pinned / ours >= 0.9)
        else:
            self.line(row, name, "", goal=0.9)

    def products(self):
        for size in SIZES:
            self.flops("Product/gemm_fp32, 4096 and odd sizes", f"Product/gemm_fp32/{size}", "fp32", 0.5 if "000x" in size or "096x" in size else None)
        for size in SIZES:
            for precision in PRECISIONS:
                row, own, library = "Product/cublas_fp32, cublas_tf32, cublas_bf16, same sizes", f"Product/gemm_{precision}/{size}", f"Product/cublas_{precision}/{size}"
                self.flops(row, library, precision)
                self.beside(row, library, "the kernels", self.ours.get(own, {}).get("ms"))
        for precision in ("tf32", "bf16"):
            for size in SIZES:
                self.flops(f"Product/gemm_{precision}", f"Product/gemm_{precision}/{size}", precision)
                self.beside(f"Product/gemm_{precision}", f"Product/gemm_{precision}/{size}", "PyTorch", self.torch.get(f"Product/gemm_{precision}/{size}"))
        for precision in PRECISIONS:
            for size in SIZES:
                row, name = "Product/gemm_fp32_large, gemm_tf32_large, gemm_bf16_large", f"Product/gemm_{precision}_large/{size}"
                self.beside(row, name, "without large", self.ours.get(f"Product/gemm_{precision}/{size}", {}).get("ms"), 1 if size == SIZES[0] else None)

    def gradients(self):
        row = "Gradient of cnn, charlm, from the host's memory and back, in fp32, tf32, bf16"
        for model in ("cnn/batch=64", "cnn/batch=256", "charlm/batch=32"):
            for precision in PRECISIONS:
                own = f"Gradient/{model}/{precision}"
                default = f"{own}/cublas" if f"{own}/cublas" in self.ours else own
                self.beside(row, default, "PyTorch, eager", self.torch.get(f"{own} eager"), 1)
                for program in ("pinned", "graph"):
                    self.beside(row, default, f"PyTorch, {program}", self.torch.get(f"{own} {program}"))
                if default != own:
                    self.beside(row, own, "PyTorch, eager", self.torch.get(f"{own} eager"))

        row = "Local step of cnn, charlm, a sixteenth of 16 with Adam, in fp32, tf32, bf16"
        for model in ("cnn/batch=64", "cnn/batch=256", "charlm/batch=32"):
            for precision in PRECISIONS:
                own = f"LocalStep/{model}/{precision}"
                self.beside(row, own, "PyTorch, eager", self.torch.get(f"{own} eager"), 1)
                self.beside(row, own, "a gradient, from the host's memory and back", self.ours.get(f"Gradient/{model}/{precision}", {}).get("ms"), 1)

    def runs(self):
        losses = dict(re.findall(r'^trained (\S+): "final_loss":([^,]+)', self.trained, re.M))
        for model in ("cnn", "charlm"):
            killed, calm = losses.get(f"{model}-killed"), losses.get(f"{model}-calm")
            measured = killed and calm and f"loss {killed}"
            self.line("cnn and charlm train through a killed server", model, measured, f"a calm run's: {calm}" if calm else "", "equal", killed == calm)
        loss = losses.get("program")
        self.line("A program in PyTorch takes local steps on the GPU, through a killed server", "gpt.py", loss and f"loss {loss}", "", "it ends", loss and True)
        for tool in ("memcheck", "racecheck", "synccheck"):
            log = re.search(rf"^=== compute-sanitizer {tool}$(.*?)(?=^===[^=]|\Z)", self.sanitized, re.M | re.S)
            summary = log and re.search(r"SUMMARY: (.*)", log[1])
            clean = log and summary and re.match(r"0 (errors|hazards)", summary[1]) and re.search("^PASS$", log[1], re.M)
            self.line("compute-sanitizer: memcheck, racecheck, synccheck", tool, log and (summary[1] if summary else "did not end"), "", "0, and the tests pass", bool(clean))
        counts = {word: len(re.findall(rf"^--- {word}", self.tested, re.M)) for word in ("PASS", "FAIL", "SKIP")}
        both = len(re.findall("^PASS$", self.tested, re.M)) == 2
        self.line("Tests", "cuda, cuda/engine", self.tested and ", ".join(f"{n} {word}" for word, n in counts.items()), "", "none fails", both)


def main(folders):
    table = Table(folders)
    print("| Row | Figure | Measured | Bound | Goal | Reached |\n| --- | --- | --- | --- | --- | --- |")
    for part in (table.memory, table.chosen, table.products, table.gradients, table.runs):
        part()
    print("\n{yes} goals are reached, {no} are not, {missing} figures are missing.".format(**table.counts))


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # whatever the machine's locale
    main([Path(f) for f in sys.argv[1:]])
