#!/usr/bin/env python3
"""A plain data-parallel training script, as people write them: it knows nothing of the launcher it runs under.

A small network learns to tell ten noisy patterns apart, on the CPU, with Gloo. Every epoch rank 0 writes a
checkpoint; a run that finds one goes on from there. At the end rank 0 prints one line with the loss, the
accuracy on held-out samples and a checksum of the weights: it must be the same however often the job was
interrupted on the way.

--fail-at EPOCH makes one rank die in the middle of that epoch, the first time only.
"""

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def make_data(samples, noise=0.9, classes=10, features=64):
    generator = torch.Generator().manual_seed(20)
    patterns = torch.randn(classes, features, generator=generator)
    labels = torch.arange(samples) % classes
    images = patterns[labels] + noise * torch.randn(samples, features, generator=generator)
    held_out = samples // 5
    return TensorDataset(images[held_out:], labels[held_out:]), (images[:held_out], labels[:held_out])


def save_checkpoint(path, epoch, model, optimizer):
    temporary = f"{path}.{os.getpid()}"
    torch.save(
        {"epoch": epoch, "model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, temporary
    )
    os.replace(temporary, path)


def load_checkpoint(path, model, optimizer):
    if not os.path.exists(path):
        return 0
    state = torch.load(path, map_location="cpu")
    model.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--fail-at", type=int, default=-1)
    parser.add_argument("--fail-rank", type=int, default=1)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(7)
    # The order in which gradients are summed is not fixed with more than two ranks; in double precision no printed digit
    # depends on it.
    torch.set_default_dtype(torch.float64)

    training, (test_images, test_labels) = make_data(args.samples)
    sampler = DistributedSampler(training, seed=3)
    loader = DataLoader(training, batch_size=args.batch, sampler=sampler)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()

    first = load_checkpoint(args.checkpoint, model, optimizer)
    restarts = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    print(f"rank {rank} of {world} starts at epoch {first}, restart {restarts}", flush=True)
    for epoch in range(first, args.epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for step, (images, labels) in enumerate(loader):
            if epoch == args.fail_at and step == 2 and rank == args.fail_rank and restarts == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            loss = loss_of(model(images), labels)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        if rank == 0:
            save_checkpoint(args.checkpoint, epoch, model, optimizer)
            print(f"epoch {epoch} loss {total.item() / world / len(loader):.6f}", flush=True)
        dist.barrier()  # nobody runs ahead of the checkpoint

    if rank == 0:
        with torch.no_grad():
            right = (model(test_images).argmax(1) == test_labels).double().mean().item()
            checksum = sum(parameter.double().abs().sum().item() for parameter in model.parameters())
        print(f"result world {world} accuracy {right:.4f} weights {checksum:.9f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
