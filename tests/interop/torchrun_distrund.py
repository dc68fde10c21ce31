#!/usr/bin/env python3
"""Real torchrun with distrund as its c10d store: two agents form one job, and run it to its end.

    torchrun_distrund.py --server "build/dev/bin/distrund --host 127.0.0.1 --port 0" --torchrun "python3 torchrun_debian.py"
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sys

from launching import torch_version
from store_servers import CommandServer

HERE = pathlib.Path(__file__).resolve().parent
WORKER = 'echo "worker $RANK of $WORLD_SIZE, node $GROUP_RANK"'
EXPECTED = ["worker 0 of 2, node 0", "worker 1 of 2, node 1"]


def main():
    parser = argparse.ArgumentParser(description="torchrun's own rendezvous through distrund")
    parser.add_argument("--server", required=True, help="distrund's command line")
    parser.add_argument("--torchrun", default=shlex.join([sys.executable, str(HERE / "torchrun_debian.py")]))
    parser.add_argument("--timeout", type=float, default=240)
    args = parser.parse_args()
    print("torch", torch_version(sys.executable))
    server = CommandServer(args.server)
    command = shlex.split(args.torchrun) + [
        "--nnodes=2", "--nproc_per_node=1", "--rdzv_backend=c10d", "--rdzv_conf=is_host=false",
        f"--rdzv_endpoint=127.0.0.1:{server.port}", "--rdzv_id=two-agents", "--no_python", "sh", "-c", WORKER,
    ]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    agents = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = []
    try:
        for agent in agents:
            out, err = agent.communicate(timeout=args.timeout)
            if agent.returncode != 0:
                print(f"FAIL: torchrun exited with status {agent.returncode}\n{out}\n{err[-3000:]}")
                return 1
            said += [line for line in out.splitlines() if line.startswith("worker")]
    except subprocess.TimeoutExpired:
        print(f"FAIL: torchrun was not done after {args.timeout:.0f} s")
        return 1
    finally:
        for agent in agents:
            agent.kill()
        server.close()
    if sorted(said) != EXPECTED:
        print(f"FAIL: workers said {said}, expected {EXPECTED}")
        return 1
    print("two agents of torchrun formed one job through distrund: " + "; ".join(sorted(said)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
