#!/usr/bin/env python3
"""PyTorch's TCPStore server as a process of its own, for tests of other clients.

    torch_store_server.py [--backend legacy|libuv] [--host 127.0.0.1] [--port 0]

Prints "PORT <n> <backend> <torch version>" on stdout when it listens and serves until its standard input is
closed, so it cannot outlive the test that started it. Exit status 77: this Python has no torch, or this torch
has no such backend (the reason is on stderr). The server keeps no key of its own: not even "init/".
"""

import argparse
import datetime
import sys


def start(torch_distributed, backend, host, port):
    options = dict(
        is_master=True,
        wait_for_workers=False,
        timeout=datetime.timedelta(seconds=30),
    )
    newer = hasattr(torch_distributed.TCPStore, "libuvBackend")
    if newer:
        options["use_libuv"] = backend == "libuv"
    elif backend == "libuv":
        return None
    return torch_distributed.TCPStore(host, port, None, **options)


def main():
    parser = argparse.ArgumentParser(description="PyTorch's TCPStore server on a free port")
    parser.add_argument("--backend", choices=["legacy", "libuv"], default="libuv")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"skipped: {sys.executable} has no usable torch: {error}", file=sys.stderr)
        return 77
    store = start(dist, args.backend, args.host, args.port)
    if store is None:
        print(f"skipped: torch {torch.__version__} has no libuv backend", file=sys.stderr)
        return 77
    print("PORT", store.port, args.backend, torch.__version__, flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
