"""all_reduce by PyTorch's Gloo backend: distrun ... torch_reduce.py SECONDS BYTES...

The loop is collective_load.h's: a sample is a batch of some 20 us; for each size rank 0 prints the median, the fastest and
the 90th percentile in us for a call, and how many calls. PyTorch's own overhead for a call is in it, as its users have it.
"""

import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
for size in sys.argv[2:]:
    data = torch.zeros(int(size) // 4)

    def agreed(value):
        data[0] = value if rank == 0 else 0
        dist.all_reduce(data)
        result = int(data[0])
        data[0] = 0
        return result

    each = float("inf")
    for _ in range(3):
        dist.all_reduce(data)
    for _ in range(3):
        began = time.perf_counter()
        for _ in range(4):
            dist.all_reduce(data)
        each = min(each, (time.perf_counter() - began) * 1e6 / 4)
    batch = agreed(min(max(20 / each, 1), 1000))
    samples = agreed(min(max(float(sys.argv[1]) * 1e6 / (each * batch), 5), 100_000))
    took = []
    for _ in range(samples):
        began = time.perf_counter()
        for _ in range(batch):
            dist.all_reduce(data)
        took.append((time.perf_counter() - began) * 1e6 / batch)
    if rank == 0:
        took.sort()
        print(f"{took[len(took) // 2]:.3f} {took[0]:.3f} {took[len(took) * 9 // 10]:.3f} {samples * batch}", flush=True)
dist.barrier()
time.sleep(0.1)
