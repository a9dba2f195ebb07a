"""A process of compare.py's for PyTorch's own DDP with Gloo. torchrun starts all anew when one dies, and they go on from
the checkpoint, which the first writes every so many steps, and syncs.

    torchrun --nproc-per-node 2 --max-restarts 9 with_ddp.py small STEPS EVERY LOG CHECKPOINT
"""

import os
import sys

import nets
import torch
from steps import Log

name, steps, every, checkpoint = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[5]
torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
log = Log(sys.argv[4] + f".{rank}")
build, loss = nets.net(name)
torch.manual_seed(1)
module = build()
optimizer, step = nets.optimizer(module), 0
if os.path.exists(checkpoint):
    state = torch.load(checkpoint)
    module.load_state_dict(state["module"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]
parallel = torch.nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)
while step < steps:
    optimizer.zero_grad()
    loss(parallel, nets.Batch(name, step, rank)).backward()
    optimizer.step()
    step += 1
    log.step(step, torch.distributed.get_world_size())
    if rank == 0 and step % every == 0:
        with open(checkpoint + ".new", "wb") as f:
            torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, f)
            f.flush()
            os.fsync(f.fileno())
        os.replace(checkpoint + ".new", checkpoint)
torch.distributed.destroy_process_group()
