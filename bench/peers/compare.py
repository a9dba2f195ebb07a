#!/usr/bin/env python3
"""Compares Kintsugi with torchft and with PyTorch's DDP under torchrun, on this machine, with two workers.

    pip install torch torchft-nightly
    python3 bench/peers/compare.py                      # a small network
    python3 bench/peers/compare.py --net gpt2 --steps 40 --kills 1 --every 8 --rounds 1

Each system trains the same network on CPUs, with one thread for each worker, and everything on this host. It is measured
without failures, and then while a process is killed (SIGKILL) several times and started again at once. The systems take
turns, so that each has its share of the machine's moods. Needs bin/kintsugi (make build).
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import steps

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS = 2
LIMIT = 900  # seconds of one run


class Kill:
    """What came of a process that was killed at a time, in a run with these steps (time, number, workers)."""

    def __init__(self, taken, at):
        reached = max(n for t, n, _ in taken if t <= at)
        after = [s for s in taken if s[0] > at]
        self.next = after[0][0] - at  # seconds to the next step that anybody takes
        self.lost = reached + 1 - after[0][1]  # steps that were taken back
        for t, n, workers in after:
            self.whole = t - at  # seconds until all workers take part in a new step
            if n > reached and workers == WORKERS:
                break


class Run:
    """A run: its steps (time, number, workers), and when processes were killed."""

    def __init__(self, taken, killed):
        taken = sorted(taken)
        first, last = taken[len(taken) // 10], taken[-1]
        self.rate = (last[1] - first[1]) / (last[0] - first[0])  # steps per second, without those that were taken back
        self.kills = [Kill(taken, at) for at in killed]


class Processes:
    """The processes of a run. All that are left end with it, and with what they have started."""

    def __init__(self, folder):
        self.folder, self.started = folder, []

    def start(self, command, **env):
        with open(os.path.join(self.folder, "output"), "ab") as output:
            p = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True, env=os.environ | env)
        self.started.append(p)
        return p

    def fail(self, why):
        sys.exit(f"compare.py: {why}; look at {self.folder}/output")

    def until(self, over, victim=None, kill_at=(), again=lambda: None):
        """Waits until over() is true, and kills the process that writes the log victim when it has taken the next of the steps kill_at. Returns the times."""
        killed, deadline = [], time.time() + LIMIT
        while not over():
            if time.time() > deadline:
                self.fail(f"a run takes more than {LIMIT} seconds")
            if len(killed) < len(kill_at) and victim.read().steps and victim.steps[-1][1] >= kill_at[len(killed)]:
                killed.append(time.time())
                os.kill(victim.process, signal.SIGKILL)
            again()
            time.sleep(0.002)
        return killed

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for p in self.started:
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()


def free_port():
    with socket.socket() as s:
        s.bind(("localhost", 0))
        return s.getsockname()[1]


class DDP:
    """PyTorch's DDP, with what torchrun does when a process dies: all begin anew, from the checkpoint."""

    victims = ["kill worker/1"]

    def __init__(self, a):
        self.a, self.name = a, f"DDP and torchrun, a checkpoint every {a.every} steps"

    def run(self, processes, kill_at, _):
        log, checkpoint = os.path.join(processes.folder, "log"), os.path.join(processes.folder, "checkpoint")
        p = processes.start(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(WORKERS), "--max-restarts", "99"),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"localhost:{free_port()}", os.path.join(HERE, "with_ddp.py")),
                *(self.a.net, str(self.a.steps), str(self.a.every), log, checkpoint),
            ],
            # Otherwise the second attempt meets the addresses of the first in the store, and waits for them
            # (pytorch/pytorch#135712).
            TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        )
        # Both processes take each step. The other one may log its last one after the victim is dead.
        victim = steps.Reader(f"{log}.1")
        killed = processes.until(lambda: p.poll() is not None, victim, kill_at)
        if p.returncode:
            processes.fail(f"torchrun ended with status {p.returncode}")
        return Run(victim.read().steps, killed)


class TorchFT:
    """torchft: a lighthouse, and a replica for each worker, which is started again when it dies."""

    victims = ["kill worker/1"]

    def __init__(self, a, name, *flags):
        self.a, self.name, self.flags = a, name, flags

    def run(self, processes, kill_at, _):
        port = free_port()
        processes.start(["torchft_lighthouse", "--bind", f"[::]:{port}", *self.flags])
        logs = [os.path.join(processes.folder, f"log.{i}") for i in range(WORKERS)]

        def replica(i):
            command = [sys.executable, os.path.join(HERE, "with_torchft.py"), self.a.net, str(self.a.steps), str(i), logs[i]]
            return processes.start(command, TORCHFT_LIGHTHOUSE=f"http://localhost:{port}")

        replicas = [replica(i) for i in range(WORKERS)]

        def again():
            for i, p in enumerate(replicas):
                if p.poll() == -signal.SIGKILL:
                    replicas[i] = replica(i)
                elif p.returncode:
                    processes.fail(f"a replica of torchft ended with status {p.returncode}")

        killed = processes.until(lambda: any(p.poll() == 0 for p in replicas), steps.Reader(logs[1]), kill_at, again)
        first = {}
        for log in logs:  # a step is taken when the first replica has it
            for s in steps.Reader(log).read().steps:
                first[s[1]] = min(first.get(s[1], s), s)
        return Run(first.values(), killed)


class Kintsugi:
    """Kintsugi on this machine, with two servers. train kills what its faults say, and starts it again."""

    def __init__(self, a, name, victims, *flags):
        self.a, self.name, self.victims, self.flags = a, name, victims, flags

    def run(self, processes, kill_at, victim):
        out = os.path.join(processes.folder, "run")
        p = processes.start(
            [
                *(self.a.kintsugi, "train", "--workers", str(WORKERS), "--servers", "2", "--steps", str(self.a.steps), "--out", out),
                *("--checkpoint-every", str(self.a.every), "--eval-every", "0", *self.flags),
                *(word for n in kill_at for word in ("--fault", f"{victim} at step {n}")),
                *("--", sys.executable, os.path.join(HERE, "with_kintsugi.py"), self.a.net),
            ]
        )
        processes.until(lambda: p.poll() is not None)
        if p.returncode:
            processes.fail(f"kintsugi ended with status {p.returncode}")
        with open(os.path.join(out, "events.jsonl")) as f:
            events = [json.loads(line) for line in f]
        taken = [(e["seconds"], e["step"], len(e["counted"])) for e in events if e["kind"] == "step"]
        return Run(taken, [e["seconds"] for e in events if e["kind"] == "fault"])


def systems(a):
    house = ("--min_replicas", "1", "--quorum_tick_ms", "100", "--join_timeout_ms", "10000")  # of torchft's example
    return [
        DDP(a),
        TorchFT(a, "torchft, as in its example", *house),
        TorchFT(a, "torchft, --heartbeat_timeout_ms 1000", *house, "--heartbeat_timeout_ms", "1000"),
        Kintsugi(a, "kintsugi", ["kill worker/1", "kill server/0"]),
        Kintsugi(a, "kintsugi --replicas 2", ["lose server/0"], "--replicas", "2"),
    ]


def measure(system, a, kill_at, victim):
    folder = tempfile.mkdtemp(prefix="compare-")
    with Processes(folder) as processes:
        run = system.run(processes, kill_at, victim)
    if len(run.kills) < len(kill_at):
        sys.exit(f"compare.py: {system.name}: {len(run.kills)} of {len(kill_at)} kills; look at {folder}")
    shutil.rmtree(folder)
    return run


def shown(values, form=".2f"):
    span = f" ({min(values):{form}} to {max(values):{form}})" if max(values) != min(values) else ""
    return f"{statistics.median(values):{form}}{span}"


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--net", choices=["small", "gpt2"], default="small")
    p.add_argument("--steps", type=int, default=1300)
    p.add_argument("--kills", type=int, default=3, help="processes that are killed in a run, one after the other")
    p.add_argument("--every", type=int, default=50, help="steps between checkpoints")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--only", default="", help="systems whose names begin with this")
    p.add_argument("--kintsugi", default=os.path.join(HERE, "..", "..", "bin", "kintsugi"))
    a = p.parse_args()
    if not shutil.which("torchft_lighthouse"):
        sys.exit("compare.py: torchft is not installed: pip install torch torchft-nightly, and have its programs on PATH")
    if not shutil.which(a.kintsugi):
        sys.exit(f"compare.py: there is no {a.kintsugi}: make build, or say where it is with --kintsugi")
    kill_at = [a.steps * (i + 1) // (a.kills + 1) // a.every * a.every + a.every // 2 for i in range(a.kills)]  # between two checkpoints
    if sorted(set(kill_at)) != kill_at or kill_at and kill_at[-1] >= a.steps:
        p.error(f"{a.steps} steps with a checkpoint every {a.every} have no room for {a.kills} kills: more steps, or fewer of the others")
    chosen = [s for s in systems(a) if s.name.startswith(a.only)]
    runs = {}
    for n in range(a.rounds):
        for s in chosen:
            for victim in [None, *s.victims]:
                print(f"round {n + 1} of {a.rounds}: {s.name}: {victim or 'no failure'}", file=sys.stderr)
                runs.setdefault((s, victim), []).append(measure(s, a, kill_at if victim else [], victim))
    print(f"{a.net}, {a.steps} steps, {WORKERS} workers; medians of {a.rounds} runs; processes are killed at steps {', '.join(map(str, kill_at))}")
    for s in chosen:
        calm = statistics.median(r.rate for r in runs[s, None])
        print(f"{s.name}: {calm:.3g} steps/s")
        for victim in s.victims:
            rate = statistics.median(r.rate for r in runs[s, victim])
            kills = [k for r in runs[s, victim] for k in r.kills]
            print(
                f"    {victim}: next step after {shown([k.next for k in kills])} s, {shown([k.lost for k in kills], '.0f')} steps lost, "
                f"all workers take part in new steps after {shown([k.whole for k in kills])} s; {rate:.3g} steps/s, {rate / calm:.2f} of those without failures"
            )


if __name__ == "__main__":
    main()
