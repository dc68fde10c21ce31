#!/usr/bin/env python3
"""Runs ddp_train.py under a launcher, once undisturbed and once with a worker killed on the way, and compares.

    ddp_check.py --launcher 'LAUNCHER ARGS…' [--python PYTHON] [--workers 2]

The launcher gets torchrun's options, in the spelling that 1.13 knows, and PYTHON (default: the one this runs in)
in PYTHON_EXEC. Exit status: 0, 1 if something differs, 77 if PYTHON has no torch.
"""
import argparse
import pathlib
import re
import sys
import tempfile

from launching import run_job, torch_version

SCRIPT = pathlib.Path(__file__).with_name("ddp_train.py")
EPOCHS, FAIL_AT = 4, 2


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def train(args, checkpoint, *script_args):
    options = ["--standalone", "--nproc_per_node", str(args.workers), "--max_restarts", "1", "--monitor_interval", "0.1"]
    script = [str(SCRIPT), "--checkpoint", checkpoint, "--epochs", str(EPOCHS), *script_args]
    status, out, err, seconds = run_job(args.launcher, options + script, args.python, args.timeout)
    check(status == 0, f"exit status {status}\n{out}\n{err[-4000:]}")
    return out, seconds


def result_line(output):
    found = re.findall(r"result .*", output)
    check(len(found) == 1, f"expected one result line in:\n{output}")
    return found[0]


def starts(output, restart):
    """(rank, first epoch) of every worker that started in this attempt."""
    # The workers share one stdout and Python writes a line's end by itself, so lines may touch.
    lines = re.findall(rf"rank (\d+) of \d+ starts at epoch (\d+), restart {restart}(?!\d)", output)
    return sorted((int(rank), int(epoch)) for rank, epoch in lines)


def compare(args):
    ranks = range(args.workers)
    with tempfile.TemporaryDirectory(prefix="ddp_check.") as folder:
        plain, plain_s = train(args, f"{folder}/plain.pt")
        failure = ["--fail-at", str(FAIL_AT), "--fail-rank", str(args.workers - 1)]
        killed, killed_s = train(args, f"{folder}/killed.pt", *failure)
    for output in (plain, killed):
        check(starts(output, 0) == [(rank, 0) for rank in ranks], f"not every rank started:\n{output}")
    check(starts(killed, 1) == [(rank, FAIL_AT) for rank in ranks], f"no resumed attempt:\n{killed}")
    check(result_line(plain) == result_line(killed), f"{result_line(plain)}\n{result_line(killed)}")
    accuracy = float(re.search(r"accuracy ([\d.]+)", plain).group(1))
    check(accuracy > 0.95, f"accuracy {accuracy}")
    print(f"{result_line(plain)}; the same after a killed worker ({plain_s:.1f} s and {killed_s:.1f} s)")


def main():
    parser = argparse.ArgumentParser(
        description="DDP with a restart, under any launcher with torchrun's options"
    )
    parser.add_argument("--launcher", required=True, help="command, for example 'build/dev/bin/distrun'")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=240, help="seconds for one run")
    args = parser.parse_args()
    print(f"torch {torch_version(args.python)}, {args.workers} workers, {args.launcher}", flush=True)
    try:
        compare(args)
    except (AssertionError, TimeoutError) as error:
        print(f"FAIL {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
