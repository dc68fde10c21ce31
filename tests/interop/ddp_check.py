#!/usr/bin/env python3
"""Runs ddp_train.py under a launcher, once undisturbed and once with a worker killed on the way, and compares.

    ddp_check.py --launcher 'LAUNCHER ARGS…' [--python PYTHON] [--workers 2]

The launcher gets torchrun's options, in the spelling that 1.13 knows, and PYTHON (default: the one this runs in)
in PYTHON_EXEC.
Exit status: 0, 1 if something differs, 77 if PYTHON has no torch.
"""

import argparse
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

SCRIPT = pathlib.Path(__file__).with_name("ddp_train.py")
EPOCHS, FAIL_AT = 4, 2


def torch_version(python):
    asked = subprocess.run(
        [python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True
    )
    if asked.returncode != 0:
        print(f"skipped: {python} has no usable torch: {asked.stderr.strip().splitlines()[-1]}")
        sys.exit(77)
    return asked.stdout.strip()


def launch(args, checkpoint, *script_args):
    command = shlex.split(args.launcher) + [
        "--standalone", "--nproc_per_node", str(args.workers), "--max_restarts", "1", "--monitor_interval", "0.1",
        str(SCRIPT), "--checkpoint", str(checkpoint), "--epochs", str(EPOCHS), *script_args,
    ]  # fmt: skip
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCHELASTIC_"))
    }
    variables.update(PYTHON_EXEC=args.python, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
    variables.setdefault("RES_OPTIONS", "timeout:1 attempts:2")  # PyTorch looks up the name of every peer
    began = time.monotonic()
    done = subprocess.run(
        command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=args.timeout
    )
    took = time.monotonic() - began
    if done.returncode != 0:
        raise AssertionError(
            f"exit status {done.returncode} of {shlex.join(command)}\n{done.stdout}\n{done.stderr[-4000:]}"
        )
    return done.stdout, took


def result_line(output):
    found = re.findall(r"result .*", output)
    assert len(found) == 1, f"expected one result line in:\n{output}"
    return found[0]


def starts(output, restart):
    """(rank, first epoch) of every worker that started in this attempt."""
    # Two workers share one stdout: Python writes a line's end by itself, so lines may touch.
    lines = re.findall(rf"rank (\d+) of \d+ starts at epoch (\d+), restart {restart}(?!\d)", output)
    return sorted((int(rank), int(epoch)) for rank, epoch in lines)


def compare(args):
    ranks = range(args.workers)
    with tempfile.TemporaryDirectory(prefix="ddp_check.") as folder:
        plain, plain_s = launch(args, f"{folder}/plain.pt")
        assert starts(plain, 0) == [(rank, 0) for rank in ranks], plain
        killed, killed_s = launch(
            args, f"{folder}/killed.pt", "--fail-at", str(FAIL_AT), "--fail-rank", str(args.workers - 1)
        )
        assert starts(killed, 0) == [(rank, 0) for rank in ranks], killed
        assert starts(killed, 1) == [(rank, FAIL_AT) for rank in ranks], f"no resumed attempt:\n{killed}"
        assert result_line(plain) == result_line(killed), f"{result_line(plain)}\n{result_line(killed)}"
        accuracy = float(re.search(r"accuracy ([\d.]+)", plain).group(1))
        assert accuracy > 0.95, f"accuracy {accuracy}"
    print(f"{result_line(plain)}; the same after a killed worker ({plain_s:.1f} s and {killed_s:.1f} s)")


def main():
    parser = argparse.ArgumentParser(
        description="DDP with a restart, under any launcher with torchrun's options"
    )
    parser.add_argument("--launcher", required=True, help="command, for example 'build/dev/bin/distrun'")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=50, help="seconds for one run")
    args = parser.parse_args()
    print(f"torch {torch_version(args.python)}, {args.workers} workers, {args.launcher}", flush=True)
    try:
        compare(args)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(f"FAIL {error}")
        for name in ("stdout", "stderr"):
            if isinstance(error, subprocess.TimeoutExpired) and getattr(error, name):
                print(f"{name} so far:\n{getattr(error, name).decode(errors='replace')[-3000:]}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
