"""A replica of compare.py's for torchft: its manager, its DDP, and Gloo, as in torchft's own example.

    TORCHFT_LIGHTHOUSE=http://localhost:PORT python3 with_torchft.py small STEPS RANK LOG
"""

import sys
from datetime import timedelta

import nets
import torch
import torchft
from steps import Log

name, steps, rank = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
build, loss = nets.net(name)
torch.manual_seed(1)
module = build()
inner = nets.optimizer(module)


def load(state):
    module.load_state_dict(state["module"])
    inner.load_state_dict(state["optimizer"])


store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
manager = torchft.Manager(
    pg=torchft.ProcessGroupGloo(timeout=timedelta(seconds=60)),
    load_state_dict=load,
    state_dict=lambda: {"module": module.state_dict(), "optimizer": inner.state_dict()},
    min_replica_size=1,
    rank=0,
    world_size=1,
    store_addr="localhost",
    store_port=store.port,
    hostname="localhost",
    replica_id=f"replica_{rank}",
)
parallel, optimizer = torchft.DistributedDataParallel(manager, module), torchft.Optimizer(manager, inner)
log = Log(sys.argv[4])
while manager.current_step() < steps:
    before = manager.current_step()
    optimizer.zero_grad()  # begins to agree on who takes part
    loss(parallel, nets.Batch(name, before, rank)).backward()
    optimizer.step()
    if manager.current_step() > before:
        log.step(manager.current_step(), manager.num_participants())
manager.shutdown(wait=False)
