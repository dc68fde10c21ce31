"""group_load.cc's counterpart: PyTorch's init_process_group("gloo"), from the moment when all ranks have torch imported."""

import fcntl
import os
import sys
import time

import torch.distributed as dist

folder, rank = sys.argv[1], os.environ["RANK"]
with open(f"{folder}/gate") as gate:
    open(f"{folder}/here.{rank}", "w").close()
    fcntl.flock(gate, fcntl.LOCK_SH)
took = [time.monotonic_ns()]
dist.init_process_group("gloo")
took.append(time.monotonic_ns())
dist.barrier()
took.append(time.monotonic_ns())
dist.new_group()
took.append(time.monotonic_ns())
path = f"{folder}/took.{rank}"
with open(path + ".new", "w") as file:
    print(*took, file=file)
os.rename(path + ".new", path)
# Nobody leaves while others may still be in their last call.
while sum(name.startswith("took.") and not name.endswith(".new") for name in os.listdir(folder)) < dist.get_world_size():
    time.sleep(0.1)
