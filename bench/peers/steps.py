"""The log of a process that compare.py measures: one line for each process that writes it, and one for each step."""

import os
import time


class Log:
    """Writes a log."""

    def __init__(self, path):
        self.file = open(path, "a", buffering=1)
        self.file.write(f"process {os.getpid()}\n")

    def step(self, number, workers):
        """Notes that a step has ended, in which so many workers took part."""
        self.file.write(f"{time.time():.6f} {number} {workers}\n")


class Reader:
    """Reads a log while it grows: the process that writes it, and the steps so far as (time, number, workers)."""

    def __init__(self, path):
        self.path, self.at, self.process, self.steps = path, 0, None, []

    def read(self):
        """Reads what is new, and returns the reader."""
        if not os.path.exists(self.path):
            return self
        with open(self.path) as f:
            f.seek(self.at)
            new = f.read()
        new = new[: new.rfind("\n") + 1]  # without a line that is being written
        self.at += len(new)
        for line in new.splitlines():
            if line.startswith("process "):
                self.process = int(line.split()[1])
            else:
                at, number, workers = line.split()
                self.steps.append((float(at), int(number), int(workers)))
        return self
