#!/usr/bin/env python3
"""Compares Kintsugi's checkpoints with torch.save and with PyTorch's Distributed Checkpoint, on this machine's disk.

    pip install torch
    python3 bench/peers/saves.py --dir FOLDER

Each saves as many bytes of float32 and makes them durable, and restores them into memory that is there, from the page
cache. Then a bit of what was saved is flipped, and it is restored again. Needs bin/kintsugi (make build).
"""

import argparse
import glob
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed.checkpoint as dcp

HERE = os.path.dirname(os.path.abspath(__file__))


def torch_save(state, folder):
    with open(os.path.join(folder, "state"), "wb") as f:
        torch.save(state, f)
        f.flush()
        os.fsync(f.fileno())


def torch_load(state, folder):
    loaded = torch.load(os.path.join(folder, "state"), mmap=False)
    for name, tensor in state.items():
        tensor.copy_(loaded[name])


def dcp_save(state, folder):
    dcp.save(state, storage_writer=dcp.FileSystemWriter(folder, sync_files=True), no_dist=True)


def dcp_load(state, folder):
    dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)


def kintsugi(a):
    """Returns the seconds of one save and one restore."""
    command = [a.kintsugi, "bench", "checkpoint", "--sizes", str(a.mib), "--rounds", "1", "--format", "json", "--dir", a.dir]
    rows = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    of = {(r["name"], r["variant"]): r["seconds"] for r in rows}
    return of["save", "whole shard"], of["restore", "from the cache"]


def kintsugi_flipped(a):
    """Returns what kintsugi says of a checkpoint of a small run, in which a bit is flipped."""
    folder = tempfile.mkdtemp(prefix="saves-", dir=a.dir)
    run = os.path.join(folder, "run")
    subprocess.run([a.kintsugi, "train", "--steps", "4", "--out", run], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    flip(os.path.join(run, "checkpoints", "segment"))
    got = subprocess.run([a.kintsugi, "checkpoint", "export", run, "--out", os.path.join(folder, "out.safetensors")], capture_output=True, text=True)
    shutil.rmtree(folder)
    return f"status {got.returncode}: {got.stderr.strip().replace(folder, '…')}"


def flip(folder):
    """Flips a bit of the largest file of a folder, amid the values."""
    with open(max(glob.glob(os.path.join(folder, "*")), key=os.path.getsize), "r+b") as f:
        f.seek(os.path.getsize(f.name) // 3)
        b = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([b ^ 1]))


def flipped(state, folder, load):
    """Returns what load says of what is in the folder, once a bit of it is flipped."""
    flip(folder)
    into = {name: torch.empty_like(tensor) for name, tensor in state.items()}
    try:
        load(into, folder)
    except Exception as e:  # whatever it says
        return f"an error: {e}"
    return f"{sum((into[name] != tensor).sum().item() for name, tensor in state.items())} wrong value, and no error"


def seconds(f, *args):
    start = time.perf_counter()
    f(*args)
    return time.perf_counter() - start


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--mib", type=int, default=512)
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--dir", default=tempfile.gettempdir(), help="folder on the disk to measure")
    p.add_argument("--kintsugi", default=os.path.join(HERE, "..", "..", "bin", "kintsugi"))
    a = p.parse_args()
    if not shutil.which(a.kintsugi):
        sys.exit(f"saves.py: there is no {a.kintsugi}: make build, or say where it is with --kintsugi")
    values = a.mib << 18  # of float32
    state = {f"tensor{i}": torch.rand(values // 16) for i in range(16)}
    took, says = {"torch.save, fsync": [], "distributed checkpoint": [], "kintsugi": []}, {"kintsugi": kintsugi_flipped(a)}
    for n in range(a.rounds):
        print(f"round {n + 1} of {a.rounds}", file=sys.stderr)
        for name, save, load in ("torch.save, fsync", torch_save, torch_load), ("distributed checkpoint", dcp_save, dcp_load):
            folder = tempfile.mkdtemp(prefix="saves-", dir=a.dir)
            took[name].append((seconds(save, state, folder), seconds(load, state, folder)))
            says[name] = flipped(state, folder, load)
            shutil.rmtree(folder)
        took["kintsugi"].append(kintsugi(a))
    print(f"{a.mib} MiB, medians of {a.rounds} rounds")
    for name, all_ in took.items():
        save, restore = (statistics.median(t) for t in zip(*all_))
        print(f"{name}: saved in {save:.2f} s ({a.mib / 1024 / save:.1f} GiB/s), restored in {restore:.2f} s ({a.mib / 1024 / restore:.1f} GiB/s)")
        print(f"    with a bit flipped: {says[name]}")


if __name__ == "__main__":
    main()
